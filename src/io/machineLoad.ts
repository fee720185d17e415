/** How much of the machine other processes used while something was measured: whether its times can be trusted. */

import os from 'node:os';

export interface MachineLoad {
  readonly cores: number;
  /** Share of the time of all cores that other processes used, from 0 to 1. */
  readonly othersShare: number;
}

/** Above this share of all cores, times of a run are not those of a quiet machine. */
const QUIET_MOST = 0.15;

export const isQuiet = ({ othersShare }: MachineLoad): boolean => othersShare <= QUIET_MOST;

interface CoreTimes {
  readonly idleMs: number;
  readonly allMs: number;
}

/** Since the machine was started, all cores together. A container that hides them leaves 0. */
function coreTimes(): CoreTimes {
  let idleMs = 0;
  let allMs = 0;
  for (const { times } of os.cpus()) {
    idleMs += times.idle;
    allMs += times.user + times.nice + times.sys + times.irq + times.idle;
  }
  return { idleMs, allMs };
}

/** Starts to watch. @returns what gives the load since then */
export function watchMachine(): () => MachineLoad {
  const before = coreTimes();
  const ownBefore = process.cpuUsage();
  return () => {
    const after = coreTimes();
    const { user, system } = process.cpuUsage(ownBefore);
    const allMs = after.allMs - before.allMs;
    const othersMs = allMs - (after.idleMs - before.idleMs) - (user + system) / 1000;
    const cores = Math.max(1, os.cpus().length);
    return { cores, othersShare: allMs <= 0 ? 0 : Math.min(1, Math.max(0, othersMs / allMs)) };
  };
}
