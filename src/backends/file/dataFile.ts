/**
 * The files of the tier: positioned vectored I/O on an open descriptor, the ranges that were ever written,
 * disk space for pages, and errors with remedies. A call moves every byte or rejects with an error whose
 * `code` is the errno; if the system cuts a call short, the rest follows in another call. Tests inject faults
 * at `DataFile` and crashes also at `DirectoryOps`.
 */

import { namedError, TierKVError } from '../../runtime/errors.ts';

/** Unit of offsets, lengths and addresses in direct I/O: no disk or file system in use asks for more. */
export const BLOCK_BYTES = 4096;

export interface DataFile {
  /** @throws with the errno as `code`, or 'EOF' if the file ends before the parts are full */
  readv(parts: readonly Uint8Array[], positionBytes: number): Promise<void>;
  /** @throws with the errno as `code` */
  writev(parts: readonly Uint8Array[], positionBytes: number): Promise<void>;
  /** Gives the range disk space. Where files are sparse, only makes the file long enough. */
  allocate(positionBytes: number, bytes: number): Promise<void>;
  /** Once fulfilled, everything written before the call survives a loss of power (fdatasync). */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** Wraps a file of the store, to count calls or to inject faults. */
export type WrapFile = (file: DataFile, name: 'blocks' | 'index') => DataFile;

/** Changes names in the tier's directory. After `sync` the changes before it survive a loss of power. */
export interface DirectoryOps {
  rename(from: string, to: string): Promise<void>;
  /** Removes a file if it exists. */
  remove(name: string): Promise<void>;
  sync(): Promise<void>;
}

/** An error of the file system; `code` is the name of the errno. */
export class IoError extends Error {
  readonly code: string;

  constructor(code: string, call: string) {
    super(`${code}: ${call}`);
    this.code = code;
  }
}

/** The errno name of an error that an I/O call rejected with, else its message. */
export function errnoOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string')
    return error.code;
  return error instanceof Error ? error.message : String(error);
}

/** Whether the errno says that disk, quota or file size limit is reached. */
export function isFull(errno: string): boolean {
  return errno === 'ENOSPC' || errno === 'EDQUOT' || errno === 'EFBIG';
}

// ---- ranges that were ever written
//
// Holes, and allocated space that was never written, read as zeros and hold no record, so a scan skips them:
// a file of terabytes with a few blocks is scanned in an instant. If the system does not tell, the whole file
// counts as written.

/** A file, and the ranges of it that were ever written when it was opened. */
export interface RangedFile {
  readonly file: DataFile;
  readonly ranges: DataRanges;
}

/** Offset of the next byte of data or of the next hole, from `at` on; an errno where the system does not say. */
type SeekRange = (at: number, what: 'data' | 'hole') => number | string;

export class DataRanges {
  readonly fileBytes: number;
  readonly #seek: SeekRange | undefined;
  /** The last answer: zeros from `#from` to `#start`, data from `#start` to `#end`. */
  #from = 0;
  #start = 0;
  #end = 0;

  /** Describes the file as it is now: it must not be written to while the ranges are in use. */
  constructor(fileBytes: number, seek: SeekRange | undefined) {
    this.fileBytes = fileBytes;
    this.#seek = seek;
  }

  /** Offset of the first byte at or after `at` that may differ from zero; Infinity if all are zero. */
  next(at: number): number {
    if (at >= this.fileBytes) return Number.POSITIVE_INFINITY;
    if (at < this.#from || at >= this.#end) this.#find(at);
    return Math.max(at, this.#start);
  }

  #find(at: number): void {
    const start = this.#seek?.(at, 'data') ?? at;
    this.#from = at;
    this.#start = start === 'ENXIO' ? Number.POSITIVE_INFINITY : typeof start === 'string' ? at : start;
    const end = this.#start < this.fileBytes ? this.#seek?.(this.#start, 'hole') : undefined;
    this.#end = typeof end === 'number' ? end : Number.POSITIVE_INFINITY;
  }
}

// ---- disk space for pages
//
// With allocation `whole` every page has disk space from the start. With `extents` a page's extent is
// allocated when a slot in it is first written; if the disk has not enough space for an extent, pages are
// allocated one by one, so that the last free space is used too.

/** Where the pages of a file lie, in bytes. */
interface PageRows {
  readonly startBytes: number;
  readonly strideBytes: number;
  readonly pages: number;
}

export class Extents {
  readonly #file: DataFile;
  readonly #rows: PageRows;
  readonly #pagesPerExtent: number;
  /** 1 for each page that has space. Grows with the highest page touched. */
  #allocated: Uint8Array = new Uint8Array(0);
  readonly #inProgress: Map<number, Promise<void>> = new Map();
  #pages = 0;

  /** @param pages number of pages, from the first, that have space already */
  constructor(file: DataFile, rows: PageRows, extentBytes: number, pages: number) {
    this.#file = file;
    this.#rows = rows;
    this.#pagesPerExtent = Math.max(1, Math.floor(extentBytes / rows.strideBytes));
    this.#note(0, pages);
  }

  /** Bytes of the file that have space. */
  get allocatedBytes(): number {
    return this.#rows.startBytes + this.#pages * this.#rows.strideBytes;
  }

  has(page: number): boolean {
    return this.#allocated[page] === 1;
  }

