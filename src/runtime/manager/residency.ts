/**
 * Who stays in a tier. A tier never holds more than its capacity at rest: whoever adds to a tier calls `makeRoom`, which
 * evicts least recently used cached replicas. An evicted block moves one tier down if no copy is there yet and that tier
 * takes it; otherwise it is dropped. What cannot be evicted yet (still arriving, still held) is evicted as soon as it can.
 */

import { DecisionOp } from '../log/decisionSink.ts';
import { JobKind, Priority } from '../transfer/jobTable.ts';
import { type Core, HBM } from './core.ts';
import { claim, grantClaims } from './transfers.ts';

/** Evicts until `bytes` more are within the tier's capacity, or nothing there can be evicted now. */
export function makeRoom(core: Core, tier: number, bytes = 0): void {
  while (core.residentBytes[tier]! + bytes > core.capacityBytes[tier]!) {
    const victim = core.replicas.oldest(tier);
    if (victim === -1) return;
    evict(core, victim, tier);
  }
}

/** Evicts one cached replica: down a tier, or out. */
export function evict(core: Core, victim: number, tier: number): void {
  const { replicas, counters } = core;
  core.logReplica(DecisionOp.EVICT, victim);
  counters.evictions[tier]!++;
  core.makeUnevictable(victim, tier);
  core.setResident(victim, 0);
  const content = replicas.content[victim]!;
  if (hasOtherCopy(core, content, victim, tier)) {
    if (tier === HBM && isLastIn(core, content, victim, tier)) countOffload(core, content);
    core.unpublish(victim);
  } else if (!canMoveDown(core, victim, tier) || !demote(core, victim, tier)) {
    counters.dropped++;
    core.logReplica(DecisionOp.DROP, victim);
    core.unpublish(victim);
  }
  if (core.freeIfDrained(victim)) grantClaims(core, tier);
}

/** Whether evicting the victim would keep its content in the cache. */
export function canMoveDown(core: Core, victim: number, tier: number): boolean {
  const content = core.replicas.content[victim]!;
  if (hasOtherCopy(core, content, victim, tier)) return true;
  return tier + 1 < core.tiers && accepts(core, tier + 1, core.sizeClassOf(victim, tier));
}

function countOffload(core: Core, content: number): void {
  core.counters.offloads++;
  core.contents.offloadedAtUs[content] = core.nowUs;
}

function isLastIn(core: Core, content: number, victim: number, tier: number): boolean {
  const next = core.replicas.alias[victim]!;
  return core.readyIn(content, tier) === victim && (next === -1 || next >= core.replicas.base[tier + 1]!);
}

function hasOtherCopy(core: Core, content: number, victim: number, tier: number): boolean {
  if (!isLastIn(core, content, victim, tier)) return true;
  for (let below = tier + 1; below < core.tiers; below++) {
    if (core.readyIn(content, below) !== -1 || core.incomingTo(content, below) !== -1) return true;
  }
  return false;
}

/** Whether a tier would take one more block: it has room, or evicting what is not held could make some. */
function accepts(core: Core, tier: number, sizeClass: number): boolean {
  const bytes = core.unitBytes(sizeClass);
  const occupied = core.config.refuseWhenFull ? core.residentBytes[tier]! : core.heldBytes[tier]!;
  return occupied + bytes <= core.capacityBytes[tier]!;
}

function demote(core: Core, victim: number, tier: number): boolean {
  const { replicas, contents, jobs, counters } = core;
  const content = replicas.content[victim]!;
  const lower = tier + 1;
  const row = jobs.create(JobKind.MOVE, lower, contents.sizeClass[content]!, content, Priority.WRITE_THROUGH);
  if (row === -1) return false;
  jobs.source[row] = victim;
  jobs.sourceGeneration[row] = core.generationOf(victim);
  replicas.readers[victim]!++;
  contents.hold(content);
  core.addIncoming(content, row);
  core.unpublish(victim);
  counters.demotions[tier]!++;
  if (tier === HBM) countOffload(core, content);
  core.setJobResident(row, 1);
  makeRoom(core, lower);
  claim(core, row);
  return true;
}
