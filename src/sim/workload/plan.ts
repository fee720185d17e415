/**
 * From a spec to requests: cohorts become clients, prefixes and seeds are drawn first, then requests are
 * streamed. From a plan the requests can be streamed any number of times, always the same.
 */

import { namedError, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type {
  ActiveWindow,
  ClientSpec,
  CohortSpec,
  InferencePerfSpec,
  WorkloadSpec,
} from '../description/workloadSpec.ts';
import * as elementary from '../random/elementary.ts';
import { GoRandom, PartitionedRandom, partitionSeed, StreamPool } from '../random/goRand.ts';
import { type ArrivalSampler, arrivalSampler, normalizedExponentialGaps } from '../random/samplers.ts';
import {
  behavedGaps,
  Client,
  type ClientStream,
  ConversationStream,
  clientRatesPerUs,
  EarliestFirst,
  HeldMemory,
  hasWindowParameters,
  NO_PREFIX,
  type Prefix,
  SingleStream,
  WindowedStream,
  WindowRates,
} from './client.ts';
import type { TokenSpan, WorkloadRequest } from './request.ts';
import { VOCABULARY } from './tokens.ts';

// The fixed part: prefix tokens first, then one seed for every client that generates, all from the stream
// `workload-gen`.

const WORKLOAD_STREAM = 'workload-gen';
const DEFAULT_PREFIX_TOKENS = 50;
/** Limit over all groups together; each token is drawn, in ten nanoseconds or so. */
const MAX_PREFIX_TOKENS = 5e8;

export interface Limits {
  /** Arrivals lie before this; Infinity = no horizon. */
  readonly horizonUs: number;
  /** Most requests, conversation rounds counted; 0 = no limit. */
  readonly maxRequests: number;
  /**
   * Whether single requests of windows with parameters of their own keep the prefix and the deadline of their
   * client. Upstream drops both there, so this is off unless asked for.
   */
  readonly keepInWindows?: boolean;
  /** A workload that is expected to have more requests than this is refused before any is drawn. */
  readonly mostExpected?: number;
}

export interface Plan {
  readonly seed: bigint;
  readonly limits: Limits;
  readonly clients: readonly ClientSpec[];
  readonly prefixes: ReadonlyMap<string, Prefix>;
  /** Seed of each client's stream; undefined for clients that draw nothing. */
  readonly seeds: ReadonlyArray<bigint | undefined>;
  /** Requests per µs of each client; zeros where windows have rates of their own. */
  readonly rates: Float64Array;
  readonly windowRates: WindowRates | undefined;
}

/** @throws {TierKVError} when nothing bounds the workload. */
export function planWorkload(spec: WorkloadSpec, limits: Limits): Plan {
  const { clients, aggregateRate } = expandClients(spec);
  const windowed = hasWindowParameters(clients);
  const rates = windowed ? new Float64Array(clients.length) : clientRatesPerUs(clients, aggregateRate);
  const random = new PartitionedRandom(spec.seed).stream(WORKLOAD_STREAM);
  const prefixes = drawPrefixes(clients, random, partitionSeed(spec.seed, WORKLOAD_STREAM));
  const seeds = clients.map((client, i) => {
    const draws = windowed ? client.windows.length > 0 : rates[i] > 0;
    return draws ? random.int63() : undefined;
  });
  requireBound(clients, seeds, limits);
  const expected = expectedRequests(clients, rates, limits);
  if (expected > (limits.mostExpected ?? Infinity)) {
    throw namedError(
      'TKV_CONFIG',
      { field: 'num_requests' },
      (name) =>
        `the workload comes to some ${expected.toPrecision(3)} requests, more than ${limits.mostExpected}. ` +
        `Lower num_requests (${name('workload.requests')}), the horizon or the rate`,
    );
  }
  return {
    seed: spec.seed,
    limits,
    clients,
    prefixes,
    seeds,
    rates,
    windowRates: windowed ? new WindowRates(clients, aggregateRate) : undefined,
  };
}

/** The prefix of every group, as long as its first client says. */
function drawPrefixes(clients: readonly ClientSpec[], random: GoRandom, seed: bigint): Map<string, Prefix> {
  const prefixes = new Map<string, Prefix>();
  let drawn = 0;
  for (const { prefixGroup, prefixLength } of clients) {
    if (prefixGroup === '' || prefixes.has(prefixGroup)) continue;
    const tokens = prefixLength > 0 ? prefixLength : DEFAULT_PREFIX_TOKENS;
    drawn += tokens;
    if (drawn > MAX_PREFIX_TOKENS) {
      const problem = `the groups up to "${prefixGroup}" have more than ${MAX_PREFIX_TOKENS} prefix tokens in all`;
      throw new TierKVError('TKV_INPUT', `${problem}. Take fewer groups or shorter prefixes`, {
        field: 'prefix_length',
      });
    }
    prefixes.set(prefixGroup, { tokens, spans: [{ seed, position: random.position, tokens }] });
    random.skipIntn(tokens, VOCABULARY);
  }
  return prefixes;
}

/** About how many requests come: users in closed loop send one a second, besides the time they think. */
function expectedRequests(clients: readonly ClientSpec[], rates: Float64Array, limits: Limits): number {
  let sum = 0;
  clients.forEach(({ windows, ownArrivals, reasoning, concurrency, thinkTimeUs }, i) => {
    if (concurrency > 0) {
      sum += (concurrency * limits.horizonUs) / (1e6 + thinkTimeUs);
      return;
    }
    const clip = (us: number): number => Math.min(us, limits.horizonUs);
    const always = windows.length === 0;
    const activeUs = always
      ? limits.horizonUs
      : windows.reduce((total, { startUs, endUs }) => total + clip(endUs) - clip(startUs), 0);
    if (ownArrivals?.kind === 'exactly') sum += ownArrivals.requests;
    else if (reasoning?.multiTurn?.singleSession === true) sum += reasoning.multiTurn.maxRounds;
    else {
      const perUs = ownArrivals?.ratePerUs ?? rates[i];
      if (perUs > 0) sum += perUs * activeUs;
    }
    for (const { startUs, endUs, traceRate = 0 } of windows) {
      if (traceRate > 0) sum += (traceRate / 1e6) * (clip(endUs) - clip(startUs));
    }
  });
  return limits.maxRequests > 0 ? Math.min(sum, limits.maxRequests) : sum;
}

function requireBound(clients: readonly ClientSpec[], seeds: Plan['seeds'], limits: Limits): void {
  if (limits.maxRequests > 0 || limits.horizonUs < Infinity) return;
  const endless = clients.find(
    (client, i) =>
      client.concurrency > 0 ||
      (seeds[i] !== undefined &&
        client.windows.length === 0 &&
        client.ownArrivals?.kind !== 'exactly' &&
        client.reasoning?.multiTurn?.singleSession !== true),
  );
  if (endless === undefined) return;
  throw namedError(
    'TKV_CONFIG',
    { field: 'num_requests' },
    (name) =>
      `the workload has no end: client "${endless.id}" is always on. Set num_requests or horizon ` +
      `(${name('workload.requests')}, ${name('horizonUs')})`,
  );
}

/** Streams the requests of one client, or undefined for a client that draws nothing. */
function clientStream(
  plan: Plan,
  index: number,
  pool: StreamPool,
  held: HeldMemory,
): ClientStream | undefined {
  const seed = plan.seeds[index];
  const spec = plan.clients[index];
  if (seed === undefined) return undefined;
  const prefix = plan.prefixes.get(spec.prefixGroup) ?? NO_PREFIX;
  const client = new Client(spec, prefix, seed, plan.seed, plan.limits.horizonUs, pool, held);
  if (plan.windowRates !== undefined)
    return new WindowedStream(client, plan.windowRates, plan.limits.keepInWindows === true);
  const gaps = gapsOf(client, plan.rates[index]);
  if (spec.reasoning?.multiTurn === undefined) return new SingleStream(client, gaps);
  return new ConversationStream(
    client,
    gaps,
    plan.limits.maxRequests > 0 ? plan.limits.maxRequests : Infinity,
  );
}

function gapsOf(client: Client, ratePerUs: number): ArrivalSampler {
  const own = client.spec.ownArrivals;
  if (own === undefined) {
    return behavedGaps(arrivalSampler(client.spec.arrival, ratePerUs), client.spec.behavior);
  }
  // one draw seeds a stream for these gaps, also where the gaps then come from the client's own stream
  const subSeed = client.random.int63();
  return own.kind === 'exactly'
    ? normalizedExponentialGaps(new GoRandom(subSeed), own.requests, own.durationUs)
    : arrivalSampler({ process: 'poisson' }, own.ratePerUs);
}

/**
 * All requests of the plan but those of concurrency clients, merged by arrival (ties: order of clients) and
 * cut.
 */
export class MergedStream {
  readonly #heap = new EarliestFirst<{ request: WorkloadRequest; stream: ClientStream; index: number }>();
  #left: number;

  constructor(plan: Plan, pool: StreamPool = new StreamPool()) {
    this.#left = plan.limits.maxRequests > 0 ? plan.limits.maxRequests : Infinity;
    const held = new HeldMemory();
    for (let index = 0; index < plan.clients.length; index++) {
      const stream = clientStream(plan, index, pool, held);
      const request = stream?.next();
      if (request !== undefined)
        this.#heap.push(request.arrivalUs, index, { request, stream: stream!, index });
    }
  }

  /** The next request with the index of its client, or undefined. */
  next(): { request: WorkloadRequest; index: number } | undefined {
    if (this.#left <= 0 || this.#heap.size === 0) return undefined;
    this.#left--;
    const entry = this.#heap.first;
    const { request, index } = entry;
    requireRepresentable(request);
    const following = this.#left > 0 ? entry.stream.next() : undefined;
    if (following === undefined) this.#heap.pop();
    else {
      entry.request = following;
      this.#heap.replaceFirst(following.arrivalUs, index, entry);
    }
    return { request, index };
  }
}

function requireRepresentable(request: WorkloadRequest): void {
  if (Number.isSafeInteger(request.arrivalUs)) return;
  throw new TierKVError(
    'TKV_INPUT',
    `client "${request.origin.clientId}" has an arrival beyond 2^53 µs (285 years). Raise its rate ` +
      `or set a horizon`,
    { field: 'aggregate_rate' },
  );
}

// From a spec to the flat list of clients that generate: inference_perf and cohorts become clients, in
// upstream's order. Members of one cohort share their windows by reference, which keeps later sums over
// clients linear.

const HOUR_US = 3_600_000_000;
const DRAIN_SEGMENTS = 10;
const MAX_CLIENTS = 500_000;

interface ExpandedSpec {
  readonly clients: readonly ClientSpec[];
  readonly aggregateRate: number;
}

/** All clients of a spec; servegen_data must have been turned into cohorts before. */
export function expandClients(spec: WorkloadSpec): ExpandedSpec {
  const perf = spec.inferencePerf === undefined ? undefined : expandInferencePerf(spec.inferencePerf);
  const members = spec.cohorts.reduce((sum, cohort) => sum + cohort.population, 0);
  requireCount('cohorts', (perf?.clients ?? spec.clients).length + members, 'Lower the populations');
  const clients = [...(perf?.clients ?? spec.clients)];
  for (const cohort of spec.cohorts) for (const member of expandCohort(cohort)) clients.push(member);
  return { clients, aggregateRate: perf?.aggregateRate ?? spec.aggregateRate };
}

function requireCount(field: string, clients: number, remedy: string): void {
  if (clients <= MAX_CLIENTS) return;
  const problem = `${field} asks for ${clients} clients, more than ${MAX_CLIENTS}`;
  throw new TierKVError('TKV_INPUT', `${problem}. ${remedy}`, { field });
}

function expandCohort(cohort: CohortSpec): ClientSpec[] {
  const windows = cohortWindows(cohort);
  const { population, prefixSharing, diurnal: _d, spike: _s, drain: _r, ...traffic } = cohort;
  return Array.from({ length: population }, (_, member) => ({
    ...traffic,
    id: `${cohort.id}-${member}`,
    rateFraction: cohort.rateFraction / population,
    prefixGroup:
      prefixSharing === 'per_member' && cohort.prefixGroup !== ''
        ? `${cohort.prefixGroup}-${member}`
        : cohort.prefixGroup,
    concurrency: 0,
    thinkTimeUs: 0,
    windows,
  }));
}

function cohortWindows(cohort: CohortSpec): ActiveWindow[] {
  const windows: ActiveWindow[] = [];
  if (cohort.diurnal !== undefined)
    windows.push(...diurnalWindows(cohort.diurnal.peakHour, cohort.diurnal.peakToTroughRatio));
  if (cohort.spike !== undefined) {
    const { startUs, durationUs, traceRate } = cohort.spike;
    windows.push({
      startUs,
      endUs: startUs + durationUs,
      ...(traceRate === undefined ? {} : { traceRate: traceRate / cohort.population }),
    });
  }
  if (cohort.drain !== undefined)
    windows.push(...drainWindows(cohort.drain.startUs, cohort.drain.rampDurationUs));
  return windows;
}

/** 24 windows, one an hour, the active share of which follows a cosine with its peak at `peakHour`. */
function diurnalWindows(peakHour: number, peakToTroughRatio: number): ActiveWindow[] {
  checkInputs({ peakHour, peakToTroughRatio }, { peakHour: is.number(), peakToTroughRatio: is.number() });
  return Array.from({ length: 24 }, (_, hour) => {
    const angle = (2 * Math.PI * (hour - peakHour)) / 24;
    const share = ((1 + elementary.cos(angle)) / 2) * (1 - 1 / peakToTroughRatio) + 1 / peakToTroughRatio;
    const activeUs = Math.min(HOUR_US, Math.max(1, Math.trunc(HOUR_US * share)));
    return { startUs: hour * HOUR_US, endUs: hour * HOUR_US + activeUs };
  });
}

/** Always on until `startUs`, then ten segments that are active for 100 %, 90 % … 10 % of their length. */
function drainWindows(startUs: number, rampDurationUs: number): ActiveWindow[] {
  checkInputs({ startUs, rampDurationUs }, { startUs: is.number(), rampDurationUs: is.number() });
  const segmentUs = Math.max(1, Math.trunc(rampDurationUs / DRAIN_SEGMENTS));
  const windows: ActiveWindow[] = startUs > 0 ? [{ startUs: 0, endUs: startUs }] : [];
  for (let i = 0; i < DRAIN_SEGMENTS; i++) {
    const share = (DRAIN_SEGMENTS - i) / DRAIN_SEGMENTS;
    const from = startUs + i * segmentUs;
    windows.push({ startUs: from, endUs: from + Math.max(1, Math.trunc(segmentUs * share)) });
  }
  return windows;
}

/** `total` in `parts` shares that differ by at most one, the larger ones first. */
function evenShares(total: number, parts: number): number[] {
  const base = Math.floor(total / parts);
  return Array.from({ length: parts }, (_, i) => base + (i < total % parts ? 1 : 0));
}

function expandInferencePerf(perf: InferencePerfSpec): ExpandedSpec {
  const perStage = perf.systemPrompts * perf.usersPerPrompt;
  requireCount('inference_perf', perStage * perf.stages.length, 'Lower the prompts or the users');
  const staged = perf.stages.length > 1;
  const clients: ClientSpec[] = [];
  let aggregateRate = 0;
  let startS = 0;
  perf.stages.forEach((stage, s) => {
    aggregateRate += stage.rate;
    const windows = staged ? [{ startUs: startS * 1e6, endUs: (startS + stage.durationS) * 1e6 }] : [];
    startS += stage.durationS;
    const shares = requestShares(perf, stage, s, perStage);
    for (let i = 0; i < perStage; i++) {
      const group = `prompt-${Math.floor(i / perf.usersPerPrompt)}`;
      const id = `${group}-user-${i % perf.usersPerPrompt}`;
      clients.push({
        id: staged ? `stage-${s}-${id}` : id,
        tenantId: group,
        sloClass: 'standard',
        model: '',
        adapter: '',
        rateFraction: staged ? 1 : 1 / perStage,
        arrival: { process: 'poisson' },
        inputLength: { type: 'constant', value: perf.questionTokens },
        outputLength: { type: 'constant', value: perf.outputTokens },
        prefixGroup: group,
        prefixLength: perf.systemPromptTokens,
        streaming: false,
        sloTargetUs: 0,
        concurrency: 0,
        thinkTimeUs: 0,
        windows,
        ...(staged ? { ownArrivals: { kind: 'poisson', ratePerUs: stage.rate / perStage / 1e6 } } : {}),
        ...(!staged && !perf.multiTurn
          ? { ownArrivals: { kind: 'exactly', requests: shares[i], durationUs: stage.durationS * 1e6 } }
          : {}),
        ...(perf.multiTurn
          ? {
              reasoning: {
                reasonRatio: { type: 'constant', value: 0 },
                multiTurn: {
                  maxRounds: shares[i],
                  thinkTimeUs: Math.trunc((perStage / stage.rate) * 1e6),
                  accumulate: false,
                  singleSession: true,
                },
              },
            }
          : {}),
      });
    }
  });
  return { clients, aggregateRate };
}

/** Requests of every client of a stage, where the stage counts them; a client without any is an error. */
function requestShares(
  perf: InferencePerfSpec,
  stage: InferencePerfSpec['stages'][number],
  index: number,
  clients: number,
): number[] {
  if (perf.stages.length > 1 && !perf.multiTurn) return [];
  const requests = Math.trunc(stage.rate * stage.durationS);
  if (requests >= clients && requests <= stage.durationS * 1e6) return evenShares(requests, clients);
  const field = `inference_perf.stages[${index}]`;
  const problem =
    requests < clients
      ? `${requests} requests are fewer than its ${clients} clients`
      : `${requests} requests are more than its microseconds`;
  throw new TierKVError('TKV_INPUT', `${field}: ${problem}. Change rate, duration or the number of users`, {
    field,
  });
}

// Pieces of token streams, cut to a number of tokens.

export function tokensOf(spans: readonly TokenSpan[]): number {
  return spans.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** The spans of the first `tokens` tokens. */
export function leadingSpans(spans: readonly TokenSpan[], tokens: number): TokenSpan[] {
  const leading: TokenSpan[] = [];
  let left = tokens;
  for (const span of spans) {
    if (left <= 0) break;
    leading.push(span.tokens <= left ? span : { ...span, tokens: left });
    left -= span.tokens;
  }
  return leading;
}

/** The spans of the last `tokens` tokens. */
export function trailingSpans(spans: readonly TokenSpan[], tokens: number): TokenSpan[] {
  let skip = Math.max(0, tokensOf(spans) - tokens);
  const trailing: TokenSpan[] = [];
  for (const span of spans) {
    const cut = Math.min(skip, span.tokens);
    skip -= cut;
    if (cut === 0) trailing.push(span);
    else if (cut < span.tokens) {
      trailing.push({ seed: span.seed, position: span.position + cut, tokens: span.tokens - cut });
    }
  }
  return trailing;
}
