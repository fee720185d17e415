/**
 * Who stays in a tier. A tier never holds more than its capacity at rest: whoever adds to a tier calls `makeRoom`, which
 * evicts least recently used cached replicas. An evicted block moves one tier down if no copy is there yet and that tier
 * takes it; otherwise it is dropped. What cannot be evicted yet (still arriving, still held) is evicted as soon as it can.
 */

import { DecisionOp } from '../log/decisionSink.ts';
import { State } from '../replica/state.ts';
import { JobKind, Priority } from '../transfer/jobTable.ts';
import { claim, grantClaims } from './claims.ts';
import { type Core, HBM } from './core.ts';
import type { SequenceId } from './sequence.ts';

/** Evicts until `bytes` more are within the tier's capacity, or nothing there can be evicted now. */
export function makeRoom(core: Core, tier: number, bytes = 0): void {
  while (core.residentBytes[tier] + bytes > core.capacityBytes[tier]) {
    const victim = core.replicas.oldest(tier);
    if (victim === -1) return;
    evict(core, victim, tier);
  }
}

/** Evicts one cached replica: down a tier, or out. */
export function evict(core: Core, victim: number, tier: number): void {
  const { replicas, counters } = core;
  core.logReplica(DecisionOp.EVICT, victim);
  counters.evictions[tier]++;
  core.makeUnevictable(victim, tier);
  core.setResident(victim, 0);
  const content = replicas.content[victim];
  if (hasOtherCopy(core, content, victim, tier)) {
    if (tier === HBM && isLastIn(core, content, victim, tier)) countOffload(core, content);
    core.unpublish(victim);
  } else if (!canMoveDown(core, victim, tier) || !demote(core, victim, tier)) {
    counters.dropped++;
    if (tier + 1 < core.tiers && !affords(core, tier + 1, core.sizeClassOf(victim, tier))) {
      counters.writesDeclined++;
    }
    core.logReplica(DecisionOp.DROP, victim);
    core.unpublish(victim);
  }
  if (core.freeIfDrained(victim)) grantClaims(core, tier);
}

/** Whether evicting the victim would keep its content in the cache. */
export function canMoveDown(core: Core, victim: number, tier: number): boolean {
  const content = core.replicas.content[victim];
  if (hasOtherCopy(core, content, victim, tier)) return true;
  return tier + 1 < core.tiers && accepts(core, tier + 1, core.sizeClassOf(victim, tier));
}

function countOffload(core: Core, content: number): void {
  core.counters.offloads++;
  core.contents.offloadedAtUs[content] = core.nowUs;
}

function isLastIn(core: Core, content: number, victim: number, tier: number): boolean {
  const next = core.replicas.alias[victim];
  return core.readyIn(content, tier) === victim && (next === -1 || next >= core.replicas.base[tier + 1]);
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
  const occupied = core.config.refuseWhenFull ? core.residentBytes[tier] : core.heldBytes[tier];
  return occupied + bytes <= core.capacityBytes[tier] && affords(core, tier, sizeClass);
}

function affords(core: Core, tier: number, sizeClass: number): boolean {
  const budget = core.writeBudgets[tier];
  return budget === null || budget.canPay(core.unitBytes(sizeClass), core.nowUs);
}

function demote(core: Core, victim: number, tier: number): boolean {
  const { replicas, contents, jobs, counters } = core;
  const content = replicas.content[victim];
  const lower = tier + 1;
  const row = jobs.create(JobKind.MOVE, lower, contents.sizeClass[content], content, Priority.WRITE_THROUGH);
  if (row === -1) return false;
  jobs.source[row] = victim;
  jobs.sourceGeneration[row] = core.generationOf(victim);
  replicas.readers[victim]++;
  contents.hold(content);
  core.addIncoming(content, row);
  core.unpublish(victim);
  counters.demotions[tier]++;
  const bytes = core.unitBytes(contents.sizeClass[content]);
  counters.writtenBytes[lower] += bytes;
  core.writeBudgets[lower]?.pay(bytes);
  if (tier === HBM) countOffload(core, content);
  core.setJobResident(row, 1);
  makeRoom(core, lower);
  claim(core, row);
  return true;
}

/** Offloads cached blocks while HBM is fuller than the threshold and they can move without being lost. */
export function trimToThreshold(core: Core): void {
  if (core.config.offloadThreshold >= 1 || core.tiers === 1) return;
  const limit = core.config.offloadThreshold * core.capacityBytes[HBM];
  while (core.residentBytes[HBM] > limit) {
    const victim = core.replicas.oldest(HBM);
    if (victim === -1 || !canMoveDown(core, victim, HBM)) return;
    evict(core, victim, HBM);
  }
}

/** Sequences that hold blocks of the tier: who stands in the way when it cannot evict. */
export function holdersIn(core: Core, tier: number): SequenceId[] {
  const { sequences, replicas } = core;
  const holders: SequenceId[] = [];
  for (const sequence of sequences.values()) {
    for (let i = 0; i < sequence.length; i++) {
      const replica = sequence.replica[i];
      if (replica === -1 || replicas.tierOf(replica) !== tier) continue;
      holders.push(sequence.id);
      break;
    }
  }
  return holders;
}

/** A cached replica whose eviction brings a slot of the class nearer: of the class itself, else on a page without holders. */
export function evictableFor(core: Core, tier: number, sizeClass: number): number {
  const same = core.replicas.oldestOfClass(tier, sizeClass);
  if (same !== -1) return same;
  const pool = core.pools[tier];
  const { slotsPerPageMax } = pool.shape;
  for (let c = 0; c < core.config.unitBytes.length; c++) {
    for (let at = core.replicas.oldestOfClass(tier, c); at !== -1; at = core.replicas.lru.newer(at)) {
      const first = core.replicas.base[tier] + pool.pageOf(core.replicas.slotOf(at, tier)) * slotsPerPageMax;
      let held = false;
      for (let i = 0; i < slotsPerPageMax && !held; i++) {
        const state = core.replicas.state[first + i];
        held = state !== State.FREE && !core.replicas.lru.has(first + i);
      }
      if (!held) return at;
    }
  }
  return -1;
}
