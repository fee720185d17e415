/**
 * What nothing could be faster than, from what the stages did alone in the same rounds. A link is a pipeline, so its slowest
 * stage bounds it. Where stages run on the host's cores, which a software device's copies do too, the cores bound it as well:
 * a byte that needs t seconds of a core passes at most `cores / t` times a second, however the stages overlap. Each of these
 * stages keeps one core busy while it runs; disk I/O none.
 */

import { availableParallelism } from 'node:os';
import type { VerificationName } from '../../../backends/webgpu/arrivals.ts';
import type { Speed } from './rounds.ts';
import type { Route, StageName, Work } from './routes.ts';

export interface Limit {
  readonly gbps: number;
  /** The stage, or `cores`. */
  readonly by: StageName | 'cores';
  /** The slowest stage alone, the cores left aside. */
  readonly stage: StageName;
  readonly stageGbps: number;
  /** I/O depth at which that stage was at its best; 1 of others. */
  readonly depth: number;
}

export interface Surroundings {
  /** How arrivals in HBM are verified: by `readback` it is a copy back and a digest on the host. */
  readonly arrivalCheck: VerificationName;
  readonly softwareDevice: boolean;
  readonly cores?: number;
}

/** The stages of a piece of work. The digest kernel of a device is part of no stage: what it costs is tierkv's to bear. */
export function stagesOf(work: Work, arrivalCheck: VerificationName): readonly StageName[] {
  if (work !== 'arrival check') return [work];
  return arrivalCheck === 'readback' ? ['device copy', 'digest'] : [];
}

/** @param speeds by contestant, which is called as its stage, or as its stage and a way to run it */
export function limitOf(
  { work }: Pick<Route, 'work'>,
  speeds: ReadonlyMap<string, Speed>,
  { arrivalCheck, softwareDevice, cores = availableParallelism() }: Surroundings,
): Limit {
  const ways = work.map((way) => way.flatMap((one) => stagesOf(one, arrivalCheck)));
  const all = ways.flat().map((stage) => bestOf(stage, speeds));
  const { stage, gbps, depth } = all.reduce((slowest, one) => (one.gbps < slowest.gbps ? one : slowest));
  let coreSeconds = 0;
  for (const one of all) {
    if (one.stage === 'memcpy' || one.stage === 'digest' || (one.stage === 'device copy' && softwareDevice))
      coreSeconds += 1 / one.gbps / ways.length;
  }
  const coresGbps = coreSeconds === 0 ? Number.POSITIVE_INFINITY : cores / coreSeconds;
  return coresGbps < gbps
    ? { gbps: coresGbps, by: 'cores', stage, stageGbps: gbps, depth }
    : { gbps, by: stage, stage, stageGbps: gbps, depth };
}

/** A stage has several ways to be run; its best one counts. */
function bestOf(
  stage: StageName,
  speeds: ReadonlyMap<string, Speed>,
): { stage: StageName; gbps: number; depth: number } {
  let best = { stage, gbps: 0, depth: 1 };
  for (const [name, { gbps }] of speeds) {
    if (name !== stage && !name.startsWith(`${stage} `)) continue;
    if (gbps > best.gbps) best = { stage, gbps, depth: Number.parseInt(name.slice(stage.length), 10) || 1 };
  }
  return best;
}
