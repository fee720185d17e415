/**
 * Bringing blocks up: a content gets a job to the tier where it is wanted, or joins the one that already
 * brings it.
 */

import { State } from '../../replica/state.ts';
import { JobKind, Priority } from '../../transfer/jobTable.ts';
import { type Core, HBM } from '../core.ts';
import { claim } from '../jobs/issuing.ts';
import { isUnasked, noteUnasked } from '../jobs/unasked.ts';
import { makeRoom } from '../residency/residency.ts';
import { fastestIncomingBelow, join } from './blockTable/entries.ts';
import { Entry, type Sequence } from './blockTable/sequence.ts';
import { letGo } from './holding.ts';
import { stopWaitingBelow } from './releasing.ts';

/**
 * Brings a matched block to HBM, or joins the job that already does.
 * @returns false, with the block still matched, when there is no copy or no job to be had
 */
export function load(core: Core, sequence: Sequence, i: number): boolean {
  const content = sequence.content[i];
  const ready = core.readyIn(content, HBM);
  if (ready !== -1) {
    core.hold(ready);
    stopWaitingBelow(core, sequence, i, content);
    letGo(core, sequence.replica[i]);
    sequence.replica[i] = ready;
    sequence.state[i] = Entry.READY;
    return true;
  }
  const incoming = core.incomingTo(content, HBM);
  if (incoming !== -1) {
    join(core, sequence, i, incoming);
    return true;
  }
  const row = createLoad(core, content, sequence.replica[i], HBM, Priority.DEMAND_LOAD);
  if (row === -1) return false;
  join(core, sequence, i, row);
  makeRoom(core, HBM, 0, core.contents.owner[content]);
  claim(core, row);
  return true;
}

/**
 * Joins the loads of matched blocks in [from, to) that are under way for nobody, so that they are not called
 * off for others. @returns their bytes, which HBM has already
 */
export function joinUnasked(core: Core, sequence: Sequence, from: number, to: number): number {
  if (core.unasked.size === 0) return 0;
  let bytes = 0;
  for (let i = from; i < to; i++) {
    if (sequence.state[i] !== Entry.MATCHED) continue;
    const row = core.incomingTo(sequence.content[i], HBM);
    if (row === -1 || !isUnasked(core, row, sequence.owner)) continue;
    join(core, sequence, i, row);
    bytes += core.unitBytes(core.jobs.sizeClass[row]);
  }
  return bytes;
}

/** A job that brings a content up to `tier`; `source` is -1 while its lower copy is still arriving. */
export function createLoad(
  core: Core,
  content: number,
  source: number,
  tier: number,
  priority: Priority,
): number {
  const { jobs, contents, replicas, counters } = core;
  let from = source;
  if (from !== -1 && replicas.state[from] !== State.READY) {
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
  if (tier !== HBM) {
    counters.promotions[tier]++;
    return row;
  }
  counters.reloads[from === -1 ? fastestIncomingBelow(core, content, HBM) : replicas.tierOf(from)]++;
  if (core.nowUs - contents.offloadedAtUs[content] <= core.config.thrashingWindowUs) counters.thrashed++;
  return row;
}

/**
 * Brings a content to HBM for nobody in particular; false when it is there already or there is no room for
 * it.
 */
export function prefetch(core: Core, content: number, priority: Priority): boolean {
  if (core.readyIn(content, HBM) !== -1 || core.incomingTo(content, HBM) !== -1) return false;
  const source = core.fastestReady(content, HBM + 1);
  if (source === -1) return false;
  const row = createLoad(core, content, source, HBM, priority);
  if (row === -1) return false;
  noteUnasked(core, row);
  makeRoom(core, HBM, 0, core.contents.owner[content]);
  claim(core, row);
  return true;
}
