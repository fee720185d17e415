/**
 * Workloads without a file: named presets, distributions given by numbers, and load profiles that change
 * the rate over time. Four presets are upstream's (Apache-2.0, `data/workload-presets/`); `chat` has conversations.
 */

import { configError, namedError, nearestName, requireInteger } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import type { ActiveWindow, ClientSpec, WorkloadSpec } from '../description/workloadSpec.ts';
import * as elementary from '../random/elementary.ts';
import { expandClients } from './plan.ts';
import { maxRequestTokens } from './request.ts';

// One client with constant arrivals and Gaussian lengths.

export interface LengthRange {
  readonly mean: number;
  readonly stdDev: number;
  readonly min: number;
  readonly max: number;
  /** Whether each length from `min` to `max` is as likely, in place of a bell around the mean. */
  readonly isEven?: true;
}

interface DistributionOptions {
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
  /** Where requests are rounds of conversations, each of which repeats the rounds before. */
  readonly conversation?: Conversation;
}

const distributionOptionsTable = optionTable({
  rate: is.optional(is.passed()),
  concurrency: is.optional(is.integer(0, 10_000_000), 0),
  thinkTimeMs: is.optional(is.integer(0, 2 ** 40)),
  numRequests: is.optional(is.integer(0), 100),
  prefixTokens: is.optional(is.passed()),
  prompt: is.optional(is.passed()),
  output: is.optional(is.passed()),
  seed: is.optional(is.passed()),
  timeoutS: is.optional(is.passed()),
  conversation: is.optional(is.passed()),
} satisfies Kinds<DistributionOptions>);

