/** Jobs that nobody wants any more: withdrawn before the driver saw them, or detached from whoever waited. */

import { invariant } from '../../errors.ts';
import { State } from '../../replica/state.ts';
import { JobKind, JobState } from '../../transfer/jobTable.ts';
import { Outcome } from '../../transfer/outcome.ts';
import { type Core, HBM } from '../core.ts';
import { releaseSource } from '../sequences/holding.ts';

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

/** Nobody waits for the job any more; its slots stay taken until the driver says that it has ended. */
export function detach(core: Core, row: number, outcome: Outcome): void {
  const { jobs, replicas } = core;
  const target = jobs.target[row];
  if (jobs.content[row] !== -1) core.removeIncoming(jobs.content[row], row);
  if (jobs.kind[row] === JobKind.MOVE) countFailure(core, row, outcome);
  jobs.detach(row, outcome);
  core.agenda.ended.push(jobs.idOf(row));
  core.unasked.delete(jobs.idOf(row));
  replicas.become(target, State.DRAINING);
  core.setResident(target, 0);
}

/** A load that failed, or a demotion that did. */
export function countFailure(core: Core, row: number, outcome: Outcome): void {
  if (core.jobs.content[row] === -1) return;
  if (core.jobs.targetTier[row] === HBM) core.counters.loadsFailed[outcome]++;
  else core.counters.demotionsFailed++;
}
