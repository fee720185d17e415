/**
 * The disk alone: direct I/O on the very blocks of the disk where the rig's records have their payloads, and from and to the
 * very memory that the engine moves them from and to, since neither one file nor one stretch of memory is as fast as the next.
 * What is written or read there is what lies there, so the stores never know.
 */

import { fileLayout, recordOffset } from '../../../backends/file/fileLayout.ts';
import { type Operation, RawFile } from './rawFile.ts';
import type { Arrangement, LinkRig } from './rig.ts';

const PIECE_BYTES_MAX = 8 * 1024 * 1024;
const PROBE_BYTES = 4096;

interface Content {
  readonly index: number;
  readonly slot: number;
}

/** What a stage of the disk does. */
export interface DiskWork {
  readonly operation: Operation;
  readonly arrangement: Arrangement;
  /** Where a read goes: to the units' places in host memory, or to what a unit on its way to the device passes through. */
  readonly into: 'ddr' | 'staging';
  /** Contents [0, units), in the order of the file. */
  readonly units: number;
}

export class RawRecords implements Disposable {
  readonly #rig: LinkRig;
  readonly #file: RawFile;
  readonly #offsetOf: (slot: number) => number;

  constructor(rig: LinkRig) {
    this.#rig = rig;
    this.#file = RawFile.direct(String(rig.nvme!.describe().path), rig.staging!.view(0, PROBE_BYTES));
    const layout = fileLayout(rig.shape);
    const { payloadOffset } = layout.records[0];
    this.#offsetOf = (slot) => recordOffset(layout, slot, 0) + payloadOffset;
  }

  /** Whether the file system did direct I/O. */
  get direct(): boolean {
    return this.#file.direct;
  }

  /** Does the work in pieces of so many bytes, 8 MiB at most, so many at once. */
  mover(work: DiskWork, depth: number, pieceBytes: number): () => Promise<void> {
    const { operation, arrangement, units } = work;
    const { unitBytes } = this.#rig;
    const piece = Math.min(pieceBytes, unitBytes, PIECE_BYTES_MAX);
    const contents = this.#inFileOrder(arrangement, units);
    return async () => {
      let next = 0;
      const lane = async (): Promise<void> => {
        while (next * piece < units * unitBytes) {
          const at = next++ * piece;
          const nth = Math.floor(at / unitBytes);
          const from = at % unitBytes;
          const unit = this.#memoryOf(work, contents[nth], nth);
          await this.#file.move(
            operation,
            unit.subarray(from, from + piece),
            this.#offsetOf(contents[nth].slot) + from,
          );
        }
      };
      await Promise.all(Array.from({ length: depth }, lane));
    };
  }

  [Symbol.dispose](): void {
    this.#file[Symbol.dispose]();
  }

  #inFileOrder(arrangement: Arrangement, units: number): Content[] {
    return Array.from({ length: units }, (_, index) => ({
      index,
      slot: this.#rig.slotOf(index, arrangement),
    })).sort((a, b) => a.slot - b.slot);
  }

  /** Of the unit that comes `nth` in the file. */
  #memoryOf({ operation, into }: DiskWork, { index, slot }: Content, nth: number): Uint8Array {
    const { ddr, staging, unitBytes } = this.#rig;
    if (operation === 'write') return ddr.view(index, 0);
    return into === 'ddr' ? ddr.view(slot, 0) : staging!.view(nth % staging!.slots, unitBytes);
  }
}
