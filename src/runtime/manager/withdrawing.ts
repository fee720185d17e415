/** Jobs that nobody wants any more: withdrawn before the driver saw them, or detached from whoever waited. */

import { invariant } from '../errors.ts';
import { State } from '../replica/state.ts';
import { JobKind, JobState } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { grantClaims } from './claims.ts';
import { type Core, HBM } from './core.ts';
import { feedWaitingLoad, releaseSource } from './endings.ts';
import { settleFailed } from './settling.ts';

/** Ends a job that the driver never saw. */
export function cancelWaiting(core: Core, row: number, outcome: Outcome): void {
  const { jobs, contents } = core;
  invariant(jobs.state[row] === JobState.WAITING, 'only a waiting job can be withdrawn');
  const target = jobs.target[row];
  const source = jobs.source[row];
  const content = jobs.content[row];
  const tier = jobs.targetTier[row];
  core.setJobResident(row, 0);
  if (content !== -1) {
    core.removeIncoming(content, row);
    if (tier === HBM) core.counters.loadsFailed[outcome]++;
    else core.counters.demotionsFailed++;
  }
  if (source !== -1) releaseSource(core, source, Outcome.CANCELLED);
  settleFailed(core, row, outcome);
  if (tier !== HBM) feedWaitingLoad(core, content, outcome);
  if (content !== -1) contents.unhold(content);
  jobs.retire(row);
  if (target !== -1) {
    core.giveBack(target);
    grantClaims(core, tier);
  }
}

/** Nobody waits for the job any more; its slots stay taken until the driver says that it has retired. */
export function detach(core: Core, row: number, outcome: Outcome): void {
  const { jobs, replicas } = core;
  const target = jobs.target[row];
  const content = jobs.content[row];
  const tier = jobs.targetTier[row];
  core.removeIncoming(content, row);
  if (jobs.kind[row] === JobKind.MOVE) {
    if (tier === HBM) core.counters.loadsFailed[outcome]++;
    else core.counters.demotionsFailed++;
  }
  jobs.detach(row);
  replicas.become(target, State.DRAINING);
  core.setResident(target, 0);
  settleFailed(core, row, outcome);
  if (tier !== HBM) feedWaitingLoad(core, content, outcome);
}
