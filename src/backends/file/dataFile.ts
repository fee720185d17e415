/**
 * The one file that holds a tier's records, as positioned vectored I/O on an open descriptor. This is the seam where a
 * fault driver stands. A call either moves every byte or rejects with an error whose `code` names the errno; a call cut
 * short by the system goes on where it stopped.
 */

import * as fs from 'node:fs';
import { close, fstat, type Stats } from 'node:fs';
import type { Libc } from '../posix/index.ts';

export interface DataFile {
  /** @throws with `code`: the errno, or 'EOF' when the file ends before the parts are full. */
  readv(parts: readonly Uint8Array[], positionBytes: number): Promise<void>;
  /** @throws with `code`: the errno. */
  writev(parts: readonly Uint8Array[], positionBytes: number): Promise<void>;
  /** Makes sure that the range has disk space, or can be written at all where `sparse`. */
  allocate(positionBytes: number, bytes: number): Promise<void>;
  close(): Promise<void>;
}

/** An error as the file system gives it. */
export class IoError extends Error {
  readonly code: string;

  constructor(code: string, call: string) {
    super(`${code}: ${call}`);
    this.code = code;
  }
}

/** The errno name of whatever an I/O call rejected with. */
export function errnoOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string')
    return error.code;
  return error instanceof Error ? error.message : String(error);
}

/** Whether there is no room for more bytes, by disk, quota or limit. */
export function isFull(errno: string): boolean {
  return errno === 'ENOSPC' || errno === 'EDQUOT' || errno === 'EFBIG';
}

type Vectored = typeof fs.readv | typeof fs.writev;

export class NodeDataFile implements DataFile {
  readonly fd: number;
  readonly #libc: Libc | undefined;

  /** Without `libc` space is not allocated, the file only grows: sparse. */
  constructor(fd: number, libc: Libc | undefined) {
    this.fd = fd;
    this.#libc = libc;
  }

  readv(parts: readonly Uint8Array[], positionBytes: number): Promise<void> {
    return transfer(fs.readv, 'readv', this.fd, parts, positionBytes);
  }

  writev(parts: readonly Uint8Array[], positionBytes: number): Promise<void> {
    return transfer(fs.writev, 'writev', this.fd, parts, positionBytes);
  }

  async allocate(positionBytes: number, bytes: number): Promise<void> {
    if (this.#libc === undefined) return this.#growTo(positionBytes + bytes);
    const error = await this.#libc.allocate(this.fd, positionBytes, bytes);
    if (error !== '') throw new IoError(error, 'fallocate');
  }

  close(): Promise<void> {
    return new Promise((resolve, reject) => close(this.fd, (error) => (error ? reject(error) : resolve())));
  }

  #growTo(bytes: number): Promise<void> {
    return new Promise((resolve, reject) =>
      fstat(this.fd, (error, stats: Stats) => {
        if (error) return reject(error);
        if (stats.size >= bytes) return resolve();
        fs.ftruncate(this.fd, bytes, (failure) => (failure ? reject(failure) : resolve()));
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

/** What is left of `parts` once their first `moved` bytes are done. */
export function remaining(parts: readonly Uint8Array[], moved: number): readonly Uint8Array[] {
  let done = moved;
  let index = 0;
  while (index < parts.length && done >= parts[index]!.byteLength) done -= parts[index++]!.byteLength;
  const rest = parts.slice(index);
  if (done > 0) rest[0] = rest[0]!.subarray(done);
  return rest;
}
