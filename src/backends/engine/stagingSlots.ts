/**
 * Page-aligned host memory for blocks on their way between device and file: a bounded number of slots, taken
 * in turn, since memory that another core has just read must first leave that core's cache.
 */

import { requireInteger } from '../../runtime/errors.ts';
import { HostArena } from '../arena/index.ts';

/** Twice what a link has under way. */
const STAGING_BYTES = 64 * 1024 * 1024;
const SLOTS_MAX = 1024;

export class StagingSlots implements Disposable {
  readonly #arena: HostArena;
  readonly #slotBytes: number;
  readonly #free: number[];
  readonly #waiting: (() => void)[] = [];

  private constructor(arena: HostArena, slotBytes: number, slots: number) {
    this.#arena = arena;
    this.#slotBytes = slotBytes;
    this.#free = Array.from({ length: slots }, (_, i) => i);
  }

  /** How many slots keep both neighbours of the memory busy: 64 MiB of them, and never fewer than two. */
  static countFor(unitBytes: number): number {
    return Math.max(2, Math.min(SLOTS_MAX, Math.floor(STAGING_BYTES / unitBytes)));
  }

  /** @param unitBytes the largest block that passes through */
  static async open(unitBytes: number, slots: number): Promise<StagingSlots> {
    requireInteger('staging slots', slots, 1);
    const slotBytes = Math.ceil(unitBytes / 4096) * 4096;
    const arena = await HostArena.open({ chunkBytes: [slotBytes * slots], native: true, field: 'staging' });
    return new StagingSlots(arena, slotBytes, slots);
  }

  view(slot: number, bytes: number): Uint8Array {
    return new Uint8Array(this.#arena.chunks[0], slot * this.#slotBytes, bytes);
  }

  /** Between one and `wanted` slots, as soon as there are any. */
  async take(wanted: number): Promise<number[]> {
    while (this.#free.length === 0) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
      });
    }
    return this.#free.splice(0, Math.min(wanted, this.#free.length));
  }

  giveBack(slots: readonly number[]): void {
    this.#free.push(...slots);
    for (const wake of this.#waiting.splice(0)) wake();
  }

  [Symbol.dispose](): void {
    this.#arena[Symbol.dispose]();
  }
}
