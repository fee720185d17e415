/**
 * The fixed part of generating a workload: prefix tokens first, then one seed for every client that
 * generates, all from the stream `workload-gen`. From a plan the requests can be streamed any number of
 * times, always the same.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import {
  type ArrivalSampler,
  arrivalSampler,
  GoRandom,
  normalizedExponentialGaps,
  PartitionedRandom,
  partitionSeed,
  StreamPool,
} from '../../random/index.ts';
import type { WorkloadRequest } from '../request.ts';
import type { ClientSpec, WorkloadSpec } from '../spec/types.ts';
import { VOCABULARY } from '../tokens/tokens.ts';
import { behavedGaps } from './behavior/index.ts';
import {
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
} from './clients/index.ts';
import { expandClients } from './expand.ts';

const WORKLOAD_STREAM = 'workload-gen';
const DEFAULT_PREFIX_TOKENS = 50;
/** Of all groups together; each one is drawn, ten nanoseconds or so. */
const MAX_PREFIX_TOKENS = 5e8;

export interface Limits {
  /** Arrivals lie before this; Infinity = no horizon. */
  readonly horizonUs: number;
  /** At most so many requests, conversation rounds counted; 0 = no limit. */
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
    throw new TierKVError(
      'TKV_CONFIG',
      `the workload comes to some ${expected.toPrecision(3)} requests, more than ${limits.mostExpected}. ` +
        'Lower num_requests (--num-requests), the horizon or the rate',
      { field: 'num_requests' },
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
  throw new TierKVError(
    'TKV_CONFIG',
    `the workload has no end: client "${endless.id}" is always on. Set num_requests or horizon`,
    { field: 'num_requests' },
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
  const client = new Client(index, spec, prefix, seed, plan.seed, plan.limits.horizonUs, pool, held);
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
