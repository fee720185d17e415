/**
 * The file system of a store in Node: files by descriptors, with direct I/O and disk space that is taken ahead where the
 * system grants them, and the directory's lock. A build for browsers has another module in this place
 * (src/adapters/browser/opfsFolder.ts).
 */

import * as fs from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { configError, namedError, type TierKVError } from '../../runtime/errors.ts';
import { fillPattern } from '../../runtime/pattern.ts';
import { startsAtPage } from '../host/hostArena.ts';
import { type Libc, loadLibc } from '../host/posix.ts';
import {
  BLOCK_BYTES,
  DataRanges,
  type DirectoryOps,
  dirError,
  errnoOf,
  type FolderFile,
  IoError,
  type ProbeMemory,
  type ProbeOffsets,
  type StoreFolder,
} from './dataFile.ts';
import { DirectoryLock } from './directoryLock.ts';

const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW, O_TRUNC } = fs.constants;
const flagsOf = { kept: 0, made: O_CREAT | O_EXCL, replaced: O_CREAT | O_TRUNC } as const;

/** Buffered I/O is a fault here, and told. */
export const hasDirectIo = true;

/** The folder of a store. @param native whether native calls (fallocate, flock, addresses) may be used */
export async function folderAt(dir: string, native: boolean): Promise<StoreFolder> {
  const libc = native ? await loadLibc() : 'native calls are switched off';
  return new PosixFolder(dir, typeof libc === 'string' ? undefined : libc, String(libc));
}

/**
 * No file is larger than its disk. Whether that much is free is for the store to see, which knows its own
 * files; and what is wrong with a directory that cannot be looked at.
 * @throws TKV_CONFIG naming `nvme.capacityBytes`
 */
export async function requireDiskHolds(bytes: number, dir: string): Promise<void> {
  const disk = await fs.promises
    .statfs(dir)
    .catch(() => fs.promises.statfs(dirname(resolve(dir)))) // `open` makes the last folder
    .catch(() => undefined);
  if (disk === undefined || disk.blocks === 0) return;
  const diskBytes = disk.blocks * disk.bsize;
  if (bytes <= diskBytes) return;
  throw configError(
    'nvme.capacityBytes',
    `asks for ${bytes} bytes in ${dir}, on a disk of ${diskBytes}`,
    (name) => `Lower ${name('nvme.capacityBytes')}, or name a directory on a larger disk.`,
  );
}

class PosixFolder implements StoreFolder {
  readonly path: string;
  readonly libc: Libc | undefined;
  readonly ops: DirectoryOps;
  /** The system has the memory and the file until it is done. */
  readonly unlockEndsIo = false;
  /** Whether files take disk space ahead. */
  allocates = false;
  readonly #refusal: string;

  /** @param refusal why native calls are not used, where they are not */
  constructor(path: string, libc: Libc | undefined, refusal: string) {
    this.path = path;
    this.libc = libc;
    this.#refusal = refusal;
    this.ops = new NodeDirectoryOps(path);
  }

  get filesystem(): string {
    return filesystemName(this.path);
  }

  async requireDirectory(): Promise<() => void> {
    const there = fs.statSync(this.path, { throwIfNoEntry: false });
    if (there?.isDirectory() === false) throw new IoError('ENOTDIR', 'stat');
    if (there !== undefined) return () => {};
    fs.mkdirSync(this.path, { mode: 0o700 });
    return () => {
      try {
        fs.rmdirSync(this.path);
      } catch {
        // others have put something there
      }
    };
  }

  async lock(): Promise<() => void> {
    const lock = await DirectoryLock.acquire(this.path, this.libc);
    return () => lock.release();
  }

  pathOf(name: string): string {
    return join(this.path, name);
  }

  async has(name: string): Promise<boolean> {
    return fs.existsSync(this.pathOf(name));
  }

  async headOf(name: string): Promise<Uint8Array | string | undefined> {
    return headOf(this.pathOf(name));
  }

