/**
 * A sequence lets blocks go, in whatever state they are: it stops waiting for them and stops holding them.
 */

import { JobKind, JobState } from '../../transfer/jobTable.ts';
import { Outcome } from '../../transfer/outcome.ts';
import { type Core, HBM } from '../core.ts';
import { cancelWaiting, detach } from '../jobs/withdrawing.ts';
import { forget, setIncomingResident } from './blockTable/entries.ts';
import { Entry, type Sequence } from './blockTable/sequence.ts';
import { letGo } from './holding.ts';

/** Lets block i go. With `cancel`, a load that nobody else waits for is called off. */
export function release(core: Core, sequence: Sequence, i: number, cancel: boolean): void {
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

/** An OPEN or COPY job has one waiter; without it, nobody needs the job. */
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
  const row = core.incomingTo(sequence.content[i], HBM);
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
    core.agenda.mayBeCrowded(tier);
  }
}

function callOff(core: Core, row: number): void {
  if (core.jobs.state[row] === JobState.WAITING) cancelWaiting(core, row, Outcome.CANCELLED);
  else if (core.jobs.state[row] === JobState.ISSUED) detach(core, row, Outcome.CANCELLED);
}
