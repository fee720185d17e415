/**
 * The way of a job to the driver and back: it claims a slot in its target tier, claims of a tier are granted in
 * order, with a slot and a ready source it is issued, and its end publishes or discards its bytes. What holds a job or
 * a replica, and what becomes of either when the last holder has gone, is below.
 */

import { invariant } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import type { LinkPace } from '../planning/pace.ts';
import { JobKind, JobState, Leaving } from '../tables/jobTable.ts';
import { ReplicaState } from '../tables/replicaTable.ts';
import { Outcome, TOP } from '../tier/tier.ts';
import type { Core } from './core.ts';
import type { ManagerObserver } from './observer.ts';
import { Entry, type Sequence } from './sequence.ts';

/** Gives the job a slot now, or puts it at the end of its tier's queue. */
export function claim(core: Core, row: number): void {
  const { jobs } = core;
  const tier = jobs.targetTier[row];
  const replica =
    core.claims[tier].size === 0 ? core.reserve(tier, jobs.sizeClass[row], jobs.owner[row]) : -1;
  if (replica === -1) core.claims[tier].push(jobs.idOf(row));
  else grant(core, row, replica);
}

/** The first job that waits for a slot of the tier, or -1. */
export function firstClaim(core: Core, tier: number): number {
  const { jobs } = core;
  const queue = core.claims[tier];
  for (let id = queue.peek(); id !== 0; id = queue.peek()) {
    if (jobs.isLive(id) && jobs.state[jobs.rowOf(id)] === JobState.WAITING) return jobs.rowOf(id);
    queue.shift();
  }
  return -1;
}

/** Gives free slots of the tier to jobs that wait for them, in the order in which they claimed. */
export function grantClaims(core: Core, tier: number): void {
  const { jobs } = core;
  for (let row = firstClaim(core, tier); row !== -1; row = firstClaim(core, tier)) {
    const replica = core.reserve(tier, jobs.sizeClass[row], jobs.owner[row]);
    if (replica === -1) return;
    core.claims[tier].shift();
    grant(core, row, replica);
  }
}

function grant(core: Core, row: number, replica: number): void {
  const { jobs, replicas } = core;
  jobs.target[row] = replica;
  jobs.targetGeneration[row] = core.generationOf(replica);
  if (jobs.resident[row] === 1) {
    core.setJobResident(row, 0);
    core.setResident(replica, 1);
  }
  if (jobs.kind[row] === JobKind.OPEN) {
    replicas.become(replica, ReplicaState.OPEN);
    core.openings.opened(replica);
    core.end(row, Outcome.LOADED);
  } else if (jobs.source[row] !== -1) {
    start(core, row);
  }
}

/** The job has a slot and a source. */
export function start(core: Core, row: number): void {
  core.replicas.become(core.jobs.target[row], ReplicaState.FILLING);
  issue(core, row);
}

export function issue(core: Core, row: number): void {
  const { jobs, replicas } = core;
  const { transferDeadlineUs } = core.config;
  replicas.writing[jobs.target[row]] = 1;
  jobs.issue(row);
  loadBegan(core, row);
  if (transferDeadlineUs !== Number.POSITIVE_INFINITY) {
    jobs.deadlineUs[row] = core.nowUs + transferDeadlineUs;
    core.deadlines.add(jobs.idOf(row), jobs.deadlineUs[row]);
  }
  core.outbox.push(jobs.idOf(row));
  if (core.observer !== null) tellIssued(core, core.observer, row);
  if (core.sink === null) return;
  const target = jobs.target[row];
  const source = jobs.source[row];
  const sourceTier = source === -1 ? -1 : replicas.tierOf(source);
  const targetTier = jobs.targetTier[row];
  core.sink.decision(
    DecisionOp.ISSUE,
    jobs.idOf(row),
    sourceTier,
    source === -1 ? -1 : replicas.slotOf(source, sourceTier),
    targetTier,
    replicas.slotOf(target, targetTier),
  );
}

// The way of a job back from the driver: verified bytes are published, wrong ones are never read again, and the
// job's slots are free. Its waiters are served at the end of the call (drain.ts).

