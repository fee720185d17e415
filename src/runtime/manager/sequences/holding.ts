/**
 * What becomes of a replica that a sequence or a job needs no more: it becomes cached, moves on, or gives its
 * slot back.
 */

import { DecisionOp } from '../../log/decisionSink.ts';
import { State } from '../../replica/state.ts';
import { Outcome } from '../../transfer/outcome.ts';
import { type Core, HBM } from '../core.ts';

/** A sequence holds the replica no more. */
export function letGo(core: Core, replica: number): void {
  if (replica === -1 || !core.unhold(replica)) return;
  const { replicas } = core;
  const state = replicas.state[replica] as State;
  if (state === State.READY) settleIdle(core, replica);
  else if (state === State.OPEN || state === State.PRIVATE) replicas.become(replica, State.DRAINING);
  core.freeIfDrained(replica);
}

/** The job reads its source no more. Bytes found to be wrong are never read again. */
export function releaseSource(core: Core, row: number, outcome: Outcome): void {
  const { replicas, jobs } = core;
  const source = jobs.source[row];
  replicas.readers[source]--;
  if (jobs.leaving[row] === 1) {
    jobs.leaving[row] = 0;
    const tier = replicas.tierOf(source);
    core.leavingBytes[tier] -= core.unitBytes(jobs.sizeClass[row]);
    core.paces[tier].ended(core.nowUs - jobs.madeAtUs[row]);
  }
  if (replicas.state[source] === State.READY) {
    if (outcome === Outcome.CORRUPT || outcome === Outcome.MISSING) {
      core.logReplica(DecisionOp.QUARANTINE, source);
      core.unpublish(source);
      core.setResident(source, 0);
      if (source < replicas.base[HBM + 1] && replicas.refs[source] > 0) core.agenda.wrong.push(source);
    } else if (replicas.refs[source] === 0) {
      settleIdle(core, source);
    }
  }
  core.freeIfDrained(source);
}

/**
 * A ready replica that nobody holds: it is cached, or, where blocks move up rather than being copied, it has
 * moved.
 */
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
  if (replicas.evictable[replica] === 0) core.makeEvictable(replica, tier);
  core.agenda.mayBeCrowded(tier);
}
