/**
 * Residency of blocks in a tier. A tier never holds more than its capacity at rest: code that adds to a tier calls
 * `makeRoom`, which evicts the replicas that the eviction policy names. An evicted block moves to the next lower tier
 * that takes it, if that has no copy yet; where none takes it, it is dropped. Blocks that cannot be evicted yet
 * (arriving, or held) are evicted as soon as they can be.
 *
 * A quota and a hint bind every mover, not evictions alone: a kept block (`isKept`) leaves its tier for the needs of
 * its own owner, and for nothing that no one asked for. Each step below that moves blocks down asks here.
 */

import { configError } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import { JobKind, JobPriority, Leaving } from '../tables/jobTable.ts';
import { TOP } from '../tier/tier.ts';
import type { Core } from './core.ts';
import { claim, fastestIncoming, letGo, stopWaitingBelow } from './jobs.ts';
import type { ResolvedOffload } from './offloadPolicies.ts';
import { OwnerQuotas } from './ownerQuotas.ts';
import { Entry, type Sequence, type SequenceId } from './sequence.ts';

/**
 * Evicts until `bytes` more are within the tier's capacity, or nothing there can be evicted now.
 * @param owner who needs the room; -1 for no owner
 */
export function makeRoom(core: Core, tier: number, bytes = 0, owner = -1, patient = false): void {
  while (core.residentBytes[tier] + bytes > core.capacityBytes[tier]) {
    const victim = victimFor(core, tier, owner, bytes);
    if (victim === -1) return;
    evict(core, victim, tier, patient);
  }
}

/** The next victim by the eviction policy, within the quotas of the owners, or -1. */
function victimFor(core: Core, tier: number, owner: number, bytes: number): number {
  const choice = core.policy.victim(tier);
  if (core.quotas === null || choice === -1) return choice;
  const isKept = (replica: number): boolean => core.policy.keeps(replica);
  return core.quotas.victim(tier, owner, bytes, choice, core.replicas.owner[choice], isKept);
}

/** Whether the replica is to stay in its tier: a hint keeps it there, or its owner's quota protects it from others. */
export function isKept(core: Core, replica: number, tier: number): boolean {
  if (core.policy.keeps(replica)) return true;
  return core.quotas !== null && !core.quotas.mayTakeFrom(core.replicas.owner[replica], -1, tier);
}

/**
 * Evicts one cached replica: down to another tier, or out.
 * @param patient whether it may wait for a tier below that is behind, because a caller asked for the
 * eviction; otherwise it is dropped
 * @param isForced whether others need its room: without, it goes only where the tier below has read back what it wrote
 */
export function evict(core: Core, victim: number, tier: number, patient = false, isForced = true): void {
  const { replicas, counters } = core;
  core.logReplica(DecisionOp.EVICT, victim);
  counters.evictions[tier]++;
  const content = replicas.content[victim];
  core.observer?.evicted?.(victim, content, tier);
  core.makeUnevictable(victim, tier);
  core.setResident(victim, 0);
  const sizeClass = core.sizeClassOf(victim, tier);
  const owner = core.contents.owner[content];
  const lower = isLastIn(core, content, victim, tier)
    ? lowerTierFor(core, tier, sizeClass, owner, patient)
    : -1;
  // A copy further down does not keep it from the next tier: what was just used is to be near, not on disk.
  const goesDown = lower !== -1 && !hasCopyIn(core, content, lower);
  if (!goesDown || !demote(core, victim, tier, lower, patient, isForced)) {
    if (hasOtherCopy(core, content, victim, tier)) unpublish(core, victim, tier);
    else drop(core, victim, tier, sizeClass);
  }
  core.freeIfDrained(victim);
}

/** Gives up a cached replica whose content lies, or will lie, elsewhere. */
export function giveUp(core: Core, victim: number, tier: number): void {
  core.logReplica(DecisionOp.EVICT, victim);
  core.counters.evictions[tier]++;
  core.observer?.evicted?.(victim, core.replicas.content[victim], tier);
  core.makeUnevictable(victim, tier);
  core.setResident(victim, 0);
  unpublish(core, victim, tier);
  core.freeIfDrained(victim);
}

