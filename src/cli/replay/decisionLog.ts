/**
 * The decision log of a replay: its text in a file where one is asked for, and in any case a digest over the
 * decisions.
 */

import { createHash, type Hash } from 'node:crypto';
import fs from 'node:fs';
import { type DecisionSink, LogWriter, type ManagerConfig } from '../../runtime/index.ts';

export class DecisionLog implements Disposable {
  readonly sink: DecisionSink;
  readonly #writer: LogWriter;
  readonly #hash: Hash = createHash('sha256');
  readonly #file: number | null;

  /** @param path where to write the log; without one only the digest is kept */
  constructor(config: ManagerConfig, path?: string) {
    const file = path === undefined ? null : fs.openSync(path, 'w');
    this.#file = file;
    this.#writer = new LogWriter(config, {
      decisions: (text) => this.#hash.update(text),
      ...(file === null ? {} : { log: (text: string) => fs.writeSync(file, text) }),
    });
    this.sink = this.#writer;
  }

  /** sha256 over the decisions so far, in hex. */
  digest(): string {
    this.#writer.flush();
    return this.#hash.copy().digest('hex');
  }

  [Symbol.dispose](): void {
    this.#writer.end();
    if (this.#file !== null) fs.closeSync(this.#file);
  }
}
