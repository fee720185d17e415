/**
 * ARC (Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003). Blocks used once and
 * blocks used more often are two lists, each the least recently used first. Keys evicted from either list are
 * remembered (ghosts); a ghost that returns shows which list was too short and moves the target between them.
 *
 *     ghosts of once | once (T1)     target     often (T2) | ghosts of often
 *
 * The manager makes room before it names the block that needs it, so a returning ghost moves the target for the next
 * eviction. All tiers share one target and one set of ghosts; each tier divides its own room by the same share.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { EvictionPolicy, EvictionWorld, Visit } from './evictionPolicy.ts';
import { GhostKeys } from './ghostKeys.ts';
import { blocksHeld, RankedReplicas } from './rankedPolicy.ts';

const ONCE = 0;
const OFTEN = 1;

export class Arc implements EvictionPolicy {
  readonly #world: EvictionWorld;
  readonly #lists: readonly [RankedReplicas, RankedReplicas];
  /** The list of a content's replicas, by content, and the last visit that used it; 0 for none yet. */
  readonly #list: Uint8Array;
  readonly #visit: Float64Array;
  /** The list that a replica entered, by replica. */
  readonly #entered: Uint8Array;
  readonly #ghosts: GhostKeys;
  /** Blocks that the first list should have, over all tiers. */
  #target = 0;
  /** Whether the last ghost to return was one of `OFTEN`. */
  #oftenReturned = false;

  constructor(world: EvictionWorld) {
    this.#world = world;
    this.#lists = [new RankedReplicas(world), new RankedReplicas(world)];
    this.#list = new Uint8Array(world.contents);
    this.#visit = new Float64Array(world.contents);
    this.#entered = new Uint8Array(world.base[world.tiers]);
    this.#ghosts = new GhostKeys(2 * world.contents, 2);
  }

  enter(replica: number, tier: number, sizeClass: number, content: number): void {
    const list = this.#list[content];
    this.#entered[replica] = list;
    this.#lists[list].enter(replica, tier, sizeClass, 0);
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    this.#lists[this.#entered[replica]].leave(replica, tier, sizeClass);
  }

  touch(content: number, visit: Visit): void {
    const before = this.#visit[content];
    this.#visit[content] = visit.number;
    if (before === visit.number) return;
    if (before > 0) this.#list[content] = OFTEN;
    else this.#first(content);
  }

  /** The first use of a content: if its key is a ghost, it returns. */
  #first(content: number): void {
    const blocks = blocksHeld(this.#world);
    const ghosts = this.#ghosts;
    const ghost = ghosts.find(this.#world.keys, content * 4);
    if (ghost === -1) {
      this.#list[content] = ONCE;
      const once = this.#lists[ONCE].size;
      while (once + ghosts.size(ONCE) >= blocks && ghosts.size(ONCE) > 0) ghosts.remove(ghosts.oldest(ONCE));
      const all = once + this.#lists[OFTEN].size;
      while (all + ghosts.count >= 2 * blocks && ghosts.size(OFTEN) > 0) ghosts.remove(ghosts.oldest(OFTEN));
      return;
    }
    const once = ghosts.size(ONCE);
    const often = ghosts.size(OFTEN);
    this.#oftenReturned = ghosts.listOf(ghost) === OFTEN;
    if (this.#oftenReturned) this.#target = Math.max(0, this.#target - Math.max(1, once / often));
    else this.#target = Math.min(blocks, this.#target + Math.max(1, often / once));
    ghosts.remove(ghost);
    this.#list[content] = OFTEN;
  }

  victim(tier: number): number {
    return this.#pick(
      tier,
      this.#lists[ONCE].first(tier),
      this.#lists[OFTEN].first(tier),
      this.#lists[ONCE].sizeOf(tier),
    );
  }

  victimOfClass(tier: number, sizeClass: number): number {
    const [once, often] = this.#lists;
    return this.#pick(
      tier,
      once.firstOfClass(tier, sizeClass),
      often.firstOfClass(tier, sizeClass),
      once.sizeOf(tier),
    );
  }

  #pick(tier: number, once: number, often: number, onceSize: number): number {
    if (once === -1 || often === -1) return once === -1 ? often : once;
    const { residentBytes, unitBytes } = this.#world;
    const all = blocksHeld(this.#world);
    const share = all === 0 ? 0 : residentBytes[tier] / unitBytes[0] / all;
    const target = this.#target * share;
    return onceSize > target || (this.#oftenReturned && onceSize === target) ? once : often;
  }

  forgotten(content: number): void {
    const used = this.#visit[content] > 0;
    this.#visit[content] = 0;
    if (!used) return;
    if (this.#ghosts.isFull) {
      this.#ghosts.remove(this.#ghosts.oldest(this.#ghosts.size(OFTEN) > 0 ? OFTEN : ONCE));
    }
    this.#ghosts.add(this.#list[content], this.#world.keys, content * 4);
  }

  /** The lists as they are now. At each eviction the target decides which of the two loses its first. */
  dump(tier: number): number[] {
    const [once, often] = this.#lists.map((list) => list.dumpByClass(tier));
    return once.flatMap((members, sizeClass) => [...members, ...often[sizeClass]]);
  }

  visitState(visitor: StateVisitor): void {
    for (const list of this.#lists) list.visitState(visitor);
    visitor.array(this.#list);
    visitor.array(this.#visit);
    visitor.array(this.#entered);
    this.#ghosts.visitState(visitor);
    this.#target = visitor.number(this.#target);
    this.#oftenReturned = visitor.flag(this.#oftenReturned);
  }

  checkIntegrity(): void {
    for (const list of this.#lists) list.checkIntegrity();
    this.#ghosts.checkIntegrity();
    invariant(this.#target >= 0, 'the target is a number of blocks');
  }
}
