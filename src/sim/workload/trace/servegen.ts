/**
 * From ServeGen profiles to the cohorts of a v2 spec, as upstream's converter makes them: three ten-minute
 * windows of a day for plain text, the best-covered window for reasoning models; clients are dealt to the
 * service classes in turn.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import { elementary, GoRandom, type LengthSpec } from '../../random/index.ts';
import type { CohortSpec, ServeGenSpec, SloClass, TrafficSpec } from '../spec/types.ts';
import type { Histogram, ServeGenChunk, ServeGenWindow } from './servegenFiles.ts';

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

/** Start of the lengths that hold at `atS`: the latest not later; undefined when there are none. */
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
