/**
 * What the disk does without tierkv, on a plain preallocated file of the whole size: direct I/O at several depths, one call
 * for everything, and one buffered call a unit. Buffered writes end with their bytes on the device (fdatasync), as direct
 * ones do; buffered reads begin with none of them in the page cache, where the C library can be called.
 */

import fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { HostArena } from '../../../backends/arena/index.ts';
import { hostDigest } from '../../../backends/digest/index.ts';
import { loadLibc } from '../../../backends/posix/index.ts';

const PIECE_BYTES_MAX = 4 * 1024 * 1024;
// promisify's types know these by their result alone, without the form that takes a part of a view
const read = promisify(fs.read) as unknown as FileCall;
const write = promisify(fs.write) as unknown as FileCall;
const datasync = promisify(fs.fdatasync);

type FileCall = (
  fd: number,
  bytes: Uint8Array,
  offset: number,
  length: number,
  position: number,
) => Promise<{ bytesRead?: number; bytesWritten?: number }>;

export class DiskRuns implements Disposable {
  readonly bytes: number;
  /** Whether the file system did direct I/O. */
  readonly direct: boolean;
  /** Whether the page cache can be emptied, so that buffered reads reach the disk. */
  readonly dropsCache: boolean;
  readonly #unitBytes: number;
  readonly #arena: HostArena;
  readonly #memory: Uint8Array;
  readonly #directFd: number;
  readonly #bufferedFd: number;
  readonly #dropCache: (fd: number) => void;

  private constructor(fields: {
    bytes: number;
    direct: boolean;
    unitBytes: number;
    arena: HostArena;
    directFd: number;
    bufferedFd: number;
    dropCache: ((fd: number) => void) | undefined;
  }) {
    this.bytes = fields.bytes;
    this.direct = fields.direct;
    this.dropsCache = fields.dropCache !== undefined;
    this.#unitBytes = fields.unitBytes;
    this.#arena = fields.arena;
    this.#memory = new Uint8Array(fields.arena.chunks[0]!, 0, fields.bytes);
    this.#directFd = fields.directFd;
    this.#bufferedFd = fields.bufferedFd;
    this.#dropCache = fields.dropCache ?? (() => {});
  }

  static async open(dir: string, bytes: number, unitBytes: number): Promise<DiskRuns> {
    const libc = await loadLibc();
    const arena = await HostArena.open({ chunkBytes: [bytes], field: 'bench' });
    const memory = new Uint8Array(arena.chunks[0]!).fill(0x5a);
    const made = (name: string): string => {
      const file = path.join(dir, name);
      // twice the size, since scattered units lie in twice the room
      for (const flag of ['w', 'a']) fs.writeFileSync(file, memory.subarray(0, bytes), { flag, flush: true });
      return file;
    };
    const directFile = made('bench.direct');
    const { fd: directFd, direct } = openDirect(directFile, memory.subarray(0, 4096));
    const bufferedFd = fs.openSync(made('bench.buffered'), 'r+');
    const dropCache = typeof libc === 'string' ? undefined : (fd: number) => void libc.dropCache(fd);
    return new DiskRuns({ bytes, direct, unitBytes, arena, directFd, bufferedFd, dropCache });
  }

  /** Direct I/O on the units in these slots, in pieces of so many bytes, 4 MiB at most, so many at once. */
  async directAt(
    operation: 'read' | 'write',
    slots: readonly number[],
    depth: number,
    pieceBytes: number,
  ): Promise<void> {
    const piece = Math.min(pieceBytes, this.#unitBytes, PIECE_BYTES_MAX);
    const piecesPerUnit = this.#unitBytes / piece;
    const pieces = slots.length * piecesPerUnit;
    let next = 0;
    const one = async (): Promise<void> => {
      while (next < pieces) {
        const at = next++;
        const slot = slots[Math.floor(at / piecesPerUnit)]!;
        const position = slot * this.#unitBytes + (at % piecesPerUnit) * piece;
        await this.#call(operation, this.#directFd, at * piece, piece, position);
      }
    };
    await Promise.all(Array.from({ length: depth }, one));
  }

  /** The first `bytes` bytes in one direct call. */
  async single(operation: 'read' | 'write', bytes: number): Promise<void> {
    await this.#call(operation, this.#directFd, 0, bytes, 0);
  }

  /** The host digests the first `bytes` bytes of what was read. */
  digest(bytes: number): void {
    hostDigest(this.#memory.subarray(0, bytes));
  }

  /** Before a buffered read. */
  emptyCache(): void {
    this.#dropCache(this.#bufferedFd);
  }

  /** One buffered call a unit, each after the other. */
  async naiveWrite(slots: readonly number[]): Promise<void> {
    for (const [i, slot] of slots.entries()) await this.bufferedUnit('write', slot, this.unit(i));
    await datasync(this.#bufferedFd);
  }

  unit(index: number): Uint8Array {
    return this.#memory.subarray(index * this.#unitBytes, (index + 1) * this.#unitBytes);
  }

  async bufferedUnit(operation: 'read' | 'write', slot: number, bytes: Uint8Array): Promise<void> {
    const call = operation === 'read' ? read : write;
    await call(this.#bufferedFd, bytes, 0, bytes.byteLength, slot * this.#unitBytes);
  }

  async bufferedVerifiedRead(slot: number, bytes: Uint8Array): Promise<void> {
    await this.bufferedUnit('read', slot, bytes);
    hostDigest(bytes);
  }

  sync(): Promise<void> {
    return datasync(this.#bufferedFd);
  }

  [Symbol.dispose](): void {
    fs.closeSync(this.#directFd);
    fs.closeSync(this.#bufferedFd);
    this.#arena[Symbol.dispose]();
  }

  async #call(
    operation: 'read' | 'write',
    fd: number,
    at: number,
    length: number,
    position: number,
  ): Promise<void> {
    for (let done = 0; done < length; ) {
      const call = operation === 'read' ? read : write;
      const { bytesRead, bytesWritten } = await call(
        fd,
        this.#memory,
        at + done,
        length - done,
        position + done,
      );
      const moved = bytesRead ?? bytesWritten ?? 0;
      if (moved === 0) throw new Error(`a ${operation} of the bench file moved nothing`);
      done += moved;
    }
  }
}

function openDirect(file: string, probe: Uint8Array): { fd: number; direct: boolean } {
  const { O_DIRECT, O_RDWR } = fs.constants;
  try {
    const fd = fs.openSync(file, O_RDWR | (O_DIRECT ?? 0));
    try {
      fs.readSync(fd, probe, 0, probe.byteLength, 0);
      return { fd, direct: O_DIRECT !== undefined };
    } catch {
      fs.closeSync(fd);
    }
  } catch {
    // the file system refuses the flag
  }
  return { fd: fs.openSync(file, O_RDWR), direct: false };
}
