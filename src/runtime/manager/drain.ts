/**
 * The end of every call: the deferred work of its steps is done until none is left. No job waits for ever:
 * when jobs wait for slots and nothing in flight could free one, more blocks are evicted, and a job that still
 * has no slot is refused.
 */

import { JobKind, JobPriority, JobState } from '../tables/jobTable.ts';
import { Outcome, TOP } from '../tier/tier.ts';
import type { Core } from './core.ts';
import { cancelWaiting } from './holds.ts';
import { claim, firstClaim, grantClaims, start } from './jobs.ts';
import { failReaders, serveWaiters } from './loads.ts';
import type { ResolvedOffload } from './offloadPolicies.ts';
import {
  canMoveDown,
  createDemotion,
  evict,
  evictFor,
  hasLowerCopy,
  lowerTierFor,
  makeRoom,
  victimFor,
} from './residency.ts';

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

// What the tiers' offload policies (offloadPolicies.ts) come to after blocks were let go.

/** After blocks were let go: each tier with a tier below does what its policy says. */
export function offload(core: Core): void {
  for (let tier = 0; tier + 1 < core.tiers; tier++) {
    const choice = core.config.offload[tier];
    if (choice.policy === 'threshold') trim(core, tier, choice.share);
    else if (choice.policy === 'intent') copyAhead(core, tier, choice);
    else if (choice.policy === 'eager') copyFresh(core, tier);
  }
}

/** Moves blocks down while the tier is fuller than the share and none would be lost. */
function trim(core: Core, tier: number, share: number): void {
  if (share >= 1) return;
  const limit = share * core.capacityBytes[tier];
  while (core.residentBytes[tier] > limit) {
    const victim = victimFor(core, tier, -1, 0);
    if (victim === -1 || !canMoveDown(core, victim, tier)) return;
    evict(core, victim, tier);
  }
}

function copyAhead(core: Core, tier: number, { share, ahead }: ResolvedOffload): void {
  if (core.residentBytes[tier] <= share * core.capacityBytes[tier]) return;
  for (const replica of core.policy.upcoming(tier, ahead)) copyDown(core, replica, tier);
}

/** Copies what became evictable since the last time, in that order. */
function copyFresh(core: Core, tier: number): void {
  const { fresh } = core.deferred;
  const replicas = fresh[tier].splice(0);
  for (const replica of replicas) if (core.replicas.evictable[replica] === 1) copyDown(core, replica, tier);
}

/** The block stays where it is: a copy of it goes to the next tier that takes it. */
function copyDown(core: Core, replica: number, tier: number): void {
  const content = core.replicas.content[replica];
  if (hasLowerCopy(core, content, tier)) return;
  const owner = core.contents.owner[content];
  const lower = lowerTierFor(core, tier, core.sizeClassOf(replica, tier), owner, false);
  if (lower === -1) return;
  const row = createDemotion(core, content, replica, lower, JobPriority.WRITE_THROUGH);
  if (row === -1) return;
  makeRoom(core, lower, 0, owner);
  claim(core, row);
}
