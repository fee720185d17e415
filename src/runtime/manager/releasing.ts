/**
 * Letting go: an entry stops waiting and stops holding. What is then held by nobody becomes cached, moves on, or gives its
 * slot back.
 */

import { State } from '../replica/state.ts';
import { JobKind, JobState } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { grantClaims } from './claims.ts';
import { type Core, HBM } from './core.ts';
import { forget, setIncomingResident } from './entries.ts';
import { makeRoom } from './residency.ts';
import { Entry, type Sequence } from './sequence.ts';
import { cancelWaiting, detach } from './withdrawing.ts';

/** Lets block i go, in whatever state it is. With `cancel`, a load that nobody else waits for is called off. */
export function release(core: Core, sequence: Sequence, i: number, cancel: boolean): void {
  const state = sequence.state[i] as Entry;
  const replica = sequence.replica[i];
  const content = sequence.content[i];
  if (state === Entry.READY || state === Entry.OPEN) {
    forget(core, sequence, i);
    letGo(core, replica);
  } else if (state === Entry.WAITING) {
    cancelWaiting(core, sequence.claim[i], Outcome.CANCELLED);
    forget(core, sequence, i);
  } else if (state === Entry.MATCHED || state === Entry.LOADING || state === Entry.SEALING) {
    const sealing = sequence.claim[i];
    if (state !== Entry.MATCHED) sequence.pending--;
    if (state === Entry.SEALING) core.waiters.remove(core.jobs.waiter, sealing, sequence.id, i);
    else stopWaiting(core, sequence, i, content, cancel);
    forget(core, sequence, i);
    letGo(core, replica);
  } else {
    forget(core, sequence, i);
  }
}

function stopWaiting(core: Core, sequence: Sequence, i: number, content: number, cancel: boolean): void {
  const { jobs, waiters } = core;
  stopWaitingBelow(core, sequence, i, content);
  const row = core.incomingTo(content, HBM);
  if (row === -1 || !waiters.remove(jobs.waiter, row, sequence.id, i) || jobs.waiter[row] !== -1) return;
  if (cancel && jobs.kind[row] === JobKind.MOVE) callOff(core, row);
}

/** An entry that no longer needs a copy in a lower tier does not wait for one to arrive there. */
export function stopWaitingBelow(core: Core, sequence: Sequence, i: number, content: number): void {
  const { jobs, waiters } = core;
  for (let tier = core.tiers - 1; tier > HBM; tier--) {
    const row = core.incomingTo(content, tier);
    if (row === -1 || !waiters.remove(jobs.waiter, row, sequence.id, i)) continue;
    if (jobs.waiter[row] !== -1) continue;
    setIncomingResident(core, row, 1);
    makeRoom(core, tier);
  }
}

function callOff(core: Core, row: number): void {
  if (core.jobs.state[row] === JobState.WAITING) cancelWaiting(core, row, Outcome.CANCELLED);
  else if (core.jobs.state[row] === JobState.ISSUED) detach(core, row, Outcome.CANCELLED);
}

/** A sequence holds the replica no more: it becomes cached, or goes. */
export function letGo(core: Core, replica: number): void {
  if (replica === -1 || !core.unhold(replica)) return;
  const { replicas } = core;
  const state = replicas.state[replica] as State;
  if (state === State.READY) settleIdle(core, replica);
  else if (state === State.OPEN || state === State.PRIVATE) replicas.become(replica, State.DRAINING);
  const tier = replicas.tierOf(replica);
  if (core.freeIfDrained(replica)) grantClaims(core, tier);
}

/** A ready replica that nobody holds: it is cached, or, where blocks move up rather than being copied, it has moved. */
export function settleIdle(core: Core, replica: number): void {
  const { replicas } = core;
  if (replicas.readers[replica] !== 0 && replicas.resident[replica] === 0) return;
  const tier = replicas.tierOf(replica);
  const content = replicas.content[replica];
  if (core.config.moveOnReload && tier !== HBM && core.readyIn(content, HBM) !== -1) {
    core.unpublish(replica);
    core.setResident(replica, 0);
    return;
  }
  core.setResident(replica, 1);
  if (!replicas.lru.has(replica)) core.makeEvictable(replica, tier);
  if (core.residentBytes[tier] > core.capacityBytes[tier]) makeRoom(core, tier);
}
