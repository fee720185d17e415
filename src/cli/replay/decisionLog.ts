/**
 * The decision log as text, one line an event: `>` for what the manager was given, `<` for what it decided. The first
 * line holds the manager's configuration, so a log is all that is needed to run it again. Decisions carry no time, which
 * is why the digest over them is equal for runs that differ only in speed.
 *
 *     # tierkv decision log 1 {"unitBytes":[16384],...}
 *     > 0 open 14 14 0 0 <keys in hex>
 *     < match 1 14 0 0 0
 */

import { createHash, type Hash } from 'node:crypto';
import fs from 'node:fs';
import {
  type DecisionOp,
  type DecisionSink,
  decisionOpNames,
  type InputOp,
  inputOpNames,
  type ManagerConfig,
} from '../../runtime/index.ts';

export const logMagic = '# tierkv decision log 1 ';

const FLUSH_CHARACTERS = 1 << 16;

export class DecisionLog implements DecisionSink, Disposable {
  readonly #hash: Hash = createHash('sha256');
  readonly #file: number | null;
  #decisions = '';
  #lines = '';

  /** @param path where to write the log; without one only the digest is kept */
  constructor(config: ManagerConfig, path?: string) {
    this.#file = path === undefined ? null : fs.openSync(path, 'w');
    if (this.#file !== null) this.#lines = `${logMagic}${JSON.stringify(config)}\n`;
  }

  input(op: InputOp, nowUs: number, a: number, b: number, c: number, d: number, keys?: Uint32Array): void {
    if (this.#file === null) return;
    let line = `> ${nowUs} ${inputOpNames[op]} ${a} ${b} ${c} ${d}`;
    if (keys !== undefined) line += ` ${hexOf(keys)}`;
    this.#lines += `${line}\n`;
    if (this.#lines.length > FLUSH_CHARACTERS) this.#flushLines();
  }

  decision(op: DecisionOp, a: number, b: number, c: number, d: number, e: number): void {
    const line = `< ${decisionOpNames[op]} ${a} ${b} ${c} ${d} ${e}\n`;
    this.#decisions += line;
    if (this.#decisions.length > FLUSH_CHARACTERS) this.#flushDecisions();
    if (this.#file === null) return;
    this.#lines += line;
    if (this.#lines.length > FLUSH_CHARACTERS) this.#flushLines();
  }

  /** sha256 over the decisions so far, in hex. */
  digest(): string {
    this.#flushDecisions();
    return this.#hash.copy().digest('hex');
  }

  [Symbol.dispose](): void {
    if (this.#file === null) return;
    this.#flushLines();
    fs.closeSync(this.#file);
  }

  #flushDecisions(): void {
    this.#hash.update(this.#decisions);
    this.#decisions = '';
  }

  #flushLines(): void {
    fs.writeSync(this.#file!, this.#lines);
    this.#lines = '';
  }
}

function hexOf(words: Uint32Array): string {
  return Buffer.from(words.buffer, words.byteOffset, words.byteLength).toString('hex');
}
