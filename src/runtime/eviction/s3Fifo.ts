/**
 * S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson, "FIFO queues are all you need for cache eviction", SOSP 2023). New
 * blocks join a small queue. A block used again there moves to the main queue; others leave early. In the main queue
 * a used block goes round again. Keys evicted from the small queue are remembered, and join the main queue when they
 * return.
 *
 *     new ----> small (a tenth) ---used more than once---> main ---> evicted
 *                 |                                      ^  |______| used: round again
 *                 +--> evicted, key remembered --returns-+
 *
 * A replica keeps its place in a queue while a sequence holds it. Going round is put off until a victim is asked for.
 */

import type { StateVisitor } from '../snapshot.ts';
import type { EvictionPolicy, EvictionWorld, Visit } from './evictionPolicy.ts';
import { GhostKeys } from './ghostKeys.ts';
import { blocksHeld, RankedReplicas } from './rankedPolicy.ts';

const SMALL = 0;
const MAIN = 1;
const SMALL_SHARE = 0.1;
const MOST_USES = 3;

export class S3Fifo implements EvictionPolicy {
  readonly #world: EvictionWorld;
  readonly #queues: readonly [RankedReplicas, RankedReplicas];
  /** Uses of a content after the first, up to three; whether its key was known; whether it is known now. */
  readonly #uses: Uint8Array;
  readonly #startsIn: Uint8Array;
  readonly #known: Uint8Array;
  /** Content and size class of a replica, its queue, its place there, and the generation of its slot. */
  readonly #content: Int32Array;
  readonly #sizeClass: Uint8Array;
  readonly #queue: Uint8Array;
  readonly #place: Float64Array;
  readonly #generation: Uint32Array;
  readonly #ghosts: GhostKeys;
  #places = 0;

  constructor(world: EvictionWorld) {
    const replicas = world.base[world.tiers];
    this.#world = world;
    this.#queues = [new RankedReplicas(world), new RankedReplicas(world)];
    this.#uses = new Uint8Array(world.contents);
    this.#startsIn = new Uint8Array(world.contents);
    this.#known = new Uint8Array(world.contents);
    this.#content = new Int32Array(replicas);
    this.#sizeClass = new Uint8Array(replicas);
    this.#queue = new Uint8Array(replicas);
    this.#place = new Float64Array(replicas);
    this.#generation = new Uint32Array(replicas);
    this.#ghosts = new GhostKeys(world.contents);
  }

  enter(replica: number, tier: number, sizeClass: number, content: number): void {
    const generation = this.#world.generationOf(replica);
    if (this.#generation[replica] !== generation) {
      this.#generation[replica] = generation;
      this.#queue[replica] = this.#startsIn[content];
      this.#place[replica] = ++this.#places;
    }
    this.#content[replica] = content;
    this.#sizeClass[replica] = sizeClass;
    this.#queues[this.#queue[replica]].enter(replica, tier, sizeClass, this.#place[replica]);
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    this.#queues[this.#queue[replica]].leave(replica, tier, sizeClass);
  }

  touch(content: number, _visit: Visit): void {
    if (this.#known[content] === 1) {
      if (this.#uses[content] < MOST_USES) this.#uses[content]++;
      return;
    }
    this.#known[content] = 1;
    this.#uses[content] = 0;
    const ghost = this.#ghosts.find(this.#world.keys, content * 4);
    this.#startsIn[content] = ghost === -1 ? SMALL : MAIN;
    if (ghost !== -1) this.#ghosts.remove(ghost);
  }

  victim(tier: number): number {
    const [small, main] = this.#queues;
    for (;;) {
      const inSmall = small.first(tier);
      const inMain = main.first(tier);
      if (inSmall === -1 && inMain === -1) return -1;
      if (inSmall !== -1 && (inMain === -1 || this.#smallIsFull(tier))) {
        const content = this.#content[inSmall];
        if (this.#uses[content] <= 1) return inSmall;
        this.#uses[content] = 0;
        this.#startsIn[content] = MAIN;
        this.#goRound(inSmall, tier);
      } else {
        const content = this.#content[inMain];
        if (this.#uses[content] === 0) return inMain;
        this.#uses[content]--;
        this.#goRound(inMain, tier);
      }
    }
  }

  /** The first of the class in its queue, used or not: a queue does not go round for one class alone. */
  victimOfClass(tier: number, sizeClass: number): number {
    const inSmall = this.#queues[SMALL].firstOfClass(tier, sizeClass);
    const inMain = this.#queues[MAIN].firstOfClass(tier, sizeClass);
    if (inSmall === -1 || inMain === -1) return inSmall === -1 ? inMain : inSmall;
    return this.#smallIsFull(tier) ? inSmall : inMain;
  }

  #smallIsFull(tier: number): boolean {
    const small = this.#queues[SMALL].sizeOf(tier);
    return small > SMALL_SHARE * (this.#world.residentBytes[tier] / this.#world.unitBytes[0]);
  }

  /** Moves the replica to the end of the main queue. */
  #goRound(replica: number, tier: number): void {
    const sizeClass = this.#sizeClass[replica];
    this.#queues[this.#queue[replica]].leave(replica, tier, sizeClass);
    this.#queue[replica] = MAIN;
    this.#place[replica] = ++this.#places;
    this.#queues[MAIN].enter(replica, tier, sizeClass, this.#place[replica]);
  }

  forgotten(content: number): void {
    const fromSmall = this.#known[content] === 1 && this.#startsIn[content] === SMALL;
    this.#known[content] = 0;
    this.#startsIn[content] = SMALL;
    if (!fromSmall) return;
    const most = Math.min(this.#ghosts.limit, (1 - SMALL_SHARE) * blocksHeld(this.#world));
    while (this.#ghosts.count > 0 && this.#ghosts.count + 1 > most)
      this.#ghosts.remove(this.#ghosts.oldest());
    if (this.#ghosts.count + 1 <= most) this.#ghosts.add(0, this.#world.keys, content * 4);
  }

  /** The queues as they are now, before any block goes round. */
  dump(tier: number): number[] {
    const [small, main] = this.#queues.map((queue) => queue.dumpByClass(tier));
    return small.flatMap((members, sizeClass) => [...members, ...main[sizeClass]]);
  }

  visitState(visitor: StateVisitor): void {
    for (const queue of this.#queues) queue.visitState(visitor);
    visitor.array(this.#uses);
    visitor.array(this.#startsIn);
    visitor.array(this.#known);
    visitor.array(this.#content);
    visitor.array(this.#sizeClass);
    visitor.array(this.#queue);
    visitor.array(this.#place);
    visitor.array(this.#generation);
    this.#ghosts.visitState(visitor);
    this.#places = visitor.number(this.#places);
  }

  checkIntegrity(): void {
    for (const queue of this.#queues) queue.checkIntegrity();
    this.#ghosts.checkIntegrity();
  }
}
