/**
 * How a sequence gets its blocks. A block is found and pinned; it comes up to HBM by a job of its own, or joins the job
 * that already brings its content; else it is opened, computed and sealed, or copied from another block. The waiters of
 * an ended job get its block, try another replica, or are told to compute. Speculative loads and single moves between
 * tiers, which no sequence asked for, are made here too.
 */

import { invariant } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import { NO_PARENT, UNKNOWN_PARENT } from '../tables/contentTable.ts';
import { JobKind, JobPriority, JobState } from '../tables/jobTable.ts';
import { ReplicaState } from '../tables/replicaTable.ts';
import { Outcome, TOP } from '../tier/tier.ts';
import type { Core } from './core.ts';
import {
  cancelWaiting,
  claim,
  detach,
  fastestIncoming,
  fastestIncomingBelow,
  forget,
  issue,
  join,
  letGo,
  remember,
  setIncomingResident,
  stopWaitingBelow,
} from './jobs.ts';
import { accepts, createDemotion, giveUp, isKept, makeRoom } from './residency.ts';
import { Entry, type Sequence } from './sequence.ts';

/**
 * Brings a matched block to HBM, or joins the job that already does.
 * @returns false, with the block still matched, without a copy or a free job
 */
export function loadBlock(core: Core, sequence: Sequence, i: number): boolean {
  const content = sequence.content[i];
  const ready = core.readyIn(content, TOP);
  if (ready !== -1) {
    core.hold(ready);
    stopWaitingBelow(core, sequence, i, content);
    letGo(core, sequence.replica[i]);
    sequence.replica[i] = ready;
    sequence.state[i] = Entry.READY;
    return true;
  }
  const incoming = core.incomingTo(content, TOP);
  if (incoming !== -1) {
    join(core, sequence, i, incoming);
    return true;
  }
  const row = createLoad(core, content, sequence.replica[i], TOP, JobPriority.DEMAND_LOAD);
  if (row === -1) return false;
  join(core, sequence, i, row);
  makeRoom(core, TOP, 0, core.contents.owner[content]);
  claim(core, row);
  return true;
}

/**
 * Joins the speculative loads of matched blocks in [from, to), so that they are not cancelled for others.
 * @returns their bytes, which count in HBM already
 */
export function joinSpeculative(core: Core, sequence: Sequence, from: number, to: number): number {
  if (core.speculativeLoads.size === 0) return 0;
  let bytes = 0;
  for (let i = from; i < to; i++) {
    if (sequence.state[i] !== Entry.MATCHED) continue;
    const row = core.incomingTo(sequence.content[i], TOP);
    if (row === -1 || !isSpeculative(core, row, sequence.owner)) continue;
    join(core, sequence, i, row);
    bytes += core.unitBytes(core.jobs.sizeClass[row]);
  }
  return bytes;
}

/** A job that brings a content up to `tier`; `source` is -1 while its lower copy is still arriving. */
function createLoad(
  core: Core,
  content: number,
  source: number,
  tier: number,
  priority: JobPriority,
): number {
  const { jobs, contents, replicas, counters } = core;
  let from = source;
  if (from !== -1 && replicas.state[from] !== ReplicaState.READY) {
    from = core.fastestReady(content, tier + 1);
    if (from === -1) return -1;
  }
  const row = jobs.create(
    JobKind.MOVE,
    tier,
    contents.sizeClass[content],
    content,
    priority,
    contents.owner[content],
  );
  if (row === -1) return -1;
  contents.hold(content);
  core.addIncoming(content, row);
  if (from !== -1) {
    jobs.source[row] = from;
    jobs.sourceGeneration[row] = core.generationOf(from);
    replicas.readers[from]++;
  }
  core.setJobResident(row, 1);
  if (tier !== TOP) {
    counters.promotions[tier]++;
    return row;
  }
  counters.reloads[from === -1 ? fastestIncomingBelow(core, content, TOP) : replicas.tierOf(from)]++;
  if (core.nowUs - contents.offloadedAtUs[content] < core.config.thrashingWindowUs) counters.thrashed++;
  return row;
}

/** Loads a content speculatively. @returns false when it is in HBM or on its way, or no job is to be had */
export function prefetchContent(core: Core, content: number, priority: JobPriority): boolean {
  if (core.readyIn(content, TOP) !== -1 || core.incomingTo(content, TOP) !== -1) return false;
  const source = core.fastestReady(content, TOP + 1);
  if (source === -1) return false;
  const row = createLoad(core, content, source, TOP, priority);
  if (row === -1) return false;
  noteSpeculative(core, row);
  makeRoom(core, TOP, 0, core.contents.owner[content]);
  claim(core, row);
  return true;
}

