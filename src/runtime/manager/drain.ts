/**
 * The end of every call: the deferred work of its steps is done until none is left. No job waits for ever:
 * when jobs wait for slots and nothing in flight could free one, more blocks are evicted, and a job that still
 * has no slot is refused.
 */

import { JobKind, JobState } from '../tables/jobTable.ts';
import { Outcome, TOP } from '../tier/tier.ts';
import { failReaders, giveUpAbove, mustStayAbove, serveWaiters } from './blocks.ts';
import type { Core } from './core.ts';
import { cancelWaiting, firstClaim, grantClaims, start } from './jobs.ts';
import { evictFor, makeRoom, offload } from './residency.ts';

/**
 * @param letGo whether blocks were let go, so that tiers may offload some
 */
export function drain(core: Core, letGo: boolean): void {
  do {
    while (!core.deferred.isEmpty) {
      serveEnded(core);
      if (core.deferred.wrong.length > 0) failWrong(core);
      grantFreed(core);
      relieveCrowded(core);
    }
    if (letGo) offload(core);
  } while (!core.deferred.isEmpty || breakDeadlock(core));
}

function failWrong(core: Core): void {
  for (const replica of core.deferred.wrong.splice(0)) failReaders(core, replica);
}

/** Settles the waiters of ended and abandoned jobs. */
export function serveEnded(core: Core): void {
  const { jobs, contents, deferred } = core;
  for (let id = deferred.ended.shift(); id !== 0; id = deferred.ended.shift()) {
    const row = jobs.rowOfAny(id);
    const content = jobs.content[row];
    serveWaiters(core, row);
    if (jobs.frees[row] === 1 && jobs.outcome[row] === Outcome.LOADED) {
      const tier = jobs.targetTier[row];
      if (!mustStayAbove(core, content, tier, jobs.priority[row])) giveUpAbove(core, content, tier);
    }
    if (content !== -1 && jobs.targetTier[row] !== TOP)
      feedWaitingLoad(core, content, jobs.outcome[row] as Outcome);
    if (jobs.kind[row] === JobKind.MOVE && jobs.told[row] === 0 && core.listener.moved !== undefined) {
      jobs.told[row] = 1;
      const outcome = jobs.outcome[row] as Outcome;
      core.moved.push({ key: contents.key(content), tier: jobs.targetTier[row], outcome });
    }
    if (jobs.state[row] === JobState.DETACHED) continue;
    if (content !== -1) contents.unhold(content);
    jobs.retire(row);
  }
}

/** A load that waits for a lower copy to arrive gets it as its source, or fails with it. */
function feedWaitingLoad(core: Core, content: number, outcome: Outcome): void {
  const { jobs, replicas } = core;
  const row = core.incomingTo(content, TOP);
  const waits =
    row !== -1 &&
    jobs.kind[row] === JobKind.MOVE &&
    jobs.state[row] === JobState.WAITING &&
    jobs.source[row] === -1;
  if (!waits) return;
  const source = core.fastestReady(content, TOP + 1);
  if (source !== -1) {
    jobs.source[row] = source;
    jobs.sourceGeneration[row] = core.generationOf(source);
    replicas.readers[source]++;
    if (jobs.target[row] !== -1) start(core, row);
    return;
  }
  for (let tier = TOP + 1; tier < core.tiers; tier++) if (core.incomingTo(content, tier) !== -1) return;
  cancelWaiting(core, row, outcome === Outcome.LOADED ? Outcome.MISSING : outcome);
}

function grantFreed(core: Core): void {
  const freed = core.deferred.freed;
  core.deferred.freed = 0;
  for (let tier = 0; tier < core.tiers; tier++) if ((freed & (1 << tier)) !== 0) grantClaims(core, tier);
}

function relieveCrowded(core: Core): void {
  const crowded = core.deferred.crowded;
  core.deferred.crowded = 0;
  for (let tier = 0; tier < core.tiers; tier++) if ((crowded & (1 << tier)) !== 0) makeRoom(core, tier);
}

/**
 * Progress where jobs wait for slots and only jobs past their deadline are in flight, which may never end:
 * the tier below first, since the ones above may wait for it.
 * @returns whether anything changed
 */
function breakDeadlock(core: Core): boolean {
  const { jobs } = core;
  if (jobs.waiting === 0 || jobs.issued !== jobs.overdueCount) return false;
  for (let tier = core.tiers - 1; tier >= 0; tier--) {
    const row = firstClaim(core, tier);
    if (row === -1) continue;
    if (!evictFor(core, tier, jobs.sizeClass[row], jobs.owner[row]))
      cancelWaiting(core, row, Outcome.REFUSED);
    return true;
  }
  return false;
}
