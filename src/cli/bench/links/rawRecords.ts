/**
 * The disk alone: direct I/O on the very blocks of the disk where the rig's records have their payloads, since one file is not
 * as fast as the next. What is written there is what lies there, so the store never knows.
 */

import { HostArena } from '../../../backends/arena/index.ts';
import { fileLayout, recordOffset } from '../../../backends/file/fileLayout.ts';
import { type Operation, RawFile } from './rawFile.ts';
import type { Arrangement, LinkRig } from './rig.ts';

const PIECE_BYTES_MAX = 4 * 1024 * 1024;

export class RawRecords implements Disposable {
  readonly #rig: LinkRig;
  readonly #file: RawFile;
  /** Where reads go. */
  readonly #arena: HostArena;
  readonly #offsetOf: (slot: number) => number;

  private constructor(rig: LinkRig, file: RawFile, arena: HostArena) {
    this.#rig = rig;
    this.#file = file;
    this.#arena = arena;
    const layout = fileLayout(rig.shape);
    const { payloadOffset } = layout.records[0]!;
    this.#offsetOf = (slot) => recordOffset(layout, slot, 0) + payloadOffset;
  }

  static async open(rig: LinkRig): Promise<RawRecords> {
    const arena = await HostArena.open({ chunkBytes: [rig.bytes], field: 'bench' });
    const file = RawFile.direct(String(rig.nvme!.describe().path), new Uint8Array(arena.chunks[0]!, 0, 4096));
    return new RawRecords(rig, file, arena);
  }

  /** Whether the file system did direct I/O. */
  get direct(): boolean {
    return this.#file.direct;
  }

  /** What moves contents [0, units), in the order of the file, in pieces of so many bytes, 4 MiB at most, so many at once. */
  mover(
    operation: Operation,
    arrangement: Arrangement,
    units: number,
    depth: number,
    pieceBytes: number,
  ): () => Promise<void> {
    const { unitBytes } = this.#rig;
    const piece = Math.min(pieceBytes, unitBytes, PIECE_BYTES_MAX);
    const contents = this.#inFileOrder(arrangement, units);
    return async () => {
      let next = 0;
      const lane = async (): Promise<void> => {
        while (next * piece < units * unitBytes) {
          const at = next++ * piece;
          const { index, slot } = contents[Math.floor(at / unitBytes)]!;
          const from = at % unitBytes;
          const bytes = operation === 'read' ? this.#scratch(at, piece) : this.#content(index, from, piece);
          await this.#file.move(operation, bytes, this.#offsetOf(slot) + from);
        }
      };
      await Promise.all(Array.from({ length: depth }, lane));
    };
  }

  [Symbol.dispose](): void {
    this.#file[Symbol.dispose]();
    this.#arena[Symbol.dispose]();
  }

  #inFileOrder(arrangement: Arrangement, units: number): { index: number; slot: number }[] {
    return Array.from({ length: units }, (_, index) => ({
      index,
      slot: this.#rig.slotOf(index, arrangement),
    })).sort((a, b) => a.slot - b.slot);
  }

  #scratch(at: number, length: number): Uint8Array {
    return new Uint8Array(this.#arena.chunks[0]!, at, length);
  }

  #content(index: number, from: number, length: number): Uint8Array {
    return this.#rig.ddr.view(index, 0).subarray(from, from + length);
  }
}
