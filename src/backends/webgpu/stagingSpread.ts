/**
 * Over how much staging memory the bytes under way are spread. On a device that runs on the host's cores, one core fills what
 * another one empties:
 *
 *     close   a few small buffers, and the one that came back last goes out first: fastest where both cores have a cache in
 *             common, since the bytes never leave it
 *     wide    larger buffers in turn: fastest where they have not, since a buffer that is filled again at once is first taken
 *             back, line by line, from the other core's cache
 */

import type { CacheDistance } from './cacheDistance.ts';

/** The staging buffers of one direction. */
export interface Staging {
  readonly bytes: number;
  readonly buffers: number;
}

export class StagingSpread {
  /** What a ring must have for either. */
  readonly most: Staging;
  readonly #wide: Staging;
  readonly #close: Staging;
  readonly #distance: CacheDistance | undefined;

  constructor(wide: Staging, close: Staging = wide, distance?: CacheDistance) {
    this.#wide = wide;
    this.#close = close;
    this.#distance = distance;
    this.most = {
      bytes: Math.max(wide.bytes, close.bytes),
      buffers: Math.max(wide.buffers, close.buffers),
    };
  }

  /** How much of a buffer is filled at present, and how many are out at a time. */
  get now(): Staging {
    return this.#distance?.near ? this.#close : this.#wide;
  }

  /** To be called with what a device has filled, up to byte `end`, before anything else looks at it. */
  look(landed: ArrayBuffer, end: number): void {
    this.#distance?.look(landed, end);
  }
}