  async open(name: string, how: 'kept' | 'made' | 'replaced'): Promise<FolderFile> {
    const path = this.pathOf(name);
    const fd = fs.openSync(path, O_RDWR | O_NOFOLLOW | flagsOf[how], 0o600);
    return new NodeDataFile(fd, path, this, this.#refusal);
  }

  async requireFreeSpace(bytes: number, names: readonly string[]): Promise<void> {
    requireFreeSpace(this.path, bytes, this.bytesOf(names));
  }

  bytesOf(names: readonly string[]): number {
    return names.reduce((sum, name) => sum + bytesOnDisk(this.pathOf(name)), 0);
  }

  async identityOf(name: string): Promise<string> {
    const stats = fs.statSync(this.pathOf(name), { throwIfNoEntry: false });
    return stats === undefined ? '' : `${stats.dev}:${stats.ino}`;
  }

  isAligned(bytes: Uint8Array): boolean {
    return startsAtPage(bytes, this.libc);
  }

  problem(doing: string, error: unknown): TierKVError {
    return dirProblem(this.path, doing, error);
  }
}

/** An error of the file system about a directory, with a remedy. */
function dirProblem(dir: string, doing: string, error: unknown): TierKVError {
  return dirError(dir, doing, error, (errno) =>
    errno === 'ENOENT' && fs.existsSync(dir)
      ? 'The file system there takes no new files: name a directory on a disk.'
      : undefined,
  );
}

class NodeDirectoryOps implements DirectoryOps {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  rename(from: string, to: string): Promise<void> {
    return fs.promises.rename(join(this.#dir, from), join(this.#dir, to));
  }

  remove(name: string): Promise<void> {
    return fs.promises.rm(join(this.#dir, name), { force: true });
  }

  async sync(): Promise<void> {
    const handle = await fs.promises.open(this.#dir, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  }
}

/** State that files share: the calls, and whether disk space is taken ahead. */
interface FileSystemCalls {
  readonly libc: Libc | undefined;
  allocates: boolean;
}

type Vectored = typeof fs.readv | typeof fs.writev;

export class NodeDataFile implements FolderFile {
  readonly #folder: FileSystemCalls;
  readonly #refusal: string;
  #fd: number;
  readonly #path: string;
  #closing: Promise<void> | undefined;

  constructor(fd: number, path: string, folder: FileSystemCalls, refusal: string = '') {
    this.#fd = fd;
    this.#path = path;
    this.#folder = folder;
    this.#refusal = refusal;
  }

  /** The descriptor; another one after `tryDirect`. */
  get fd(): number {
    return this.#fd;
  }

  get sizeBytes(): number {
    return fs.fstatSync(this.#fd).size;
  }

  truncate(bytes: number): void {
    fs.ftruncateSync(this.#fd, bytes);
  }

  ranges(): DataRanges {
    const { libc } = this.#folder;
    const seek = libc === undefined ? undefined : libc.seek.bind(libc, this.#fd);
    return new DataRanges(this.sizeBytes, seek);
  }

  tryAllocate(): string {
    const { libc } = this.#folder;
    const refusal = libc?.tryAllocate(this.#fd, BLOCK_BYTES) ?? this.#refusal;
    this.#folder.allocates = refusal === '';
    return refusal;
  }

  tryDirect(offsets: ProbeOffsets, staging: ProbeMemory): string {
    const probed = probeDirectIo(this.#path, offsets, staging);
    if (typeof probed === 'string') return probed;
    fs.closeSync(this.#fd);
    this.#fd = probed;
    return '';
  }

  readv(parts: readonly Uint8Array[], positionBytes: number): Promise<void> {
    return transfer(fs.readv, 'readv', this.#fd, parts, positionBytes);
  }

  writev(parts: readonly Uint8Array[], positionBytes: number): Promise<void> {
    return transfer(fs.writev, 'writev', this.#fd, parts, positionBytes);
  }

  async allocate(positionBytes: number, bytes: number): Promise<void> {
    const { libc, allocates } = this.#folder;
    if (libc === undefined || !allocates) return this.#growTo(positionBytes + bytes);
    const error = await libc.allocate(this.#fd, positionBytes, bytes);
    if (error !== '') throw new IoError(error, 'fallocate');
  }

  sync(): Promise<void> {
    return new Promise((resolve, reject) =>
      fs.fdatasync(this.#fd, (error) => (error ? reject(error) : resolve())),
    );
  }

  close(): Promise<void> {
    this.#closing ??= new Promise((resolve, reject) =>
      fs.close(this.#fd, (error) => (error ? reject(error) : resolve())),
    );
    return this.#closing;
  }

  #growTo(bytes: number): Promise<void> {
    return new Promise((resolve, reject) =>
      fs.fstat(this.#fd, (error, stats) => {
        if (error) return reject(error);
        if (stats.size >= bytes) return resolve();
        fs.ftruncate(this.#fd, bytes, (failure) => (failure ? reject(failure) : resolve()));
      }),
    );
  }
}

function transfer(
  call: Vectored,
  name: string,
  fd: number,
  parts: readonly Uint8Array[],
  positionBytes: number,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const step = (left: readonly Uint8Array[], position: number): void =>
      call(fd, left, position, (error, moved) => {
        if (error) return reject(error);
        const rest = remaining(left, moved);
        if (rest.length === 0) return resolve();
        if (moved === 0)
          return reject(new IoError(name === 'readv' ? 'EOF' : 'ENOSPC', `${name} moved nothing`));
        step(rest, position + moved);
      });
    step(parts, positionBytes);
  });
}

// ---- what lies there

/** The first block of a file; undefined if the file does not exist, a sentence if it is not a plain file. */
export function headOf(path: string): Uint8Array | string | undefined {
  const stats = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return undefined;
  if (!stats.isFile()) return 'is not a regular file';
  const fd = fs.openSync(path, 'r');
  try {
    const head = new Uint8Array(BLOCK_BYTES);
    return head.subarray(0, fs.readSync(fd, head, 0, BLOCK_BYTES, 0));
  } finally {
    fs.closeSync(fd);
  }
}

/**
 * @param haveBytes bytes that the tier's files take already
 * @throws TKV_IO on `dir` if the tier does not fit
 */
function requireFreeSpace(dir: string, bytes: number, haveBytes: number): void {
  const { blocks, bavail, bsize } = fs.statfsSync(dir);
  const freeBytes = bavail * bsize + haveBytes;
  // A file system without size, such as ramfs, reports no blocks.
  if (blocks === 0 || bytes <= freeBytes) return;
  throw namedError(
    'TKV_IO',
    { field: 'dir', path: dir },
    (name) =>
      `${name('dir')} ${dir} has ${freeBytes} bytes free, the tier needs ${bytes} (ENOSPC). ` +
      'Lower the number of blocks, or name a directory on a larger disk.',
  );
}

/** Bytes that a file takes on the disk, 0 if it does not exist. */
export function bytesOnDisk(path: string): number {
  return (fs.statSync(path, { throwIfNoEntry: false })?.blocks ?? 0) * 512;
}

/** Names by the type that statfs(2) gives. */
const filesystems: Record<number, string> = {
  61267: 'ext4',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  16914836: 'tmpfs',
  2035054128: 'overlay',
  801189825: 'zfs',
  26985: 'nfs',
  1702057286: 'fuse',
};

/** The file system's name, or its type as a number if the name is unknown. */
function filesystemName(dir: string): string {
  const { type } = fs.statfsSync(dir);
  return filesystems[type] ?? `0x${type.toString(16)}`;
}

// ---- probe: does the file system do direct I/O the way the store will use it?
//
// In an empty file the probe writes and reads the largest record where a record lies, header and payload in
// one vectored call. In a file with records it writes and reads the scratch block, and reads the largest
// record. An error counts as a refusal, and so do bytes that come back changed.

/** A descriptor for direct I/O, or a sentence that says why direct I/O does not work. */
function probeDirectIo(path: string, offsets: ProbeOffsets, staging: ProbeMemory): number | string {
  const { O_DIRECT, O_RDWR, O_NOFOLLOW } = fs.constants;
  if (O_DIRECT === undefined) return 'this system has no O_DIRECT';
  let fd: number;
  try {
    fd = fs.openSync(path, O_RDWR | O_DIRECT | O_NOFOLLOW);
  } catch (error) {
    return `open with O_DIRECT failed with ${errnoOf(error)}`;
  }
  const { scratchAt, recordAt, recordBytes, holdsRecords } = offsets;
  const why = holdsRecords
    ? tryIo(fd, scratchAt, BLOCK_BYTES, true, staging) || tryIo(fd, recordAt, recordBytes, false, staging)
    : tryIo(fd, recordAt, recordBytes, true, staging);
  if (why === '') return fd;
  fs.closeSync(fd);
  return why;
}

/** Reads `bytes` at `at`, and first writes them if `writes`. @returns what went wrong, empty for nothing */
function tryIo(fd: number, at: number, bytes: number, writes: boolean, staging: ProbeMemory): string {
  const memory = staging.take(bytes);
  if (memory === undefined) return 'no aligned memory for the probe';
  const words = new Uint32Array(memory.buffer, memory.byteOffset, bytes / 4);
  const parts = [memory.subarray(0, BLOCK_BYTES), memory.subarray(BLOCK_BYTES)];
  if (bytes === BLOCK_BYTES) parts.pop();
  try {
    if (!writes) {
      fs.readvSync(fd, parts, at);
      return '';
    }
    fillPattern(words, bytes, 0);
    const written = words.slice();
    if (fs.writevSync(fd, parts, at) !== bytes) return 'a direct write was cut short';
    words.fill(0);
    if (fs.readvSync(fd, parts, at) !== bytes) return 'a direct read was cut short';
    return Buffer.compare(Buffer.from(written.buffer), memory) === 0 ? '' : 'direct I/O returned other bytes';
  } catch (error) {
    return `direct I/O of ${bytes} bytes failed with ${errnoOf(error)}`;
  } finally {
    staging.give(memory);
  }
}

/** `parts` without their first `moved` bytes. */
export function remaining(parts: readonly Uint8Array[], moved: number): readonly Uint8Array[] {
  let done = moved;
  let index = 0;
  while (index < parts.length && done >= parts[index].byteLength) done -= parts[index++].byteLength;
  const rest = parts.slice(index);
  if (done > 0) rest[0] = rest[0].subarray(done);
  return rest;
}
