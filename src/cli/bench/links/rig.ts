/**
 * The tiers that a link bench moves units between, and the engines that move them. Every tier holds the same contents twice:
 * in slots that lie side by side, and in slots drawn at random from an area twice as large. A content keeps its bytes for
 * ever, so a transfer brings what its digest says, and only generations grow.
 *
 *     slots of each tier    | 0 .. units - 1: contiguous | units .. 3 units - 1: scattered, every second one used |
 */

import { hostDigest } from '../../../backends/digest/index.ts';
import { StagingSlots, TransferEngine } from '../../../backends/engine/index.ts';
import { FileStore } from '../../../backends/file/index.ts';
import { MemoryStore } from '../../../backends/memory/index.ts';
import type { VerificationName } from '../../../backends/webgpu/arrivals.ts';
import { HbmStore, type LiveDevice } from '../../../backends/webgpu/index.ts';
import type { UploadPathName } from '../../../backends/webgpu/uploadPath.ts';
import { TierKVError } from '../../../runtime/errors.ts';
import {
  type Digest,
  Outcome,
  outcomeNames,
  type PoolShape,
  poolShape,
  Tier,
  type TierStore,
  type Transfer,
} from '../../../runtime/index.ts';
import { fillPattern } from '../../../runtime/pattern.ts';
import type { Checks } from './limit.ts';
import type { Verification } from './row.ts';

export type Arrangement = 'contiguous' | 'scattered';

/** A tier's slots as the rig uses them. */
interface Place {
  readonly tier: Tier;
  /** By slot; 0 for one that holds nothing. */
  readonly generations: Uint32Array;
}

/** By the place that they reach and the others do not. */
type Engines = Readonly<Record<'verified' | 'hbmUnverified' | 'nvmeUnverified', TransferEngine>>;

/** What the manager would have the engine do. */
export interface LinkJobs {
  readonly engine: TransferEngine;
  readonly transfers: readonly Transfer[];
}

export type PlaceName = 'hbm' | 'hbmUnverified' | 'ddr' | 'nvme' | 'nvmeUnverified';

export class LinkRig implements AsyncDisposable {
  readonly unitBytes: number;
  readonly units: number;
  readonly shape: PoolShape;
  readonly live: LiveDevice;
  readonly hbm: HbmStore;
  readonly hbmUnverified: HbmStore;
  readonly ddr: MemoryStore;
  readonly nvme: FileStore | undefined;
  /** What units between device and file pass through. */
  readonly staging: StagingSlots | null;
  readonly #places: Record<PlaceName, Place>;
  readonly #engines: Engines;
  readonly #scattered: Uint32Array;
  readonly #digests: readonly Digest[];
  readonly #key: Uint32Array = new Uint32Array(4);
  readonly #opened: AsyncDisposableStack;
  #job = 1;

