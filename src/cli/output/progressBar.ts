/**
 * A progress bar on stderr with the rate and the time left. Where stderr is no terminal it writes nothing at
 * all, so logs stay clean and stdout is only ever results. The caller tells the share done; the bar asks the
 * clock.
 */

import cliProgress from 'cli-progress';
import { formatCount, formatSeconds } from './units.ts';

export interface ProgressState {
  /** From 0 to 1; the time left is estimated from it. */
  readonly share: number;
  /** Whole units done so far: the rate is this per second. */
  readonly done: number;
  /** Shown at the end of the line. */
  readonly note?: string;
}

export interface ProgressBar extends Disposable {
  update(state: ProgressState): void;
  /** Writes a line above the bar; without a terminal, just the line. */
  say(line: string): void;
}

export interface ProgressStream extends NodeJS.WritableStream {
  readonly isTTY?: boolean;
}

/** @param unit what is counted, in the plural: `requests`. */
export function startProgressBar(unit: string, stream: ProgressStream = process.stderr): ProgressBar {
  const scale = 1000; // steps of the bar
  const minGapMs = 100;
  const startMs = performance.now();
  let shownMs = Number.NEGATIVE_INFINITY;
  const bar = new cliProgress.SingleBar({
    stream,
    format: `{bar} {percentage}% | {done} ${unit} | {rate} a second | {left} left{note}`,
    barCompleteChar: '#',
    barIncompleteChar: '-',
    barsize: 28,
    clearOnComplete: true,
    gracefulExit: false, // signals are the command's business
  });
  const stop = (): void => bar.stop(); // also at an abrupt exit: it gives the terminal its line wrapping back
  if (stream.isTTY === true) {
    bar.start(scale, 0, { done: '0', rate: '-', left: '-', note: '' });
    process.once('exit', stop);
  }

  return {
    update({ share, done, note }) {
      const nowMs = performance.now();
      if (stream.isTTY !== true || nowMs - shownMs < minGapMs) return;
      shownMs = nowMs;
      const elapsedS = (nowMs - startMs) / 1000;
      const within = Math.min(1, Math.max(0, share));
      bar.update(Math.floor(within * scale), {
        done: formatCount(done),
        rate: formatCount(Math.round(done / elapsedS)),
        left: within > 0 ? formatSeconds((elapsedS * (1 - within)) / within) : '-',
        note: note === undefined ? '' : ` | ${note}`,
      });
    },
    say(line) {
      stream.write(stream.isTTY === true ? `\r\u{1b}[K${line}\n` : `${line}\n`);
    },
    [Symbol.dispose]() {
      process.off('exit', stop);
      if (stream.isTTY === true) stop();
    },
  };
}
