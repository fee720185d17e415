/** A file from which ranges are read, so that a checkpoint larger than memory's largest buffer can be read. */

import fs from 'node:fs';
import { TierKVError } from '../../../../src/index.ts';
import { checkpointError } from './tensorSource.ts';

export class OpenedBytes {
  readonly path: string;
  readonly size: number;
  readonly #fd: number;
  #isOpen = true;

  /** @throws TKV_IO for a file that cannot be opened */
  constructor(path: string) {
    this.path = path;
    try {
      // Looked at before it is opened: opening a pipe that nothing writes to would never return.
      if (!fs.statSync(path).isFile()) throw new Error('it must be a regular file');
      this.#fd = fs.openSync(path, 'r');
      this.size = fs.fstatSync(this.#fd).size;
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new TierKVError('TKV_IO', `${path} cannot be read (${why}). Give a model that is there.`, {
        path,
        cause,
      });
    }
  }

  /** @throws TKV_INPUT where the file ends before `at + length` */
  read(at: number, length: number): Uint8Array<ArrayBuffer> {
    if (at + length > this.size) {
      const problem = `ends at byte ${this.size}, before byte ${at + length}`;
      throw checkpointError(this.path, problem, 'Fetch the file again: it is not whole.');
    }
    const bytes = new Uint8Array(length);
    for (let done = 0; done < length; ) {
      const read = fs.readSync(this.#fd, bytes, done, Math.min(length - done, 2 ** 30), at + done);
      if (read === 0) {
        const problem = `ends at byte ${this.size}, before byte ${at + length}`;
        throw checkpointError(this.path, problem, 'Fetch the file again: it is not whole.');
      }
      done += read;
    }
    return bytes;
  }

  close(): void {
    if (this.#isOpen) fs.closeSync(this.#fd);
    this.#isOpen = false;
  }
}
