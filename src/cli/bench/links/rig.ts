/**
 * The engine over tiers that all hold the same blocks, in the same slots. A block keeps its bytes for ever
 * and only generations grow, so every transfer brings what its digest says.
 */

import { hostDigest } from '../../../backends/digest/index.ts';
import { type EngineStores, type StagingSlots, TransferEngine } from '../../../backends/engine/index.ts';
import type { MemoryStore } from '../../../backends/memory/index.ts';
import { type Digest, Outcome, Tier, TierKVError, type Transfer } from '../../../runtime/index.ts';
import type { Route } from './routes.ts';

export class LinkRig {
  readonly slots: readonly number[];
  readonly #ddr: MemoryStore;
  readonly #engine: TransferEngine;
  readonly #digests: readonly Digest[];
  /** By tier and slot. That of host memory is kept by its store. */
  readonly #generations: readonly Uint32Array[];
  #job = 1;

  /** @param ddr where the blocks lie */
  constructor(slots: readonly number[], ddr: MemoryStore, stores: EngineStores, staging: StagingSlots) {
    this.slots = slots;
    this.#ddr = ddr;
    this.#engine = new TransferEngine({ ...stores, ddr }, staging);
    this.#digests = slots.map((slot) => hostDigest(ddr.view(slot, 0)));
    this.#generations = [Tier.HBM, Tier.DDR, Tier.NVME].map(() => new Uint32Array(Math.max(...slots) + 1));
  }

  /**
   * Moves blocks [first, end) in one batch; both ways: half of them each way. To be run once, before the next
   * is made. @throws TKV_DEVICE when one was not loaded
   */
  move(ways: Route['ways'], first = 0, end: number = this.slots.length): () => Promise<void> {
    const share = Math.floor((end - first) / ways.length);
    const transfers = Array.from({ length: share * ways.length }, (_, i) =>
      this.#transfer(...ways[Math.floor(i / share)], first + i),
    );
    return () =>
      new Promise((resolve, reject) => {
        let [left, failure] = [transfers.length, ''];
        this.#engine.onEnd(({ outcome, reason }) => {
          if (outcome !== Outcome.LOADED) failure = reason;
          if (--left > 0) return;
          if (failure === '') return resolve();
          const remedy = 'Look at the device and the disk, then run it again.';
          reject(new TierKVError('TKV_DEVICE', `a bench transfer failed: ${failure}. ${remedy}`));
        });
        this.#engine.submit(transfers);
      });
  }

  #transfer(from: Tier, to: Tier, index: number): Transfer {
    const slot = this.slots[index];
    const lies = from === Tier.DDR ? this.#ddr.generationOf(slot) : this.#generations[from][slot];
    const taken = to === Tier.DDR ? this.#ddr.generationOf(slot) : this.#generations[to][slot]++;
    return {
      job: this.#job++ as Transfer['job'],
      kind: 'move',
      source: { tier: from, slot, generation: lies },
      target: { tier: to, slot, generation: taken + 1 },
      sizeClass: 0,
      bytes: this.#ddr.view(slot, 0).byteLength,
      key: new Uint32Array(4),
      digest: this.#digests[index],
      priority: 0,
      deadlineUs: Number.POSITIVE_INFINITY,
    };
  }
}
