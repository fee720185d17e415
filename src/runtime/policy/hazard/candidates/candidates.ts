/**
 * The replicas that may be evicted, and which of them goes first: the leaf whose expected returns are worth
 * least or, as an LRU, the one used longest ago. A replica is a leaf while no cached block of its tier
 * follows it; the others go only when there is no leaf.
 */

import type { StateVisitor } from '../../../snapshot/index.ts';
import type { PolicyWorld } from '../../evictionPolicy.ts';
import { Family } from '../../parts/index.ts';
import type { Blocks } from '../blocks.ts';
import type { Estimates } from '../learning/estimates.ts';
import { Leaves } from './leaves.ts';

export class Candidates {
  readonly #world: PolicyWorld;
  readonly #sizeClasses: number;
  readonly #estimates: Estimates;
  readonly #blocks: Blocks;
  readonly #family: Family;
  readonly #leaves: Leaves;
  /** By replica: tier times the number of size classes, plus its size class. */
  readonly #group: Uint16Array;

  constructor(world: PolicyWorld, estimates: Estimates, blocks: Blocks) {
    this.#world = world;
    this.#sizeClasses = world.unitBytes.length;
    this.#estimates = estimates;
    this.#blocks = blocks;
    this.#family = new Family(world);
    this.#leaves = new Leaves(world, estimates.worth);
    this.#group = new Uint16Array(world.base[world.tiers]);
  }

  /** Whether the next victim is the leaf used longest ago, whatever the leaves are worth. */
  get asLru(): boolean {
    return this.#leaves.keepsOrder;
  }

  set asLru(asLru: boolean) {
    this.#leaves.keepsOrder = asLru;
  }

  /** Whether a replica of the content is among them. */
  has(content: number): boolean {
    return this.#family.firstOf(content) !== -1;
  }

