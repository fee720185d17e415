/**
 * How blocks enter a table: found and pinned to their content, opened for writes and sealed, or copied within
 * HBM. Loads are in loads.ts, the way out in holds.ts.
 */

import { NO_PARENT, UNKNOWN_PARENT } from '../tables/contentTable.ts';
import { JobKind, JobPriority } from '../tables/jobTable.ts';
import { ReplicaState } from '../tables/replicaTable.ts';
import { Outcome, TOP } from '../tier/tier.ts';
import type { Core } from './core.ts';
import { fastestIncoming, forget, join, letGo, remember, setIncomingResident } from './holds.ts';
import { claim, issue } from './jobs.ts';
import { fail } from './loads.ts';
import { makeRoom } from './residency.ts';
import { Entry, type Sequence } from './sequence.ts';

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
 * The caller has made sure that the block can be copied and that the copy fits. @returns false when no job is
 * to be had
 */
export function copyBlock(core: Core, from: Sequence, at: number, to: Sequence, into: number): boolean {
  const { jobs, replicas } = core;
  const source = from.replica[at];
  const sizeClass = core.sizeClassOf(source, TOP);
  const row = jobs.create(JobKind.COPY, TOP, sizeClass, -1, JobPriority.DEMAND_LOAD, to.owner);
  if (row === -1) return false;
  jobs.source[row] = source;
  jobs.sourceGeneration[row] = core.generationOf(source);
  replicas.readers[source]++;
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
