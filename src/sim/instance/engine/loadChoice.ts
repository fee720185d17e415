/**
 * Whether blocks of lower tiers are worth their transfer: a request takes them when that delays all requests
 * less than to compute them again. The choice is made when the request asks to join the batch, and
 * once before, on its arrival, when its queueing time hides part of the transfer.
 */

import { ManagerPort, type ManagerPortConfig } from '../../../runtime/batching/index.ts';
import type { KVManager } from '../../../runtime/index.ts';
import type { BlockKeys } from '../../../runtime/keys/index.ts';
import type { Sequence } from '../../../runtime/manager/sequences/blockTable/sequence.ts';
import { isLoadBetter } from '../../../runtime/planning/index.ts';
import { linkName, type Tier } from '../../../runtime/tier/tier.ts';
import type { LinkModel } from '../../driver/index.ts';
import type { LoadTiming } from './engineConfig.ts';

const HBM = 0;

/** How long loads and computing take, as far as a request can know before. */
export interface LoadEstimate {
  readonly loads: LoadTiming;
  readonly blockBytes: number;
  /** Time that the engine needs for one prompt token more; Infinity: whatever is cached is loaded. */
  readonly computeUsPerToken: number;
  /** Null where loads take no time of their own. */
  readonly links: LinkModel | null;
  readonly nowUs: () => number;
  /** Requests by what they do: what one of them takes delays others. */
  readonly crowd: () => { readonly running: number; readonly waiting: number; readonly loading: number };
}

export class ChoosingPort extends ManagerPort {
  readonly #manager: KVManager;
  readonly #estimate: LoadEstimate;
  readonly #makeRoom: (nowUs: number) => boolean;
  readonly #found: (keys: BlockKeys, byTier: readonly number[]) => void;
  readonly #openedUnder = new WeakMap<Sequence, BlockKeys>();
  #thrashing: BlockKeys[] = [];

  /**
   * @param makeRoom lets go of blocks that are held for a request that waits; false when there are none
   * @param found told what a request with these keys found when it asked to join the batch, by tier
   */
  constructor(
    manager: KVManager,
    config: ManagerPortConfig,
    estimate: LoadEstimate,
    makeRoom: (nowUs: number) => boolean,
    found: (keys: BlockKeys, byTier: readonly number[]) => void,
  ) {
    super(manager, config);
    this.#manager = manager;
    this.#estimate = estimate;
    this.#makeRoom = makeRoom;
    this.#found = found;
  }

  /** Who runs goes before who waits. */
  override allocate(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    while (!super.allocate(sequence, from, to, nowUs)) if (!this.#makeRoom(nowUs)) return false;
    return true;
  }

  override open(
    keys: BlockKeys,
    count: number,
    matchLimit: number,
    nowUs: number,
    owner?: number,
    room?: number,
  ): Sequence {
    const before = this.hitsByTier();
    const sequence = super.open(keys, count, matchLimit, nowUs, owner, room);
    this.#found(keys, this.hitsSince(before));
    if (this.hasLowerTier) this.#openedUnder.set(sequence, keys);
    return sequence;
  }

  /** Every matched block so far, by the tier in which it was found, whatever came of it. */
  hitsByTier(): readonly number[] {
    return [...this.#manager.counters.hits];
  }

  hitsSince(before: readonly number[]): readonly number[] {
    return before.map((count, tier) => this.#manager.counters.hits[tier] - count);
  }

  override load(sequence: Sequence, nowUs: number): boolean {
    const before = this.#manager.counters.thrashed;
    const fits = super.load(sequence, nowUs);
    this.noteThrashing(this.#openedUnder.get(sequence), before);
    return fits;
  }

  override loadFromBack(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    const before = this.#manager.counters.thrashed;
    const fits = super.loadFromBack(sequence, from, to, nowUs);
    this.noteThrashing(this.#openedUnder.get(sequence), before);
    return fits;
  }

  /** @param before reloads that counted as thrashing before the load for a request with these keys */
  noteThrashing(keys: BlockKeys | undefined, before: number): void {
    if (keys !== undefined && this.#manager.counters.thrashed > before) this.#thrashing.push(keys);
  }

  /**
   * Keys of the requests whose loads were thrashing since the last call. Told to observers only, so a
   * snapshot leaves them out.
   */
  takeThrashing(): readonly BlockKeys[] {
    const taken = this.#thrashing;
    if (taken.length > 0) this.#thrashing = [];
    return taken;
  }

  override matchLength(keys: BlockKeys, count: number): number {
    const found = super.matchLength(keys, count);
    return this.hasLowerTier && found > 0 ? this.worthwhile(keys, found, 0) : found;
  }

  /**
   * Of the `found` leading blocks those that the request should take.
   * @param slackUs time that passes anyway before it can run
   */
  worthwhile(keys: BlockKeys, found: number, slackUs: number): number {
    const { computeUsPerToken, crowd } = this.#estimate;
    if (computeUsPerToken === Infinity) return found;
    const { byTier, pending } = this.#manager.lookup(keys.words, found);
    const here = byTier[HBM] - Math.min(pending, byTier[HBM]);
    const missing = found - here;
    if (missing === 0) return found;
    const computeUs = missing * this.blockTokens * computeUsPerToken;
    const load = this.#loadUs(byTier, pending);
    const choice = { computeUs, ...load, slackUs, roomShare: found / this.capacityBlocks, ...crowd() };
    return isLoadBetter(choice) ? found : this.leadingHere(keys, found);
  }

  /** From now until the blocks below, and those on their way, are in HBM; and how long the links carry them. */
  #loadUs(byTier: readonly number[], pending: number): { readonly loadUs: number; readonly linkUs: number } {
    const { loads, links, blockBytes, nowUs } = this.#estimate;
    if (loads.kind === 'billed') {
      const below = byTier.reduce((sum, blocks, tier) => sum + (tier === HBM ? 0 : blocks), 0);
      const loadUs = below * Math.trunc(loads.baseUs + loads.usPerBlock);
      return { loadUs, linkUs: loadUs };
    }
    let longestUs = 0;
    let linkUs = 0;
    for (const [position, tier] of this.#manager.tiers.entries()) {
      if (position === HBM || links === null) continue;
      const blocks = byTier[position];
      if (blocks === 0 && pending === 0) continue;
      const queuedUs = Math.max(0, links.freeAtUs(linkName(tier, this.#manager.tiers[HBM])) - nowUs());
      const ownUs = blocks * links.transferUs(tier as Tier, this.#manager.tiers[HBM], blockBytes);
      longestUs = Math.max(longestUs, queuedUs + ownUs);
      linkUs = Math.max(linkUs, ownUs);
    }
    return { loadUs: longestUs, linkUs };
  }

  /** Leading blocks that lie in HBM and can be read now. */
  leadingHere(keys: BlockKeys, found: number): number {
    let low = 0;
    let high = found;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const { byTier, pending } = this.#manager.lookup(keys.words, middle);
      if (byTier[HBM] === middle && pending === 0) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
