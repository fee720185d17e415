/**
 * The way of a job to the driver: it claims a slot in its target tier, claims of a tier are granted in order, and with a
 * slot and a ready source it is issued. Nothing waits for ever: what has no place and can get none is refused.
 */

import { DecisionOp } from '../log/decisionSink.ts';
import { State } from '../replica/state.ts';
import { JobKind } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import type { Core } from './core.ts';
import { evict, evictableFor } from './residency.ts';
import { settleLoaded } from './settling.ts';
import { cancelWaiting } from './withdrawing.ts';

/** Gives the job a slot now, or puts it at the end of its tier's queue. */
export function claim(core: Core, row: number): void {
  const tier = core.jobs.targetTier[row];
  const replica = core.claims[tier].size === 0 ? core.reserve(tier, core.jobs.sizeClass[row]) : -1;
  if (replica === -1) core.claims[tier].push(core.jobs.idOf(row));
  else grant(core, row, replica);
}

export function grantClaims(core: Core, tier: number): void {
  const queue = core.claims[tier];
  while (queue.size > 0) {
    const id = queue.peek();
    if (core.jobs.isLive(id)) {
      const row = core.jobs.rowOf(id);
      const replica = core.reserve(tier, core.jobs.sizeClass[row]);
      if (replica === -1) return;
      queue.shift();
      grant(core, row, replica);
    } else {
      queue.shift();
    }
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
    settleLoaded(core, row, replica);
    jobs.retire(row);
  } else if (jobs.source[row] !== -1) {
    start(core, row);
  }
}

export function start(core: Core, row: number): void {
  core.replicas.become(core.jobs.target[row], State.FILLING);
  issue(core, row);
}

export function issue(core: Core, row: number): void {
  const { jobs, replicas } = core;
  replicas.writing[jobs.target[row]] = 1;
  jobs.issue(row);
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

/**
 * Progress when jobs wait for slots and nothing is in flight that could free one, jobs past their deadline apart, which
 * may never end: evict more, first in the class that waits, then a page of another class; what still has no place is
 * refused. So nothing ever waits for ever.
 */
export function unstick(core: Core): void {
  while (core.jobs.issued === core.jobs.overdueCount && core.jobs.waiting > 0) {
    let progress = false;
    for (let tier = core.tiers - 1; tier >= 0 && !progress; tier--) {
      const id = core.claims[tier].peek();
      if (id === 0) continue;
      progress = true;
      if (!core.jobs.isLive(id)) {
        core.claims[tier].shift();
        continue;
      }
      const row = core.jobs.rowOf(id);
      const victim = evictableFor(core, tier, core.jobs.sizeClass[row]);
      if (victim !== -1) evict(core, victim, tier);
      else cancelWaiting(core, row, Outcome.REFUSED);
      grantClaims(core, tier);
    }
    if (!progress) return;
  }
}
