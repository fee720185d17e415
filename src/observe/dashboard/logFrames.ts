/**
 * Frames of a decision log: its run is repeated, and watched as a live one is. A log that was cut or edited, or is of another
 * version, is refused with its line; a log that is still written is followed.
 */

import { basename } from 'node:path';
import * as is from '../../runtime/kinds.ts';
import { LogReader } from '../../runtime/log/decisionLog.ts';
import { LogReplayer } from '../../runtime/log/replayer.ts';
import { checkInputs } from '../../runtime/options.ts';
import { CacheMeasures } from '../metrics/cacheMeasures.ts';
import { type DashboardFrame, type DashboardHead, FrameHistory, FrameMaker, headOf } from './frames.ts';

/** Frames of a whole log: between half of them and all. */
const FRAMES_MOST = 400;
/** Between two frames, before there are too many of them. Microseconds. */
const FIRST_GAP_US = 10_000;

export interface LogFrames {
  readonly head: DashboardHead;
  readonly frames: readonly DashboardFrame[];
}

export class LogFrameReader {
  readonly #log: LogReader;
  readonly #path: string;
  readonly #history: FrameHistory = new FrameHistory(FRAMES_MOST);
  #replayer: LogReplayer | undefined;
  #cache: CacheMeasures | undefined;
  #maker: FrameMaker | undefined;
  #gapUs: number = FIRST_GAP_US;
  #nextUs = 0;
  #nowUs = 0;

  /** @param path the log's name in errors; its last part is the page's title */
  constructor(path: string) {
    checkInputs({ path }, { path: is.name() });
    this.#path = path;
    this.#log = new LogReader(path);
  }

  /** Whether the end of the log was read. */
  get hasEnded(): boolean {
    return this.#log.hasEnded;
  }

  /** @throws TKV_INPUT naming the line of a log that is damaged, cut or of another version */
  read(line: string): void {
    const input = this.#log.read(line);
    this.#replayer ??= this.#begin();
    if (input === undefined) return;
    if (input.nowUs >= this.#nextUs) this.#take();
    this.#nowUs = input.nowUs;
    this.#replayer.apply(input);
  }

  /** @throws TKV_INPUT for a log without an end, unless it is still written */
  finish(isWritten = false): LogFrames {
    if (!isWritten || this.#cache === undefined) this.#log.finish();
    this.#take();
    return {
      head: headOf(this.#cache as CacheMeasures, {
        mode: 'log',
        title: basename(this.#path),
        limits: {},
        isWritten,
        note: 'A log has sequences and owners by number: no texts, no tenants by name.',
      }),
      frames: this.#history.frames,
    };
  }

  #begin(): LogReplayer {
    const replayer = new LogReplayer(this.#log);
    const { manager } = replayer;
    const cache = new CacheMeasures(manager);
    const owners = new Map<string, number>();
    this.#cache = cache;
    this.#maker = new FrameMaker({
      cache,
      queue: () => ({ running: manager.inspect.openSequences, waiting: 0 }),
      owners: () => {
        for (const { owner } of cache.stories(64)) owners.set(`owner ${owner}`, owner);
        return owners;
      },
    });
    return replayer;
  }

  #take(): void {
    if (this.#maker === undefined) return;
    this.#history.push(this.#maker.frame(this.#nowUs));
    if (this.#history.thin()) this.#gapUs *= 2;
    this.#nextUs = this.#nowUs + this.#gapUs;
  }
}

/** @throws as `LogFrameReader` */
export function framesOfLog(lines: Iterable<string>, path: string): LogFrames {
  checkInputs({ lines, path }, { lines: is.iterable(), path: is.name() });
  const reader = new LogFrameReader(path);
  for (const line of lines) reader.read(line);
  return reader.finish();
}
