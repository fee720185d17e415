/**
 * What a sequence gets: its blocks are matched and pinned, loaded, opened for writing, sealed and released. Nothing here
 * waits; an entry that needs a job hangs a waiter on it and is settled when the job ends.
 */

import { NO_PARENT, UNKNOWN_PARENT } from '../content/contentTable.ts';
import { invariant } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import { State } from '../replica/state.ts';
import { JobKind, JobState, Priority } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { type Core, HBM } from './core.ts';
import { makeRoom } from './residency.ts';
import { Entry, type Sequence } from './sequence.ts';
import { cancelWaiting, claim, detach, grantClaims, issue, settleIdle } from './transfers.ts';

/** Pins block i of a fresh sequence to its content, wherever that lies or is going. Counts the hit. */
export function match(core: Core, sequence: Sequence, i: number, content: number): void {
  const { replicas, counters } = core;
  remember(core, sequence, i, content);
  const ready = core.readyIn(content, HBM);
  if (ready !== -1) {
    core.hold(ready);
    sequence.replica[i] = ready;
    sequence.state[i] = Entry.READY;
    counters.hits[HBM]!++;
    return;
  }
  if (core.incomingTo(content, HBM) !== -1) {
    counters.hits[HBM]!++;
    counters.joined++;
    join(core, sequence, i, core.incomingTo(content, HBM));
    return;
  }
  sequence.state[i] = Entry.MATCHED;
  const lower = core.fastestReady(content, HBM + 1);
  if (lower !== -1) {
    const tier = replicas.tierOf(lower);
    counters.hits[tier]!++;
    core.hold(lower);
    sequence.replica[i] = lower;
    if (core.config.moveOnReload) core.setResident(lower, 0);
    return;
  }
  const tier = fastestIncoming(core, content);
  counters.hits[tier]!++;
  counters.joined++;
  const row = core.incomingTo(content, tier);
  core.waiters.append(core.jobs.waiter, row, sequence.id, i);
  if (core.config.moveOnReload) setIncomingResident(core, row, 0);
}

/** An entry keeps its content alive, so that the number still means the same content when the entry is settled. */
function remember(core: Core, sequence: Sequence, i: number, content: number): void {
  core.contents.hold(content);
  sequence.content[i] = content;
}

function forget(core: Core, sequence: Sequence, i: number): void {
  const content = sequence.content[i]!;
  sequence.clear(i);
  if (content !== -1) core.contents.unhold(content);
}

function parentOf(sequence: Sequence, i: number): number {
  if (i === 0) return NO_PARENT;
  const parent = sequence.content[i - 1]!;
  return parent === -1 ? UNKNOWN_PARENT : parent;
}

/** The fastest tier that a job is bringing the content into, or -1. */
export function fastestIncoming(core: Core, content: number): number {
  for (let tier = 0; tier < core.tiers; tier++) if (core.incomingTo(content, tier) !== -1) return tier;
  return -1;
}

function setIncomingResident(core: Core, row: number, resident: 0 | 1): void {
  const target = core.jobs.target[row]!;
  if (target === -1) core.setJobResident(row, resident);
  else core.setResident(target, resident);
}

function join(core: Core, sequence: Sequence, i: number, row: number): void {
  core.waiters.append(core.jobs.waiter, row, sequence.id, i);
  sequence.state[i] = Entry.LOADING;
  sequence.pending++;
}

/** Brings a matched block to HBM, or joins the job that already does. */
export function load(core: Core, sequence: Sequence, i: number): void {
  const content = sequence.content[i]!;
  const ready = core.readyIn(content, HBM);
  if (ready !== -1) {
    core.hold(ready);
    stopWaitingBelow(core, sequence, i, content);
    letGo(core, sequence.replica[i]!);
    sequence.replica[i] = ready;
    sequence.state[i] = Entry.READY;
    return;
  }
  const incoming = core.incomingTo(content, HBM);
  if (incoming !== -1) {
    join(core, sequence, i, incoming);
    return;
  }
  const row = createLoad(core, content, sequence.replica[i]!, Priority.DEMAND_LOAD);
  if (row === -1) {
    fail(core, sequence, i, Outcome.REFUSED);
    return;
  }
  join(core, sequence, i, row);
  makeRoom(core, HBM);
  claim(core, row);
}

