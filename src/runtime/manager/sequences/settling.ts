/** Serving the sequences that waited for a job, once it has ended. */

import { invariant } from '../../errors.ts';
import { DecisionOp } from '../../log/decisionSink.ts';
import { JobKind } from '../../transfer/jobTable.ts';
import { Outcome } from '../../transfer/outcome.ts';
import { type Core, HBM } from '../core.ts';
import { forget } from './blockTable/entries.ts';
import { Entry, type Sequence } from './blockTable/sequence.ts';
import { letGo } from './holding.ts';
import { load } from './loading.ts';
import { stopWaitingBelow } from './releasing.ts';

/** Every waiter of the job gets what it brought, or tries another copy, or is to compute the block again. */
export function settle(core: Core, row: number): void {
  const { jobs, waiters } = core;
  const outcome = jobs.outcome[row] as Outcome;
  for (
    let waiter = waiters.shift(jobs.waiter, row);
    waiter !== -1;
    waiter = waiters.shift(jobs.waiter, row)
  ) {
    const sequence = core.sequences.get(waiters.sequence(waiter) as Sequence['id']);
    const block = waiters.block(waiter);
    invariant(sequence !== undefined, 'a waiter belongs to a live sequence');
    if (outcome === Outcome.LOADED) settleLoaded(core, row, sequence, block);
    else settleFailed(core, row, sequence, block, outcome);
  }
}

function settleLoaded(core: Core, row: number, sequence: Sequence, i: number): void {
  const { jobs } = core;
  const replica = jobs.target[row];
  if (jobs.targetTier[row] !== HBM) {
    core.hold(replica);
    sequence.replica[i] = replica;
    return;
  }
  core.stoppedWaiting(sequence);
  sequence.claim[i] = -1;
  if (sequence.state[i] === Entry.SEALING) {
    sequence.state[i] = Entry.READY;
    return;
  }
  const opens = jobs.kind[row] === JobKind.OPEN || jobs.kind[row] === JobKind.COPY;
  core.hold(replica);
  if (!opens) stopWaitingBelow(core, sequence, i, sequence.content[i]);
  const source = sequence.replica[i];
  sequence.replica[i] = replica;
  sequence.state[i] = opens ? Entry.OPEN : Entry.READY;
  letGo(core, source);
}

function settleFailed(core: Core, row: number, sequence: Sequence, i: number, outcome: Outcome): void {
  if (core.jobs.targetTier[row] !== HBM) {
    if (sequence.state[i] === Entry.MATCHED) repinOrFail(core, sequence, i, outcome);
    return;
  }
  core.stoppedWaiting(sequence);
  const retry = outcome === Outcome.CORRUPT || outcome === Outcome.MISSING;
  if (!retry || sequence.state[i] !== Entry.LOADING) {
    fail(core, sequence, i, outcome);
    return;
  }
  sequence.state[i] = Entry.MATCHED;
  repinOrFail(core, sequence, i, outcome);
  if (sequence.state[i] === Entry.MATCHED && !load(core, sequence, i)) {
    fail(core, sequence, i, Outcome.REFUSED);
  }
}

export function repinOrFail(core: Core, sequence: Sequence, i: number, outcome: Outcome): void {
  const content = sequence.content[i];
  const other = core.fastestReady(content, HBM);
  if (other === -1) {
    fail(core, sequence, i, outcome);
    return;
  }
  core.hold(other);
  const before = sequence.replica[i];
  sequence.replica[i] = other;
  letGo(core, before);
}

/** The block cannot be brought: it is to be computed. */
export function fail(core: Core, sequence: Sequence, i: number, outcome: Outcome): void {
  const replica = sequence.replica[i];
  if (sequence.content[i] !== -1) stopWaitingBelow(core, sequence, i, sequence.content[i]);
  forget(core, sequence, i);
  sequence.state[i] = Entry.FAILED;
  core.disturb(sequence);
  sequence.outcome[i] = outcome;
  core.log(DecisionOp.FAIL, sequence.id, i, outcome);
  letGo(core, replica);
}

/** The replica's bytes are wrong: every sequence that reads it is to compute the block again. */
export function failReaders(core: Core, replica: number): void {
  for (const sequence of core.sequences.values()) {
    for (let i = 0; i < sequence.length; i++) {
      if (sequence.replica[i] === replica && sequence.state[i] === Entry.READY) {
        fail(core, sequence, i, Outcome.CORRUPT);
      }
    }
  }
}
