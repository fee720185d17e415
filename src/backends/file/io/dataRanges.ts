/**
 * Which parts of a file were ever written. Holes, and space that was set aside and never written, read as
 * zeros: nothing of a store is there, so that a scan may leap over them. A file of terabytes that holds a few
 * blocks is scanned in an instant. Where the system does not tell, all of the file counts as written.
 */

import type { Libc } from '../../posix/index.ts';
import type { DataFile } from './dataFile.ts';

/** A file, and what of it was ever written when it was opened. */
export interface RangedFile {
  readonly file: DataFile;
  readonly ranges: DataRanges;
}

export class DataRanges {
  readonly fileBytes: number;
  readonly #fd: number;
  readonly #libc: Libc | undefined;
  /** What was found last: zeros from `#from` to `#start`, data from there to `#end`. */
  #from = 0;
  #start = 0;
  #end = 0;

  /** Of the file as it is now; nobody may write to it while the ranges are in use. */
  constructor(fd: number, fileBytes: number, libc: Libc | undefined) {
    this.fileBytes = fileBytes;
    this.#fd = fd;
    this.#libc = libc;
  }

  /** The first byte at or behind `at` that may be other than zero; Infinity where there is none. */
  next(at: number): number {
    if (at >= this.fileBytes) return Number.POSITIVE_INFINITY;
    if (at < this.#from || at >= this.#end) this.#find(at);
    return Math.max(at, this.#start);
  }

  #find(at: number): void {
    const start = this.#libc?.seek(this.#fd, at, 'data') ?? at;
    this.#from = at;
    this.#start = start === 'ENXIO' ? Number.POSITIVE_INFINITY : typeof start === 'string' ? at : start;
    const end = this.#start < this.fileBytes ? this.#libc?.seek(this.#fd, this.#start, 'hole') : undefined;
    this.#end = typeof end === 'number' ? end : Number.POSITIVE_INFINITY;
  }
}