/** A load of a content that has no job to HBM yet; `source` is -1 while its lower copy is still arriving. */
function createLoad(core: Core, content: number, source: number, priority: Priority): number {
  const { jobs, contents, replicas, counters } = core;
  let from = source;
  if (from !== -1 && replicas.state[from] !== State.READY) {
    from = core.fastestReady(content, HBM + 1);
    if (from === -1) return -1;
  }
  const row = jobs.create(JobKind.MOVE, HBM, contents.sizeClass[content]!, content, priority);
  if (row === -1) return -1;
  contents.hold(content);
  core.addIncoming(content, row);
  if (from !== -1) {
    jobs.source[row] = from;
    jobs.sourceGeneration[row] = core.generationOf(from);
    replicas.readers[from]!++;
  }
  core.setJobResident(row, 1);
  const tier = from === -1 ? fastestLowerIncoming(core, content) : replicas.tierOf(from);
  counters.reloads[tier]!++;
  if (core.nowUs - contents.offloadedAtUs[content]! <= core.config.thrashingWindowUs) counters.thrashed++;
  return row;
}

function fastestLowerIncoming(core: Core, content: number): number {
  for (let tier = HBM + 1; tier < core.tiers; tier++) if (core.incomingTo(content, tier) !== -1) return tier;
  throw new Error('tierkv invariant broken: a load without a source waits for one that is arriving');
}

/** Brings a content to HBM for nobody in particular; false when it is there already or there is no room for it. */
export function prefetch(core: Core, content: number): boolean {
  if (core.readyIn(content, HBM) !== -1 || core.incomingTo(content, HBM) !== -1) return false;
  const source = core.fastestReady(content, HBM + 1);
  if (source === -1) return false;
  const row = createLoad(core, content, source, Priority.PREFETCH);
  if (row === -1) return false;
  makeRoom(core, HBM);
  claim(core, row);
  return true;
}

/** A private block for the sequence to write. The caller has made sure that it fits. */
export function open(core: Core, sequence: Sequence, i: number, sizeClass: number): void {
  const { jobs } = core;
  forget(core, sequence, i);
  makeRoom(core, HBM, core.unitBytes(sizeClass));
  const replica = core.claims[HBM]!.size === 0 ? core.reserve(HBM, sizeClass) : -1;
  if (replica !== -1) {
    core.setResident(replica, 1);
    core.replicas.become(replica, State.OPEN);
    core.hold(replica);
    sequence.replica[i] = replica;
    sequence.state[i] = Entry.OPEN;
    return;
  }
  const row = jobs.create(JobKind.OPEN, HBM, sizeClass, -1, Priority.DEMAND_LOAD);
  if (row === -1) {
    fail(core, sequence, i, Outcome.REFUSED);
    return;
  }
  core.setJobResident(row, 1);
  core.waiters.append(jobs.waiter, row, sequence.id, i);
  sequence.claim[i] = row;
  sequence.state[i] = Entry.WAITING;
  sequence.pending++;
  claim(core, row);
}

/** The block has its last token: after the device fence its digest is taken, then it is published under the key. */
export function seal(
  core: Core,
  sequence: Sequence,
  i: number,
  keys: Uint32Array,
  at: number,
  tokens: number,
): void {
  const { replicas, contents, jobs } = core;
  const replica = sequence.replica[i]!;
  const sizeClass = core.sizeClassOf(replica, HBM);
  const parent = parentOf(sequence, i);
  const content = contents.intern(keys, at, sizeClass, tokens, parent);
  if (core.config.chainedKeys) contents.learnParent(content, parent);
  contents.hold(content);
  const row = jobs.create(JobKind.SEAL, HBM, sizeClass, content, Priority.DEMAND_LOAD);
  if (row === -1) {
    contents.unhold(content);
    fail(core, sequence, i, Outcome.REFUSED);
    return;
  }
  replicas.become(replica, State.SEALED);
  jobs.target[row] = replica;
  jobs.targetGeneration[row] = core.generationOf(replica);
  if (core.incomingTo(content, HBM) === -1 && core.readyIn(content, HBM) === -1)
    core.addIncoming(content, row);
  replicas.become(replica, State.VERIFYING);
  remember(core, sequence, i, content);
  sequence.claim[i] = row;
  sequence.state[i] = Entry.SEALING;
  sequence.pending++;
  core.waiters.append(jobs.waiter, row, sequence.id, i);
  issue(core, row);
}