function unpublish(core: Core, victim: number, tier: number): void {
  const content = core.replicas.content[victim];
  if (tier === TOP && isLastIn(core, content, victim, tier)) countOffload(core, content);
  core.unpublish(victim);
}

function drop(core: Core, victim: number, tier: number, sizeClass: number): void {
  const { counters } = core;
  counters.dropped++;
  if (tier + 1 < core.tiers) {
    if (isBehind(core, tier, sizeClass)) counters.demotionsSkipped++;
    else if (!affords(core, tier + 1, sizeClass)) counters.writesDeclined++;
  }
  core.logReplica(DecisionOp.DROP, victim);
  core.observer?.dropped?.(core.replicas.content[victim], tier);
  core.unpublish(victim);
}

/** Whether evicting the victim would keep its content in the cache. */
function canMoveDown(core: Core, victim: number, tier: number): boolean {
  const content = core.replicas.content[victim];
  if (hasOtherCopy(core, content, victim, tier)) return true;
  const owner = core.contents.owner[content];
  return lowerTierFor(core, tier, core.sizeClassOf(victim, tier), owner, false) !== -1;
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
  return !isLastIn(core, content, victim, tier) || hasLowerCopy(core, content, tier);
}

/** Whether a tier below has the content, or awaits it. */
function hasLowerCopy(core: Core, content: number, tier: number): boolean {
  for (let below = tier + 1; below < core.tiers; below++) if (hasCopyIn(core, content, below)) return true;
  return false;
}

function hasCopyIn(core: Core, content: number, tier: number): boolean {
  return core.readyIn(content, tier) !== -1 || core.incomingTo(content, tier) !== -1;
}

/** The next lower tier that would take a block evicted from `tier`, or -1. One that refuses what comes is passed over. */
function lowerTierFor(core: Core, tier: number, sizeClass: number, owner: number, patient: boolean): number {
  if (!patient && isBehind(core, tier, sizeClass)) return -1;
  for (let lower = tier + 1; lower < core.tiers; lower++) {
    if (!patient && !core.takers[lower].takes(core.nowUs)) continue;
    if (accepts(core, lower, sizeClass, owner, patient)) return lower;
  }
  return -1;
}

/**
 * True if demotions in flight have used up this tier's share, so that another block must be dropped instead.
 * Blocks on their way down keep their slots, and new blocks wait for them: for long where the tier below does
 * not keep up. There they get half of the landing room, and the other half stays free for blocks that arrive.
 */
function isBehind(core: Core, tier: number, sizeClass: number): boolean {
  const { leavingShare } = core.config;
  if (leavingShare === 1) return false;
  const capacityBytes = core.capacityBytes[tier];
  const landingBytes = core.pools[tier].shape.capacityBytes - capacityBytes;
  const unitBytes = core.unitBytes(sizeClass);
  const bound = core.paces[tier].isSlow(core.nowUs)
    ? Math.max(landingBytes / 2, unitBytes)
    : leavingShare * capacityBytes;
  return core.leavingBytes[tier] + unitBytes > bound;
}

/**
 * Whether a tier would take one more block of the owner: it has room, or evicting what is neither held nor
 * within the quota of another owner could make some.
 * @param patient whether the block may wait until blocks on their way in have arrived, and can be evicted
 */
export function accepts(core: Core, tier: number, sizeClass: number, owner: number, patient = true): boolean {
  const bytes = core.unitBytes(sizeClass);
  const fixed = patient ? core.heldBytes[tier] : core.residentBytes[tier] - core.cachedBytes[tier];
  const kept = fixed + (core.quotas?.protectedFrom(owner, tier) ?? 0);
  const occupied = core.config.refuseWhenFull ? core.residentBytes[tier] : kept;
  return occupied + bytes <= core.capacityBytes[tier] && affords(core, tier, sizeClass);
}

