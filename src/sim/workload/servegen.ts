/**
 * From ServeGen profiles to the cohorts of a v2 spec, as upstream's converter makes them: three ten-minute
 * windows of a day for plain text, the best-covered window for reasoning models; clients are dealt to the
 * service classes in turn.
 */

import { TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { CohortSpec, ServeGenSpec, SloClass, TrafficSpec } from '../description/workloadSpec.ts';
import * as elementary from '../random/elementary.ts';
import { GoRandom } from '../random/goRand.ts';
import type { LengthSpec } from '../random/samplers.ts';
import { maxRequestTokens } from './request.ts';
import { type Lines, numbered, shown, shownPlain, splitCsv, TraceLine } from './traceLines.ts';

const WINDOW_S = 600;
const DAY_S = 86_400;
const DEAL_ORDER: readonly SloClass[] = ['critical', 'standard', 'batch', 'sheddable', 'background'];
const PERIODS = [
  { name: 'midnight', spanStartS: 0 },
  { name: 'morning', spanStartS: 28_800 },
  { name: 'afternoon', spanStartS: 50_400 },
] as const;

/** Mean and deviation of the logarithm under a histogram; undefined without mass above 0. */
export function fitLognormal(bins: Histogram): { mu: number; sigma: number } | undefined {
  checkInputs({ bins }, { bins: is.list(is.list(is.number())) });
  let mass = 0;
  let first = 0;
  let second = 0;
  for (const [value, weight] of bins) {
    if (value <= 0 || weight === 0) continue;
    const x = elementary.log(value);
    mass += weight;
    first += weight * x;
    second += weight * x * x;
  }
  if (!(mass > 0)) return undefined;
  const mu = first / mass;
  return { mu, sigma: Math.sqrt(Math.max(0, second / mass - mu * mu)) };
}

/** Start of the lengths that hold at `atS`: the latest not later; undefined if all begin later. */
function lengthsStart(chunk: ServeGenChunk, atS: number): number | undefined {
  let found: number | undefined;
  for (const start of chunk.lengths.keys()) if (start <= atS) found = start;
  return found;
}

interface LengthFit {
  readonly input: { mu: number; sigma: number };
  readonly output: { mu: number; sigma: number };
}

/** Log-normal fits of a chunk at a time of day, averaged over the days. */
function chunkFit(chunk: ServeGenChunk, atS: number): LengthFit | undefined {
  const start = lengthsStart(chunk, atS);
  if (start === undefined) return undefined;
  const sum = { inMu: 0, inSigma: 0, outMu: 0, outSigma: 0 };
  let days = 0;
  for (const [at, lengths] of chunk.lengths) {
    if (at % DAY_S !== start % DAY_S) continue;
    const input = fitLognormal(lengths.input);
    if (input !== undefined) {
      sum.inMu += input.mu;
      sum.inSigma += input.sigma;
    }
    const output = fitLognormal(lengths.output);
    if (output === undefined) continue;
    sum.outMu += output.mu;
    sum.outSigma += output.sigma;
    days++;
  }
  if (days === 0) return undefined;
  return {
    input: { mu: sum.inMu / days, sigma: sum.inSigma / days },
    output: { mu: sum.outMu / days, sigma: sum.outSigma / days },
  };
}

function meanFit(fits: readonly LengthFit[]): Pick<TrafficSpec, 'inputLength' | 'outputLength'> | undefined {
  if (fits.length === 0) return undefined;
  const mean = (pick: (fit: LengthFit) => number): number =>
    fits.reduce((sum, fit) => sum + pick(fit), 0) / fits.length;
  return {
    inputLength: {
      type: 'lognormal',
      mu: mean((fit) => fit.input.mu),
      sigma: mean((fit) => fit.input.sigma),
    },
    outputLength: {
      type: 'lognormal',
      mu: mean((fit) => fit.output.mu),
      sigma: mean((fit) => fit.output.sigma),
    },
  };
}

/** Windows of a chunk at a time of day that carry traffic and have lengths at or before them. */
function activeAt(chunk: ServeGenChunk, atS: number): ServeGenWindow[] {
  return chunk.windows.filter(
    (window) =>
      window.ratePerS > 0 &&
      Math.trunc(window.startS) % DAY_S === atS &&
      lengthsStart(chunk, Math.trunc(window.startS)) !== undefined,
  );
}

function meanRate(chunk: ServeGenChunk, atS: number): number {
  const windows = activeAt(chunk, atS);
  return windows.length === 0
    ? 0
    : windows.reduce((sum, window) => sum + window.ratePerS, 0) / windows.length;
}

function traffic(
  id: string,
  sloClass: SloClass,
): Omit<TrafficSpec, 'arrival' | 'inputLength' | 'outputLength'> {
  return {
    id,
    tenantId: '',
    sloClass,
    model: '',
    adapter: '',
    rateFraction: 1,
    prefixGroup: '',
    prefixLength: 0,
    streaming: true,
    sloTargetUs: 0,
  };
}

/** Cohorts of a profile; the spec that takes them has an aggregate rate of 0. */
export function servegenCohorts(
  chunks: readonly ServeGenChunk[],
  options: ServeGenSpec,
  seed: bigint,
): CohortSpec[] {
  checkInputs(
    { chunks, options, seed },
    {
      chunks: is.list(is.fields({ id: is.text(), hasReasonRatio: is.flag() })),
      options: is.fields({ path: is.name(), windowDurationS: is.number() }),
      seed: is.bigint(),
    },
  );
  const random = new GoRandom(seed);
  const reasoning = chunks[0]?.hasReasonRatio === true;
  const cohorts = reasoning
    ? reasoningCohorts(chunks, options, random)
    : languageCohorts(chunks, options, random);
  if (cohorts.length > 0) return cohorts;
  throw new TierKVError(
    'TKV_INPUT',
    `${options.path}: no client is active in the chosen windows. Give another seed or folder`,
    {
      path: options.path,
      field: 'servegen_data.path',
    },
  );
}

function languageCohorts(
  chunks: readonly ServeGenChunk[],
  options: ServeGenSpec,
  random: GoRandom,
): CohortSpec[] {
  const windowS = PERIODS.map((period) => period.spanStartS + random.intn(3) * WINDOW_S);
  const cohorts: CohortSpec[] = [];
  PERIODS.forEach((period, p) => {
    const active = chunks.filter((chunk) => activeAt(chunk, windowS[p]).length > 0);
    if (active.length === 0) return;
    random.shuffle(active);
    const startUs = p * (options.windowDurationS + options.drainTimeoutS) * 1e6;
    for (const sloClass of [...DEAL_ORDER].sort()) {
      const dealt = active.filter((_, i) => DEAL_ORDER[i % DEAL_ORDER.length] === sloClass);
      if (dealt.length === 0) continue;
      const fits = dealt.map((chunk) => chunkFit(chunk, windowS[p]));
      const traceRate = dealt.reduce(
        (sum, chunk, i) =>
          sum +
          (lengthsStart(chunk, windowS[p]) === undefined && fits[i] === undefined
            ? 0
            : meanRate(chunk, windowS[p])),
        0,
      );
      const lengths = meanFit(fits.filter((fit) => fit !== undefined)) ?? FALLBACK_LENGTHS;
      if (traceRate <= 0) continue;
      cohorts.push({
        ...traffic(`${period.name}-${sloClass}`, sloClass),
        ...lengths,
        arrival: meanArrival(dealt.flatMap((chunk) => activeAt(chunk, windowS[p]))),
        population: dealt.length,
        prefixSharing: 'shared',
        spike: { startUs, durationUs: options.windowDurationS * 1e6, traceRate },
      });
    }
  });
  return cohorts;
}

const FALLBACK_LENGTHS: Pick<TrafficSpec, 'inputLength' | 'outputLength'> = {
  inputLength: { type: 'gaussian', mean: 512, std_dev: 128, min: 1, max: 32768 },
  outputLength: { type: 'gaussian', mean: 128, std_dev: 32, min: 1, max: 32768 },
};

/**
 * The process of the majority with averaged parameters; absent parameters count as 0, as upstream averages
 * them.
 */
function meanArrival(windows: readonly ServeGenWindow[]): TrafficSpec['arrival'] {
  const named = windows.filter((window) => window.process !== '');
  const weibull = named.filter((window) => window.process === 'weibull').length;
  const fitted = named.filter((window) => window.shape > 0 && window.scale > 0);
  const mean = (list: readonly ServeGenWindow[], pick: (window: ServeGenWindow) => number): number =>
    list.reduce((sum, window) => sum + pick(window), 0) / windows.length;
  const process = weibull > named.length - weibull ? 'weibull' : 'gamma';
  const cv = mean(named, (window) => window.cv);
  const shape = mean(fitted, (window) => window.shape);
  const scale = mean(fitted, (window) => window.scale * 1e6);
  if (!(shape > 0 && scale > 0)) return cv > 0 ? { process, cv } : { process: 'poisson' };
  return cv > 0 ? { process, cv, shape, scale } : { process, shape, scale };
}

function reasoningCohorts(
  chunks: readonly ServeGenChunk[],
  options: ServeGenSpec,
  random: GoRandom,
): CohortSpec[] {
  let atS = 0;
  let most = -1;
  for (let start = 0; start < DAY_S; start += WINDOW_S) {
    const active = chunks.filter((chunk) => activeAt(chunk, start).length > 0).length;
    if (active > most) [most, atS] = [active, start];
  }
  const shuffled = chunks.filter((chunk) =>
    [...chunk.lengths.values()].some((lengths) => lengths.reasonRatio.length > 0),
  );
  random.shuffle(shuffled);
  const cohorts: CohortSpec[] = [];
  for (const sloClass of DEAL_ORDER) {
    const dealt = shuffled.filter((_, i) => DEAL_ORDER[i % DEAL_ORDER.length] === sloClass);
    const lengths = meanFit(dealt.map((chunk) => chunkFit(chunk, atS)).filter((fit) => fit !== undefined));
    const traceRate = dealt.reduce((sum, chunk) => sum + meanRate(chunk, atS), 0);
    if (lengths === undefined || traceRate <= 0) continue;
    cohorts.push({
      ...traffic(`reasoning-${sloClass}`, sloClass),
      ...lengths,
      arrival: { process: 'poisson' },
      population: dealt.length,
      prefixSharing: 'shared',
      closedLoop: false,
      spike: { startUs: 0, durationUs: options.windowDurationS * 1e6, traceRate },
      reasoning: {
        reasonRatio: meanRatio(dealt, atS),
        multiTurn: { maxRounds: 1, thinkTimeUs: 0, accumulate: false, singleSession: false },
      },
    });
  }
  return cohorts;
}

/** The reasoning share in percent, weights averaged over clients, which keeps both of its peaks. */
function meanRatio(chunks: readonly ServeGenChunk[], atS: number): LengthSpec {
  const weights = new Float64Array(101);
  for (const chunk of chunks) {
    const start = lengthsStart(chunk, atS);
    const bins = start === undefined ? [] : chunk.lengths.get(start)!.reasonRatio;
    const mass = bins.reduce((sum, bin) => sum + bin[1], 0);
    for (const [ratio, weight] of bins) {
      weights[Math.min(100, Math.max(0, Math.trunc(ratio * 100)))] += weight / mass / chunks.length;
    }
  }
  const bins = [...weights].map((weight, percent) => [percent, weight] as const).filter((bin) => bin[1] > 0);
  return bins.length === 0 ? { type: 'constant', value: 0 } : { type: 'empirical', bins };
}

// The files of ServeGen client profiles: rates per 600 s window (`chunk-*-trace.csv`) and length
// distributions per some hours (`chunk-*-dataset.json`), for every client ("chunk"). They are parameters, not
// requests.

/** One 600 s window of a client. `process` is '' where the profile names none. */
interface ServeGenWindow {
  readonly startS: number;
  readonly ratePerS: number;
  readonly cv: number;
  readonly process: '' | 'gamma' | 'weibull';
  readonly shape: number;
  /** In seconds. */
  readonly scale: number;
}

/** Weights by token count, sorted by count. */
type Histogram = ReadonlyArray<readonly [value: number, weight: number]>;

interface ServeGenLengths {
  readonly input: Histogram;
  readonly output: Histogram;
  /** Reasoning tokens by share in [0, 1]; empty unless the profile is of a reasoning model. */
  readonly reasonRatio: Histogram;
}

export interface ServeGenChunk {
  readonly id: string;
  readonly windows: readonly ServeGenWindow[];
  /** Lengths by window start in s; empty windows are left out. */
  readonly lengths: ReadonlyMap<number, ServeGenLengths>;
  readonly hasReasonRatio: boolean;
}

/** Ten minutes each: almost two years. */
const maxWindows = 100_000;
const maxStarts = 10_000;
/** Limit of a start in s, a rate a second, a CV, a shape or a scale. */
const maxNumber = 1e9;

/** Windows of a `chunk-*-trace.csv`: start, rate, CV, process and two parameters a row, without a header. */
export function servegenWindows(lines: Lines, file: string): ServeGenWindow[] {
  checkInputs({ lines, file }, { lines: is.iterable(), file: is.name() });
  const windows: ServeGenWindow[] = [];
  for (const [text, at] of numbered(lines, file)) {
    if (windows.length === maxWindows)
      throw at.error('', `is one of more than ${maxWindows} windows`, 'Split it');
    const cells = splitCsv(text)?.map((cell) => cell.trim()) ?? [];
    const number = (i: number, field: string): number => {
      const value = cells[i] === undefined || cells[i] === '' ? Number.NaN : Number(cells[i]);
      if (value >= 0 && value <= maxNumber) return value;
      throw at.error(
        field,
        cells[i] === undefined ? 'is missing' : `is ${shown(cells[i])}`,
        `Set it to a number from 0 to ${maxNumber}`,
      );
    };
    const process = (cells[3] ?? '').toLowerCase();
    const known = process === 'gamma' || process === 'weibull';
    windows.push({
      startS: number(0, 'start'),
      ratePerS: number(1, 'rate'),
      cv: number(2, 'cv'),
      process: known ? process : '',
      shape: cells.length >= 6 ? number(4, 'shape') : 0,
      scale: cells.length >= 6 ? number(5, 'scale') : 0,
    });
  }
  return windows;
}

function histogram(text: unknown, field: string, at: TraceLine): Histogram {
  if (text === undefined || text === '' || text === '{}') return [];
  const inner = typeof text === 'string' ? /^\s*\{([\s\S]*)\}\s*$/.exec(text) : null;
  if (inner === null) throw at.error(field, 'is not a "{value: weight, …}" text', 'Mend the file');
  const bins = new Map<number, number>();
  for (const pair of inner[1].split(',')) {
    if (pair.trim() === '') continue;
    const [key, value, ...rest] = pair.split(':').map((part) => part.trim().replace(/^['"]|['"]$/g, ''));
    const weight = Number(value);
    if (
      rest.length > 0 ||
      value === undefined ||
      key === '' ||
      !(Math.abs(Number(key)) <= maxRequestTokens) ||
      !(weight >= 0 && weight < Infinity)
    ) {
      throw at.error(field, `holds ${shown(pair.trim())}`, 'Write value: weight with a weight of at least 0');
    }
    bins.set(Number(key), weight);
  }
  return [...bins].sort((a, b) => a[0] - b[0]);
}

/** Lengths of a `chunk-*-dataset.json`. */
export function servegenLengths(
  text: string,
  file: string,
): Pick<ServeGenChunk, 'lengths' | 'hasReasonRatio'> {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  const at = new TraceLine(file, 1);
  const lengths = new Map<number, ServeGenLengths>();
  let hasReasonRatio = false;
  for (const [start, value] of Object.entries(at.json(text))) {
    if (lengths.size === maxStarts) throw at.error('', `holds more than ${maxStarts} windows`, 'Split it');
    if (!(Number(start) <= maxNumber) || typeof value !== 'object' || value === null) {
      throw at.error(
        shownPlain(start),
        'is not a window of distributions',
        'Name windows by their start in s',
      );
    }
    const window = value as Record<string, unknown>;
    hasReasonRatio ||= 'reason_ratio' in window;
    const whole = (field: string): Histogram =>
      histogram(window[field], `${start}.${field}`, at).map(([key, weight]) => [Math.trunc(key), weight]);
    const input = whole('input_tokens');
    const output = whole('output_tokens');
    if (input.length === 0 || output.length === 0) continue;
    lengths.set(Math.trunc(Number(start)), {
      input,
      output,
      reasonRatio: histogram(window.reason_ratio, `${start}.reason_ratio`, at),
    });
  }
  return { lengths: new Map([...lengths].sort((a, b) => a[0] - b[0])), hasReasonRatio };
}
