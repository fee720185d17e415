/** A place list and the buffer in which its results come back, lent together; their number bounds the batches in flight. */

import { LendingRing } from './lendingRing.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { PlaceKernels } from './placeKernels.ts';
import { PlaceList } from './placeList.ts';
import { ReadbackRing } from './readbackRing.ts';
import { StagingSpread } from './stagingSpread.ts';

export interface PlaceBatch {
  readonly places: PlaceList;
  readonly readback: GPUBuffer;
}

export class PlaceBatches {
  readonly #readbacks: ReadbackRing;
  readonly #lists: LendingRing<PlaceList>;

  constructor(live: LiveDevice, kernels: PlaceKernels, label: string, count: number) {
    const spread = new StagingSpread({ bytes: kernels.resultBytesMax, buffers: count });
    this.#readbacks = new ReadbackRing(live, `${label}.results`, spread);
    this.#lists = new LendingRing(
      live,
      Array.from({ length: count }, () => new PlaceList(kernels.placesMax)),
    );
  }

  /** An empty batch; `undefined` when the device is gone. */
  async acquire(): Promise<PlaceBatch | undefined> {
    const readback = await this.#readbacks.acquire();
    const places = await this.#lists.acquire();
    if (readback === undefined || places === undefined) return undefined;
    places.clear();
    return { places, readback };
  }

  /** Calls `use` with the results, two words a row, and frees the batch; false when the device is gone. */
  async land(batch: PlaceBatch, bytes: number, use: (results: Uint32Array) => void): Promise<boolean> {
    const landed = await this.#readbacks.land(batch.readback, bytes, (range) => use(new Uint32Array(range)));
    if (landed) this.#lists.release(batch.places);
    return landed;
  }

  async destroy(): Promise<void> {
    await this.#readbacks.destroy();
    this.#lists.close();
  }
}
