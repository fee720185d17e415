/**
 * The small steps on one entry of a block table: which content it names, which job it waits for, and how many
 * that makes.
 */

import type { Core } from '../../core.ts';
import { Entry, type Sequence } from './sequence.ts';

/**
 * An entry keeps its content alive, so that the number still means the same content when the entry is
 * settled.
 */
export function remember(core: Core, sequence: Sequence, i: number, content: number): void {
  core.contents.hold(content);
  sequence.content[i] = content;
}

export function forget(core: Core, sequence: Sequence, i: number): void {
  const content = sequence.content[i];
  sequence.clear(i);
  if (content !== -1) core.contents.unhold(content);
}

/** The fastest tier that a job is bringing the content into, or -1. */
export function fastestIncoming(core: Core, content: number): number {
  return fastestIncomingBelow(core, content, -1);
}

/** The same among tiers below `tier`. */
export function fastestIncomingBelow(core: Core, content: number, tier: number): number {
  for (let below = tier + 1; below < core.tiers; below++) {
    if (core.incomingTo(content, below) !== -1) return below;
  }
  return -1;
}

export function setIncomingResident(core: Core, row: number, resident: 0 | 1): void {
  const target = core.jobs.target[row];
  if (target === -1) core.setJobResident(row, resident);
  else core.setResident(target, resident);
}

export function join(core: Core, sequence: Sequence, i: number, row: number): void {
  core.waiters.append(core.jobs.waiter, row, sequence.id, i);
  sequence.state[i] = Entry.LOADING;
  sequence.pending++;
}
