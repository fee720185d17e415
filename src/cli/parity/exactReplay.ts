/**
 * The first half of parity: the inputs of a recorded run are given to a fresh manager and scheduler, which
 * are the simulator's. The log that they write has to be the recorded one, byte for byte.
 */

import fs from 'node:fs';
import {
  LogReader,
  LogReplayer,
  LogWriter,
  type ManagerConfig,
  type SchedulerHead,
} from '../../runtime/index.ts';
import { resolveConfig } from '../../runtime/manager/config.ts';
import { readLines } from '../trace/lines.ts';
import { bothSinks, RunObserver } from './observer.ts';

export interface ExactReplay {
  readonly identical: boolean;
  readonly lines: number;
  readonly bytes: number;
  /** Where the logs first differ, or null. */
  readonly firstDifference: number | null;
  readonly config: ManagerConfig;
  readonly scheduler: SchedulerHead;
  /** What the recorded run did. */
  readonly observed: RunObserver;
}

/** Compares text, as it comes, with the bytes of a file. */
class FileComparison implements Disposable {
  firstDifference: number | null = null;
  bytes = 0;
  readonly #file: number;

  constructor(path: string) {
    this.#file = fs.openSync(path, 'r');
  }

  take(text: string): void {
    const made = Buffer.from(text);
    const there = Buffer.alloc(made.length);
    fs.readSync(this.#file, there, 0, made.length, this.bytes);
    if (this.firstDifference === null && !made.equals(there)) {
      this.firstDifference = this.bytes + made.findIndex((byte, i) => byte !== there[i]);
    }
    this.bytes += made.length;
  }

  /** Nothing follows: what the file has more is a difference. */
  end(): void {
    if (this.firstDifference === null && fs.fstatSync(this.#file).size !== this.bytes) {
      this.firstDifference = this.bytes;
    }
  }

  [Symbol.dispose](): void {
    fs.closeSync(this.#file);
  }
}

/**
 * @param path the decision log of a run with one scheduler
 * @throws TKV_INPUT naming file and line for a log that is damaged, cut or without a scheduler
 */
export async function replayExactly(path: string, signal: AbortSignal): Promise<ExactReplay> {
  const log = new LogReader(path);
  const progress = { bytesRead: 0, bytesTotal: 0, lines: 0 };
  const lines = readLines(path, progress);
  const head = await lines.next();
  if (head.done === true) throw log.broken('is empty', 1);
  log.read(head.value);
  using comparison = new FileComparison(path);
  const observed = new RunObserver(resolveConfig(log.config).tiers.map(({ tier }) => tier));
  const writer = new LogWriter(log.config, { log: (text) => comparison.take(text) });
  const replayer = new LogReplayer(log, bothSinks(writer, observed));
  let scheduler: SchedulerHead | undefined;
  for await (const line of lines) {
    signal.throwIfAborted();
    const input = log.read(line);
    if (input === undefined) continue;
    if (input.of === 'scheduler') scheduler ??= input.head;
    replayer.apply(input);
  }
  log.finish();
  writer.end();
  comparison.end();
  if (scheduler === undefined) throw log.broken('is the end, and no scheduler ran');
  const { firstDifference, bytes } = comparison;
  const identical = firstDifference === null;
  return { identical, lines: log.line, bytes, firstDifference, config: log.config, scheduler, observed };
}