// Waiters of ended jobs.

/** Gives each waiter the loaded block; on failure retries from another replica, else the block is computed. */
export function serveWaiters(core: Core, row: number): void {
  const { jobs, waiters } = core;
  const outcome = jobs.outcome[row] as Outcome;
  for (
    let waiter = waiters.shift(jobs.waiter, row);
    waiter !== -1;
    waiter = waiters.shift(jobs.waiter, row)
  ) {
    const sequence = core.sequences.get(waiters.sequence(waiter) as Sequence['id']);
    const block = waiters.block(waiter);
    invariant(sequence !== undefined, 'a waiter belongs to a live sequence');
    if (outcome === Outcome.LOADED) settleLoaded(core, row, sequence, block);
    else settleFailed(core, row, sequence, block, outcome);
  }
  if (outcome === Outcome.LOADED) core.offerUnheld(jobs.target[row]); // a waiter may have left
}

function settleLoaded(core: Core, row: number, sequence: Sequence, i: number): void {
  const { jobs } = core;
  const replica = jobs.target[row];
  if (jobs.targetTier[row] !== TOP) {
    core.hold(replica);
    sequence.replica[i] = replica;
    return;
  }
  core.stoppedWaiting(sequence);
  sequence.claim[i] = -1;
  if (sequence.state[i] === Entry.SEALING) {
    sequence.state[i] = Entry.READY;
    return;
  }
  const opens = jobs.kind[row] === JobKind.OPEN || jobs.kind[row] === JobKind.COPY;
  core.hold(replica);
  if (!opens) stopWaitingBelow(core, sequence, i, sequence.content[i]);
  const source = sequence.replica[i];
  sequence.replica[i] = replica;
  sequence.state[i] = opens ? Entry.OPEN : Entry.READY;
  letGo(core, source);
}

function settleFailed(core: Core, row: number, sequence: Sequence, i: number, outcome: Outcome): void {
  if (core.jobs.targetTier[row] !== TOP) {
    if (sequence.state[i] === Entry.MATCHED) repinOrFail(core, sequence, i, outcome);
    return;
  }
  core.stoppedWaiting(sequence);
  const retry = outcome === Outcome.CORRUPT || outcome === Outcome.MISSING;
  if (!retry || sequence.state[i] !== Entry.LOADING) {
    fail(core, sequence, i, outcome);
    return;
  }
  sequence.state[i] = Entry.MATCHED;
  repinOrFail(core, sequence, i, outcome);
  if (sequence.state[i] === Entry.MATCHED && !loadBlock(core, sequence, i)) {
    fail(core, sequence, i, Outcome.REFUSED);
  }
}

export function repinOrFail(core: Core, sequence: Sequence, i: number, outcome: Outcome): void {
  const content = sequence.content[i];
  const other = core.fastestReady(content, TOP);
  if (other === -1) {
    fail(core, sequence, i, outcome);
    return;
  }
  core.hold(other);
  const before = sequence.replica[i];
  sequence.replica[i] = other;
  letGo(core, before);
}

/** The block cannot be brought: it is to be computed. */
export function fail(core: Core, sequence: Sequence, i: number, outcome: Outcome): void {
  const replica = sequence.replica[i];
  core.observer?.failed?.(sequence.id, i, sequence.content[i], outcome);
  if (sequence.content[i] !== -1) stopWaitingBelow(core, sequence, i, sequence.content[i]);
  forget(core, sequence, i);
  sequence.state[i] = Entry.FAILED;
  core.disturb(sequence);
  sequence.outcome[i] = outcome;
  core.log(DecisionOp.FAIL, sequence.id, i, outcome);
  letGo(core, replica);
}

/** The replica's bytes are wrong: every sequence that reads it is to compute the block again. */
export function failReaders(core: Core, replica: number): void {
  for (const sequence of core.sequences.values()) {
    for (let i = 0; i < sequence.length; i++) {
      if (sequence.replica[i] === replica && sequence.state[i] === Entry.READY) {
        fail(core, sequence, i, Outcome.CORRUPT);
      }
    }
  }
}

// Speculative loads: prefetches and migrations into HBM. They are cancelled, newest first, when a sequence
// needs their room, except while a sequence waits for one or if it was issued at demand priority.

/** The load was just made for no sequence: it is speculative, unless at demand priority. */
function noteSpeculative(core: Core, row: number): void {
  const { jobs, speculativeLoads } = core;
  const priority = jobs.priority[row];
  if (jobs.targetTier[row] === TOP && isUnasked(priority)) speculativeLoads.add(jobs.idOf(row));
}

