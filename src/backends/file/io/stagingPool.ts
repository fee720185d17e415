/**
 * Page-aligned scratch memory for I/Os in flight: record headers, and whole records whose bytes are not where
 * direct I/O can reach them. A fixed arena; `take` gives the first free range that is long enough, or
 * nothing, and then the I/O waits until another gives its range back. Ranges are whole blocks, so all of them
 * are aligned.
 */

import { invariant } from '../../../runtime/errors.ts';
import { HostArena } from '../../arena/index.ts';
import { BLOCK_BYTES } from './dataFile.ts';

interface Range {
  start: number;
  end: number;
}

export class StagingPool implements Disposable {
  readonly capacityBytes: number;
  readonly #arena: HostArena;
  /** Free ranges by address, never touching each other. */
  readonly #free: Range[];

  private constructor(arena: HostArena, capacityBytes: number) {
    this.#arena = arena;
    this.capacityBytes = capacityBytes;
    this.#free = [{ start: 0, end: capacityBytes }];
  }

  static async open(capacityBytes: number, native: boolean): Promise<StagingPool> {
    invariant(capacityBytes % BLOCK_BYTES === 0, 'a staging pool is whole blocks');
    const arena = await HostArena.open({
      chunkBytes: [capacityBytes],
      resident: false,
      native,
      field: 'queueDepth',
    });
    return new StagingPool(arena, capacityBytes);
  }

  /** A range of `bytes`, rounded up to whole blocks, or undefined while none is free. */
  take(bytes: number): Uint8Array | undefined {
    const length = Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
    invariant(length > 0 && length <= this.capacityBytes, () => `staging for ${bytes} bytes`);
    const at = this.#free.findIndex((range) => range.end - range.start >= length);
    if (at < 0) return undefined;
    const range = this.#free[at];
    const taken = new Uint8Array(this.#arena.chunks[0], range.start, length);
    range.start += length;
    if (range.start === range.end) this.#free.splice(at, 1);
    return taken;
  }

  give(taken: Uint8Array): void {
    const start = taken.byteOffset;
    const end = start + taken.byteLength;
    let at = 0;
    while (at < this.#free.length && this.#free[at].start < start) at++;
    const before = this.#free[at - 1];
    const after = this.#free[at];
    invariant(
      (before?.end ?? 0) <= start && end <= (after?.start ?? this.capacityBytes),
      'staging given back twice',
    );
    const joinsBefore = before?.end === start;
    const joinsAfter = after?.start === end;
    if (joinsBefore && joinsAfter) {
      before.end = after.end;
      this.#free.splice(at, 1);
    } else if (joinsBefore) before.end = end;
    else if (joinsAfter) after.start = start;
    else this.#free.splice(at, 0, { start, end });
  }

  /** @throws an invariant unless every range is back. */
  checkIntegrity(): void {
    const [only] = this.#free;
    const whole = this.#free.length === 1 && only.start === 0 && only.end === this.capacityBytes;
    invariant(whole, 'staging memory is still in use');
  }

  [Symbol.dispose](): void {
    this.#arena[Symbol.dispose]();
  }
}
