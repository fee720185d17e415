/**
 * A file of the tier, as positioned vectored I/O on an open descriptor. This is the seam where a fault driver
 * stands; one that knows crashes also stands at `DirectoryOps`, what changes names in the directory. A call
 * either moves every byte or rejects with an error whose `code` names the errno; a call cut short by the
 * system goes on where it stopped.
 */

import * as fs from 'node:fs';
import { join } from 'node:path';
import type { Libc } from '../../posix/index.ts';

/** Unit of offsets, lengths and addresses in direct I/O: no disk or file system in use asks for more. */
export const BLOCK_BYTES = 4096;

export interface DataFile {
  /** @throws with `code`: the errno, or 'EOF' when the file ends before the parts are full. */
  readv(parts: readonly Uint8Array[], positionBytes: number): Promise<void>;
  /** @throws with `code`: the errno. */
  writev(parts: readonly Uint8Array[], positionBytes: number): Promise<void>;
  /** Makes sure that the range has disk space, or can be written at all where `sparse`. */
  allocate(positionBytes: number, bytes: number): Promise<void>;
  /** Everything written before the call survives a loss of power once it is fulfilled (fdatasync). */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** Stands between a store and one of its files, to count or to inject faults. */
export type WrapFile = (file: DataFile, name: 'blocks' | 'index') => DataFile;

/** Changes of names in the tier's directory. `sync` makes those before it survive a loss of power. */
export interface DirectoryOps {
  rename(from: string, to: string): Promise<void>;
  /** Removes a file; one that is not there is no error. */
  remove(name: string): Promise<void>;
  sync(): Promise<void>;
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

export class NodeDirectoryOps implements DirectoryOps {
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

type Vectored = typeof fs.readv | typeof fs.writev;

export class NodeDataFile implements DataFile {
  readonly fd: number;
  readonly #libc: Libc | undefined;
  #closing: Promise<void> | undefined;

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

  sync(): Promise<void> {
    return new Promise((resolve, reject) =>
      fs.fdatasync(this.fd, (error) => (error ? reject(error) : resolve())),
    );
  }

  close(): Promise<void> {
    this.#closing ??= new Promise((resolve, reject) =>
      fs.close(this.fd, (error) => (error ? reject(error) : resolve())),
    );
    return this.#closing;
  }

  #growTo(bytes: number): Promise<void> {
    return new Promise((resolve, reject) =>
      fs.fstat(this.fd, (error, stats) => {
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
  while (index < parts.length && done >= parts[index].byteLength) done -= parts[index++].byteLength;
  const rest = parts.slice(index);
  if (done > 0) rest[0] = rest[0].subarray(done);
  return rest;
}