/** Whether no caller waits for moves of this priority, or asked for them: prefetches and migration. */
function isUnasked(priority: number): boolean {
  return priority === JobPriority.PREFETCH || priority === JobPriority.SCRUB;
}

/** Whether the load may be cancelled for the owner. Loads of others within a quota may not. */
function isSpeculative(core: Core, row: number, owner: number): boolean {
  const { jobs, speculativeLoads, quotas } = core;
  if (jobs.waiter[row] !== -1 || !speculativeLoads.has(jobs.idOf(row))) return false;
  return jobs.owner[row] === owner || (quotas?.quotaBytes(jobs.owner[row], TOP) ?? null) === null;
}

/** Bytes of HBM that the owner gets by cancelling speculative loads. */
export function speculativeBytes(core: Core, owner: number): number {
  const { jobs } = core;
  let bytes = 0;
  for (const job of core.speculativeLoads) {
    const row = jobs.rowOf(job);
    if (isSpeculative(core, row, owner)) bytes += core.unitBytes(jobs.sizeClass[row]);
  }
  return bytes;
}

/**
 * Bytes that HBM lacks for `bytes` more of the owner, beside what cannot be evicted for it; 0 where they fit.
 */
export function lackingBytes(core: Core, bytes: number, owner: number): number {
  const kept = core.quotas?.protectedFrom(owner, TOP) ?? 0;
  const fixed = core.residentBytes[TOP] - core.cachedBytes[TOP] + kept;
  return Math.max(0, fixed + bytes - core.pools[TOP].shape.capacityBytes);
}

/** Replicas of HBM that the sequence alone holds: they can be evicted once it lets them go. */
export function heldAlone({ replicas }: Core, { replica, length }: Sequence): ReadonlySet<number> {
  const holds = new Map<number, number>();
  for (let i = 0; i < length; i++) {
    const held = replica[i];
    if (held !== -1 && held < replicas.base[TOP + 1]) holds.set(held, (holds.get(held) ?? 0) + 1);
  }
  return new Set([...holds].filter(([held, count]) => replicas.refs[held] === count).map(([held]) => held));
}

/** Cancels speculative loads until `bytes` more of the owner fit: first the loads that the driver has not seen. */
export function cancelSpeculative(core: Core, bytes: number, owner: number): void {
  const { jobs, speculativeLoads } = core;
  if (speculativeLoads.size === 0) return;
  for (const state of [JobState.WAITING, JobState.ISSUED]) {
    if (lackingBytes(core, bytes, owner) === 0) return;
    for (const job of [...speculativeLoads].reverse()) {
      const row = jobs.rowOf(job);
      if (jobs.state[row] !== state || !isSpeculative(core, row, owner)) continue;
      if (state === JobState.WAITING) cancelWaiting(core, row, Outcome.CANCELLED);
      else detach(core, row, Outcome.CANCELLED);
      if (lackingBytes(core, bytes, owner) === 0) return;
    }
  }
}

export function checkSpeculative({ jobs, speculativeLoads }: Core): void {
  for (const job of speculativeLoads) {
    const row = jobs.rowOf(job);
    const isLoad = jobs.kind[row] === JobKind.MOVE && jobs.targetTier[row] === TOP;
    const isUnderWay = jobs.state[row] === JobState.WAITING || jobs.state[row] === JobState.ISSUED;
    invariant(isLoad && isUnderWay, 'a speculative load is under way to HBM');
  }
}

// Moves of single contents between any two tiers: a migrator brings hot ones up and sends cold ones down.

/**
 *   started   a job brings it there
 *   there     the tier has it
 *   pending   a job was bringing it there already
 *   absent    no tier has it
 *   full      the tier has no room for it, or takes none now, or no job is to be had
 *   kept      a quota or a hint keeps it in a faster tier, and no caller asked for the move
 */
const moveAnswers = ['started', 'there', 'pending', 'absent', 'full', 'kept'] as const;
export type MoveAnswer = (typeof moveAnswers)[number];

/**
 * Brings the content to a tier. Up, it is copied, as by a load. Down, its replicas above without a holder are
 * given up once the copy has arrived and was read back, so that a transfer that fails loses nothing; replicas that sequences
 * hold stay until they are released and evicted. What is kept above goes down when its owner asks, and not for a mover. A
 * mover makes no room: it takes what is free, and leaves a tier alone that refuses.
 */
