/** A place list and the buffer in which its results come back, lent together; their number bounds the batches in flight. */

import { LendingRing } from './lendingRing.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { PlaceKernels } from './placeKernels.ts';
import { PlaceList } from './placeList.ts';
import { ReadbackRing } from './readbackRing.ts';

export interface PlaceBatch {
  readonly places: PlaceList;
  readonly readback: GPUBuffer;
}

export class PlaceBatches {
  readonly #readbacks: ReadbackRing;
  readonly #lists: LendingRing<PlaceList>;

  constructor(live: LiveDevice, kernels: PlaceKernels, label: string, count: number) {
    this.#readbacks = new ReadbackRing(live, `${label}.results`, kernels.resultBytesMax, count);
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

  /** The results, two words a row; `undefined` when the device is gone. Dead after `release`. */
  async land(batch: PlaceBatch, bytes: number): Promise<Uint32Array | undefined> {
    const landed = await this.#readbacks.land(batch.readback, bytes);
    return landed === undefined ? undefined : new Uint32Array(landed);
  }

  release(batch: PlaceBatch): void {
    this.#readbacks.release(batch.readback);
    this.#lists.release(batch.places);
  }

  async destroy(): Promise<void> {
    await this.#readbacks.destroy();
    this.#lists.close();
  }
}
