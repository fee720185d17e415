/**
 * Loads into HBM that no sequence asked for: a migrator's, and those of a prefetch. They hold their room
 * until somebody needs it; then they are called off, the latest first. One that a sequence has joined goes on
 * while that waits for it, and one that was asked for at the priority of a demand is nobody's to call off.
 */

import { invariant } from '../../errors.ts';
import { JobKind, JobState, Priority } from '../../transfer/jobTable.ts';
import { Outcome } from '../../transfer/outcome.ts';
import { type Core, HBM } from '../core.ts';
import { cancelWaiting, detach } from './withdrawing.ts';

/** The load was just made, for nobody in particular. */
export function noteUnasked(core: Core, row: number): void {
  const { jobs, unasked } = core;
  const priority = jobs.priority[row];
  const isBesideAll = priority === Priority.PREFETCH || priority === Priority.SCRUB;
  if (jobs.targetTier[row] === HBM && isBesideAll) unasked.add(jobs.idOf(row));
}

/** Whether the load may be called off for the owner. What others have within a quota stays theirs. */
export function isUnasked(core: Core, row: number, owner: number): boolean {
  const { jobs, unasked, quotas } = core;
  if (jobs.waiter[row] !== -1 || !unasked.has(jobs.idOf(row))) return false;
  return jobs.owner[row] === owner || (quotas?.quotaBytes(jobs.owner[row], HBM) ?? null) === null;
}

/** Room in HBM that the owner gets by calling such loads off. */
export function unaskedBytes(core: Core, owner: number): number {
  const { jobs } = core;
  let bytes = 0;
  for (const job of core.unasked) {
    const row = jobs.rowOf(job);
    if (isUnasked(core, row, owner)) bytes += core.unitBytes(jobs.sizeClass[row]);
  }
  return bytes;
}

/**
 * Bytes that HBM lacks for `bytes` more of the owner, beside what cannot be evicted for it; 0 where they fit.
 */
export function lackingBytes(core: Core, bytes: number, owner: number): number {
  const kept = core.quotas?.protectedFrom(owner, HBM) ?? 0;
  const fixed = core.residentBytes[HBM] - core.cachedBytes[HBM] + kept;
  return Math.max(0, fixed + bytes - core.pools[HBM].shape.capacityBytes);
}

/** Calls such loads off until `bytes` more of the owner fit: those that the driver has not seen first. */
export function callOffUnasked(core: Core, bytes: number, owner: number): void {
  const { jobs, unasked } = core;
  if (unasked.size === 0) return;
  for (const state of [JobState.WAITING, JobState.ISSUED]) {
    if (lackingBytes(core, bytes, owner) === 0) return;
    for (const job of [...unasked].reverse()) {
      const row = jobs.rowOf(job);
      if (jobs.state[row] !== state || !isUnasked(core, row, owner)) continue;
      if (state === JobState.WAITING) cancelWaiting(core, row, Outcome.CANCELLED);
      else detach(core, row, Outcome.CANCELLED);
      if (lackingBytes(core, bytes, owner) === 0) return;
    }
  }
}

export function checkUnasked({ jobs, unasked }: Core): void {
  for (const job of unasked) {
    const row = jobs.rowOf(job);
    const isLoad = jobs.kind[row] === JobKind.MOVE && jobs.targetTier[row] === HBM;
    const isUnderWay = jobs.state[row] === JobState.WAITING || jobs.state[row] === JobState.ISSUED;
    invariant(isLoad && isUnderWay, 'what nobody asked for is a load under way');
  }
}