export function moveContent(core: Core, content: number, tier: number, priority: JobPriority): MoveAnswer {
  if (content === -1) return 'absent';
  if (mustStayAbove(core, content, tier, priority)) return 'kept';
  if (core.readyIn(content, tier) !== -1) {
    giveUpAbove(core, content, tier);
    return 'there';
  }
  if (core.incomingTo(content, tier) !== -1) return 'pending';
  const source = core.fastestReady(content, TOP);
  if (source === -1) return 'absent';
  return core.replicas.tierOf(source) > tier
    ? moveUp(core, content, source, tier, priority)
    : moveDown(core, content, source, tier, priority);
}

function moveUp(
  core: Core,
  content: number,
  source: number,
  tier: number,
  priority: JobPriority,
): MoveAnswer {
  const bytes = core.unitBytes(core.contents.sizeClass[content]);
  const kept = core.quotas?.protectedFrom(core.contents.owner[content], tier) ?? 0;
  const fixed = core.residentBytes[tier] - core.cachedBytes[tier] + kept;
  if (fixed + bytes > core.capacityBytes[tier]) return 'full';
  if (isUnasked(priority) && !hasFreeRoom(core, content, tier)) return 'full';
  const row = createLoad(core, content, source, tier, priority);
  if (row === -1) return 'full';
  noteSpeculative(core, row);
  makeRoom(core, tier, 0, core.contents.owner[content]);
  claim(core, row);
  return 'started';
}

/** A move that no caller asked for takes room that is free: no other block gives way to it. */
function hasFreeRoom(core: Core, content: number, tier: number): boolean {
  const bytes = core.unitBytes(core.contents.sizeClass[content]);
  return core.residentBytes[tier] + bytes <= core.capacityBytes[tier];
}

function moveDown(
  core: Core,
  content: number,
  source: number,
  tier: number,
  priority: JobPriority,
): MoveAnswer {
  if (!accepts(core, tier, core.contents.sizeClass[content], core.contents.owner[content])) return 'full';
  if (isUnasked(priority) && !(hasFreeRoom(core, content, tier) && core.takers[tier].takes(core.nowUs))) {
    return 'full';
  }
  const row = createDemotion(core, content, source, tier, priority);
  if (row === -1) return 'full';
  core.jobs.frees[row] = 1;
  core.jobs.proves[row] = 1;
  makeRoom(core, tier, 0, core.contents.owner[content]);
  claim(core, row);
  return 'started';
}

/** Whether a copy above `tier` is kept there, and no caller asked for the move that would give it up. */
export function mustStayAbove(core: Core, content: number, tier: number, priority: number): boolean {
  const { replicas } = core;
  if (!isUnasked(priority)) return false;
  for (let replica = core.fastestReady(content, TOP); replica !== -1; replica = replicas.alias[replica]) {
    const position = replicas.tierOf(replica);
    if (position < tier && isKept(core, replica, position)) return true;
  }
  return false;
}

/** The copies above that no sequence holds give up their room to the one in `tier`. */
export function giveUpAbove(core: Core, content: number, tier: number): void {
  const { replicas } = core;
  for (let replica = core.fastestReady(content, TOP); replica !== -1; ) {
    const next = replicas.alias[replica];
    const position = replicas.tierOf(replica);
    if (position < tier && replicas.evictable[replica] === 1) giveUp(core, replica, position);
    replica = next;
  }
}

// How blocks enter a table: found and pinned to their content, opened for writes and sealed, or copied within HBM.

/** Pins block i of a fresh sequence to its content, wherever that lies or is going. Counts the hit. */
export function matchBlock(core: Core, sequence: Sequence, i: number, content: number): void {
  const { replicas, counters } = core;
  remember(core, sequence, i, content);
  core.touch(sequence, content);
  const ready = core.readyIn(content, TOP);
  if (ready !== -1) {
    core.hold(ready);
    sequence.replica[i] = ready;
    sequence.state[i] = Entry.READY;
    counters.hits[TOP]++;
    core.observer?.found?.(content, TOP);
    return;
  }
  if (core.incomingTo(content, TOP) !== -1) {
    counters.hits[TOP]++;
    core.observer?.found?.(content, TOP);
    counters.joined++;
    join(core, sequence, i, core.incomingTo(content, TOP));
    return;
  }
  sequence.state[i] = Entry.MATCHED;
  const lower = core.fastestReady(content, TOP + 1);
  if (lower !== -1) {
    const tier = replicas.tierOf(lower);
    counters.hits[tier]++;
    core.observer?.found?.(content, tier);
    core.hold(lower);
    sequence.replica[i] = lower;
    if (core.config.moveOnReload) core.setResident(lower, 0);
    return;
  }
  const tier = fastestIncoming(core, content);
  counters.hits[tier]++;
  core.observer?.found?.(content, tier);
  counters.joined++;
  const row = core.incomingTo(content, tier);
  core.waiters.append(core.jobs.waiter, row, sequence.id, i);
  if (core.config.moveOnReload) setIncomingResident(core, row, 0);
}

