/**
 * Executes transfer jobs without bytes: modeled tiers remember what lies where, a link model says how long it
 * takes, and each end is an event on virtual time. Given the jobs of a real run it reports what the real
 * driver would, only sooner.
 */

import type { Digest } from '../../runtime/digest.ts';
import type { ResolvedConfig } from '../../runtime/manager/config.ts';
import type { Tier } from '../../runtime/tier/tier.ts';
import type { StoreItem, StoreResult } from '../../runtime/tier/tierStore.ts';
import type { Completion, EndListener, TransferDriver } from '../../runtime/transfer/driver.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { Place, Transfer } from '../../runtime/transfer/transfer.ts';
import { ModeledTier } from '../tier/modeledTier.ts';
import { Flights } from './flights.ts';
import type { LinkModel } from './linkModel.ts';
import type { Timeline } from './timeline.ts';

const noBytes = new Uint8Array(0);

export class ModeledDriver implements TransferDriver {
  readonly tiers: ReadonlyMap<Tier, ModeledTier>;
  readonly #flights: Flights<Transfer>;
  readonly #timeline: Timeline;
  #listener: EndListener = () => {};

  /** @param timeline calls `end` with each flight that was scheduled on it, when it is due */
  constructor(config: ResolvedConfig, links: LinkModel, timeline: Timeline) {
    this.tiers = new Map(config.tiers.map(({ tier, shape }) => [tier, new ModeledTier(tier, shape)]));
    this.#flights = new Flights(links, timeline);
    this.#timeline = timeline;
  }

  get inFlight(): number {
    return this.#flights.inFlight;
  }

  /** Bytes carried and time busy so far, by link. */
  get traffic(): Flights<Transfer>['traffic'] {
    return this.#flights.traffic;
  }

  nowUs(): number {
    return this.#timeline.nowUs;
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(transfers: readonly Transfer[]): void {
    for (const transfer of transfers) {
      const { source, target, bytes } = transfer;
      this.#flights.add(transfer, { from: source?.tier ?? null, to: target.tier, bytes });
    }
    this.#flights.depart();
  }

  /** The flight is due: its bytes are where they were to go, if they were there. */
  end(flight: number): void {
    const transfer = this.#flights.land(flight);
    if (transfer !== null) this.#listener(this.#ended(transfer));
  }

  #ended(transfer: Transfer): Completion {
    const { outcome, reason } = this.#carryOut(transfer);
    const digest = transfer.kind === 'seal' ? modeledDigest(transfer.key) : { lo: 0, hi: 0 };
    return { job: transfer.job, outcome, reason, digestLo: digest.lo, digestHi: digest.hi };
  }

  #carryOut(transfer: Transfer): StoreResult {
    const { source, target } = transfer;
    if (source !== null && transfer.unsealed !== true) {
      const read = this.#tier(source).readItem(itemAt(transfer, source));
      if (read.outcome !== Outcome.LOADED) return read;
    }
    return this.#tier(target).writeItem(itemAt(transfer, target));
  }

  #tier({ tier }: Place): ModeledTier {
    return this.tiers.get(tier) as ModeledTier;
  }
}

/** The digest that a modeled block has: a name for its key, since there are no bytes. */
export function modeledDigest(key: Uint32Array): Digest {
  return { lo: (key[0] ^ key[2]) >>> 0, hi: (key[1] ^ key[3]) >>> 0 };
}

/** What is copied has no key yet, so whichever bytes do. */
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