/** Lets block i go, in whatever state it is. With `cancel`, a load that nobody else waits for is called off. */
export function release(core: Core, sequence: Sequence, i: number, cancel: boolean): void {
  const state = sequence.state[i]! as Entry;
  const replica = sequence.replica[i]!;
  const content = sequence.content[i]!;
  if (state === Entry.READY || state === Entry.OPEN) {
    forget(core, sequence, i);
    letGo(core, replica);
  } else if (state === Entry.WAITING) {
    cancelWaiting(core, sequence.claim[i]!, Outcome.CANCELLED);
    forget(core, sequence, i);
  } else if (state === Entry.MATCHED || state === Entry.LOADING || state === Entry.SEALING) {
    const sealing = sequence.claim[i]!;
    if (state !== Entry.MATCHED) sequence.pending--;
    if (state === Entry.SEALING) core.waiters.remove(core.jobs.waiter, sealing, sequence.id, i);
    else stopWaiting(core, sequence, i, content, cancel);
    forget(core, sequence, i);
    letGo(core, replica);
  } else {
    forget(core, sequence, i);
  }
}

function stopWaiting(core: Core, sequence: Sequence, i: number, content: number, cancel: boolean): void {
  const { jobs, waiters } = core;
  stopWaitingBelow(core, sequence, i, content);
  const row = core.incomingTo(content, HBM);
  if (row === -1 || !waiters.remove(jobs.waiter, row, sequence.id, i) || jobs.waiter[row] !== -1) return;
  if (cancel && jobs.kind[row] === JobKind.MOVE) callOff(core, row);
}

/** An entry that no longer needs a copy in a lower tier does not wait for one to arrive there. */
function stopWaitingBelow(core: Core, sequence: Sequence, i: number, content: number): void {
  const { jobs, waiters } = core;
  for (let tier = core.tiers - 1; tier > HBM; tier--) {
    const row = core.incomingTo(content, tier);
    if (row === -1 || !waiters.remove(jobs.waiter, row, sequence.id, i)) continue;
    if (jobs.waiter[row] !== -1) continue;
    setIncomingResident(core, row, 1);
    makeRoom(core, tier);
  }
}

function callOff(core: Core, row: number): void {
  if (core.jobs.state[row] === JobState.WAITING) cancelWaiting(core, row, Outcome.CANCELLED);
  else if (core.jobs.state[row] === JobState.ISSUED) detach(core, row, Outcome.CANCELLED);
}

/** A sequence holds the replica no more: it becomes cached, or goes. */
export function letGo(core: Core, replica: number): void {
  if (replica === -1 || !core.unhold(replica)) return;
  const { replicas } = core;
  const state = replicas.state[replica]! as State;
  if (state === State.READY) settleIdle(core, replica);
  else if (state === State.OPEN || state === State.PRIVATE) replicas.become(replica, State.DRAINING);
  const tier = replicas.tierOf(replica);
  if (core.freeIfDrained(replica)) grantClaims(core, tier);
}

/** The job brought its block: every waiter gets the replica. */
export function settleLoaded(core: Core, row: number, replica: number): void {
  const { jobs, waiters, sequences } = core;
  const tier = jobs.targetTier[row]!;
  const kind = jobs.kind[row]! as JobKind;
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
    if (kind !== JobKind.OPEN) stopWaitingBelow(core, sequence, i, sequence.content[i]!);
    const source = sequence.replica[i]!;
    sequence.replica[i] = replica;
    sequence.claim[i] = -1;
    sequence.state[i] = kind === JobKind.OPEN ? Entry.OPEN : Entry.READY;
    letGo(core, source);
  }
}

/** The job brought nothing: every waiter tries another copy, or is told to compute the block again. */
export function settleFailed(core: Core, row: number, outcome: Outcome): void {
  const { jobs, waiters, sequences } = core;
  const tier = jobs.targetTier[row]!;
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
  const content = sequence.content[i]!;
  const other = core.fastestReady(content, HBM);
  if (other === -1) {
    fail(core, sequence, i, outcome);
    return;
  }
  core.hold(other);
  const before = sequence.replica[i]!;
  sequence.replica[i] = other;
  letGo(core, before);
}

export function fail(core: Core, sequence: Sequence, i: number, outcome: Outcome): void {
  const replica = sequence.replica[i]!;
  if (sequence.content[i] !== -1) stopWaitingBelow(core, sequence, i, sequence.content[i]!);
  forget(core, sequence, i);
  sequence.state[i] = Entry.FAILED;
  sequence.outcome[i] = outcome;
  core.log(DecisionOp.FAIL, sequence.id, i, outcome);
  letGo(core, replica);
}
