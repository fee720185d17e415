/**
 * The way of a job to the driver: it claims a slot in its target tier, claims of a tier are granted in order,
 * and with a slot and a ready source it is issued.
 */

import { DecisionOp } from '../../log/decisionSink.ts';
import { State } from '../../replica/state.ts';
import { JobKind, JobState } from '../../transfer/jobTable.ts';
import { Outcome } from '../../transfer/outcome.ts';
import type { Core } from '../core.ts';
import { loadBegan } from './loadTimes.ts';

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
    replicas.become(replica, State.OPEN);
    core.end(row, Outcome.LOADED);
  } else if (jobs.source[row] !== -1) {
    start(core, row);
  }
}

/** The job has a slot and a source. */
export function start(core: Core, row: number): void {
  core.replicas.become(core.jobs.target[row], State.FILLING);
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