  enter(replica: number, tier: number, sizeClass: number, content: number, nowUs: number): void {
    const family = this.#family;
    const parent = family.enter(replica, tier, content, this.#world.parentOf(content));
    const group = tier * this.#sizeClasses + sizeClass;
    this.#group[replica] = group;
    if (family.hasChildren(content, tier)) this.#leaves.addInner(group, replica);
    else this.#addLeaf(replica, group, content, nowUs, false);
    if (parent !== -1) this.#becomeInner(parent, tier);
  }

  /** @returns its content */
  leave(replica: number, tier: number, sizeClass: number, nowUs: number): number {
    this.#leaves.remove(tier * this.#sizeClasses + sizeClass, replica);
    const content = this.#family.contentOf(replica);
    const parent = this.#family.leave(replica, tier);
    if (parent !== -1) this.#becomeLeaf(parent, tier, nowUs);
    return content;
  }

  /** The content's class or its last use has changed: its leaves get another place. */
  replace(content: number, nowUs: number): void {
    for (let at = this.#family.firstOf(content); at !== -1; at = this.#family.nextOf(at)) {
      if (!this.#leaves.isLeaf(at)) continue;
      const group = this.#group[at];
      this.#leaves.remove(group, at);
      this.#addLeaf(at, group, content, nowUs, false);
    }
  }

  forgotten(content: number): void {
    this.#family.forgotten(content);
  }

  /** Time has passed, and with it the ages of leaves. */
  age(nowUs: number): void {
    this.#leaves.age(nowUs);
  }

  /** The worth of classes has changed. */
  rerank(): void {
    this.#leaves.rerank();
  }

  /** The replica of the tier to be evicted next, or -1. */
  next(tier: number): number {
    const first = tier * this.#sizeClasses;
    if (this.#sizeClasses === 1) return this.#best(first);
    let best = -1;
    let inner = -1;
    for (let c = 0; c < this.#sizeClasses; c++) {
      const candidate = this.#best(first + c);
      if (candidate === -1) continue;
      if (!this.#leaves.isLeaf(candidate)) inner = candidate;
      else if (best === -1 || this.#goesBefore(candidate, c, best)) best = candidate;
    }
    return best === -1 ? inner : best;
  }

  nextOfClass(tier: number, sizeClass: number): number {
    return this.#best(tier * this.#sizeClasses + sizeClass);
  }

  /**
   * Leaves, each with the blocks before it that were let go at the same moment: they follow once it is gone.
   * As an LRU, and among several size classes, of the next leaf only.
   */
  upcoming(tier: number, count: number): number[] {
    const first = this.next(tier);
    if (first === -1) return [];
    const alone = this.asLru || this.#sizeClasses > 1;
    const next = new Set<number>();
    for (const leaf of alone ? [first] : this.#leaves.leastFew(tier, count)) {
      let content = this.#family.contentOf(leaf);
      const usedUs = this.#blocks.usedUs[content];
      for (let at = leaf; at !== -1 && next.size < count; at = this.#copyIn(content, tier)) {
        if (this.#blocks.usedUs[content] !== usedUs) break;
        next.add(at);
        content = this.#world.parentOf(content);
        if (content < 0) break;
      }
    }
    return [...next];
  }

  /** Those of a tier: of each size class the leaves from the least worth on, then the others. */
  members(tier: number): number[] {
    const all: number[] = [];
    for (let c = 0; c < this.#sizeClasses; c++) {
      all.push(...this.#leaves.members(tier * this.#sizeClasses + c));
    }
    return all;
  }

  /** The content's entered replica in the tier, or -1. */
  #copyIn(content: number, tier: number): number {
    const { base } = this.#world;
    let at = this.#family.firstOf(content);
    while (at !== -1 && (at < base[tier] || at >= base[tier + 1])) at = this.#family.nextOf(at);
    return at;
  }

  #addLeaf(replica: number, group: number, content: number, nowUs: number, revealed: boolean): void {
    const c = this.#blocks.class[content];
    this.#estimates.use(c);
    this.#leaves.addLeaf(group, replica, c, this.#blocks.usedUs[content], nowUs, revealed);
  }

  #becomeInner(content: number, tier: number): void {
    const { base } = this.#world;
    for (let at = this.#family.firstOf(content); at !== -1; at = this.#family.nextOf(at)) {
      if (at < base[tier] || at >= base[tier + 1] || !this.#leaves.isLeaf(at)) continue;
      const group = this.#group[at];
      this.#leaves.remove(group, at);
      this.#leaves.addInner(group, at);
    }
  }

  #becomeLeaf(content: number, tier: number, nowUs: number): void {
    const { base } = this.#world;
    for (let at = this.#family.firstOf(content); at !== -1; at = this.#family.nextOf(at)) {
      if (at < base[tier] || at >= base[tier + 1]) continue;
      const group = this.#group[at];
      this.#leaves.remove(group, at);
      this.#addLeaf(at, group, content, nowUs, true);
    }
  }

  #best(group: number): number {
    const leaf = this.asLru ? this.#leaves.oldest(group) : this.#leaves.least(group);
    return leaf === -1 ? this.#leaves.inner(group) : leaf;
  }

  /** Whether a leaf of size class `c` goes before the best leaf of the classes before. */
  #goesBefore(leaf: number, c: number, best: number): boolean {
    if (this.asLru) return this.#leaves.usedUs(leaf) < this.#leaves.usedUs(best);
    const { unitBytes } = this.#world;
    const bestBytes = unitBytes[this.#group[best] % this.#sizeClasses];
    return this.#leaves.worthOf(leaf) * bestBytes < this.#leaves.worthOf(best) * unitBytes[c];
  }

  visitState(visitor: StateVisitor): void {
    this.#family.visitState(visitor);
    this.#leaves.visitState(visitor);
    visitor.array(this.#group);
  }

  checkIntegrity(): void {
    this.#leaves.checkIntegrity();
    const { tiers, base } = this.#world;
    this.#family.checkIntegrity((replica) => {
      let tier = 0;
      while (tier + 1 < tiers && replica >= base[tier + 1]) tier++;
      return tier;
    });
  }
}