/** The driver reports how a job ended. */
export function finish(core: Core, row: number, outcome: Outcome, digestLo: number, digestHi: number): void {
  const { jobs, replicas } = core;
  const state = jobs.state[row];
  invariant(state === JobState.ISSUED || state === JobState.DETACHED, 'only an issued job can finish');
  const target = jobs.target[row];
  if (core.observer !== null) tellEnded(core, core.observer, row, outcome);
  replicas.writing[target] = 0;
  loadEnded(core, row, outcome === Outcome.LOADED);
  if (state === JobState.DETACHED) finishDetached(core, row, outcome);
  else if (jobs.kind[row] === JobKind.SEAL) finishSeal(core, row, target, outcome, digestLo, digestHi);
  else if (jobs.kind[row] === JobKind.COPY) finishCopy(core, row, target, outcome);
  else finishMove(core, row, target, outcome);
  core.freeIfDrained(target);
  core.deferred.mayBeCrowded(jobs.targetTier[row]);
}

function finishMove(core: Core, row: number, target: number, outcome: Outcome): void {
  const { jobs, replicas } = core;
  const content = jobs.content[row];
  core.removeIncoming(content, row);
  if (outcome === Outcome.LOADED) {
    replicas.become(target, ReplicaState.VERIFYING);
    // A saved block that replaces another one (`saveContent`).
    if (jobs.waiter[row] === -1) core.setResident(target, 1);
    core.publish(target, content, jobs.waiter[row] !== -1);
    if (jobs.targetTier[row] < replicas.tierOf(jobs.source[row])) countRead(core, row);
    else core.takers[jobs.targetTier[row]].took();
    retryUnsent(core, row);
  } else {
    countFailure(core, row, outcome);
    discard(core, target, outcome);
  }
  releaseSource(core, row, outcome);
  core.end(row, outcome);
}

/** A lower tier takes blocks: copies that failed are tried again. */
function retryUnsent({ jobs, replicas, deferred }: Core, row: number): void {
  const tier = replicas.tierOf(jobs.source[row]);
  if (jobs.targetTier[row] < tier || deferred.unsent[tier].size === 0) return;
  deferred.fresh[tier].push(...deferred.unsent[tier]);
  deferred.unsent[tier].clear();
}

function countRead(core: Core, row: number): void {
  const tier = core.replicas.tierOf(core.jobs.source[row]);
  const bytes = core.unitBytes(core.jobs.sizeClass[row]);
  core.counters.readBytes[tier] += bytes;
  core.writeBudgets[tier]?.wasRead(bytes);
}

function finishSeal(core: Core, row: number, target: number, outcome: Outcome, lo: number, hi: number): void {
  const { jobs, replicas, contents, counters } = core;
  const content = jobs.content[row];
  core.removeIncoming(content, row);
  const same =
    contents.sealed[content] === 0 ||
    (contents.digestLo[content] === lo && contents.digestHi[content] === hi);
  if (outcome !== Outcome.LOADED) {
    discard(core, target, outcome);
  } else if (same) {
    if (core.fastestReady(content, TOP) !== -1) counters.aliases++;
    contents.sealed[content] = 1;
    contents.digestLo[content] = lo;
    contents.digestHi[content] = hi;
    core.publish(target, content);
  } else {
    counters.diverged++;
    replicas.become(target, ReplicaState.PRIVATE);
    // Sequences that joined the job hold the block only once they are served.
    const wanted = replicas.refs[target] > 0 || jobs.waiter[row] !== -1;
    if (!wanted) replicas.become(target, ReplicaState.DRAINING);
  }
  core.end(row, outcome);
}

function finishCopy(core: Core, row: number, target: number, outcome: Outcome): void {
  if (outcome === Outcome.LOADED) {
    core.replicas.become(target, ReplicaState.OPEN);
    core.replicas.foreign[target] = 0;
    core.openings.copied(row, target);
  } else discard(core, target, outcome);
  releaseSource(core, row, outcome);
  core.end(row, outcome);
}

/** Its waiters were served when it was detached. */
function finishDetached(core: Core, row: number, outcome: Outcome): void {
  const { jobs } = core;
  if (jobs.source[row] !== -1) {
    const wrong = outcome === Outcome.CORRUPT || outcome === Outcome.MISSING;
    releaseSource(core, row, wrong ? outcome : Outcome.CANCELLED);
  }
  core.end(row, outcome);
}

/** The slot holds nothing that may be read. */
function discard(core: Core, target: number, outcome: Outcome): void {
  if (outcome === Outcome.CORRUPT) {
    core.logReplica(DecisionOp.QUARANTINE, target);
    core.replicas.become(target, ReplicaState.QUARANTINED);
  }
  core.replicas.become(target, ReplicaState.DRAINING);
  core.setResident(target, 0);
}

