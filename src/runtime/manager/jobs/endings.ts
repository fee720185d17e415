/**
 * The way of a job back from the driver: right bytes are published, wrong ones never read again, and its
 * slots are its own no more. Those who wait for it are served at the end of the call (drain.ts).
 */

import { invariant } from '../../errors.ts';
import { DecisionOp } from '../../log/decisionSink.ts';
import { State } from '../../replica/state.ts';
import { JobKind, JobState } from '../../transfer/jobTable.ts';
import { Outcome } from '../../transfer/outcome.ts';
import { type Core, HBM } from '../core.ts';
import { releaseSource } from '../sequences/holding.ts';
import { loadEnded } from './loadTimes.ts';
import { countFailure } from './withdrawing.ts';

/** The driver reports how a job ended. */
export function finish(core: Core, row: number, outcome: Outcome, digestLo: number, digestHi: number): void {
  const { jobs, replicas } = core;
  const state = jobs.state[row];
  invariant(state === JobState.ISSUED || state === JobState.DETACHED, 'only an issued job can finish');
  const target = jobs.target[row];
  replicas.writing[target] = 0;
  loadEnded(core, row, outcome === Outcome.LOADED);
  if (state === JobState.DETACHED) finishDetached(core, row, outcome);
  else if (jobs.kind[row] === JobKind.SEAL) finishSeal(core, row, target, outcome, digestLo, digestHi);
  else if (jobs.kind[row] === JobKind.COPY) finishCopy(core, row, target, outcome);
  else finishMove(core, row, target, outcome);
  core.freeIfDrained(target);
  core.agenda.mayBeCrowded(jobs.targetTier[row]);
}

function finishMove(core: Core, row: number, target: number, outcome: Outcome): void {
  const { jobs, replicas } = core;
  const content = jobs.content[row];
  core.removeIncoming(content, row);
  if (outcome === Outcome.LOADED) {
    replicas.become(target, State.VERIFYING);
    core.publish(target, content);
    if (jobs.targetTier[row] < replicas.tierOf(jobs.source[row])) countRead(core, row);
  } else {
    countFailure(core, row, outcome);
    discard(core, target, outcome);
  }
  releaseSource(core, row, outcome);
  core.end(row, outcome);
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
    if (core.fastestReady(content, HBM) !== -1) counters.aliases++;
    contents.sealed[content] = 1;
    contents.digestLo[content] = lo;
    contents.digestHi[content] = hi;
    core.publish(target, content);
  } else {
    counters.diverged++;
    replicas.become(target, State.PRIVATE);
    // Sequences that joined the job hold the block only once they are served.
    const wanted = replicas.refs[target] > 0 || jobs.waiter[row] !== -1;
    if (!wanted) replicas.become(target, State.DRAINING);
  }
  core.end(row, outcome);
}

function finishCopy(core: Core, row: number, target: number, outcome: Outcome): void {
  if (outcome === Outcome.LOADED) {
    core.replicas.become(target, State.OPEN);
    core.replicas.foreign[target] = 0;
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
    core.replicas.become(target, State.QUARANTINED);
  }
  core.replicas.become(target, State.DRAINING);
  core.setResident(target, 0);
}
