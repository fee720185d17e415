/**
 * Moves that no sequence asked for: a migrator brings hot contents up and sends cold ones down, between any
 * two tiers.
 */

import type { Priority } from '../../transfer/jobTable.ts';
import { type Core, HBM } from '../core.ts';
import { claim } from '../jobs/issuing.ts';
import { noteUnasked } from '../jobs/unasked.ts';
import { createLoad } from '../sequences/loading.ts';
import { accepts, createDemotion, giveUp, makeRoom } from './residency.ts';

/**
 *   started   a job brings it there
 *   there     the tier has it
 *   pending   a job was bringing it there already
 *   absent    no tier has it
 *   full      the tier has no room for it, or no job is to be had
 */
export const moveAnswers = ['started', 'there', 'pending', 'absent', 'full'] as const;
export type MoveAnswer = (typeof moveAnswers)[number];

/**
 * Brings the content to a tier. Up, it is copied, as by a load. Down, its replicas above that nobody holds
 * are given up once the copy is on its way, or where it lies there already; those that sequences hold stay
 * until they are let go and evicted.
 */
export function move(core: Core, content: number, tier: number, priority: Priority): MoveAnswer {
  if (content === -1) return 'absent';
  if (core.readyIn(content, tier) !== -1) {
    giveUpAbove(core, content, tier);
    return 'there';
  }
  if (core.incomingTo(content, tier) !== -1) return 'pending';
  const source = core.fastestReady(content, HBM);
  if (source === -1) return 'absent';
  return core.replicas.tierOf(source) > tier
    ? moveUp(core, content, source, tier, priority)
    : moveDown(core, content, source, tier, priority);
}

function moveUp(core: Core, content: number, source: number, tier: number, priority: Priority): MoveAnswer {
  const bytes = core.unitBytes(core.contents.sizeClass[content]);
  if (core.residentBytes[tier] - core.cachedBytes[tier] + bytes > core.capacityBytes[tier]) return 'full';
  const row = createLoad(core, content, source, tier, priority);
  if (row === -1) return 'full';
  noteUnasked(core, row);
  makeRoom(core, tier, 0, core.contents.owner[content]);
  claim(core, row);
  return 'started';
}

function moveDown(core: Core, content: number, source: number, tier: number, priority: Priority): MoveAnswer {
  if (!accepts(core, tier, core.contents.sizeClass[content], core.contents.owner[content])) return 'full';
  const row = createDemotion(core, content, source, tier, priority);
  if (row === -1) return 'full';
  giveUpAbove(core, content, tier);
  makeRoom(core, tier, 0, core.contents.owner[content]);
  claim(core, row);
  return 'started';
}

function giveUpAbove(core: Core, content: number, tier: number): void {
  const { replicas } = core;
  for (let replica = core.fastestReady(content, HBM); replica !== -1; ) {
    const next = replicas.alias[replica];
    const position = replicas.tierOf(replica);
    if (position < tier && replicas.evictable[replica] === 1) giveUp(core, replica, position);
    replica = next;
  }
}
