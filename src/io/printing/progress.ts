/**
 * How far a long command is: on a terminal a bar on stderr with the rate and the time left, elsewhere a line a minute, so
 * that a log shows that it goes on, and a short command leaves none. stdout is only ever results. The caller tells the
 * share done; the bar asks the clock.
 */

import cliProgress from 'cli-progress';
import { coloured, hasColours } from './colours.ts';
import { formatCount, formatCounted, formatSeconds } from './text.ts';

interface ProgressState {
  /** From 0 to 1, by the work that is done; the time left is estimated from it. 0 while that is not known. */
  readonly share: number;
  /** Whole units done so far: the rate is this per second. */
  readonly done: number;
  /** Shown at the end of the line. */
  readonly note?: string;
}

interface ProgressBar extends Disposable {
  update(state: ProgressState): void;
  /** Writes a line above the bar; without a terminal, just the line. */
  say(line: string): void;
  /** The same with the program's name before it, once. */
  notice(message: string): void;
}

interface ProgressStream extends NodeJS.WritableStream {
  readonly isTTY?: boolean;
}

/** The machine's clock: the time in milliseconds, and a call at intervals. */
export interface ProgressClock {
  now(): number;
  /** @returns what ends it */
  every(ms: number, act: () => void): () => void;
}

const machineClock: ProgressClock = {
  now: () => performance.now(),
  every(ms, act) {
    const timer = setInterval(act, ms).unref();
    return () => clearInterval(timer);
  },
};

/** Steps of the bar. */
const SCALE = 1000;
const MIN_GAP_MS = 100;
/** Between two lines without a terminal. */
const LINE_MS = 60_000;

/** A message for a person, with the program's name before it once: some of them bring it along. */
export function noticeLine(message: string): string {
  return message.startsWith('tierkv: ') ? message : `tierkv: ${message}`;
}

/** @param unit what is counted, in the plural: `requests`. */
export function startProgressBar(
  unit: string,
  stream: ProgressStream = process.stderr,
  clock: ProgressClock = machineClock,
): ProgressBar {
  const isTerminal = stream.isTTY === true;
  const startMs = clock.now();
  let shownMs = isTerminal ? Number.NEGATIVE_INFINITY : startMs;
  let last: ProgressState = { share: 0, done: 0 };
  const bar = new cliProgress.SingleBar({
    stream,
    format: '{bar} {percentage}% | {done} | {rate} a second | {left} left{note}',
    barCompleteChar: '#',
    barIncompleteChar: '-',
    barsize: 28,
    clearOnComplete: true,
    gracefulExit: false, // signals are the command's business
  });
  const stop = (): void => bar.stop(); // also at an abrupt exit: it gives the terminal its line wrapping back
  if (isTerminal) {
    bar.start(SCALE, 0, { done: formatCounted(0, unit), rate: '-', left: '-', note: '' });
    process.once('exit', stop);
  }
  const within = (): number => Math.min(1, Math.max(0, last.share));
  const note = (): string => (last.note === undefined ? '' : ` | ${last.note}`);
  const elapsedS = (): number => (clock.now() - startMs) / 1000;
  const left = (): string => (within() > 0 ? formatSeconds((elapsedS() * (1 - within())) / within()) : '-');

  const writeLine = (): void => {
    if (clock.now() - shownMs < LINE_MS) return;
    shownMs = clock.now();
    const remaining = within() > 0 ? `, ${left()} left` : '';
    const share = within() > 0 ? ` | ${Math.floor(100 * within())}%` : '';
    stream.write(
      `${formatSeconds(elapsedS())}${share} | ${formatCounted(last.done, unit)}${remaining}${note()}\n`,
    );
  };
  // a command that waits for one long thing tells nothing in between
  const endLines = isTerminal ? () => {} : clock.every(LINE_MS, writeLine);

  const say = (line: string): void => {
    const shown = hasColours(stream) ? coloured(line) : line;
    stream.write(isTerminal ? `\r\u{1b}[K${shown}\n` : `${line}\n`);
  };
  return {
    update(state) {
      last = state;
      if (!isTerminal) return writeLine();
      if (clock.now() - shownMs < MIN_GAP_MS) return;
      shownMs = clock.now();
      bar.update(Math.floor(within() * SCALE), {
        done: formatCounted(last.done, unit),
        rate: formatCount(Math.round(last.done / elapsedS())),
        left: left(),
        note: note(),
      });
    },
    say,
    notice: (message) => say(noticeLine(message)),
    [Symbol.dispose]() {
      endLines();
      process.off('exit', stop);
      if (isTerminal) stop();
    },
  };
}
