/**
 * Calls of the C library that Node lacks, through koffi, an optional peer. If koffi is not installed or
 * the system is not Linux, `loadLibc` says why, and every caller works without.
 *
 * A call returns the empty string on success and the name of its errno ('ENOMEM') on failure. It never
 * throws.
 */

import fs from 'node:fs';
import path from 'node:path';
import { getSystemErrorName } from 'node:util';

export interface Libc {
  /** Private anonymous memory, readable and writable, not yet backed by pages. */
  map(bytes: number): { readonly address: bigint; readonly error: string };
  unmap(address: bigint, bytes: number): string;
  advise(address: bigint, bytes: number, advice: Advice): string;
  lock(address: bigint, bytes: number): string;
  unlock(address: bigint, bytes: number): string;
  /** The memory at an address. Using it after `unmap` crashes the process. */
  view(address: bigint, bytes: number): ArrayBuffer;
  addressOf(bytes: Uint8Array): bigint;
  /** Locks a file or directory for this open file description; EAGAIN at once if it is locked. */
  tryFlock(fd: number, mode?: 'exclusive' | 'shared'): string;
  /** Offset of the next data or hole at or after `at`, or an errno: 'ENXIO' if the file has none there. */
  seek(fd: number, at: number, what: 'data' | 'hole'): number | string;
  /** Allocates the first `bytes`, to see whether the file system can: the empty string or an errno. */
  tryAllocate(fd: number, bytes: number): string;
  /** Drops the file's pages from the page cache, if they are on the disk. */
  dropCache(fd: number): string;
  /** Allocates a range on a thread of the pool. */
  allocate(fd: number, offset: number, bytes: number): Promise<string>;
}

/** Linux values of the advice that madvise(2) takes. */
export const Advice = { DONTNEED: 4, HUGEPAGE: 14, DONTDUMP: 16, POPULATE_WRITE: 23 } as const;
export type Advice = (typeof Advice)[keyof typeof Advice];

const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const MAP_FAILED = 0xffff_ffff_ffff_ffffn;
const FADVISE_DONTNEED = 4;
const LOCK_NONBLOCKING = 4;
const LOCKS = { shared: 1, exclusive: 2 } as const;
const SEEKS = { data: 3, hole: 4 } as const;

type Call<A extends unknown[], R> = ((...args: A) => R) & {
  async(...args: [...A, (error: unknown, result: R) => void]): void;
};

let loading: Promise<Libc | string> | undefined;

/** The C library, or a sentence that says why it is not usable. */
export function loadLibc(): Promise<Libc | string> {
  loading ??= bind();
  return loading;
}

async function bind(): Promise<Libc | string> {
  if (process.platform !== 'linux')
    return `native calls are bound on Linux only, this is ${process.platform}`;
  try {
    const { default: koffi } = await import('koffi');
    const process_ = koffi.load(null);
    const bound = <A extends unknown[], R = number>(signature: string): Call<A, R> =>
      process_.func(signature) as Call<A, R>;
    const mmap = bound<[null, number, number, number, number, number], unknown>(
      'void *mmap(void *at, size_t bytes, int protection, int flags, int fd, int64_t offset)',
    );
    const munmap = bound<[bigint, number]>('int munmap(void *at, size_t bytes)');
    const madvise = bound<[bigint, number, number]>('int madvise(void *at, size_t bytes, int advice)');
    const mlock = bound<[bigint, number]>('int mlock(void *at, size_t bytes)');
    const munlock = bound<[bigint, number]>('int munlock(void *at, size_t bytes)');
    const flock = bound<[number, number]>('int flock(int fd, int operation)');
    const lseek = bound<[number, number, number], number | bigint>(
      'int64_t lseek(int fd, int64_t offset, int whence)',
    );
    const fallocate = bound<[number, number, number, number]>(
      'int fallocate(int fd, int mode, int64_t offset, int64_t bytes)',
    );
    const posixFadvise = bound<[number, number, number, number]>(
      'int posix_fadvise(int fd, int64_t offset, int64_t bytes, int advice)',
    );
    const posixFallocate = bound<[number, number, number]>(
      'int posix_fallocate(int fd, int64_t offset, int64_t bytes)',
    );
    const ended = (status: number): string => (status === 0 ? '' : errnoName(koffi.errno()));
    return {
      map(bytes) {
        const address = koffi.address(mmap(null, bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0));
        return { address, error: address === MAP_FAILED ? errnoName(koffi.errno()) : '' };
      },
      unmap: (address, bytes) => ended(munmap(address, bytes)),
      advise: (address, bytes, advice) => ended(madvise(address, bytes, advice)),
      lock: (address, bytes) => ended(mlock(address, bytes)),
      unlock: (address, bytes) => ended(munlock(address, bytes)),
      view: (address, bytes) => koffi.view(address, bytes),
      addressOf: (bytes) => koffi.address(bytes),
      tryFlock: (fd, mode = 'exclusive') => ended(flock(fd, LOCKS[mode] | LOCK_NONBLOCKING)),
      seek(fd, at, what) {
        const found = lseek(fd, at, SEEKS[what]);
        return found < 0 ? errnoName(koffi.errno()) : Number(found);
      },
      tryAllocate: (fd, bytes) => ended(fallocate(fd, 0, 0, bytes)),
      dropCache(fd) {
        const errno = posixFadvise(fd, 0, 0, FADVISE_DONTNEED);
        return errno === 0 ? '' : errnoName(errno);
      },
      allocate: (fd, offset, bytes) =>
        new Promise((resolve, reject) => {
          // posix_fallocate returns the errno, so the thread's own errno does not matter.
          posixFallocate.async(fd, offset, bytes, (error, errno) =>
            error ? reject(error) : resolve(errno === 0 ? '' : errnoName(errno)),
          );
        }),
    };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND') {
      return 'the package koffi is not installed; run: npm install koffi';
    }
    return `koffi is not usable: ${error instanceof Error ? error.message.split('\n')[0] : String(error)}`;
  }
}