interface Conversation {
  /** Requests of each conversation. */
  readonly rounds: number;
  /** From an answer to the next question. */
  readonly thinkTimeMs: number;
  /** Tokens of the system prompt, which all conversations begin with. */
  readonly systemTokens: number;
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

/**
 * Conversations, so that tiers below GPU memory have something to do: what a user reads for two minutes leaves GPU memory
 * and is asked for again. Answers are those of Azure's conversations of 2023 (19,366 requests, CC-BY 4.0: mean 211 tokens,
 * deviation 163, at most 1,000); questions and pauses those of Mooncake's conversations (12,031 requests, Apache-2.0: where a
 * prompt goes on from another one, the medians are 37 new tokens and 126 s from request to request). Six rounds are ShareGPT's
 * 5.75 (Gao et al., Cost-Efficient Large Language Model Serving for Multi-turn Conversations with CachedAttention, USENIX ATC
 * 2024). The system prompt makes the mean prompt of all rounds as long as Azure's, 1,155 tokens. A test takes all of these out of
 * the traces again.
 */
const chat: Pick<DistributionOptions, 'prompt' | 'output' | 'conversation'> = {
  prompt: range(37, 30, 2, 1000),
  output: range(211, 163, 1, 1000),
  conversation: { rounds: 6, thinkTimeMs: 126_000, systemTokens: 500 },
};

const conversationPresets: Readonly<Record<string, typeof chat>> = { chat };

/** Whether requests of a preset are rounds of conversations. */
export function isConversation(name: unknown): boolean {
  return typeof name === 'string' && Object.hasOwn(conversationPresets, name);
}

/** All names that `presetLengths` knows. */
export const presetNames: readonly string[] = [
  ...Object.keys(conversationPresets),
  ...Object.keys(PRESETS),
  'distribution',
];

/** The options of `distribution` mode for a preset name; `distribution` itself is the default lengths. */
export function presetLengths(name: string): Pick<DistributionOptions, 'prompt' | 'output' | 'conversation'> {
  checkInputs({ name }, { name: is.text() });
  if (name === 'distribution') return {};
  if (Object.hasOwn(conversationPresets, name)) return conversationPresets[name];
  if (Object.hasOwn(PRESETS, name)) return PRESETS[name];
  const near = nearestName(name, presetNames);
  const meant = near === undefined ? '' : `Did you mean "${near}"? `;
  throw namedError('TKV_CONFIG', { field: 'preset' }, (called) => {
    return `${called('preset')} is "${name}", which is not a preset. ${meant}Valid: ${presetNames.join(', ')}`;
  });
}

/** @param side the field of the lengths */
function requireRange(side: 'prompt' | 'output', lengths: LengthRange): void {
  requireInteger(`${side}.min`, lengths.min, 0, maxRequestTokens);
  requireInteger(`${side}.max`, lengths.max, lengths.min, maxRequestTokens);
  for (const part of ['mean', 'stdDev'] as const) {
    const value = lengths[part];
    if (part !== 'mean' && value === 0) continue;
    if (value >= lengths.min && value <= lengths.max) continue;
    throw configError(
      `${side}.${part}`,
      `is ${value}, outside [${lengths.min}, ${lengths.max}]`,
      (name) => `Move it inside, or widen ${name(`${side}.min`)} and ${name(`${side}.max`)}.`,
    );
  }
}

const maxTimeoutS = 1e9;

/** Timeouts in µs as every client of a spec gets them when asked for by option: negative = none. */
function timeoutUsOf(timeoutS: number): number {
  checkInputs({ timeoutS }, { timeoutS: is.number() });
  if (timeoutS === 0 || !(timeoutS <= maxTimeoutS)) {
    throw configError(
      'timeoutS',
      `is ${timeoutS}`,
      `Give seconds above 0 and at most ${maxTimeoutS}, or a negative number for no timeout.`,
    );
  }
  return timeoutS < 0 ? 0 : Math.trunc(timeoutS * 1e6);
}

/** The spec of upstream's `distribution` mode. */
export function distributionSpec(options: DistributionOptions): WorkloadSpec {
  checkInputs({ options }, { options: is.object() });
  const read = distributionOptionsTable.read(options);
  checkInputs(options, {
    rate: is.optional(is.number()),
    prompt: is.optional(is.object()),
    output: is.optional(is.object()),
    seed: is.optional(is.bigint()),
    timeoutS: is.optional(is.number()),
    conversation: is.optional(is.object()),
  });
  const prompt = options.prompt ?? DEFAULT_LENGTHS;
  const output = options.output ?? DEFAULT_LENGTHS;
  requireRange('prompt', prompt);
  requireRange('output', output);
  const concurrency = read.concurrency;
  const rate = options.rate ?? 1;
  if (concurrency > 0 && options.rate !== undefined) {
    throw configError('concurrency', (name) => `excludes ${name('rate')}`, 'Keep one of them.');
  }
  if (!(rate > 0 && rate <= maxRatePerS)) {
    throw configError(
      'rate',
      `is ${rate}`,
      `Set it to requests per second above 0 and at most ${maxRatePerS}.`,
    );
  }
  const { conversation } = options;
  if (concurrency > 0 && conversation !== undefined) {
    const problem = 'counts users of single requests, and this preset has conversations';
    throw configError('concurrency', problem, (name) => `Give the load by ${name('rate')}.`);
  }
  const rounds = conversation?.rounds ?? 1;
  const thinkTimeMs = options.thinkTimeMs ?? conversation?.thinkTimeMs ?? 0;
  const thinkTimeUs = thinkTimeMs * 1000;
  const prefixTokens = requireInteger(
    'prefixTokens',
    options.prefixTokens ?? conversation?.systemTokens ?? 0,
    0,
    maxRequestTokens,
  );
  const drawn = ({ mean, stdDev, min, max, isEven }: LengthRange): ClientSpec['inputLength'] =>
    isEven === true
      ? { type: 'empirical', bins: Array.from({ length: max - min + 1 }, (_, i) => [min + i, 1] as const) }
      : { type: 'gaussian', mean, std_dev: stdDev, min, max };
  const client: ClientSpec = {
    id: conversation === undefined ? 'distribution' : 'chat',
    tenantId: '',
    sloClass: '',
    model: '',
    adapter: '',
    rateFraction: concurrency > 0 ? 0 : 1,
    arrival: { process: conversation === undefined ? 'constant' : 'poisson' },
    inputLength: drawn(prompt),
    outputLength: drawn(output),
    prefixGroup: prefixTokens > 0 ? 'shared' : '',
    prefixLength: prefixTokens,
    streaming: false,
    sloTargetUs: 0,
    timeoutUs: timeoutUsOf(options.timeoutS ?? DEFAULT_TIMEOUT_S),
    concurrency,
    thinkTimeUs: conversation === undefined ? thinkTimeUs : 0,
    windows: [],
    ...(conversation === undefined
      ? {}
      : {
          reasoning: {
            multiTurn: { maxRounds: rounds, thinkTimeUs, accumulate: true, singleSession: false },
          },
        }),
  };
  return {
    seed: options.seed ?? 42n,
    category: 'language',
    // of conversations, where there are any: each brings its rounds
    aggregateRate: concurrency > 0 ? 0 : rate / rounds,
    horizonUs: Infinity,
    numRequests: read.numRequests,
    goodputSloTargets: {},
    clients: [client],
    cohorts: [],
  };
}

/** A spec in which every client has this timeout, as an option on the command line sets it. */
export function withTimeout(spec: WorkloadSpec, timeoutS: number): WorkloadSpec {
  checkInputs(
    { spec, timeoutS },
    { spec: is.fields({ seed: is.bigint(), category: is.text() }), timeoutS: is.number() },
  );
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

// Load profiles: how the rate of a workload changes over time, as windows that carry their own rates. A
// profile turns any spec into one whose aggregate follows it, in upstream's terms only, so the result can be
// written as a v2 spec.

/** Rates in requests per second, times in seconds. */
type LoadProfile =
  | { kind: 'constant'; rate: number; durationS: number }
  | { kind: 'step'; from: number; to: number; atS: number; durationS: number }
  | { kind: 'ramp'; from: number; to: number; durationS: number; segments: number }
  | { kind: 'diurnal'; peak: number; trough: number; periodS: number; durationS: number; segments: number }
  | { kind: 'spike'; rate: number; peak: number; atS: number; spikeS: number; durationS: number };

interface Segment {
  readonly startS: number;
  readonly endS: number;
  readonly rate: number;
}

function segmentsOf(profile: LoadProfile): Segment[] {
  const { durationS } = profile;
  const equal = (count: number, rate: (middleS: number) => number): Segment[] =>
    Array.from({ length: count }, (_, i) => {
      const startS = (durationS * i) / count;
      const endS = (durationS * (i + 1)) / count;
      return { startS, endS, rate: rate((startS + endS) / 2) };
    });
  switch (profile.kind) {
    case 'constant':
      return [{ startS: 0, endS: durationS, rate: profile.rate }];
    case 'step':
      return [
        { startS: 0, endS: profile.atS, rate: profile.from },
        { startS: profile.atS, endS: durationS, rate: profile.to },
      ];
    case 'ramp':
      return equal(profile.segments, (s) => profile.from + ((profile.to - profile.from) * s) / durationS);
    case 'diurnal':
      return equal(profile.segments, (s) => {
        const phase = elementary.cos((2 * Math.PI * (s % profile.periodS)) / profile.periodS);
        return profile.trough + ((profile.peak - profile.trough) * (1 - phase)) / 2;
      });
    case 'spike':
      return [
        { startS: 0, endS: profile.atS, rate: profile.rate },
        { startS: profile.atS, endS: profile.atS + profile.spikeS, rate: profile.peak },
        { startS: profile.atS + profile.spikeS, endS: durationS, rate: profile.rate },
      ];
  }
}

/**
 * The windows of a profile for a client with a share of its rate. Empty segments and rates of 0 give none.
 */
function profileWindows(profile: LoadProfile, share: number = 1): ActiveWindow[] {
  checkInputs({ profile, share }, { profile: is.fields({ kind: is.text() }), share: is.number() });
  return segmentsOf(profile)
    .map(({ startS, endS, rate }) => ({
      startUs: Math.round(startS * 1e6),
      endUs: Math.round(endS * 1e6),
      traceRate: rate * share,
    }))
    .filter((window) => window.endUs > window.startUs && window.traceRate > 0);
}

/**
 * The spec with its aggregate rate replaced by a profile; shares between clients stay, their own windows go.
 */
export function withProfile(spec: WorkloadSpec, profile: LoadProfile): WorkloadSpec {
  checkInputs(
    { spec, profile },
    { spec: is.fields({ seed: is.bigint(), category: is.text() }), profile: is.fields({ kind: is.text() }) },
  );
  if (spec.cohorts.length > 0 || spec.inferencePerf !== undefined || spec.servegen !== undefined) {
    throw configError(
      'profile',
      'applies to clients only',
      'Leave cohorts, inference_perf and servegen_data out.',
    );
  }
  const total = spec.clients.reduce((sum, client) => sum + client.rateFraction, 0);
  return {
    ...spec,
    aggregateRate: 0,
    clients: spec.clients.map((client) =>
      client.concurrency > 0
        ? client
        : { ...client, windows: profileWindows(profile, client.rateFraction / total) },
    ),
  };
}

const FIELDS: Readonly<Record<LoadProfile['kind'], Readonly<Record<string, number | undefined>>>> = {
  constant: { rate: undefined, duration: undefined },
  step: { from: undefined, to: undefined, at: undefined, duration: undefined },
  ramp: { from: undefined, to: undefined, duration: undefined, segments: 20 },
  diurnal: { peak: undefined, trough: undefined, period: 86_400, duration: 86_400, segments: 48 },
  spike: { rate: undefined, peak: undefined, at: undefined, spike: undefined, duration: undefined },
};

const rates: readonly string[] = ['rate', 'from', 'to', 'peak', 'trough'];
/** Arrivals lie at least a microsecond apart. */

/** Thirty years. */
const maxSeconds = 1e9;

/**
 * Reads `kind:key=value,…`, rates in requests per second and times in seconds, as
 * `ramp:from=2,to=20,duration=600`.
 * @throws {TierKVError} TKV_CONFIG naming the key, with the nearest valid one.
 */
export function parseProfile(text: string): LoadProfile {
  checkInputs({ text }, { text: is.text() });
  const [kindText, list = ''] = text.split(':', 2);
  const kinds = Object.keys(FIELDS);
  if (!kinds.includes(kindText)) {
    const near = nearestName(kindText, kinds);
    throw configError(
      'profile',
      `names "${kindText}"`,
      `${near === undefined ? '' : `Did you mean "${near}"? `}Valid: ${kinds.join(', ')}.`,
    );
  }
  const kind = kindText as LoadProfile['kind'];
  const known = FIELDS[kind];
  const values: Record<string, number> = {};
  for (const pair of list.split(',').filter((part) => part.trim() !== '')) {
    const [key, value = ''] = pair.split('=', 2).map((part) => part.trim());
    if (!Object.hasOwn(known, key)) {
      const near = nearestName(key, Object.keys(known));
      throw configError(
        'profile',
        `has the key "${key}"`,
        `${near === undefined ? '' : `Did you mean "${near}"? `}${kind} takes: ` +
          `${Object.keys(known).join(', ')}.`,
      );
    }
    const number = value === '' ? Number.NaN : Number(value);
    const most = rates.includes(key) ? maxRatePerS : maxSeconds;
    if (!(number >= 0 && number <= most))
      throw configError('profile', `has ${key}=${value}`, `Set ${key} to a number from 0 to ${most}.`);
    values[key] = number;
  }
  const get = (key: string): number => {
    const value = values[key] ?? known[key];
    if (value === undefined)
      throw configError('profile', `lacks ${key}`, `${kind} takes: ${Object.keys(known).join(', ')}.`);
    return value;
  };
  const durationS = get('duration');
  const inside = (key: string, atS: number): number => {
    if (atS <= durationS) return atS;
    throw configError(
      'profile',
      `has ${key} at ${atS} s, after the end at ${durationS} s`,
      'Let the profile last longer.',
    );
  };
  if (durationS <= 0) throw configError('profile', 'has duration=0', 'Set duration to seconds above 0.');
  switch (kind) {
    case 'constant':
      return { kind, rate: get('rate'), durationS };
    case 'step':
      return { kind, from: get('from'), to: get('to'), atS: inside('at', get('at')), durationS };
    case 'ramp':
      return { kind, from: get('from'), to: get('to'), durationS, segments: wholeSegments(get('segments')) };
    case 'diurnal':
      return {
        kind,
        peak: get('peak'),
        trough: get('trough'),
        periodS: get('period') || durationS,
        durationS,
        segments: wholeSegments(get('segments')),
      };
    case 'spike': {
      inside('spike', get('at') + get('spike'));
      return { kind, rate: get('rate'), peak: get('peak'), atS: get('at'), spikeS: get('spike'), durationS };
    }
  }
}

function wholeSegments(value: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= 100_000) return value;
  throw configError('profile', `has segments=${value}`, 'Set segments to an integer from 1 to 100000.');
}
