/**
 * The way of a job back from the driver: right bytes are published, wrong ones never read again, its slots are its own no
 * more, and the sequences that wait are told.
 */

import { invariant } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import { State } from '../replica/state.ts';
import { JobKind, JobState } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { grantClaims, start } from './claims.ts';
import { type Core, HBM } from './core.ts';
import { settleIdle } from './releasing.ts';
import { makeRoom } from './residency.ts';
import { settleFailed, settleLoaded } from './settling.ts';
import { cancelWaiting } from './withdrawing.ts';

/** The driver reports how a job ended; its slots are its own no more. */
export function finish(core: Core, row: number, outcome: Outcome, digestLo: number, digestHi: number): void {
  const { jobs, replicas } = core;
  const state = jobs.state[row];
  invariant(state === JobState.ISSUED || state === JobState.DETACHED, 'only an issued job can finish');
  const target = jobs.target[row];
  replicas.writing[target] = 0;
  if (state === JobState.DETACHED) finishDetached(core, row, target, outcome);
  else if (jobs.kind[row] === JobKind.SEAL) finishSeal(core, row, target, outcome, digestLo, digestHi);
  else finishMove(core, row, target, outcome);
}

function finishMove(core: Core, row: number, target: number, outcome: Outcome): void {
  const { jobs, replicas, contents, counters } = core;
  const content = jobs.content[row];
  const source = jobs.source[row];
  const tier = jobs.targetTier[row];
  const loaded = outcome === Outcome.LOADED;
  core.removeIncoming(content, row);
  if (loaded) {
    replicas.become(target, State.VERIFYING);
    core.publish(target, content);
    if (tier === HBM) countRead(core, source, jobs.sizeClass[row]);
  } else {
    if (tier === HBM) counters.loadsFailed[outcome]++;
    else counters.demotionsFailed++;
    discard(core, target, outcome);
  }
  releaseSource(core, source, outcome);
  if (loaded) settleLoaded(core, row, target);
  else settleFailed(core, row, outcome);
  feedWaitingLoad(core, content, outcome);
  contents.unhold(content);
  jobs.retire(row);
  if (replicas.state[target] === State.DRAINING && core.freeIfDrained(target)) grantClaims(core, tier);
  makeRoom(core, tier);
}

function countRead(core: Core, source: number, sizeClass: number): void {
  const tier = core.replicas.tierOf(source);
  const bytes = core.unitBytes(sizeClass);
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
    settleFailed(core, row, outcome);
  } else if (same) {
    if (core.fastestReady(content, HBM) !== -1) counters.aliases++;
    contents.sealed[content] = 1;
    contents.digestLo[content] = lo;
    contents.digestHi[content] = hi;
    core.publish(target, content);
    settleLoaded(core, row, target);
  } else {
    counters.diverged++;
    replicas.become(target, State.PRIVATE);
    settleLoaded(core, row, target);
    if (replicas.refs[target] === 0) replicas.become(target, State.DRAINING);
  }
  contents.unhold(content);
  jobs.retire(row);
  if (core.freeIfDrained(target)) grantClaims(core, HBM);
  makeRoom(core, HBM);
}

function finishDetached(core: Core, row: number, target: number, outcome: Outcome): void {
  const { jobs } = core;
  const content = jobs.content[row];
  if (jobs.source[row] !== -1) {
    const harmless = outcome === Outcome.CORRUPT || outcome === Outcome.MISSING ? outcome : Outcome.CANCELLED;
    releaseSource(core, jobs.source[row], harmless);
  }
  core.contents.unhold(content);
  const tier = jobs.targetTier[row];
  jobs.retire(row);
  if (core.freeIfDrained(target)) grantClaims(core, tier);
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

/** The job reads its source no more. Wrong bytes are never read again. */
export function releaseSource(core: Core, source: number, outcome: Outcome): void {
  const { replicas } = core;
  replicas.readers[source]--;
  if (replicas.state[source] === State.READY) {
    if (outcome === Outcome.CORRUPT || outcome === Outcome.MISSING) {
      core.logReplica(DecisionOp.QUARANTINE, source);
      core.unpublish(source);
      core.setResident(source, 0);
    } else if (replicas.refs[source] === 0) {
      settleIdle(core, source);
    }
  }
  const tier = replicas.tierOf(source);
  if (core.freeIfDrained(source)) grantClaims(core, tier);
}

/** A load that waits for a lower copy to arrive gets it as its source, or fails with it. */
export function feedWaitingLoad(core: Core, content: number, outcome: Outcome): void {
  const { jobs, replicas } = core;
  const row = core.incomingTo(content, HBM);
  if (
    row === -1 ||
    jobs.kind[row] !== JobKind.MOVE ||
    jobs.state[row] !== JobState.WAITING ||
    jobs.source[row] !== -1
  ) {
    return;
  }
  const source = core.fastestReady(content, HBM + 1);
  if (source !== -1) {
    jobs.source[row] = source;
    jobs.sourceGeneration[row] = core.generationOf(source);
    replicas.readers[source]++;
    if (jobs.target[row] !== -1) start(core, row);
    return;
  }
  for (let tier = HBM + 1; tier < core.tiers; tier++) if (core.incomingTo(content, tier) !== -1) return;
  cancelWaiting(core, row, outcome === Outcome.LOADED ? Outcome.MISSING : outcome);
}
