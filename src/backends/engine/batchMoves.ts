/**
 * How a batch crosses its link. Blocks in host memory are copied straight between the arena and the other
 * store; between device and file they pass a staging slot.
 *
 *     HBM <--- rings of mapped buffers ---> DDR arena <--- direct I/O ---> file
 *      ^                                                                    ^
 *      +------------------------------ staging ----------------------------+
 */

import { linkName, Tier, tierName } from '../../runtime/tier/tier.ts';
import type {
  DeviceTierStore,
  HostTierStore,
  StoreItem,
  StoreResult,
  TierStore,
} from '../../runtime/tier/tierStore.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { Place, Transfer } from '../../runtime/transfer/transfer.ts';
import { moveStaged, type StagedBlock } from './stagedBatch.ts';
import type { StagingSlots } from './stagingSlots.ts';

export interface EngineStores {
  readonly hbm: DeviceTierStore;
  readonly ddr?: HostTierStore;
  readonly nvme?: TierStore;
  readonly remote?: TierStore;
}

/** Told of each job of a batch as it ends. */
export type Ended<Job> = (job: Job, end: StoreResult) => void;

export class BatchMoves<Job extends { readonly transfer: Transfer }> {
  readonly #stores: () => EngineStores;
  readonly #staging: StagingSlots | null;

  /** @param stores asked for each time, since a device can be replaced */
  constructor(stores: () => EngineStores, staging: StagingSlots | null) {
    this.#stores = stores;
    this.#staging = staging;
  }

  /** @param batch jobs of one link */
  move(batch: readonly Job[], ended: Ended<Job>): Promise<void> {
    const source = batch[0].transfer.source!.tier;
    const target = batch[0].transfer.target.tier;
    if (source !== Tier.DDR && target !== Tier.DDR) return this.#staged(source, target, batch, ended);
    if (source !== Tier.DDR) return this.#toHost(source, batch, ended);
    if (target !== Tier.DDR) return this.#fromHost(target, batch, ended);
    this.#withinHost(batch, ended);
    return Promise.resolve();
  }

  #withinHost(batch: readonly Job[], ended: Ended<Job>): void {
    const ddr = this.#host();
    for (const job of this.#readable(ddr, batch, ended)) {
      const { source, target, sizeClass } = job.transfer;
      ddr.view(target.slot, sizeClass).set(ddr.view(source!.slot, sizeClass));
      ddr.markWritten(target.slot, target.generation);
      ended(job, { outcome: Outcome.LOADED, reason: '' });
    }
  }

  async #fromHost(to: Tier, batch: readonly Job[], ended: Ended<Job>): Promise<void> {
    const ddr = this.#host();
    const good = this.#readable(ddr, batch, ended);
    const items = good.map(({ transfer }) =>
      itemOf(transfer, transfer.target, ddr.view(transfer.source!.slot, transfer.sizeClass)),
    );
    await this.#store(to).write(items, (i, end) => ended(good[i], end));
  }

  async #toHost(from: Tier, batch: readonly Job[], ended: Ended<Job>): Promise<void> {
    const ddr = this.#host();
    const items = batch.map(({ transfer }) =>
      itemOf(transfer, transfer.source!, ddr.view(transfer.target.slot, transfer.sizeClass)),
    );
    await this.#store(from).read(items, (i, end) => {
      const { slot, generation } = batch[i].transfer.target;
      if (end.outcome === Outcome.LOADED) ddr.markWritten(slot, generation);
      ended(batch[i], end);
    });
  }

  async #staged(from: Tier, to: Tier, batch: readonly Job[], ended: Ended<Job>): Promise<void> {
    const [source, target] = [this.#store(from), this.#store(to)];
    const checkedLater = target.verifies.onWrite;
    const blocks = batch.map((job): StagedBlock => {
      const { transfer } = job;
      return {
        bytes: transfer.bytes,
        from: (view) => ({ ...itemOf(transfer, transfer.source!, view), checkedLater }),
        to: (view) => itemOf(transfer, transfer.target, view),
        ended: (end) => ended(job, end),
      };
    });
    if (this.#staging === null) throw new Error(`${linkName(from, to)} needs staging memory`);
    await moveStaged(this.#staging, source, target, blocks);
  }

  /** Those whose source is what lies in host memory; the others end. */
  #readable(ddr: HostTierStore, batch: readonly Job[], ended: Ended<Job>): Job[] {
    return batch.filter((job) => {
      const { source } = job.transfer;
      const found = ddr.generationOf(source!.slot);
      if (found === source!.generation) return true;
      ended(job, staleBytes(source!, found));
      return false;
    });
  }

  #host(): HostTierStore {
    return this.#store(Tier.DDR) as HostTierStore;
  }

  #store(tier: Tier): TierStore {
    const { hbm, ddr, nvme, remote } = this.#stores();
    const store = [hbm, ddr, nvme, remote][tier];
    if (store === undefined) throw new Error(`there is no ${tierName(tier) ?? `tier ${tier}`} store`);
    return store;
  }
}

function staleBytes(place: Place, found: number): StoreResult {
  if (found === 0) return { outcome: Outcome.MISSING, reason: `slot ${place.slot} holds no bytes` };
  const reason = `slot ${place.slot} holds generation ${found}, not ${place.generation}`;
  return { outcome: found > place.generation ? Outcome.REFUSED : Outcome.CORRUPT, reason };
}

function itemOf(transfer: Transfer, place: Place, bytes: Uint8Array): StoreItem {
  return {
    slot: place.slot,
    generation: place.generation,
    sizeClass: transfer.sizeClass,
    key: transfer.key,
    digest: transfer.digest,
    tokens: transfer.tokens,
    parent: transfer.parent,
    bytes,
  };
}