function errnoName(errno: number): string {
  return getSystemErrorName(-errno);
}

// ---- directories

/**
 * Makes a directory and its missing parents, one by one: with `recursive`, Node's `mkdirSync` never ends in a
 * file system that cannot make directories, such as /proc.
 * @throws the system's error if one cannot be made, or a file has its name
 */
export function makeDirectories(directory: string, mode = 0o777): void {
  const missing: string[] = [];
  for (let at = path.resolve(directory); !fs.existsSync(at); at = path.dirname(at)) missing.push(at);
  for (const each of missing.reverse()) makeOne(each, mode);
  if (missing.length === 0) makeOne(directory, mode);
}

/** Makes one directory. Another process may have made it meanwhile. */
function makeOne(directory: string, mode: number): void {
  try {
    fs.mkdirSync(directory, { mode });
  } catch (error) {
    const isThere = fs.statSync(directory, { throwIfNoEntry: false })?.isDirectory() === true;
    if (!isThere) throw error;
  }
}

/**
 * Pipes that `requireReader` has found read, by their path, with an open handle each: a program that reads a pipe takes
 * the close of its last handle for the end.
 */
const heldPipes: Map<string, number> = new Map();

/**
 * Opens a file to be written, as `fs.openSync` does, but for a pipe that no program reads: there the system would
 * hold the whole process until a reader comes.
 * @throws Error with `code` ENXIO for such a pipe, and the system's error otherwise
 */
export function openToWrite(file: string, flags: 'w' | 'a', mode?: number): number {
  requireReader(file);
  try {
    return fs.openSync(file, flags, mode);
  } finally {
    const held = heldPipes.get(file);
    heldPipes.delete(file);
    if (held !== undefined) fs.closeSync(held);
  }
}

/** Writes all of a text: a call may be cut short, as where a disk is nearly full. @throws the system's error */
export function writeWhole(fd: number, text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) at += fs.writeSync(fd, bytes, at);
}

/**
 * Checks that a program reads `file` where it is a pipe, and holds the pipe open until `openToWrite` opens it.
 * @throws Error with `code` ENXIO for a pipe that no program reads
 */
export function requireReader(file: string): void {
  if (heldPipes.has(file) || fs.statSync(file, { throwIfNoEntry: false })?.isFIFO() !== true) return;
  try {
    heldPipes.set(file, fs.openSync(file, fs.constants.O_WRONLY | fs.constants.O_NONBLOCK));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENXIO') throw error;
    throw Object.assign(new Error('it is a pipe, and no program reads it'), { code: 'ENXIO' });
  }
}

//  Memory figures of the system.

/** Addresses of memory in the process. */
export interface AddressRange {
  readonly address: bigint;
  readonly bytes: number;
}

/** Bytes that the kernel backs with huge pages, from /proc/self/smaps; 0 if it does not say. */
export function hugePageBytesIn(ranges: readonly AddressRange[]): number {
  let kibibytes = 0;
  let inside = false;
  try {
    for (const line of fs.readFileSync('/proc/self/smaps', 'utf8').split('\n')) {
      const range = /^([0-9a-f]+)-([0-9a-f]+) /.exec(line);
      if (range !== null) {
        const start = BigInt(`0x${range[1]}`);
        const end = BigInt(`0x${range[2]}`);
        inside = ranges.some(({ address, bytes }) => start < address + BigInt(bytes) && end > address);
      } else if (inside && line.startsWith('AnonHugePages:')) kibibytes += Number(/\d+/.exec(line)![0]);
    }
  } catch {
    return 0;
  }
  return kibibytes * 1024;
}

/** Bytes of memory that this process can still take. */
export function availableMemoryBytes(): number {
  return process.availableMemory();
}

/** Whether memory can be kept from being paged out at all. */
export const locksMemory = true;

//  A log of text lines that grows with each call.

export interface TextLog {
  write(text: string): void;
  close(): void;
}

/** @throws where the file cannot be made */
export function openTextLog(file: string): TextLog {
  const fd = openToWrite(file, 'w', 0o600);
  return { write: (text) => writeWhole(fd, text), close: () => fs.closeSync(fd) };
}
