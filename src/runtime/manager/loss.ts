/**
 * The bytes of a whole tier are gone: the device was lost, the disk died. Every replica of the tier goes, and
 * with it every way in and out that still counts on its bytes; its slots live on, for the store that takes
 * the lost one's place.
 *
 * - What a sequence held there is brought back from another tier where a copy lies (the entry is MATCHED
 *   again, `load` brings it), and is FAILED, to be computed again, where none does.
 * - Jobs that fill the tier are detached: their slots wait for the driver, as after a deadline. Jobs that
 *   read from it and that the driver has are left to it, since only the driver knows whether it had the bytes
 *   by then.
 */

import { DecisionOp } from '../log/decisionSink.ts';
import { State } from '../replica/state.ts';
import { type JobId, JobState } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { type Core, HBM } from './core.ts';
import { serveEnded } from './jobs/drain.ts';
import { cancelWaiting, detach } from './jobs/withdrawing.ts';
import { Entry, type Sequence } from './sequences/blockTable/sequence.ts';
import { letGo } from './sequences/holding.ts';
import { fail, repinOrFail } from './sequences/settling.ts';

export interface TierLoss {
  /** Ready replicas that went. */
  readonly replicas: number;
  /** Of their contents, those that now lie nowhere and are on their way nowhere. */
  readonly lost: number;
}

interface Held {
  readonly sequence: Sequence;
  readonly block: number;
  readonly generation: number;
}

export function loseTier(core: Core, tier: number): TierLoss {
  const held = heldIn(core, tier);
  const jobs = jobsOn(core, tier);
  const gone = unpublishAll(core, tier);
  for (const id of jobs) endJob(core, id, tier);
  serveEnded(core);
  for (const entry of held) settleEntry(core, entry, tier);
  for (let r = core.replicas.base[tier]; r < core.replicas.end(tier); r++) core.freeIfDrained(r);
  let lost = 0;
  for (const content of gone) if (!isAnywhere(core, content)) lost++;
  for (const content of gone) core.contents.unhold(content);
  core.counters.lost += lost;
  for (let each = 0; each < core.tiers; each++) core.agenda.mayBeCrowded(each);
  return { replicas: gone.length, lost };
}

/** Block table entries that hold a replica of the tier, before anything changes. */
function heldIn(core: Core, tier: number): Held[] {
  const held: Held[] = [];
  for (const sequence of core.sequences.values()) {
    for (let block = 0; block < sequence.length; block++) {
      const replica = sequence.replica[block];
      if (replica === -1 || core.replicas.tierOf(replica) !== tier) continue;
      held.push({ sequence, block, generation: core.generationOf(replica) });
    }
  }
  return held;
}

/** Jobs that fill the tier in the driver's hands, and jobs that wait to read from it. */
function jobsOn(core: Core, tier: number): JobId[] {
  const { jobs, replicas } = core;
  const found: JobId[] = [];
  for (let row = 0; row < jobs.rows; row++) {
    const source = jobs.source[row];
    const fills = jobs.state[row] === JobState.ISSUED && jobs.targetTier[row] === tier;
    const reads = jobs.state[row] === JobState.WAITING && source !== -1 && replicas.tierOf(source) === tier;
    if (fills || reads) found.push(jobs.idOf(row));
  }
  return found;
}

/**
 * Takes every ready replica of the tier out of the directory. @returns their contents, held so that they can
 * be counted
 */
function unpublishAll(core: Core, tier: number): number[] {
  const { replicas, contents } = core;
  const gone: number[] = [];
  for (let r = replicas.base[tier]; r < replicas.end(tier); r++) {
    if (replicas.state[r] !== State.READY) continue;
    const content = replicas.content[r];
    contents.hold(content);
    gone.push(content);
    core.logReplica(DecisionOp.DROP, r);
    core.unpublish(r);
    core.setResident(r, 0);
  }
  return gone;
}

function isAnywhere(core: Core, content: number): boolean {
  for (let tier = 0; tier < core.tiers; tier++) {
    if (core.readyIn(content, tier) !== -1 || core.incomingTo(content, tier) !== -1) return true;
  }
  return false;
}

/** MISSING sends whoever waits to another copy, as after any load that found nothing. */
function endJob(core: Core, id: JobId, tier: number): void {
  if (!core.jobs.isLive(id)) return;
  const row = core.jobs.rowOf(id);
  const state = core.jobs.state[row];
  if (state === JobState.WAITING) cancelWaiting(core, row, Outcome.MISSING);
  else if (state === JobState.ISSUED && core.jobs.targetTier[row] === tier)
    detach(core, row, Outcome.MISSING);
}

function settleEntry(core: Core, { sequence, block, generation }: Held, tier: number): void {
  const { replicas, waiters, jobs } = core;
  const replica = sequence.replica[block];
  if (replica === -1 || replicas.tierOf(replica) !== tier || core.generationOf(replica) !== generation)
    return;
  if (sequence.state[block] === Entry.LOADING) {
    sequence.replica[block] = -1;
    letGo(core, replica);
    return;
  }
  const wasPublished = sequence.state[block] === Entry.MATCHED || replicas.state[replica] === State.DRAINING;
  if (!wasPublished) {
    fail(core, sequence, block, Outcome.REFUSED);
    return;
  }
  sequence.state[block] = Entry.MATCHED;
  core.disturb(sequence);
  const content = sequence.content[block];
  const arriving = core.fastestReady(content, HBM) === -1 ? arrivingBelow(core, content) : -1;
  if (arriving === -1) {
    repinOrFail(core, sequence, block, Outcome.REFUSED);
    return;
  }
  waiters.append(jobs.waiter, arriving, sequence.id, block);
  sequence.replica[block] = -1;
  letGo(core, replica);
}

function arrivingBelow(core: Core, content: number): number {
  for (let tier = HBM + 1; tier < core.tiers; tier++) {
    if (core.incomingTo(content, tier) !== -1) return core.incomingTo(content, tier);
  }
  return -1;
}
