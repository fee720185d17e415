/**
 * Workloads without a file: one client with constant arrivals and Gaussian lengths, from numbers or from a
 * named preset. The four presets are upstream's (Apache-2.0, `data/workload-presets/`).
 */

import { configError, requireInteger, TierKVError } from '../../runtime/errors.ts';
import { nearestName } from '../../runtime/nearestName.ts';
import { expandClients } from './generate/expand.ts';
import { maxRequestTokens } from './request.ts';
import type { ClientSpec, WorkloadSpec } from './spec/types.ts';

export interface LengthRange {
  readonly mean: number;
  readonly stdDev: number;
  readonly min: number;
  readonly max: number;
}

export interface DistributionOptions {
  /** Requests per second; exclusive with `concurrency`. */
  readonly rate?: number;
  readonly concurrency?: number;
  readonly thinkTimeMs?: number;
  readonly numRequests?: number;
  readonly prefixTokens?: number;
  readonly prompt?: LengthRange;
  readonly output?: LengthRange;
  readonly seed?: bigint;
  /** Seconds until a request is given up; negative = never. */
  readonly timeoutS?: number;
}

const range = (mean: number, stdDev: number, min: number, max: number): LengthRange => ({
  mean,
  stdDev,
  min,
  max,
});

const DEFAULT_LENGTHS: LengthRange = range(512, 256, 2, 7000);
const DEFAULT_TIMEOUT_S = 300;
/** Arrivals lie at least a microsecond apart. */
const maxRatePerS = 1e6;

export const PRESETS: Readonly<
  Record<string, { readonly prompt: LengthRange; readonly output: LengthRange }>
> = {
  chatbot: { prompt: range(256, 100, 2, 800), output: range(256, 100, 1, 1024) },
  contentgen: { prompt: range(1024, 150, 10, 2048), output: range(1024, 200, 10, 2048) },
  summarization: { prompt: range(4096, 500, 100, 8192), output: range(512, 150, 10, 2048) },
  multidoc: { prompt: range(10240, 1200, 500, 20480), output: range(1536, 300, 50, 4096) },
};

/** The options of `distribution` mode for a preset name; `distribution` itself is the default lengths. */
export function presetLengths(name: string): Pick<DistributionOptions, 'prompt' | 'output'> {
  if (name === 'distribution') return {};
  if (Object.hasOwn(PRESETS, name)) return PRESETS[name];
  const names = [...Object.keys(PRESETS), 'distribution'];
  const near = nearestName(name, names);
  throw new TierKVError(
    'TKV_CONFIG',
    `--workload is "${name}", which is no preset. ` +
      `${near === undefined ? '' : `Did you mean "${near}"? `}Valid: ${names.join(', ')}`,
    { field: '--workload' },
  );
}

/** @param field the option of the mean; those of the others begin with it. */
function requireRange(field: string, lengths: LengthRange): void {
  requireInteger(`${field}-min`, lengths.min, 0, maxRequestTokens);
  requireInteger(`${field}-max`, lengths.max, lengths.min, maxRequestTokens);
  for (const [option, value] of [
    [field, lengths.mean],
    [`${field}-stdev`, lengths.stdDev],
  ] as const) {
    if (option !== field && value === 0) continue;
    if (value >= lengths.min && value <= lengths.max) continue;
    throw configError(
      option,
      `is ${value}, outside [${lengths.min}, ${lengths.max}]`,
      `Move it inside, or widen ${field}-min and ${field}-max.`,
    );
  }
}

const maxTimeoutS = 1e9;

/** Timeouts in µs as every client of a spec gets them when asked for by option: negative = none. */
export function timeoutUsOf(timeoutS: number): number {
  if (timeoutS === 0 || !(timeoutS <= maxTimeoutS)) {
    throw configError(
      '--timeout',
      `is ${timeoutS}`,
      `Give seconds above 0 and at most ${maxTimeoutS}, or a negative number for no timeout.`,
    );
  }
  return timeoutS < 0 ? 0 : Math.trunc(timeoutS * 1e6);
}

/** The spec of upstream's `distribution` mode. */
export function distributionSpec(options: DistributionOptions): WorkloadSpec {
  const prompt = options.prompt ?? DEFAULT_LENGTHS;
  const output = options.output ?? DEFAULT_LENGTHS;
  requireRange('--prompt-tokens', prompt);
  requireRange('--output-tokens', output);
  const concurrency = requireInteger('--concurrency', options.concurrency ?? 0, 0, 10_000_000);
  const rate = options.rate ?? 1;
  if (concurrency > 0 && options.rate !== undefined) {
    throw configError('--concurrency', 'excludes --rate', 'Keep one of them.');
  }
  if (!(rate > 0 && rate <= maxRatePerS)) {
    throw configError(
      '--rate',
      `is ${rate}`,
      `Set it to requests per second above 0 and at most ${maxRatePerS}.`,
    );
  }
  const prefixTokens = requireInteger('--prefix-tokens', options.prefixTokens ?? 0, 0, maxRequestTokens);
  const gaussian = (lengths: LengthRange): ClientSpec['inputLength'] => ({
    type: 'gaussian',
    mean: lengths.mean,
    std_dev: lengths.stdDev,
    min: lengths.min,
    max: lengths.max,
  });
  const client: ClientSpec = {
    id: 'distribution',
    tenantId: '',
    sloClass: '',
    model: '',
    adapter: '',
    rateFraction: concurrency > 0 ? 0 : 1,
    arrival: { process: 'constant' },
    inputLength: gaussian(prompt),
    outputLength: gaussian(output),
    prefixGroup: prefixTokens > 0 ? 'shared' : '',
    prefixLength: prefixTokens,
    streaming: false,
    sloTargetUs: 0,
    timeoutUs: timeoutUsOf(options.timeoutS ?? DEFAULT_TIMEOUT_S),
    concurrency,
    thinkTimeUs: requireInteger('--think-time-ms', options.thinkTimeMs ?? 0, 0, 2 ** 40) * 1000,
    windows: [],
  };
  return {
    seed: options.seed ?? 42n,
    category: 'language',
    aggregateRate: concurrency > 0 ? 0 : rate,
    horizonUs: Infinity,
    numRequests: requireInteger('--num-requests', options.numRequests ?? 100, 0),
    goodputSloTargets: {},
    clients: [client],
    cohorts: [],
  };
}

/** A spec in which every client has this timeout, as an option on the command line sets it. */
export function withTimeout(spec: WorkloadSpec, timeoutS: number): WorkloadSpec {
  const timeoutUs = timeoutUsOf(timeoutS);
  const { inferencePerf, ...rest } = spec;
  const { clients, aggregateRate } = expandClients({ ...spec, cohorts: [] });
  return {
    ...rest,
    aggregateRate,
    clients: clients.map((client) => ({ ...client, timeoutUs })),
    cohorts: spec.cohorts.map((cohort) => ({ ...cohort, timeoutUs })),
  };
}