// Loads under way on each link, from the issue of a job to its end or its deadline.

function loadBegan(core: Core, row: number): void {
  linkOf(core, row)?.began(core.unitBytes(core.jobs.sizeClass[row]), core.nowUs, core.computedUs());
}

/** Call it before the job's source is let go. @param arrived whether it brought its bytes */
export function loadEnded(core: Core, row: number, arrived: boolean): void {
  if (core.jobs.overdue[row] === 1) return; // its deadline was its end
  const bytes = core.unitBytes(core.jobs.sizeClass[row]);
  linkOf(core, row)?.ended(bytes, core.nowUs, core.computedUs(), arrived);
}

function linkOf({ jobs, replicas, links }: Core, row: number): LinkPace | undefined {
  const isLoad = jobs.kind[row] === JobKind.MOVE && jobs.targetTier[row] === TOP;
  return isLoad ? links[replicas.tierOf(jobs.source[row])] : undefined;
}

// Tells an observer of a job.

function tellIssued(core: Core, observer: ManagerObserver, row: number): void {
  observer.issued?.(row, sourceTier(core, row), core.jobs.targetTier[row], bytesOf(core, row));
}

function tellEnded(core: Core, observer: ManagerObserver, row: number, outcome: Outcome): void {
  const givenUp = core.jobs.state[row] === JobState.DETACHED;
  observer.ended?.(
    row,
    sourceTier(core, row),
    core.jobs.targetTier[row],
    bytesOf(core, row),
    outcome,
    givenUp,
  );
}

export function tellOverdue(core: Core, row: number): void {
  core.observer?.overdue?.(row, sourceTier(core, row), core.jobs.targetTier[row], bytesOf(core, row));
}

function sourceTier({ jobs, replicas }: Core, row: number): number {
  return jobs.source[row] === -1 ? -1 : replicas.tierOf(jobs.source[row]);
}

function bytesOf(core: Core, row: number): number {
  return core.unitBytes(core.jobs.sizeClass[row]);
}

// Entries of a block table: the content that one names, the replica that it pins and the job that it waits for; how
// each is taken up and let go. A replica or job without a holder is cached, moves on or ends.

/**
 * An entry keeps its content alive, so that the number still means the same content when the entry is
 * settled.
 */
export function remember(core: Core, sequence: Sequence, i: number, content: number): void {
  core.contents.hold(content);
  sequence.content[i] = content;
}

export function forget(core: Core, sequence: Sequence, i: number): void {
  const content = sequence.content[i];
  sequence.clear(i);
  if (content !== -1) core.contents.unhold(content);
}

/** The fastest tier that a job is bringing the content into, or -1. */
export function fastestIncoming(core: Core, content: number): number {
  return fastestIncomingBelow(core, content, -1);
}

/** The same among tiers below `tier`. */
export function fastestIncomingBelow(core: Core, content: number, tier: number): number {
  for (let below = tier + 1; below < core.tiers; below++) {
    if (core.incomingTo(content, below) !== -1) return below;
  }
  return -1;
}

export function setIncomingResident(core: Core, row: number, resident: 0 | 1): void {
  const target = core.jobs.target[row];
  if (target === -1) core.setJobResident(row, resident);
  else core.setResident(target, resident);
}

export function join(core: Core, sequence: Sequence, i: number, row: number): void {
  core.waiters.append(core.jobs.waiter, row, sequence.id, i);
  sequence.state[i] = Entry.LOADING;
  sequence.pending++;
}

// Replicas that a sequence or a job no longer needs.

/** A sequence holds the replica no more. */
export function letGo(core: Core, replica: number): void {
  if (replica === -1 || !core.unhold(replica)) return;
  const { replicas } = core;
  const state = replicas.state[replica] as ReplicaState;
  if (state === ReplicaState.READY) settleIdle(core, replica);
  else if (state === ReplicaState.OPEN || state === ReplicaState.PRIVATE)
    replicas.become(replica, ReplicaState.DRAINING);
  core.freeIfDrained(replica);
}

