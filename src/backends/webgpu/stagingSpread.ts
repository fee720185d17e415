/**
 * Over how much staging memory the bytes of one direction that are under way are spread. On a device that runs on the host's
 * cores, one core fills what another one empties:
 *
 *     close   a few small buffers, and the one that came back last goes out first: fastest where both cores have a cache in
 *             common, since the bytes never leave it. While the other direction is under way, both have to fit
 *     wide    larger buffers in turn: fastest where they have not, since a buffer that is filled again at once is first taken
 *             back, line by line, from the other core's cache
 */

import type { CacheDistance } from './cacheDistance.ts';

/** The staging buffers of one direction. */
export interface Staging {
  readonly bytes: number;
  readonly buffers: number;
}

export interface CloseStaging {
  readonly distance: CacheDistance;
  /** While nothing else is under way. */
  readonly alone: Staging;
  /** While the other direction is. */
  readonly beside: Staging;
  readonly other: () => StagingSpread;
}

/** Whoever lends the buffers. */
interface Lender {
  readonly lent: number;
}

export class StagingSpread {
  /** What a ring must have for any choice. */
  readonly most: Staging;
  readonly #wide: Staging;
  readonly #close: CloseStaging | undefined;
  readonly #lenders: Lender[] = [];

  constructor(wide: Staging, close?: CloseStaging) {
    this.#wide = wide;
    this.#close = close;
    const choices = close === undefined ? [wide] : [wide, close.alone, close.beside];
    this.most = {
      bytes: Math.max(...choices.map(({ bytes }) => bytes)),
      buffers: Math.max(...choices.map(({ buffers }) => buffers)),
    };
  }

  /** How much of a buffer is filled at present, and how many are out at a time. */
  get now(): Staging {
    const close = this.#close;
    if (close === undefined || !close.distance.near) return this.#wide;
    return close.other().underWay ? close.beside : close.alone;
  }

  get underWay(): boolean {
    return this.#lenders.some(({ lent }) => lent > 0);
  }

  isLentBy(lender: Lender): void {
    this.#lenders.push(lender);
  }

  /** To be called with what a device has filled, up to byte `end`, before anything else looks at it. */
  look(landed: ArrayBuffer, end: number): void {
    const close = this.#close;
    if (close === undefined || end > Math.max(close.alone.bytes, close.beside.bytes)) return;
    close.distance.look(landed, end);
  }
}
