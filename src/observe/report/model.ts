/**
 * A report as plain data: a question, the answer in a sentence, figures with their spread, sections of charts and
 * tables, a timeline, what to change next, and where all of it comes from. Each command turns its result into one;
 * `page.ts` makes a page of it. Nothing here knows HTML or a drawing library.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';

/** How a number is written: `ms` takes milliseconds, `share` a part of 1, `bytes` bytes. */
export type Unit = 'count' | 'ms' | 's' | 'share' | 'bytes' | 'perS' | 'tokensPerS' | 'bytesPerS' | 'plain';

/** A headline number. */
export interface Figure {
  readonly name: string;
  /** Null where nothing was measured. */
  readonly value: number | null;
  readonly unit: Unit;
  /** Between which values it lies, and over what: seeds, rounds, requests. */
  readonly spread?: { readonly low: number; readonly high: number; readonly over: string };
  /** A target that it is held to. */
  readonly target?: { readonly most?: number; readonly least?: number };
  readonly note?: string;
}

interface TextSection {
  readonly kind: 'text';
  readonly title: string;
  readonly paragraphs: readonly string[];
}

interface ReportColumn {
  readonly title: string;
  /** Unit of the column's numbers; a column without one holds text. */
  readonly unit?: Unit;
}

export interface TableSection {
  readonly kind: 'table';
  readonly title: string;
  readonly note?: string;
  readonly columns: readonly ReportColumn[];
  /** A cell a column; null for what is not known. */
  readonly rows: readonly (readonly (string | number | null)[])[];
  /** Index of the row that the answer is about. */
  readonly chosen?: number;
}

/** Lines over a number, such as time. */
export interface LinesSection {
  readonly kind: 'lines';
  readonly title: string;
  readonly note?: string;
  readonly x: { readonly title: string; readonly unit: Unit; readonly isLog?: boolean };
  readonly y: { readonly title: string; readonly unit: Unit; readonly isLog?: boolean };
  readonly series: readonly {
    readonly name: string;
    readonly points: readonly (readonly [x: number, y: number])[];
  }[];
}

/** Points of two measures, told apart by group. */
export interface PointsSection {
  readonly kind: 'points';
  readonly title: string;
  readonly note?: string;
  readonly x: { readonly title: string; readonly unit: Unit; readonly isLog?: boolean };
  readonly y: { readonly title: string; readonly unit: Unit; readonly isLog?: boolean };
  readonly points: readonly {
    readonly x: number;
    readonly y: number;
    readonly name: string;
    readonly group?: string;
    readonly isChosen?: boolean;
  }[];
}

/** One value a name, with the range it lies in where that is known. */
export interface BarsSection {
  readonly kind: 'bars';
  readonly title: string;
  readonly note?: string;
  readonly unit: Unit;
  readonly bars: readonly {
    readonly name: string;
    readonly value: number;
    readonly low?: number;
    readonly high?: number;
    /** Bars of one name side by side. */
    readonly group?: string;
    readonly isChosen?: boolean;
  }[];
}

/** How values are distributed, against a target. */
export interface DistributionsSection {
  readonly kind: 'distributions';
  readonly title: string;
  readonly note?: string;
  readonly unit: Unit;
  readonly series: readonly {
    readonly name: string;
    /** Values at equal steps of the share: the first is the least one, the last the largest. */
    readonly quantiles: readonly number[];
    /** How many values there were. */
    readonly count: number;
    /** Most that is wanted at that share, such as 0.99. */
    readonly target?: { readonly most: number; readonly share: number };
  }[];
}

/** A lane of the timeline: how much over time, by series. */
export interface TimelineLane {
  readonly name: string;
  readonly unit: Unit;
  /** Whether series stand on each other. */
  readonly isStacked?: boolean;
  readonly series: readonly {
    readonly name: string;
    /** From that second on, until the next. */
    readonly points: readonly (readonly [s: number, value: number])[];
  }[];
}

export interface TimelineRequest {
  readonly id: string;
  /** Times in seconds: it waits, then runs its prompt, then its output. Null for a part that it did not reach. */
  readonly arrivalS: number;
  readonly joinedS: number | null;
  readonly firstTokenS: number | null;
  readonly endS: number | null;
  readonly where: string;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly status: string;
  readonly note?: string;
}

export interface TimelineEvent {
  readonly s: number;
  readonly what: string;
  readonly kind: 'scaling' | 'anomaly' | 'transfer';
}

/** Events in lanes over one time axis, with the requests below; a reader can zoom to a request. */
export interface TimelineSection {
  readonly kind: 'timeline';
  readonly title: string;
  readonly note?: string;
  readonly lanes: readonly TimelineLane[];
  readonly events: readonly TimelineEvent[];
  readonly requests: readonly TimelineRequest[];
  /** Number of requests of which these are a sample. */
  readonly requestsInAll: number;
  /** Names of the parts of a request's bar, which end at `joinedS`, `firstTokenS` and `endS`, or at the last of these. Default: all three. */
  readonly parts?: readonly string[];
  /** Head of the column that shows a request's `where`. Default `instance`. */
  readonly place?: string;
  /** The word for one of `requests`, in the singular. Default `request`. */
  readonly of?: string;
}

/** A part of a report: text, a table, or a chart. */
export type ReportSection =
  | TextSection
  | TableSection
  | LinesSection
  | PointsSection
  | BarsSection
  | DistributionsSection
  | TimelineSection;

