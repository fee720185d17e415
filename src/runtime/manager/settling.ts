/** Telling the sequences that wait for a job how it ended. */

import { invariant } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import { JobKind } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { type Core, HBM } from './core.ts';
import { forget } from './entries.ts';
import { load } from './loading.ts';
import { letGo, stopWaitingBelow } from './releasing.ts';
import { Entry, type Sequence } from './sequence.ts';

/** The job brought its block: every waiter gets the replica. */
export function settleLoaded(core: Core, row: number, replica: number): void {
  const { jobs, waiters, sequences } = core;
  const tier = jobs.targetTier[row];
  const kind = jobs.kind[row] as JobKind;
  for (
    let waiter = waiters.shift(jobs.waiter, row);
    waiter !== -1;
    waiter = waiters.shift(jobs.waiter, row)
  ) {
    const sequence = sequences.get(waiters.sequence(waiter) as Sequence['id']);
    const i = waiters.block(waiter);
    invariant(sequence !== undefined, 'a waiter belongs to a live sequence');
    if (tier !== HBM) {
      core.hold(replica);
      sequence.replica[i] = replica;
      continue;
    }
    sequence.pending--;
    if (sequence.state[i] === Entry.SEALING) {
      sequence.claim[i] = -1;
      sequence.state[i] = Entry.READY;
      continue;
    }
    core.hold(replica);
    if (kind !== JobKind.OPEN) stopWaitingBelow(core, sequence, i, sequence.content[i]);
    const source = sequence.replica[i];
    sequence.replica[i] = replica;
    sequence.claim[i] = -1;
    sequence.state[i] = kind === JobKind.OPEN ? Entry.OPEN : Entry.READY;
    letGo(core, source);
  }
}

/** The job brought nothing: every waiter tries another copy, or is told to compute the block again. */
export function settleFailed(core: Core, row: number, outcome: Outcome): void {
  const { jobs, waiters, sequences } = core;
  const tier = jobs.targetTier[row];
  const retry = outcome === Outcome.CORRUPT || outcome === Outcome.MISSING;
  for (
    let waiter = waiters.shift(jobs.waiter, row);
    waiter !== -1;
    waiter = waiters.shift(jobs.waiter, row)
  ) {
    const sequence = sequences.get(waiters.sequence(waiter) as Sequence['id']);
    const i = waiters.block(waiter);
    invariant(sequence !== undefined, 'a waiter belongs to a live sequence');
    if (tier !== HBM) {
      if (sequence.state[i] === Entry.MATCHED) repinOrFail(core, sequence, i, outcome);
      continue;
    }
    sequence.pending--;
    if (retry && sequence.state[i] === Entry.LOADING) {
      sequence.state[i] = Entry.MATCHED;
      repinOrFail(core, sequence, i, outcome);
      if (sequence.state[i] === Entry.MATCHED) load(core, sequence, i);
    } else {
      fail(core, sequence, i, outcome);
    }
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

export function fail(core: Core, sequence: Sequence, i: number, outcome: Outcome): void {
  const replica = sequence.replica[i];
  if (sequence.content[i] !== -1) stopWaitingBelow(core, sequence, i, sequence.content[i]);
  forget(core, sequence, i);
  sequence.state[i] = Entry.FAILED;
  sequence.outcome[i] = outcome;
  core.log(DecisionOp.FAIL, sequence.id, i, outcome);
  letGo(core, replica);
}
