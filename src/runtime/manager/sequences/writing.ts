/** Blocks that a sequence computes: opened for its writes, sealed behind its last token. */

import { NO_PARENT, UNKNOWN_PARENT } from '../../content/contentTable.ts';
import { State } from '../../replica/state.ts';
import { JobKind, Priority } from '../../transfer/jobTable.ts';
import { Outcome } from '../../transfer/outcome.ts';
import { type Core, HBM } from '../core.ts';
import { claim, issue } from '../jobs/issuing.ts';
import { makeRoom } from '../residency/residency.ts';
import { forget, remember } from './blockTable/entries.ts';
import { Entry, type Sequence } from './blockTable/sequence.ts';
import { fail } from './settling.ts';

function parentOf(sequence: Sequence, i: number): number {
  if (i === 0) return NO_PARENT;
  const parent = sequence.content[i - 1];
  return parent === -1 ? UNKNOWN_PARENT : parent;
}

/** A private block for the sequence to write. The caller has made sure that it fits. */
export function open(core: Core, sequence: Sequence, i: number, sizeClass: number): void {
  const { jobs } = core;
  forget(core, sequence, i);
  makeRoom(core, HBM, core.unitBytes(sizeClass), sequence.owner);
  const replica = core.claims[HBM].size === 0 ? core.reserve(HBM, sizeClass, sequence.owner) : -1;
  if (replica !== -1) {
    core.setResident(replica, 1);
    core.replicas.become(replica, State.OPEN);
    core.hold(replica);
    sequence.replica[i] = replica;
    sequence.state[i] = Entry.OPEN;
    return;
  }
  const row = jobs.create(JobKind.OPEN, HBM, sizeClass, -1, Priority.DEMAND_LOAD, sequence.owner);
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
export function seal(
  core: Core,
  sequence: Sequence,
  i: number,
  keys: Uint32Array,
  at: number,
  tokens: number,
): void {
  const { replicas, contents, jobs } = core;
  const replica = sequence.replica[i];
  const sizeClass = core.sizeClassOf(replica, HBM);
  const parent = parentOf(sequence, i);
  const content = contents.intern(keys, at, sizeClass, tokens, parent, sequence.owner);
  if (core.config.chainedKeys) contents.learnParent(content, parent);
  contents.hold(content);
  const row = jobs.create(JobKind.SEAL, HBM, sizeClass, content, Priority.DEMAND_LOAD, sequence.owner);
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
  core.touch(sequence, content);
  if (sequence.retention !== null) core.policy.retain?.(content, sequence.retention);
  sequence.claim[i] = row;
  sequence.state[i] = Entry.SEALING;
  sequence.pending++;
  core.waiters.append(jobs.waiter, row, sequence.id, i);
  issue(core, row);
}