/** The job reads its source no more. Bytes found to be wrong are never read again. */
function releaseSource(core: Core, row: number, outcome: Outcome): void {
  const { replicas, jobs } = core;
  const source = jobs.source[row];
  replicas.readers[source]--;
  const leaving = jobs.leaving[row];
  if (leaving !== Leaving.NOT) {
    jobs.leaving[row] = Leaving.NOT;
    const tier = replicas.tierOf(source);
    core.leavingBytes[tier] -= core.unitBytes(jobs.sizeClass[row]);
    core.paces[tier].ended(core.nowUs - jobs.madeAtUs[row]);
    const hasItsBytes = outcome !== Outcome.CORRUPT && outcome !== Outcome.MISSING;
    if (outcome !== Outcome.LOADED && leaving === Leaving.WHOLE && hasItsBytes) {
      takeBack(core, source, jobs.content[row]);
    }
  }
  if (replicas.state[source] === ReplicaState.READY) {
    if (outcome === Outcome.CORRUPT || outcome === Outcome.MISSING) {
      foundDamaged(core, source, outcome);
    } else if (replicas.refs[source] === 0) {
      settleIdle(core, source);
    }
  }
  core.freeIfDrained(source);
}

/** A ready replica has not the bytes of its content: nothing reads it from now on. */
export function foundDamaged(core: Core, replica: number, outcome: Outcome): void {
  const { replicas } = core;
  core.logReplica(DecisionOp.QUARANTINE, replica);
  core.observer?.damaged?.(replicas.content[replica], replicas.tierOf(replica), outcome);
  core.unpublish(replica);
  core.setResident(replica, 0);
  if (replica < replicas.base[TOP + 1] && replicas.refs[replica] > 0) core.deferred.wrong.push(replica);
  core.freeIfDrained(replica);
}

/**
 * An evicted replica that no tier below has taken is found again where it lies, unless its room is another block's by now, its
 * content lies elsewhere, or a copy of its content is on its way to this lower tier: if that job fails, its own source is
 * taken back in turn.
 */
function takeBack(core: Core, replica: number, content: number): void {
  const { replicas } = core;
  const tier = replicas.tierOf(replica);
  const bytes = core.unitBytes(core.sizeClassOf(replica, tier));
  const fits = core.residentBytes[tier] + bytes <= core.capacityBytes[tier];
  const isUsed = replicas.readers[replica] !== 0 || replicas.refs[replica] !== 0;
  if (!fits || isUsed || core.fastestReady(content, TOP) !== -1) return;
  if (tier !== TOP && core.incomingTo(content, tier) !== -1) return;
  core.setResident(replica, 1);
  core.publish(replica, content);
  core.counters.takenBack++;
}

/** A ready replica without a holder: it is cached, or unpublished where its block has moved up to HBM. */
function settleIdle(core: Core, replica: number): void {
  const { replicas } = core;
  if (replicas.readers[replica] !== 0 && replicas.resident[replica] === 0) return;
  const tier = replicas.tierOf(replica);
  const content = replicas.content[replica];
  if (core.config.moveOnReload && tier !== TOP && core.readyIn(content, TOP) !== -1) {
    core.unpublish(replica);
    core.setResident(replica, 0);
    return;
  }
  core.setResident(replica, 1);
  if (replicas.evictable[replica] === 0) core.makeEvictable(replica, tier);
  core.deferred.mayBeCrowded(tier);
}

// Entries that a sequence gives back, in whatever state they are.

/** Releases block i. With `cancel`, a load without another waiter is cancelled. */
export function releaseBlock(core: Core, sequence: Sequence, i: number, cancel: boolean): void {
  const state = sequence.state[i] as Entry;
  const replica = sequence.replica[i];
  const content = sequence.content[i];
  if (state === Entry.WAITING) stopWaitingForRoom(core, sequence, i);
  else if (state === Entry.SEALING) leaveSeal(core, sequence, i);
  else if (state === Entry.LOADING) stopLoading(core, sequence, i, cancel);
  else if (state === Entry.MATCHED) stopWaitingBelow(core, sequence, i, content);
  forget(core, sequence, i);
  letGo(core, replica);
}

/** An OPEN or COPY job has one waiter; without it, the job is not needed. */
function stopWaitingForRoom(core: Core, sequence: Sequence, i: number): void {
  const row = sequence.claim[i];
  core.waiters.remove(core.jobs.waiter, row, sequence.id, i);
  core.stoppedWaiting(sequence);
  callOff(core, row);
}