export interface ReportOrigin {
  /** The command that gives this result again, as it is typed. */
  readonly command: string;
  /** `tierkv`, `node`, and what else determines the result. */
  readonly versions: Readonly<Record<string, string>>;
  /** Model, GPU, seed, ...: what the result is of. */
  readonly facts: Readonly<Record<string, string>>;
}

/** A result as a page for a person who decides: the question, the answer, and what it rests on. */
export interface Report {
  readonly title: string;
  readonly question: string;
  /** In one sentence. */
  readonly answer: string;
  /** Whether the answer is a yes, a no, or neither. */
  readonly verdict: 'yes' | 'no' | 'open';
  readonly figures: readonly Figure[];
  readonly sections: readonly ReportSection[];
  /** Suggested changes, as sentences. */
  readonly next: readonly string[];
  /** Assumptions and omissions of the result, as sentences. */
  readonly limits: readonly string[];
  readonly origin: ReportOrigin;
}

const tierTitles: Readonly<Record<string, string>> = {
  hbm: 'GPU memory',
  ddr: 'host memory',
  nvme: 'disk',
  remote: 'shared tier',
};

/** A tier as people call it; one of a registered row by its own name. */
export function tierTitle(tier: string): string {
  return tierTitles[tier] ?? tier;
}

/** Places of tiers from fast to slow; one of a registered row comes last. */
export function tierDepth(tier: string): number {
  const place = Object.keys(tierTitles).indexOf(tier);
  return place === -1 ? Number.MAX_SAFE_INTEGER : place;
}

/** A link such as `ddrToHbm`, or two at once as `hbmToDdr+ddrToHbm`, as people call it. */
export function linkTitle(link: string): string {
  const [there, back] = link.split('+').map((each) => each.split('To'));
  if (back?.length === 2 && there.length === 2) {
    const ends = there.map((end) => tierTitle(end.toLowerCase()));
    return `${ends.join(' and ')}, both ways`;
  }
  const [, from, to] = /^([a-z0-9]+)To([A-Z]\w*)$/.exec(link) ?? [];
  return from === undefined || to === undefined
    ? link
    : `${tierTitle(from)} to ${tierTitle(to[0].toLowerCase() + to.slice(1))}`;
}

const shareText = (value: number): string => `${(100 * value).toFixed(Math.abs(value) < 0.1 ? 2 : 1)} %`;

function scaled(value: number, base: number, units: readonly string[]): string {
  let rest = value;
  let at = 0;
  while (Math.abs(rest) >= base && at < units.length - 1) {
    rest /= base;
    at++;
  }
  return `${threeDigits(rest)} ${units[at]}`.trim();
}

function threeDigits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return value.toFixed(0);
  return value.toFixed(size >= 10 ? 1 : size >= 0.1 ? 2 : 4);
}

function durationMs(ms: number): string {
  const size = Math.abs(ms);
  if (size >= 120_000) return `${threeDigits(ms / 60_000)} min`;
  if (size >= 1000) return `${threeDigits(ms / 1000)} s`;
  return size >= 1 || size === 0 ? `${threeDigits(ms)} ms` : `${threeDigits(ms * 1000)} us`;
}

const thousands = (value: number): string => {
  if (Number.isInteger(value)) return String(value).replace(/\B(?=(\d{3})+$)/g, ',');
  return threeDigits(value);
};

const writers: Readonly<Record<Unit, (value: number) => string>> = {
  count: thousands,
  ms: durationMs,
  s: (value) => durationMs(value * 1000),
  share: shareText,
  bytes: (value) => scaled(value, 1024, ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']),
  perS: (value) => `${threeDigits(value)} /s`,
  tokensPerS: (value) => `${scaled(value, 1000, ['', 'k', 'M', 'G'])} tok/s`,
  bytesPerS: (value) => scaled(value, 1000, ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s']),
  plain: threeDigits,
};

export const unitNames: readonly Unit[] = Object.keys(writers) as Unit[];

/** A number as people read it; a dash for null. */
export function written(value: number | null, unit: Unit): string {
  return value === null || !Number.isFinite(value) ? '-' : writers[unit](value);
}

/** Whether the figure is within its target; null where it has none. */
export function meetsTarget({ value, target }: Figure): boolean | null {
  if (target === undefined || value === null) return null;
  return value <= (target.most ?? Infinity) && value >= (target.least ?? -Infinity);
}

/** Values at equal steps of the share, of values in any order. @param steps of the share, such as 200 */
export function quantilesOf(values: Float64Array, steps = 200): number[] {
  checkInputs({ values, steps }, { values: is.bytes(), steps: is.optional(is.number()) });
  if (values.length === 0) return [];
  const sorted = values.slice().sort();
  return Array.from({ length: steps + 1 }, (_, i) => {
    const rank = (i / steps) * (sorted.length - 1);
    const low = Math.floor(rank);
    const high = Math.min(low + 1, sorted.length - 1);
    return sorted[low] + (rank - low) * (sorted[high] - sorted[low]);
  });
}

/** Every n-th of a list that is longer than `most`, with its first and last. */
export function thinned<T>(list: readonly T[], most: number): readonly T[] {
  checkInputs({ list, most }, { list: is.array(), most: is.number() });
  if (list.length <= most) return list;
  const step = (list.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, i) => list[Math.round(i * step)]);
}
