/**
 * The slowest stage of a link, from what the stages did alone in the same rounds. A link is a pipeline of up to four parts of
 * the machine, the device, the host's thread, the disk and threads that digest, and its stages are what each of these does to a
 * byte. Alone, a stage goes over all bytes of a run once, where the stage before leaves them. What one part does twice, or does
 * besides, is one stage: a device that copies bytes into HBM and back to be checked passes them about half as fast as one that
 * copies them once. A part that serves both ways of a link at once passes the bytes of both one after the other.
 */

import type { VerificationName } from '../../../backends/webgpu/arrivals.ts';
import type { Arrangement } from './rig.ts';
import type { Speed } from './rounds.ts';
import type { DiskStep, Route, Step } from './routes.ts';

export type StageName =
  | 'device copy up'
  | 'device copy up and back'
  | 'device copy down'
  | 'memcpy up'
  | 'memcpy up and digest'
  | 'digest and memcpy up'
  | 'memcpy down'
  | 'digest'
  | DiskStage;
/** Units that lie apart are read and written apart. */
export type DiskStage = `${'' | 'scattered '}${DiskStep}`;

export interface Limit {
  readonly gbps: number;
  /** The stage; of both ways, the stages of the slowest part. */
  readonly by: string;
  /** I/O depth at which a disk stage was at its best; 1 of others. */
  readonly depth: number;
}

/** How bytes are verified on this machine. */
export interface Checks {
  /**
   * How arrivals in HBM are. By `readback` it is a copy back and a digest on the host's thread; the digest kernel of a device
   * is part of no stage: what it costs is tierkv's to bear.
   */
  readonly arrivals: VerificationName;
  /** What comes from the disk is digested on threads beside the host's. */
  readonly readsAside: boolean;
}

/** By part: device, the host's thread, disk, threads beside. */
export function stagesOf(
  steps: readonly Step[],
  arrangement: Arrangement,
  { arrivals, readsAside }: Checks,
): readonly (StageName | undefined)[] {
  const comesBack = steps.includes('arrival check') && arrivals === 'readback';
  const aside = steps.includes('digest') && readsAside;
  const digestsRead = steps.includes('digest') && !readsAside;
  const device = steps.find((step) => step === 'device copy up' || step === 'device copy down');
  const host = steps.find((step) => step === 'memcpy up' || step === 'memcpy down');
  const disk = steps.find((step): step is DiskStep => step.startsWith('disk '));
  return [
    device === 'device copy up' && comesBack ? 'device copy up and back' : device,
    host === 'memcpy up'
      ? memcpyUpWith(comesBack, digestsRead)
      : (host ?? (digestsRead ? 'digest' : undefined)),
    disk !== undefined && arrangement === 'scattered' ? `scattered ${disk}` : disk,
    aside ? 'digest' : undefined,
  ];
}

/** The digest is of what comes back from the device, or of what was read before. */
function memcpyUpWith(comesBack: boolean, digestsRead: boolean): StageName {
  if (comesBack) return 'memcpy up and digest';
  return digestsRead ? 'digest and memcpy up' : 'memcpy up';
}

/** @param speeds by contestant, which is called as its stage, or as its stage, a colon and a way to run it */
export function limitOf(
  { work }: Pick<Route, 'work'>,
  arrangement: Arrangement,
  speeds: ReadonlyMap<string, Pick<Speed, 'gbps'>>,
  checks: Checks,
): Limit {
  const ways = work.map((steps) => stagesOf(steps, arrangement, checks));
  let slowest: Limit = { gbps: Number.POSITIVE_INFINITY, by: '', depth: 1 };
  for (let part = 0; part < ways[0].length; part++) {
    const stages = ways.flatMap((way) => way[part] ?? []).map((stage) => bestOf(stage, speeds));
    const seconds = stages.reduce((sum, { gbps }) => sum + 1 / gbps, 0);
    const gbps = ways.length / seconds;
    if (gbps >= slowest.gbps) continue;
    const by = [...new Set(stages.map(({ stage }) => stage))].join(' + ');
    slowest = { gbps, by, depth: stages[0].depth };
  }
  return slowest;
}

/** A stage may have been run in several ways; its best one counts. */
function bestOf(
  stage: StageName,
  speeds: ReadonlyMap<string, Pick<Speed, 'gbps'>>,
): { stage: StageName; gbps: number; depth: number } {
  let best = { stage, gbps: 0, depth: 1 };
  for (const [name, { gbps }] of speeds) {
    const [contestant, way] = name.split(': ');
    if (contestant !== stage || gbps <= best.gbps) continue;
    best = { stage, gbps, depth: Number.parseInt(way ?? '', 10) || 1 };
  }
  return best;
}