/** Room in HBM that comes free when the load of the block is called off: 0 where others wait for it too. */
export function bytesOfLoneLoad(core: Core, sequence: Sequence, i: number): number {
  if (sequence.state[i] !== Entry.LOADING) return 0;
  const { jobs, waiters } = core;
  const row = core.incomingTo(sequence.content[i], TOP);
  if (row === -1 || jobs.kind[row] !== JobKind.MOVE) return 0;
  const waiter = jobs.waiter[row];
  const isAlone =
    waiter !== -1 &&
    waiters.next(waiter) === -1 &&
    waiters.sequence(waiter) === sequence.id &&
    waiters.block(waiter) === i;
  return isAlone ? core.unitBytes(jobs.sizeClass[row]) : 0;
}

/** The seal goes on: what it publishes is of use to others. */
function leaveSeal(core: Core, sequence: Sequence, i: number): void {
  core.waiters.remove(core.jobs.waiter, sequence.claim[i], sequence.id, i);
  core.stoppedWaiting(sequence);
}

function stopLoading(core: Core, sequence: Sequence, i: number, cancel: boolean): void {
  const { jobs, waiters } = core;
  const content = sequence.content[i];
  core.stoppedWaiting(sequence);
  stopWaitingBelow(core, sequence, i, content);
  const row = core.incomingTo(content, TOP);
  if (row === -1 || !waiters.remove(jobs.waiter, row, sequence.id, i) || jobs.waiter[row] !== -1) return;
  if (cancel && jobs.kind[row] === JobKind.MOVE) callOff(core, row);
}

/** An entry that no longer needs a copy in a lower tier does not wait for one to arrive there. */
export function stopWaitingBelow(core: Core, sequence: Sequence, i: number, content: number): void {
  const { jobs, waiters } = core;
  for (let tier = core.tiers - 1; tier > TOP; tier--) {
    const row = core.incomingTo(content, tier);
    if (row === -1 || !waiters.remove(jobs.waiter, row, sequence.id, i)) continue;
    if (jobs.waiter[row] !== -1) continue;
    setIncomingResident(core, row, 1);
    core.deferred.mayBeCrowded(tier);
  }
}

function callOff(core: Core, row: number): void {
  if (core.jobs.state[row] === JobState.WAITING) cancelWaiting(core, row, Outcome.CANCELLED);
  else if (core.jobs.state[row] === JobState.ISSUED) detach(core, row, Outcome.CANCELLED);
}

// Jobs that are no longer needed: withdrawn before the driver saw them, or detached from their waiters.

/** Ends a job that the driver never saw. */
export function cancelWaiting(core: Core, row: number, outcome: Outcome): void {
  const { jobs } = core;
  invariant(jobs.state[row] === JobState.WAITING, 'only a waiting job can be withdrawn');
  core.setJobResident(row, 0);
  countFailure(core, row, outcome);
  if (jobs.content[row] !== -1) core.removeIncoming(jobs.content[row], row);
  if (jobs.source[row] !== -1) releaseSource(core, row, Outcome.CANCELLED);
  if (jobs.target[row] !== -1) core.giveBack(jobs.target[row]);
  core.end(row, outcome);
}

/** The job's waiters are served without it; its slots stay taken until the driver reports its end. */
export function detach(core: Core, row: number, outcome: Outcome): void {
  const { jobs, replicas } = core;
  const target = jobs.target[row];
  if (jobs.content[row] !== -1) core.removeIncoming(jobs.content[row], row);
  if (jobs.kind[row] === JobKind.MOVE) countFailure(core, row, outcome);
  jobs.detach(row, outcome);
  core.deferred.ended.push(jobs.idOf(row));
  core.speculativeLoads.delete(jobs.idOf(row));
  replicas.become(target, ReplicaState.DRAINING);
  core.setResident(target, 0);
}

/** A load that failed, or a demotion that did. */
function countFailure(core: Core, row: number, outcome: Outcome): void {
  if (core.jobs.content[row] === -1) return;
  const { jobs, replicas, counters, deferred, copiesEagerly } = core;
  if (jobs.targetTier[row] === TOP) {
    counters.loadsFailed[outcome]++;
    return;
  }
  counters.demotionsFailed++;
  const isRefused = outcome === Outcome.REFUSED || outcome === Outcome.TIMED_OUT;
  if (isRefused && jobs.leaving[row] !== Leaving.LOST) core.takers[jobs.targetTier[row]].refused(core.nowUs);
  const source = jobs.source[row];
  if (source === -1 || replicas.state[source] !== ReplicaState.READY) return;
  const tier = replicas.tierOf(source);
  if (copiesEagerly[tier] === 1) deferred.unsent[tier].add(source);
}
