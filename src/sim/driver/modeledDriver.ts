/**
 * Executes transfer jobs without bytes: modeled tiers remember what lies where, a link model says how long it takes, and
 * the clock is virtual. Given the jobs of a real run it reports what the real driver would, only sooner.
 */

import type { Digest } from '../../runtime/digest.ts';
import type { ResolvedConfig } from '../../runtime/manager/config.ts';
import { linkName, type Tier } from '../../runtime/tier.ts';
import type { Completion, TransferDriver } from '../../runtime/transfer/driver.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import type { Place, Transfer } from '../../runtime/transfer/transfer.ts';
import { ModeledTier } from '../tier/modeledTier.ts';
import type { LinkModel } from './linkModel.ts';

const noBytes = new Uint8Array(0);

export class ModeledDriver implements TransferDriver {
  readonly tiers: ReadonlyMap<Tier, ModeledTier>;
  /** Bytes carried and time busy so far, by link. */
  readonly traffic: Map<string, { bytes: number; busyUs: number }> = new Map();
  readonly #links: LinkModel;
  #pending: Transfer[] = [];
  #endsUs: number[] = [];
  #nowUs = 0;

  constructor(config: ResolvedConfig, links: LinkModel) {
    this.tiers = new Map(config.tiers.map(({ tier, shape }) => [tier, new ModeledTier(tier, shape)]));
    this.#links = links;
  }

  get inFlight(): number {
    return this.#pending.length;
  }

  nowUs(): number {
    return this.#nowUs;
  }

  /** Moves the clock on, for example to a request's arrival. */
  advanceTo(nowUs: number): void {
    this.#nowUs = Math.max(this.#nowUs, nowUs);
  }

  submit(transfers: readonly Transfer[]): void {
    for (const transfer of transfers) {
      this.#pending.push(transfer);
      this.#endsUs.push(this.#endOf(transfer));
    }
  }

  async take(): Promise<readonly Completion[]> {
    const transfers = this.#pending;
    for (const endUs of this.#endsUs) this.#nowUs = Math.max(this.#nowUs, endUs);
    this.#pending = [];
    this.#endsUs = [];
    const moves = transfers.filter((transfer) => transfer.source !== null);
    const arrived = new Map<Transfer, StoreResult>();
    await this.#each(moves, (t) => t.source!, 'read', arrived);
    const good = moves.filter((transfer) => arrived.get(transfer)!.outcome === Outcome.LOADED);
    const seals = transfers.filter((transfer) => transfer.source === null);
    await this.#each([...good, ...seals], (t) => t.target, 'write', arrived);
    return transfers.map((transfer) => {
      const { outcome, reason } = arrived.get(transfer)!;
      const { lo, hi } = transfer.kind === 'seal' ? modeledDigest(transfer.key) : { lo: 0, hi: 0 };
      return { job: transfer.job, outcome, reason, digestLo: lo, digestHi: hi };
    });
  }

  #endOf(transfer: Transfer): number {
    if (transfer.source === null) return this.#nowUs;
    const { source, target, bytes } = transfer;
    const endUs = this.#links.endUs(source.tier, target.tier, bytes, this.#nowUs);
    const name = linkName(source.tier, target.tier);
    const traffic = this.traffic.get(name) ?? { bytes: 0, busyUs: 0 };
    this.traffic.set(name, traffic);
    traffic.bytes += bytes;
    traffic.busyUs += this.#links.transferUs(source.tier, target.tier, bytes);
    return endUs;
  }

  async #each(
    transfers: readonly Transfer[],
    placeOf: (transfer: Transfer) => Place,
    op: 'read' | 'write',
    results: Map<Transfer, StoreResult>,
  ): Promise<void> {
    for (const [tier, store] of this.tiers) {
      const here = transfers.filter((transfer) => placeOf(transfer).tier === tier);
      if (here.length === 0) continue;
      const ends = await store[op](here.map((transfer) => itemAt(transfer, placeOf(transfer))));
      here.forEach((transfer, i) => {
        results.set(transfer, ends[i]);
      });
    }
  }
}

/** The digest that a modeled block has: a name for its key, since there are no bytes. */
export function modeledDigest(key: Uint32Array): Digest {
  return { lo: (key[0] ^ key[2]) >>> 0, hi: (key[1] ^ key[3]) >>> 0 };
}

function itemAt(transfer: Transfer, place: Place): StoreItem {
  return {
    slot: place.slot,
    sizeClass: transfer.sizeClass,
    generation: place.generation,
    key: transfer.key,
    digest: transfer.kind === 'seal' ? modeledDigest(transfer.key) : transfer.digest,
    bytes: noBytes,
  };
}