  /** Fulfilled once the page has space. @throws with the errno as `code` */
  async ensure(page: number): Promise<void> {
    const extent = Math.floor(page / this.#pagesPerExtent);
    while (!this.has(page)) {
      const others = this.#inProgress.get(extent);
      if (others !== undefined) {
        await others.catch(() => {}); // the call that began it gets the error; this one tries again
        continue;
      }
      const attempt = this.#allocateExtentOf(page, extent).finally(() => this.#inProgress.delete(extent));
      this.#inProgress.set(extent, attempt);
      await attempt;
    }
  }

  async #allocateExtentOf(page: number, extent: number): Promise<void> {
    const first = extent * this.#pagesPerExtent;
    const pages = Math.min(this.#pagesPerExtent, this.#rows.pages - first);
    try {
      await this.#allocate(first, pages);
    } catch (error) {
      if (!isFull(errnoOf(error)) || pages === 1) throw error;
      await this.#allocate(page, 1);
    }
  }

  async #allocate(first: number, pages: number): Promise<void> {
    const { startBytes, strideBytes } = this.#rows;
    await this.#file.allocate(startBytes + first * strideBytes, pages * strideBytes);
    this.#note(first, pages);
  }

  #note(first: number, pages: number): void {
    if (first + pages > this.#allocated.length) {
      const grown = new Uint8Array(
        Math.min(this.#rows.pages, Math.max(first + pages, 2 * this.#allocated.length)),
      );
      grown.set(this.#allocated);
      this.#allocated = grown;
    }
    for (let page = first; page < first + pages; page++) {
      this.#pages += 1 - this.#allocated[page];
      this.#allocated[page] = 1;
    }
  }
}

// ---- errors

const remedies: Record<string, string> = {
  ENOENT: 'Create the directory that it lies in first, or name another one.',
  ENOTDIR: 'Name a directory, not a file.',
  EACCES: 'Name a directory that this user may write.',
  EPERM: 'Name a directory that this user may write.',
  EROFS: 'The file system is mounted read-only: name a directory on another one.',
  ENOSPC: 'Lower the number of blocks, or name a directory on a larger disk.',
  EDQUOT: 'Lower the number of blocks, or raise the disk quota.',
  EFBIG: 'Lower the number of blocks: the file would be larger than the file system or limits allow.',
  EMFILE: 'Raise the limit on open files (ulimit -n).',
  ENFILE: 'Close files elsewhere: the system has no more of them.',
  ELOOP: 'Remove the symbolic link: a data file must be a file itself.',
};

/** `error` as a TKV_IO error about the directory, with a remedy. A TierKVError is returned as it is. */
export function dirError(
  dir: string,
  doing: string,
  error: unknown,
  remedyOf: (errno: string) => string | undefined = () => undefined,
): TierKVError {
  if (error instanceof TierKVError) return error;
  const errno = errnoOf(error);
  const remedy = remedyOf(errno) ?? remedies[errno] ?? 'Name another directory.';
  return namedError(
    'TKV_IO',
    { field: 'dir', path: dir, cause: error },
    (name) => `${name('dir')} ${dir}: ${doing} failed with ${errno}. ${remedy}`,
  );
}

// ---- the file system of a store, as far as the store needs it: in Node (posixFolder.ts) and in a browser's private files

/** Where a probe of direct I/O may read and write, in bytes from the start of the file. */
export interface ProbeOffsets {
  /** A block that may be overwritten at any time. */
  readonly scratchAt: number;
  /** The first record of the file. */
  readonly recordAt: number;
  /** Length of the longest record. */
  readonly recordBytes: number;
  /** Whether the file has records, which the probe must not overwrite. */
  readonly holdsRecords: boolean;
}

/** Where a probe finds memory that direct I/O reaches. */
export interface ProbeMemory {
  take(bytes: number): Uint8Array | undefined;
  give(taken: Uint8Array): void;
}

/** An open file of a folder. It keeps its contents when the folder gives it another name. */
export interface FolderFile extends DataFile {
  readonly sizeBytes: number;
  truncate(bytes: number): void;
  /** The ranges as they are now. */
  ranges(): DataRanges;
  /** Tries to give the first block disk space. From then on `allocate` does so. @returns why it cannot be; empty if it is */
  tryAllocate(): string;
  /** Goes on with direct I/O, past any cache of the system. @returns why it cannot be; empty if it is */
  tryDirect(offsets: ProbeOffsets, memory: ProbeMemory): string;
}

/** A directory that holds one store. Names are plain, without a path. */
export interface StoreFolder {
  readonly path: string;
  readonly filesystem: string;
  readonly ops: DirectoryOps;
  /** Makes the last folder of the path, for this user alone, where it is missing. @returns undoes that @throws where it is not a directory */
  requireDirectory(): Promise<() => void>;
  /** Whether to unlock it ends what I/O is under way, so that a store whose I/O never ends can be unlocked. */
  readonly unlockEndsIo: boolean;
  /** Makes the caller the only owner, until the returned function is called. @throws TKV_LOCKED */
  lock(): Promise<() => void>;
  pathOf(name: string): string;
  has(name: string): Promise<boolean>;
  /** The first block of a file; undefined if it does not exist, a sentence if it is not a plain file. */
  headOf(name: string): Promise<Uint8Array | string | undefined>;
  /** `kept`: it exists. `made`: it must not exist. `replaced`: it is empty then, whether it existed or not. */
  open(name: string, how: 'kept' | 'made' | 'replaced'): Promise<FolderFile>;
  /** @throws TKV_IO without room for `bytes`, where these files give up theirs */
  requireFreeSpace(bytes: number, names: readonly string[]): Promise<void>;
  /** Bytes that these files take, as far as they exist. */
  bytesOf(names: readonly string[]): number;
  /** A text that tells the file from another one under its name; empty if it does not exist. */
  identityOf(name: string): Promise<string>;
  /** Whether direct I/O reaches these bytes where they lie. */
  isAligned(bytes: Uint8Array): boolean;
  /** The error with the remedy for this file system. A TierKVError is returned as it is. */
  problem(doing: string, error: unknown): TierKVError;
}