// Blocks that a sequence computes.

function parentOf(sequence: Sequence, i: number): number {
  if (i === 0) return NO_PARENT;
  const parent = sequence.content[i - 1];
  return parent === -1 ? UNKNOWN_PARENT : parent;
}

/** A private block for the sequence to write. The caller has made sure that it fits. */
export function openBlock(core: Core, sequence: Sequence, i: number, sizeClass: number): void {
  const { jobs } = core;
  forget(core, sequence, i);
  makeRoom(core, TOP, core.unitBytes(sizeClass), sequence.owner);
  const replica = core.claims[TOP].size === 0 ? core.reserve(TOP, sizeClass, sequence.owner) : -1;
  if (replica !== -1) {
    core.setResident(replica, 1);
    core.replicas.become(replica, ReplicaState.OPEN);
    core.openings.opened(replica);
    core.hold(replica);
    sequence.replica[i] = replica;
    sequence.state[i] = Entry.OPEN;
    return;
  }
  const row = jobs.create(JobKind.OPEN, TOP, sizeClass, -1, JobPriority.DEMAND_LOAD, sequence.owner);
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

/**
 * The block has its last token: after the device fence its digest is taken, then it is published under the
 * key.
 */
export function sealBlock(
  core: Core,
  sequence: Sequence,
  i: number,
  keys: Uint32Array,
  at: number,
  tokens: number,
): void {
  const { replicas, contents, jobs } = core;
  const replica = sequence.replica[i];
  const sizeClass = core.sizeClassOf(replica, TOP);
  const parent = parentOf(sequence, i);
  const content = contents.intern(keys, at, sizeClass, tokens, parent, sequence.owner);
  if (core.config.chainedKeys) contents.learnParent(content, parent);
  contents.hold(content);
  const row = jobs.create(JobKind.SEAL, TOP, sizeClass, content, JobPriority.DEMAND_LOAD, sequence.owner);
  if (row === -1) {
    contents.unhold(content);
    fail(core, sequence, i, Outcome.REFUSED);
    return;
  }
  replicas.become(replica, ReplicaState.SEALED);
  jobs.target[row] = replica;
  jobs.targetGeneration[row] = core.generationOf(replica);
  if (core.incomingTo(content, TOP) === -1 && core.readyIn(content, TOP) === -1)
    core.addIncoming(content, row);
  replicas.become(replica, ReplicaState.VERIFYING);
  remember(core, sequence, i, content);
  core.touch(sequence, content);
  core.observer?.sealed?.(content);
  if (sequence.retention !== null) core.policy.retain?.(content, sequence.retention);
  sequence.claim[i] = row;
  sequence.state[i] = Entry.SEALING;
  sequence.pending++;
  core.waiters.append(jobs.waiter, row, sequence.id, i);
  issue(core, row);
}

// A private copy of a block within HBM: what a fork continues behind the last full block, and what a rollback
// into a sealed block continues. The copy is OPEN once its bytes are in place. The source may be any block
// that its sequence can read or write.

/**
 * The caller has made sure that the block can be copied and that the copy fits.
 * @param tokens from the block's front that are the new owner's too
 * @returns false when no job is to be had
 */
export function copyBlock(
  core: Core,
  from: Sequence,
  at: number,
  to: Sequence,
  into: number,
  tokens: number,
): boolean {
  const { jobs, replicas } = core;
  const source = from.replica[at];
  const sizeClass = core.sizeClassOf(source, TOP);
  const row = jobs.create(JobKind.COPY, TOP, sizeClass, -1, JobPriority.DEMAND_LOAD, to.owner);
  if (row === -1) return false;
  jobs.source[row] = source;
  jobs.sourceGeneration[row] = core.generationOf(source);
  replicas.readers[source]++;
  core.openings.copies(row, from, at, tokens);
  core.counters.copies++;
  const held = to.replica[into];
  forget(core, to, into);
  letGo(core, held); // its own block, where it is replaced by a copy of itself
  core.waiters.append(jobs.waiter, row, to.id, into);
  to.claim[into] = row;
  to.state[into] = Entry.WAITING;
  to.pending++;
  core.setJobResident(row, 1);
  makeRoom(core, TOP, 0, to.owner);
  claim(core, row);
  return true;
}

/** Whether block i of the sequence has bytes in HBM that a copy may be taken of. */
export function canBeCopied(sequence: Sequence, i: number): boolean {
  const state = sequence.state[i];
  return i < sequence.length && (state === Entry.READY || state === Entry.OPEN);
}
