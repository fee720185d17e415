/** What commands show: progress, tables, quantities as people read them. */

import cliProgress from 'cli-progress';
import Table from 'cli-table3';
import { makeDirectories } from '../backends/host/posix.ts';
import { configError, TierKVError } from '../runtime/errors.ts';
import { printable } from './resultFile.ts';

/** @throws TKV_IO naming the option where it cannot be made */
export function makeDirectory(directory: string, option: string): void {
  try {
    makeDirectories(directory);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError(
      'TKV_IO',
      `${option} ${directory} cannot be made: ${why}. Name another directory.`,
      {
        field: option,
        path: directory,
        cause,
      },
    );
  }
}

// How far a long command is: on a terminal a bar on stderr with the rate and the time left, elsewhere a line a
// minute, so that a log shows that it goes on, and a short command leaves none. stdout is only ever results.
// The caller tells the share done; the bar asks the clock.

export interface ProgressState {
  /** From 0 to 1, by the work that is done; the time left is estimated from it. 0 while nobody knows. */
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
  /** The same with the program's name before it, once. */
  notice(message: string): void;
}

export interface ProgressStream extends NodeJS.WritableStream {
  readonly isTTY?: boolean;
}

/** What is read of the machine: the time in milliseconds, and a wish to be called again and again. */
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
/** Between two lines where there is no terminal. */
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
    stream.write(isTerminal ? `\r\u{1b}[K${line}\n` : `${line}\n`);
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

// Tables for people: plain text without colour codes, so that a pipe or a file gets the same bytes as a
// terminal. Columns of numbers are aligned to the right.

/** Characters of a cell; a name out of a file may have millions. */
const longestCell = 200;

function cellText(cell: string | number): string | number {
  if (typeof cell === 'number') return cell;
  return printable(cell.length <= longestCell ? cell : `${cell.slice(0, longestCell)}...`);
}

/** In lines of so many characters. */
function wrapped(text: string | number, width: number): string {
  return (
    String(text)
      .match(new RegExp(`.{1,${width}}`, 'gu'))
      ?.join('\n') ?? ''
  );
}

export interface TableColumn {
  readonly title: string;
  /** Longer cells go on in the next line. */
  readonly width?: number;
  readonly align?: 'left' | 'right';
}

/**
 * The table as text with a newline at its end. Every row has one cell a column; cells are made printable and
 * cut.
 */
export function renderTable(
  columns: readonly TableColumn[],
  rows: readonly (readonly (string | number)[])[],
): string {
  const table = new Table({
    head: columns.map((column) => column.title),
    colAligns: columns.map((column) => column.align ?? 'left'),
    style: { head: [], border: [], compact: true },
  });
  for (const row of rows) {
    table.push(
      row.map((cell, i) => {
        const { width } = columns[i];
        return width === undefined ? cellText(cell) : wrapped(cellText(cell), width);
      }),
    );
  }
  return `${table.toString()}\n`;
}

// Quantities as people read and write them. Sizes are binary (KiB = 1,024 bytes), rates decimal (GB/s = 10^9
// bytes a second), as memory and links are sold. Formatting never rounds an exact count.

const binaryUnits = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Three significant digits, without trailing zeros after the point. */
function threeDigits(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value
    .toFixed(value >= 10 ? 1 : 2)
    .replace(/(\.\d*?)0+$/, '$1')
    .replace(/\.$/, '');
}

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < binaryUnits.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : threeDigits(value)} ${binaryUnits[unit]}`;
}

export function formatBytesPerS(bytesPerS: number): string {
  if (bytesPerS >= 1e9) return `${threeDigits(bytesPerS / 1e9)} GB/s`;
  return bytesPerS >= 1e5 ? `${threeDigits(bytesPerS / 1e6)} MB/s` : `${threeDigits(bytesPerS / 1e3)} kB/s`;
}

/** An exact count with a comma after each three digits. */
export function formatCount(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A count with what is counted, in the plural or, for one, without its end: `1 request`, `2,000 requests`. */
export function formatCounted(count: number, plural: string): string {
  const [word, ...rest] = plural.split(' ');
  const singular = word.endsWith('ies') ? `${word.slice(0, -3)}y` : word.replace(/s$/, '');
  return [formatCount(count), count === 1 ? singular : word, ...rest].join(' ');
}

/** A share of a whole in percent with two decimals; a dash for a share of nothing. */
export function formatShare(part: number, whole: number): string {
  return whole === 0 ? '-' : `${((100 * part) / whole).toFixed(2)} %`;
}

export function formatSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return '-';
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const sizePattern = /^(\d+)\s*(B|KiB|MiB|GiB|TiB)?$/;

/**
 * A size as the user wrote it: `65536`, `64KiB`, `1 MiB`.
 * @throws {TierKVError} TKV_CONFIG naming `field` for anything else, and for a size that is not exact in a
 * number.
 */
export function parseBytes(field: string, text: string): number {
  const [, digits, unit = 'B'] = sizePattern.exec(text.trim()) ?? [];
  const exponent = ['B', 'KiB', 'MiB', 'GiB', 'TiB'].indexOf(unit);
  const bytes = Number(digits) * 1024 ** exponent;
  if (!Number.isSafeInteger(bytes)) {
    throw configError(
      field,
      `is "${text}", not a size`,
      'Write bytes, or a whole number of KiB, MiB or GiB.',
    );
  }
  return bytes;
}
