/**
 * A private copy of a block within HBM: what a fork continues behind the last full block, and what a rollback
 * into a sealed block continues. The copy is OPEN once its bytes are in place. The source may be any block
 * that its sequence can read or write.
 */

import { JobKind, Priority } from '../../transfer/jobTable.ts';
import { type Core, HBM } from '../core.ts';
import { claim } from '../jobs/issuing.ts';
import { makeRoom } from '../residency/residency.ts';
import { forget } from './blockTable/entries.ts';
import { Entry, type Sequence } from './blockTable/sequence.ts';
import { letGo } from './holding.ts';

/**
 * The caller has made sure that the block can be copied and that the copy fits. @returns false when no job is
 * to be had
 */
export function copyBlock(core: Core, from: Sequence, at: number, to: Sequence, into: number): boolean {
  const { jobs, replicas } = core;
  const source = from.replica[at];
  const sizeClass = core.sizeClassOf(source, HBM);
  const row = jobs.create(JobKind.COPY, HBM, sizeClass, -1, Priority.DEMAND_LOAD, to.owner);
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
  makeRoom(core, HBM, 0, to.owner);
  claim(core, row);
  return true;
}

/** Whether block i of the sequence has bytes in HBM that a copy may be taken of. */
export function canBeCopied(sequence: Sequence, i: number): boolean {
  const state = sequence.state[i];
  return i < sequence.length && (state === Entry.READY || state === Entry.OPEN);
}
