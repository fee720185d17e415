/**
 * The six links, and for each what runs on it: tierkv's engine, the best single transfer, the naive way, and the stages of
 * which the slowest is the link's limit. A both-ways route is a pair of links that carry half of the bytes each.
 */

import type { DeviceRuns } from './deviceRuns.ts';
import type { DiskRuns } from './diskRuns.ts';
import type { Arrangement, LinkRig, PlaceName } from './rig.ts';
import type { Verification } from './row.ts';

export type StageName = 'device copy' | 'memcpy' | 'disk read' | 'disk write';

/** What routes run on. `disk` is there for routes that touch the disk. */
export interface Machine {
  readonly rig: LinkRig;
  readonly device: DeviceRuns;
  readonly disk: DiskRuns | undefined;
}

export interface Route {
  readonly link: string;
  readonly bothWays: boolean;
  readonly verify: Verification;
  readonly source: PlaceName;
  readonly target: PlaceName;
  readonly stages: readonly StageName[];
  readonly touchesHbm: boolean;
  single(machine: Machine, bytes: number): Promise<void>;
  /** @param slots where the units lie */
  naive(machine: Machine, slots: readonly number[]): Promise<void>;
}

type Plain = Pick<Route, 'single' | 'naive'>;

const hbmToDdr: Plain = {
  single: ({ device }, bytes) => device.singleReadback(bytes),
  naive: ({ device }, slots) => device.naiveReadback(slots),
};
const ddrToHbm: Plain = {
  single: ({ device }, bytes) => device.singleUpload(bytes),
  naive: ({ device }, slots) => device.naiveUpload(slots),
};
const ddrToNvme: Plain = {
  single: ({ disk }, bytes) => disk!.single('write', bytes),
  naive: ({ disk }, slots) => disk!.naive('write', slots),
};
const nvmeToDdr: Plain = {
  single: ({ disk }, bytes) => disk!.single('read', bytes),
  naive: ({ disk }, slots) => disk!.naive('read', slots),
};
const hbmToNvme: Plain = {
  async single({ device, disk }, bytes) {
    await device.singleReadback(bytes);
    await disk!.single('write', bytes);
  },
  async naive({ device, disk }, slots) {
    for (const [i, slot] of slots.entries()) {
      await disk!.bufferedUnit('write', slot, await device.readUnit(slot, i));
    }
    await disk!.sync();
  },
};
const nvmeToHbm: Plain = {
  async single({ device, disk }, bytes) {
    await disk!.single('read', bytes);
    await device.singleUpload(bytes);
  },
  async naive({ device, disk }, slots) {
    for (const [i, slot] of slots.entries()) {
      const unit = disk!.unit(i);
      await disk!.bufferedUnit('read', slot, unit);
      device.writeUnit(slot, unit);
    }
    await device.settled();
  },
};

/** Half of the bytes each way, at once. */
function together(a: Plain, b: Plain): Plain {
  return {
    async single(machine, bytes) {
      await Promise.all([a.single(machine, bytes / 2), b.single(machine, bytes / 2)]);
    },
    async naive(machine, slots) {
      const half = slots.length >> 1;
      await Promise.all([a.naive(machine, slots.slice(0, half)), b.naive(machine, slots.slice(half))]);
    },
  };
}

const hostStages = ['device copy', 'memcpy'] as const;

function oneWay(
  link: string,
  source: PlaceName,
  target: PlaceName,
  verify: Verification,
  stages: readonly StageName[],
  plain: Plain,
): Route {
  const touchesHbm = source.startsWith('hbm') || target.startsWith('hbm');
  return { link, bothWays: false, verify, source, target, stages, touchesHbm, ...plain };
}

/** Between GPU memory and host memory. */
export const transferRoutes: readonly Route[] = [
  oneWay('hbmToDdr', 'hbm', 'ddr', 'none', hostStages, hbmToDdr),
  oneWay('ddrToHbm', 'ddr', 'hbm', 'hbm', hostStages, ddrToHbm),
  oneWay('ddrToHbm', 'ddr', 'hbmUnverified', 'none', hostStages, ddrToHbm),
  bothWays(oneWay('hbmToDdr', 'hbm', 'ddr', 'hbm', hostStages, hbmToDdr), ddrToHbm, 'ddrToHbm'),
  bothWays(oneWay('hbmToDdr', 'hbmUnverified', 'ddr', 'none', hostStages, hbmToDdr), ddrToHbm, 'ddrToHbm'),
];

/** To and from files. What is read from a file is always checked by the host. */
export const diskRoutes: readonly Route[] = [
  oneWay('ddrToNvme', 'ddr', 'nvme', 'none', ['disk write'], ddrToNvme),
  oneWay('nvmeToDdr', 'nvme', 'ddr', 'host', ['disk read'], nvmeToDdr),
  bothWays(
    oneWay('ddrToNvme', 'ddr', 'nvme', 'host', ['disk write', 'disk read'], ddrToNvme),
    nvmeToDdr,
    'nvmeToDdr',
  ),
  oneWay('hbmToNvme', 'hbm', 'nvme', 'none', ['disk write', ...hostStages], hbmToNvme),
  oneWay('nvmeToHbm', 'nvme', 'hbm', 'host+hbm', ['disk read', ...hostStages], nvmeToHbm),
  oneWay('nvmeToHbm', 'nvme', 'hbmUnverified', 'host', ['disk read', ...hostStages], nvmeToHbm),
  bothWays(
    oneWay('hbmToNvme', 'hbm', 'nvme', 'host+hbm', ['disk write', 'disk read', ...hostStages], hbmToNvme),
    nvmeToHbm,
    'nvmeToHbm',
  ),
];

function bothWays(route: Route, back: Plain, backLink: string): Route {
  return { ...route, ...together(route, back), link: `${route.link}+${backLink}`, bothWays: true };
}

/** Moves contents [from, to) over the route with tierkv. */
export function moveOver(
  { rig }: Machine,
  { source, target, bothWays: both }: Route,
  arrangement: Arrangement,
  from?: number,
  to?: number,
): Promise<void> {
  return both
    ? rig.moveBothWays(source, target, arrangement, from, to)
    : rig.move(source, target, arrangement, from, to);
}
