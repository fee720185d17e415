/**
 * Files without tierkv: one direct call for everything, and one buffered call a unit, on plain files of the whole size. Buffered
 * writes end with their bytes on the device (fdatasync), as direct ones do; buffered reads begin with none of them in the page
 * cache, where the C library can be called.
 */

import fs from 'node:fs';
import path from 'node:path';
import { HostArena } from '../../../backends/arena/index.ts';
import { hostDigest } from '../../../backends/digest/index.ts';
import { loadLibc } from '../../../backends/posix/index.ts';
import { type Operation, RawFile } from './rawFile.ts';
import { RawRecords } from './rawRecords.ts';
import type { LinkRig } from './rig.ts';

interface Opened {
  readonly records: RawRecords;
  readonly arena: HostArena;
  readonly direct: RawFile;
  readonly buffered: RawFile;
  readonly dropCache: ((fd: number) => void) | undefined;
}

export class DiskRuns implements Disposable {
  /** The disk alone. */
  readonly records: RawRecords;
  /** Whether the page cache can be emptied, so that buffered reads reach the disk. */
  readonly dropsCache: boolean;
  readonly #unitBytes: number;
  readonly #memory: Uint8Array;
  readonly #opened: Opened;

  private constructor(unitBytes: number, bytes: number, opened: Opened) {
    this.records = opened.records;
    this.dropsCache = opened.dropCache !== undefined;
    this.#unitBytes = unitBytes;
    this.#memory = new Uint8Array(opened.arena.chunks[0], 0, bytes);
    this.#opened = opened;
  }

  static async open(dir: string, rig: LinkRig): Promise<DiskRuns> {
    const { bytes, unitBytes } = rig;
    const libc = await loadLibc();
    const arena = await HostArena.open({ chunkBytes: [bytes], field: 'bench' });
    const memory = new Uint8Array(arena.chunks[0]).fill(0x5a);
    const made = (name: string): string => {
      const file = path.join(dir, name);
      // twice the size, since scattered units lie in twice the room
      for (const flag of ['w', 'a']) fs.writeFileSync(file, memory.subarray(0, bytes), { flag, flush: true });
      return file;
    };
    return new DiskRuns(unitBytes, bytes, {
      records: new RawRecords(rig),
      arena,
      direct: RawFile.direct(made('bench.direct'), memory.subarray(0, 4096)),
      buffered: RawFile.buffered(made('bench.buffered')),
      dropCache: typeof libc === 'string' ? undefined : (fd) => void libc.dropCache(fd),
    });
  }

  /** The first `bytes` bytes in one direct call. */
  async single(operation: Operation, bytes: number): Promise<void> {
    await this.#opened.direct.move(operation, this.#memory.subarray(0, bytes), 0);
  }

  /** The host digests the first `bytes` bytes of what was read. */
  digest(bytes: number): void {
    hostDigest(this.#memory.subarray(0, bytes));
  }

  /** Before a buffered read. */
  emptyCache(): void {
    this.#opened.dropCache?.(this.#opened.buffered.fd);
  }

  /** One buffered call a unit, each after the other. */
  async naiveWrite(slots: readonly number[]): Promise<void> {
    for (const [i, slot] of slots.entries()) await this.bufferedUnit('write', slot, this.unit(i));
    await this.sync();
  }

  unit(index: number): Uint8Array {
    return this.#memory.subarray(index * this.#unitBytes, (index + 1) * this.#unitBytes);
  }

  async bufferedUnit(operation: Operation, slot: number, bytes: Uint8Array): Promise<void> {
    await this.#opened.buffered.move(operation, bytes, slot * this.#unitBytes);
  }

  async bufferedVerifiedRead(slot: number, bytes: Uint8Array): Promise<void> {
    await this.bufferedUnit('read', slot, bytes);
    hostDigest(bytes);
  }

  sync(): Promise<void> {
    return this.#opened.buffered.sync();
  }

  [Symbol.dispose](): void {
    const { records, direct, buffered, arena } = this.#opened;
    for (const one of [records, direct, buffered, arena]) one[Symbol.dispose]();
  }
}