function affords(core: Core, tier: number, sizeClass: number): boolean {
  const budget = core.writeBudgets[tier];
  return budget === null || budget.canPay(core.unitBytes(sizeClass), core.nowUs);
}

/**
 * Sends an evicted replica down: it is found no more where it lies, and gives its slot back once it has
 * arrived.
 */
function demote(
  core: Core,
  victim: number,
  tier: number,
  lower: number,
  patient: boolean,
  isForced: boolean,
): boolean {
  const content = core.replicas.content[victim];
  const row = createDemotion(core, content, victim, lower, JobPriority.WRITE_THROUGH);
  if (row === -1) return false;
  core.observer?.demoted?.(content, tier, lower);
  core.unpublish(victim);
  core.jobs.leaving[row] = Leaving.WHOLE;
  core.jobs.proves[row] = isForced ? 0 : 1;
  core.jobs.madeAtUs[row] = core.nowUs;
  core.paces[tier].began(core.jobs.idOf(row));
  core.leavingBytes[tier] += core.unitBytes(core.contents.sizeClass[content]);
  if (tier === TOP) countOffload(core, content);
  makeRoom(core, lower, 0, core.contents.owner[content], patient);
  claim(core, row);
  return true;
}

/**
 * A job that writes the replica's content to a lower tier, counted and paid for; -1 when no job is to be had.
 */
export function createDemotion(
  core: Core,
  content: number,
  source: number,
  lower: number,
  priority: JobPriority,
): number {
  const { replicas, contents, jobs, counters } = core;
  const sizeClass = contents.sizeClass[content];
  const row = jobs.create(JobKind.MOVE, lower, sizeClass, content, priority, contents.owner[content]);
  if (row === -1) return -1;
  jobs.source[row] = source;
  jobs.sourceGeneration[row] = core.generationOf(source);
  replicas.readers[source]++;
  contents.hold(content);
  core.addIncoming(content, row);
  core.takers[lower].began(core.nowUs);
  counters.demotions[replicas.tierOf(source)]++;
  const bytes = core.unitBytes(sizeClass);
  counters.writtenBytes[lower] += bytes;
  core.writeBudgets[lower]?.pay(bytes);
  core.setJobResident(row, 1);
  return row;
}

// Copies that a caller waits for to be durable.

/**
 *   started   a job copies it there
 *   there     the tier has it
 *   pending   a job was bringing it there already
 *   moving    it is on its way between tiers above: ask again when it has arrived
 *   absent    no tier above has it
 *   full      the tier has no room for it
 *   busy      no slot or no job is free now, and one may be when a transfer has ended
 *   declined  the tier's write budget does not pay for it
 */
const saveAnswers = ['started', 'there', 'pending', 'moving', 'absent', 'full', 'busy', 'declined'] as const;
export type SaveAnswer = (typeof saveAnswers)[number];

/**
 * Copies the content to a lower tier, straight from the fastest tier above that has it. Its source stays as it is.
 * Nothing leaves the tier for it before it has arrived, so that a write that fails loses nothing: `replaces` needs a free
 * slot beside the tier's capacity.
 */
export function saveContent(core: Core, content: number, tier: number, replaces: boolean): SaveAnswer {
  if (content === -1) return 'absent';
  if (core.readyIn(content, tier) !== -1) return 'there';
  if (core.incomingTo(content, tier) !== -1) return 'pending';
  const source = core.fastestReady(content, TOP);
  if (source === -1 || core.replicas.tierOf(source) > tier) {
    const arriving = fastestIncoming(core, content);
    return arriving !== -1 && arriving < tier ? 'moving' : 'absent';
  }
  const sizeClass = core.contents.sizeClass[content];
  const room = roomForSaved(core, tier, sizeClass);
  if (room === 'none' || (room === 'replacing' && !replaces)) return 'full';
  if (!affords(core, tier, sizeClass)) return 'declined';
  if (core.claims[tier].size > 0 || core.pools[tier].freeSlots(sizeClass) === 0) return 'busy';
  const row = createDemotion(core, content, source, tier, JobPriority.SAVE);
  if (row === -1) return 'busy';
  core.jobs.proves[row] = 1;
  // A copy that replaces another block counts once it has arrived, and the other one goes then (`finishMove`).
  if (room === 'replacing') core.setJobResident(row, 0);
  claim(core, row);
  return 'started';
}

