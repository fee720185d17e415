/**
 * A decision log while its run still writes it: whole lines are taken as they come, and a line that is half there waits for
 * its rest. It ends with the log's own end, or with the first line that is damaged: what was shown until then stays.
 */

import fs from 'node:fs';
import { inputError } from '../../io/files/inputErrors.ts';
import { LogFrameReader, type LogFrames } from './logFrames.ts';

/** Bytes that are read in one go. */
const READ_BYTES = 1 << 20;
const NEWLINE = 10;

export class FollowedLog implements Disposable {
  readonly #path: string;
  readonly #handle: number;
  readonly #reader: LogFrameReader;
  #offset = 0;
  #rest: Buffer = Buffer.alloc(0);

  /** @throws TKV_IO, TKV_INPUT for a file that cannot be opened */
  constructor(path: string) {
    this.#path = path;
    this.#reader = new LogFrameReader(path);
    try {
      this.#handle = fs.openSync(path, 'r');
    } catch (cause) {
      throw inputError(path, 'cannot be opened', 'Name the log that the run writes.', { cause });
    }
  }

  /** Whether the log's own end was read: nothing more comes. */
  get hasEnded(): boolean {
    return this.#reader.hasEnded;
  }

  /**
   * Takes what was written since the last call.
   * @returns whether there was anything
   * @throws TKV_INPUT naming the line of a log that is damaged or of another version, and for a file that got shorter
   */
  read(): boolean {
    if (fs.fstatSync(this.#handle).size < this.#offset) {
      throw inputError(this.#path, 'is shorter than it was: it was begun anew', 'Start the dashboard again.');
    }
    let lines = 0;
    const chunk = Buffer.alloc(READ_BYTES);
    for (;;) {
      const count = fs.readSync(this.#handle, chunk, 0, READ_BYTES, this.#offset);
      if (count === 0) return lines > 0;
      this.#offset += count;
      const text = Buffer.concat([this.#rest, chunk.subarray(0, count)]);
      let from = 0;
      for (let end = text.indexOf(NEWLINE); end >= 0; end = text.indexOf(NEWLINE, from)) {
        this.#reader.read(text.toString('utf8', from, end));
        lines++;
        from = end + 1;
      }
      this.#rest = Buffer.from(text.subarray(from));
    }
  }

  /** The frames so far, the last of them as of now. @throws TKV_INPUT before the head of the log is there */
  frames(): LogFrames {
    return this.#reader.finish(true);
  }

  [Symbol.dispose](): void {
    fs.closeSync(this.#handle);
  }
}
