/**
 * What moves. A job first claims a slot in its target tier; claims of a tier are granted in order. With a slot and a
 * ready source it is issued to the driver. When the driver says how it ended, the replica is published or its slot goes
 * back, the sequences that wait are told, and whatever the freed slots allow happens next.
 */

import { invariant } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import { State } from '../replica/state.ts';
import { JobKind, JobState } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { settleFailed, settleLoaded } from './blocks.ts';
import { type Core, HBM } from './core.ts';
import { evict, makeRoom } from './residency.ts';

/** Gives the job a slot now, or puts it at the end of its tier's queue. */
export function claim(core: Core, row: number): void {
  const tier = core.jobs.targetTier[row]!;
  const replica = core.claims[tier]!.size === 0 ? core.reserve(tier, core.jobs.sizeClass[row]!) : -1;
  if (replica === -1) core.claims[tier]!.push(core.jobs.idOf(row));
  else grant(core, row, replica);
}

export function grantClaims(core: Core, tier: number): void {
  const queue = core.claims[tier]!;
  while (queue.size > 0) {
    const id = queue.peek();
    if (core.jobs.isLive(id)) {
      const row = core.jobs.rowOf(id);
      const replica = core.reserve(tier, core.jobs.sizeClass[row]!);
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

function start(core: Core, row: number): void {
  core.replicas.become(core.jobs.target[row]!, State.FILLING);
  issue(core, row);
}

export function issue(core: Core, row: number): void {
  const { jobs, replicas } = core;
  replicas.writing[jobs.target[row]!] = 1;
  jobs.issue(row);
  core.outbox.push(jobs.idOf(row));
  if (core.sink === null) return;
  const target = jobs.target[row]!;
  const source = jobs.source[row]!;
  const sourceTier = source === -1 ? -1 : replicas.tierOf(source);
  const targetTier = jobs.targetTier[row]!;
  core.sink.decision(
    DecisionOp.ISSUE,
    jobs.idOf(row),
    sourceTier,
    source === -1 ? -1 : replicas.slotOf(source, sourceTier),
    targetTier,
    replicas.slotOf(target, targetTier),
  );
}

/** The driver reports how a job ended; its slots are its own no more. */
export function finish(core: Core, row: number, outcome: Outcome, digestLo: number, digestHi: number): void {
  const { jobs, replicas } = core;
  const state = jobs.state[row]!;
  invariant(state === JobState.ISSUED || state === JobState.DETACHED, 'only an issued job can finish');
  const target = jobs.target[row]!;
  replicas.writing[target] = 0;
  if (state === JobState.DETACHED) finishDetached(core, row, target, outcome);
  else if (jobs.kind[row] === JobKind.SEAL) finishSeal(core, row, target, outcome, digestLo, digestHi);
  else finishMove(core, row, target, outcome);
}

function finishMove(core: Core, row: number, target: number, outcome: Outcome): void {
  const { jobs, replicas, contents, counters } = core;
  const content = jobs.content[row]!;
  const source = jobs.source[row]!;
  const tier = jobs.targetTier[row]!;
  const loaded = outcome === Outcome.LOADED;
  core.removeIncoming(content, row);
  if (loaded) {
    replicas.become(target, State.VERIFYING);
    core.publish(target, content);
  } else {
    if (tier === HBM) counters.loadsFailed[outcome]!++;
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

function finishSeal(core: Core, row: number, target: number, outcome: Outcome, lo: number, hi: number): void {
  const { jobs, replicas, contents, counters } = core;
  const content = jobs.content[row]!;
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
  const content = jobs.content[row]!;
  if (jobs.source[row] !== -1) {
    const harmless = outcome === Outcome.CORRUPT || outcome === Outcome.MISSING ? outcome : Outcome.CANCELLED;
    releaseSource(core, jobs.source[row]!, harmless);
  }
  core.contents.unhold(content);
  const tier = jobs.targetTier[row]!;
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
function releaseSource(core: Core, source: number, outcome: Outcome): void {
  const { replicas } = core;
  replicas.readers[source]!--;
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

/** A ready replica that nobody holds: it is cached, or, where blocks move up rather than being copied, it has moved. */
export function settleIdle(core: Core, replica: number): void {
  const { replicas } = core;
  if (replicas.readers[replica] !== 0 && replicas.resident[replica] === 0) return;
  const tier = replicas.tierOf(replica);
  const content = replicas.content[replica]!;
  if (core.config.moveOnReload && tier !== HBM && core.readyIn(content, HBM) !== -1) {
    core.unpublish(replica);
    core.setResident(replica, 0);
    return;
  }
  core.setResident(replica, 1);
  if (!replicas.lru.has(replica)) core.makeEvictable(replica, tier);
  if (core.residentBytes[tier]! > core.capacityBytes[tier]!) makeRoom(core, tier);
}

/** A load that waits for a lower copy to arrive gets it as its source, or fails with it. */
function feedWaitingLoad(core: Core, content: number, outcome: Outcome): void {
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
    replicas.readers[source]!++;
    if (jobs.target[row] !== -1) start(core, row);
    return;
  }
  for (let tier = HBM + 1; tier < core.tiers; tier++) if (core.incomingTo(content, tier) !== -1) return;
  cancelWaiting(core, row, outcome === Outcome.LOADED ? Outcome.MISSING : outcome);
}

/** Ends a job that the driver never saw. */
export function cancelWaiting(core: Core, row: number, outcome: Outcome): void {
  const { jobs, contents } = core;
  invariant(jobs.state[row] === JobState.WAITING, 'only a waiting job can be withdrawn');
  const target = jobs.target[row]!;
  const source = jobs.source[row]!;
  const content = jobs.content[row]!;
  const tier = jobs.targetTier[row]!;
  core.setJobResident(row, 0);
  if (content !== -1) {
    core.removeIncoming(content, row);
    if (tier === HBM) core.counters.loadsFailed[outcome]!++;
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
  const target = jobs.target[row]!;
  const content = jobs.content[row]!;
  const tier = jobs.targetTier[row]!;
  core.removeIncoming(content, row);
  if (jobs.kind[row] === JobKind.MOVE) {
    if (tier === HBM) core.counters.loadsFailed[outcome]!++;
    else core.counters.demotionsFailed++;
  }
  jobs.detach(row);
  replicas.become(target, State.DRAINING);
  core.setResident(target, 0);
  settleFailed(core, row, outcome);
  if (tier !== HBM) feedWaitingLoad(core, content, outcome);
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
      const id = core.claims[tier]!.peek();
      if (id === 0) continue;
      progress = true;
      if (!core.jobs.isLive(id)) {
        core.claims[tier]!.shift();
        continue;
      }
      const row = core.jobs.rowOf(id);
      const victim = evictableFor(core, tier, core.jobs.sizeClass[row]!);
      if (victim !== -1) evict(core, victim, tier);
      else cancelWaiting(core, row, Outcome.REFUSED);
      grantClaims(core, tier);
    }
    if (!progress) return;
  }
}

/** A cached replica whose eviction brings a slot of the class nearer: of the class itself, else on a page without holders. */
export function evictableFor(core: Core, tier: number, sizeClass: number): number {
  const same = core.replicas.oldestOfClass(tier, sizeClass);
  if (same !== -1) return same;
  const pool = core.pools[tier]!;
  const { slotsPerPageMax } = pool.shape;
  for (let c = 0; c < core.config.unitBytes.length; c++) {
    for (let at = core.replicas.oldestOfClass(tier, c); at !== -1; at = core.replicas.lru.newer(at)) {
      const first = core.replicas.base[tier]! + pool.pageOf(core.replicas.slotOf(at, tier)) * slotsPerPageMax;
      let held = false;
      for (let i = 0; i < slotsPerPageMax && !held; i++) {
        const state = core.replicas.state[first + i]!;
        held = state !== State.FREE && !core.replicas.lru.has(first + i);
      }
      if (!held) return at;
    }
  }
  return -1;
}