  private constructor(
    fields: Pick<
      LinkRig,
      'unitBytes' | 'units' | 'shape' | 'live' | 'hbm' | 'hbmUnverified' | 'ddr' | 'nvme' | 'staging'
    >,
    engines: Engines,
    slots: number,
    opened: AsyncDisposableStack,
  ) {
    this.unitBytes = fields.unitBytes;
    this.units = fields.units;
    this.shape = fields.shape;
    this.live = fields.live;
    this.hbm = fields.hbm;
    this.hbmUnverified = fields.hbmUnverified;
    this.ddr = fields.ddr;
    this.nvme = fields.nvme;
    this.staging = fields.staging;
    this.#engines = engines;
    this.#opened = opened;
    const place = (tier: Tier): Place => ({ tier, generations: new Uint32Array(slots) });
    const nvme = place(Tier.NVME);
    this.#places = {
      hbm: place(Tier.HBM),
      hbmUnverified: place(Tier.HBM),
      ddr: place(Tier.DDR),
      nvme,
      nvmeUnverified: nvme,
    };
    this.#scattered = scatteredSlots(fields.units);
    this.#digests = this.#fillHost();
  }

  /**
   * @param dir where files may be made; undefined for a rig without the disk
   * @throws {TierKVError} when a tier is not to be had
   */
  static async open(
    live: LiveDevice,
    unitBytes: number,
    units: number,
    dir: string | undefined,
  ): Promise<LinkRig> {
    await using opened = new AsyncDisposableStack();
    const slots = 3 * units;
    const shape = poolShape(slots, unitBytes, [unitBytes]);
    const hbm = opened.use(await HbmStore.open(live, shape, { label: 'bench' }));
    const hbmUnverified = opened.use(
      await HbmStore.open(live, shape, { label: 'bench.unverified', verifyWrites: false }),
    );
    const ddr = opened.use(await MemoryStore.open(shape));
    const nvme = dir === undefined ? undefined : opened.use(await FileStore.open(dir, shape));
    const staging =
      nvme === undefined
        ? null
        : opened.use(await StagingSlots.open(unitBytes, StagingSlots.countFor(unitBytes)));
    const engineOver = (hbm: HbmStore, nvme: TierStore | undefined): TransferEngine =>
      new TransferEngine({ hbm, ddr, ...(nvme === undefined ? {} : { nvme }) }, staging);
    const engines: Engines = {
      verified: engineOver(hbm, nvme),
      hbmUnverified: engineOver(hbmUnverified, nvme),
      nvmeUnverified: engineOver(hbm, nvme && unverifiedReads(nvme)),
    };
    const fields = { unitBytes, units, shape, live, hbm, hbmUnverified, ddr, nvme, staging };
    const rig = new LinkRig(fields, engines, slots, opened.move());
    for (const name of ['hbm', 'hbmUnverified', ...(nvme === undefined ? [] : ['nvme' as const])] as const) {
      for (const arrangement of ['contiguous', 'scattered'] as const) {
        await rig.run(rig.jobs('ddr', name, arrangement));
      }
    }
    return rig;
  }

  /** How bytes are verified here. */
  get checks(): Checks {
    const threads = this.nvme?.describe().digestThreadsMax ?? 0;
    return { arrivals: this.arrivalCheck, readsAside: Number(threads) > 0 };
  }

  /** How what arrives in HBM is verified. */
  get arrivalCheck(): VerificationName {
    return this.hbm.strategy.verification;
  }

  /** How bytes go up in a row with that check. */
  uploadPath(verify: Verification): UploadPathName {
    return (verify === 'hbm' ? this.hbm : this.hbmUnverified).strategy.uploadPath;
  }

  /** Bytes of one arrangement. */
  get bytes(): number {
    return this.units * this.unitBytes;
  }

  /** Where content `index` lies in every tier, in the arrangement. */
  slotOf(index: number, arrangement: Arrangement): number {
    return arrangement === 'contiguous' ? index : this.#scattered[index];
  }

  /** Contents [from, to) for the engine to move. To be run once, and before other jobs to the same places are made. */
  jobs(
    source: PlaceName,
    target: PlaceName,
    arrangement: Arrangement,
    from = 0,
    to: number = this.units,
  ): LinkJobs {
    const transfers = this.#transfers(source, target, arrangement, from, to);
    return { engine: this.#engineFor(source, target), transfers };
  }

  /** One half of contents [from, to) goes one way while the other half comes. */
  jobsBothWays(
    a: PlaceName,
    b: PlaceName,
    arrangement: Arrangement,
    from = 0,
    to: number = this.units,
  ): LinkJobs {
    const half = from + ((to - from) >> 1);
    const there = this.#transfers(a, b, arrangement, from, half);
    const back = this.#transfers(b, a, arrangement, half, to);
    return { engine: this.#engineFor(a, b), transfers: [...there, ...back] };
  }

  /** Fulfilled when all have ended. @throws when one was not loaded */
  async run({ engine, transfers }: LinkJobs): Promise<void> {
    engine.submit(transfers);
    for (let left = transfers.length; left > 0; ) {
      const ends = await engine.take();
      left -= ends.length;
      const failed = ends.find((end) => end.outcome !== Outcome.LOADED);
      if (failed === undefined) continue;
      const what = `a bench transfer ended as ${outcomeNames[failed.outcome]}: ${failed.reason}`;
      throw new TierKVError('TKV_DEVICE', `${what}. Look at the device and the disk, then run it again.`);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#opened.disposeAsync();
  }

  #engineFor(a: PlaceName, b: PlaceName): TransferEngine {
    const unverified = [a, b].find((one) => one === 'hbmUnverified' || one === 'nvmeUnverified');
    return this.#engines[unverified ?? 'verified'];
  }

  #transfers(
    source: PlaceName,
    target: PlaceName,
    arrangement: Arrangement,
    from: number,
    to: number,
  ): Transfer[] {
    const transfers: Transfer[] = [];
    const { tier: sourceTier, generations: lie } = this.#places[source];
    const { tier: targetTier, generations: taken } = this.#places[target];
    for (let index = from; index < to; index++) {
      const slot = this.slotOf(index, arrangement);
      transfers.push({
        job: this.#job++ as Transfer['job'],
        kind: 'move',
        source: { tier: sourceTier, slot, generation: lie[slot] },
        target: { tier: targetTier, slot, generation: ++taken[slot] },
        sizeClass: 0,
        bytes: this.unitBytes,
        key: this.#key,
        digest: this.#digests[index],
        priority: 0,
        deadlineUs: Number.POSITIVE_INFINITY,
      });
    }
    return transfers;
  }

  #fillHost(): Digest[] {
    const { generations } = this.#places.ddr;
    return Array.from({ length: this.units }, (_, index) => {
      const bytes = this.ddr.view(index, 0);
      fillPattern(new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4), index, 7);
      for (const slot of new Set([index, this.#scattered[index]])) {
        if (slot !== index) this.ddr.view(slot, 0).set(bytes);
        this.ddr.markWritten(slot, 1);
        generations[slot] = 1;
      }
      return hostDigest(bytes);
    });
  }
}

/** The store as one is that was opened with `verifyReads: false`: the same blocks of the disk, for a fair comparison. */
function unverifiedReads(store: FileStore): TierStore {
  return {
    tier: store.tier,
    capacityBytes: store.capacityBytes,
    verifies: { onWrite: false, onRead: false },
    streams: store.streams,
    describe: () => store.describe(),
    write: (items) => store.write(items),
    read: (items) => store.read(items.map((item) => ({ ...item, checkedLater: true }))),
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}

/** One slot of each pair in the area behind the contiguous slots, in an order without a pattern. */
function scatteredSlots(units: number): Uint32Array {
  const slots = Uint32Array.from({ length: units }, (_, i) => units + 2 * i);
  let state = 0x2545_f491;
  for (let i = units - 1; i > 0; i--) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    const other = (state >>> 0) % (i + 1);
    [slots[i], slots[other]] = [slots[other], slots[i]];
  }
  return slots;
}