/** Whether the tier has room for one more block, or would have if a cached block that no quota protects gave way. */
function roomForSaved(core: Core, tier: number, sizeClass: number): 'free' | 'replacing' | 'none' {
  const bytes = core.unitBytes(sizeClass);
  const capacityBytes = core.capacityBytes[tier];
  if (core.residentBytes[tier] + bytes <= capacityBytes) return 'free';
  const kept = core.residentBytes[tier] - core.cachedBytes[tier] + (core.quotas?.protectedBytes(tier) ?? 0);
  return kept + bytes <= capacityBytes ? 'replacing' : 'none';
}

/**
 * Evicts those of the replicas that lie in HBM, can be evicted, are not kept and would stay in the cache; the last first.
 */
export function sendDown(core: Core, replicas: Int32Array): void {
  for (let i = replicas.length - 1; i >= 0; i--) {
    const replica = replicas[i];
    if (replica === -1 || core.replicas.tierOf(replica) !== TOP) continue;
    const isCached = core.replicas.evictable[replica] === 1;
    if (isCached && !isKept(core, replica, TOP) && canMoveDown(core, replica, TOP)) evict(core, replica, TOP);
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

/**
 * Evicts so that a slot of the class comes nearer: the next victim of the class itself, else a whole page
 * without a held block.
 * @returns whether anything was evicted
 */
export function evictFor(core: Core, tier: number, sizeClass: number, owner: number): boolean {
  const same =
    core.quotas === null
      ? core.policy.victimOfClass(tier, sizeClass)
      : victimFor(core, tier, owner, core.unitBytes(sizeClass));
  if (same !== -1) {
    evict(core, same, tier);
    return true;
  }
  if (core.quotas !== null) return false;
  const page = core.census[tier]?.clearablePage() ?? -1;
  if (page === -1) return false;
  const { slotsPerPageMax } = core.pools[tier].shape;
  const first = core.replicas.base[tier] + page * slotsPerPageMax;
  for (let replica = first; replica < first + slotsPerPageMax; replica++) {
    if (core.replicas.evictable[replica] === 1) evict(core, replica, tier);
  }
  return true;
}

// Where a sequence's blocks are held. A block that several tiers have may be held in any of them; copies above
// without a holder give up their room. So a running sequence can have some of its units in HBM and the rest
// below.

/**
 * Holds block i in `tier` from now on. @returns false, with nothing changed, where the tier has not the
 * block's bytes ready, or the block is not one that has been found, loaded or sealed
 */
export function keepBlockIn(core: Core, sequence: Sequence, i: number, tier: number): boolean {
  const state = sequence.state[i];
  if (state !== Entry.READY && state !== Entry.MATCHED) return false;
  const content = sequence.content[i];
  const held = sequence.replica[i];
  const { replicas } = core;
  // A copy whose bytes differ from the content's is the sequence's own: no other copy can stand for it.
  if (content === -1 || (held !== -1 && replicas.content[held] !== content && state === Entry.READY))
    return false;
  const there = core.readyIn(content, tier);
  if (there === -1) return false;
  if (held !== -1 && replicas.tierOf(held) === tier) return true;
  core.hold(there);
  if (held === -1) stopWaitingBelow(core, sequence, i, content);
  sequence.replica[i] = there;
  sequence.state[i] = tier === TOP ? Entry.READY : Entry.MATCHED;
  letGo(core, held);
  if (held === -1) return true;
  const above = replicas.tierOf(held);
  if (above < tier && replicas.evictable[held] === 1) giveUp(core, held, above);
  return true;
}

// Quotas of owners.

/** @throws TKV_CONFIG when the quotas of the tier would be more than its capacity */
export function requireQuotaFits(core: Core, owner: number, tier: number, bytes: number): void {
  const others = core.quotas?.quotasOfOthers(owner, tier) ?? 0;
  const left = core.capacityBytes[tier] - others;
  if (bytes <= left) return;
  throw configError(
    'bytes',
    `is ${bytes}, and the tier has ${left} bytes left of ${core.capacityBytes[tier]}`,
    `Name at most ${left}, or lower the quota of another owner.`,
  );
}

export function setQuota(core: Core, owner: number, tier: number, bytes: number | null): void {
  if (bytes === null && core.quotas === null) return;
  core.quotas ??= quotasOfWhatIsCached(core);
  core.quotas.set(owner, tier, bytes);
  core.deferred.mayBeCrowded(tier); // blocks that are no longer protected may be in the way
}

function quotasOfWhatIsCached(core: Core): OwnerQuotas {
  const { tiers, replicas, ownedBytes } = core;
  const { owners } = core.config;
  const quotas = new OwnerQuotas({ tiers, owners, replicas: replicas.size, ownedBytes });
  for (let tier = 0; tier < tiers; tier++) {
    for (const replica of core.policy.dump(tier)) {
      const bytes = core.unitBytes(core.sizeClassOf(replica, tier));
      quotas.entered(replica, tier, replicas.owner[replica], bytes);
    }
  }
  return quotas;
}

// Offload policies of the tiers (offloadPolicies.ts) at work, after blocks were let go.

/** After blocks were let go: each tier with a tier below does what its policy says. */
export function offload(core: Core): void {
  for (let tier = 0; tier + 1 < core.tiers; tier++) {
    const choice = core.config.offload[tier];
    if (choice.policy === 'threshold') trim(core, tier, choice.share);
    else if (choice.policy === 'intent') copyAhead(core, tier, choice);
    else if (choice.policy === 'eager') copyFresh(core, tier);
  }
}

/** Moves blocks down while the tier is fuller than the share and none would be lost. */
function trim(core: Core, tier: number, share: number): void {
  if (share >= 1) return;
  const limit = share * core.capacityBytes[tier];
  while (core.residentBytes[tier] > limit) {
    const victim = victimFor(core, tier, -1, 0);
    if (victim === -1 || core.policy.keeps(victim) || !canMoveDown(core, victim, tier)) return;
    evict(core, victim, tier, false, false);
  }
}

function copyAhead(core: Core, tier: number, { share, ahead }: ResolvedOffload): void {
  if (core.residentBytes[tier] <= share * core.capacityBytes[tier]) return;
  for (const replica of core.policy.upcoming(tier, ahead)) copyDown(core, replica, tier);
}

/** Copies what became evictable since the last time, in that order. */
function copyFresh(core: Core, tier: number): void {
  const { fresh } = core.deferred;
  const replicas = fresh[tier].splice(0);
  for (const replica of replicas) if (core.replicas.evictable[replica] === 1) copyDown(core, replica, tier);
}

/** The block stays where it is: a copy of it goes to the next tier that takes it. */
function copyDown(core: Core, replica: number, tier: number): void {
  const content = core.replicas.content[replica];
  if (hasLowerCopy(core, content, tier)) return;
  const owner = core.contents.owner[content];
  const lower = lowerTierFor(core, tier, core.sizeClassOf(replica, tier), owner, false);
  if (lower === -1) {
    const isRefused = !core.takers[tier + 1].takes(core.nowUs);
    if (isRefused && core.copiesEagerly[tier] === 1) core.deferred.unsent[tier].add(replica);
    return;
  }
  const row = createDemotion(core, content, replica, lower, JobPriority.WRITE_THROUGH);
  if (row === -1) return;
  makeRoom(core, lower, 0, owner);
  claim(core, row);
}
