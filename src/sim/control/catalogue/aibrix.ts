/** AIBrix's rules that go by what requests turned out to be like on each instance. */

import type { Stateful } from '../../../runtime/snapshot.ts';
import type { GoRandom } from '../../random/goRand.ts';
import { kvUtilization } from '../admission.ts';
import { type InstanceSnapshot, type RequestOutcome, visitStream } from '../policy.ts';
import type { PolicyEntry } from '../registry.ts';
import { OutcomeMeans, RecentAmounts } from '../routing/memory.ts';
import type { Picker, RoutingContext, RoutingPolicy } from '../routing/routingPolicy.ts';
import { prebleEntry } from './preble.ts';
import {
  inFlightOf,
  memoryRules,
  numberRule,
  pickerOf,
  positiveRule,
  RememberingRule,
  ScoredRule,
  type Taken,
  tiesRule,
  wholeRule,
} from './rule.ts';

abstract class ByOutcomes extends ScoredRule {
  protected readonly means: OutcomeMeans;

  constructor(picker: Picker) {
    const means = new OutcomeMeans();
    super(picker, [means]);
    this.means = means;
  }

  protected override take({ candidates }: RoutingContext, scores: Float64Array): Taken {
    const cost = ({ instance }: { instance: number }): number => this.cost(instance);
    return { index: this.least(candidates, scores, cost), reason: 'by ended requests' };
  }

  protected abstract cost(instance: number): number;

  completed(outcome: RequestOutcome): void {
    this.means.completed(outcome);
  }

  removed(instance: number): void {
    this.means.removed(instance);
  }
}

/** AIBrix: the least 2 x mean prompt + mean output of its requests, in tokens. */
class AibrixThroughput extends ByOutcomes {
  override readonly name: string = 'aibrix-throughput';

  protected override cost(instance: number): number {
    const { promptTokens, outputTokens } = this.means.of(instance);
    return 2 * promptTokens + outputTokens;
  }
}

/**
 * AIBrix: the least time to the first token and decode time, each of the instance's mean request and scaled
 * to the mean lengths over all: TTFT / prompt x all prompts + decode / output x all outputs. The time in the
 * queue is part of the TTFT here. An instance without ended requests costs 0.
 */
class AibrixLeastLatency extends ByOutcomes {
  override readonly name: string = 'aibrix-least-latency';

  protected override cost(instance: number): number {
    const { requests, promptTokens, outputTokens, ttftUs, decodeUs } = this.means.of(instance);
    if (requests === 0) return 0;
    const all = this.means.overall;
    const prefill = (ttftUs / Math.max(1, promptTokens)) * all.promptTokens;
    return prefill + (decodeUs / Math.max(1, outputTokens)) * all.outputTokens;
  }
}

//  AIBrix's rules for prefill and decode pods: the least of two costs, and of two predicted times.

/** A rule that counts the output tokens of the requests that ended on each instance in a window. */
abstract class ByOutput extends RememberingRule {
  override readonly readsReports: boolean = true;
  protected readonly output: RecentAmounts;

  constructor(windowUs: number, picker: Picker, memoryBlocks: number) {
    const output = new RecentAmounts(windowUs);
    super(picker, memoryBlocks, [output]);
    this.output = output;
  }

  completed({ instance, outputTokens, nowUs }: RequestOutcome): void {
    this.output.add(instance, outputTokens, nowUs);
  }
}

/** Free share of an instance that is full, so that a cost stays finite. */
const FULL = 1e-6;

/**
 * Two costs, of which each is the least. Prefill: (100 - match %) x 0.1 + f / max f. Decode:
 * (f / max f + 1 - t / max t) / (free / max free), with t the output tokens of the requests that ended there
 * in the window and free the share of HBM that no request holds. An instance that does both has the sum.
 * Maxima of 0 count as 1.
 */
class AibrixPd extends ByOutput {
  override readonly name: string = 'aibrix-pd';

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { request, candidates, router } = context;
    const matches = this.matches(context);
    const output = candidates.map(({ instance }) => this.output.sum(instance, router.nowUs));
    const free = candidates.map((instance) => Math.max(FULL, 1 - kvUtilization(instance)));
    const mostInFlight = Math.max(...candidates.map(inFlightOf)) || 1;
    const mostOutput = Math.max(...output) || 1;
    const mostFree = Math.max(...free);
    const cost = ({ role, inFlight }: InstanceSnapshot, i: number): number => {
      const load = inFlight / mostInFlight;
      const match = (100 * matches[i]) / Math.max(1, request.promptBlocks);
      const prefill = (100 - match) * 0.1 + load;
      const decode = (load + 1 - output[i] / mostOutput) / (free[i] / mostFree);
      return (role === 'decode' ? 0 : prefill) + (role === 'prefill' ? 0 : decode);
    };
    return { index: this.least(candidates, scores, cost), reason: 'least cost' };
  }
}

/** Microseconds; each fixed part counts where there are such tokens. */
interface ConductorTimes {
  /** hitUs x cached tokens + hitFixedUs. */
  readonly hitUs: number;
  readonly hitFixedUs: number;
  /** missUs x uncached tokens^1.5 + missFixedUs. */
  readonly missUs: number;
  readonly missFixedUs: number;
}

/** Prompt whose time counts for a request on an instance that has reported none. */
const UNKNOWN_TOKENS = 512;
/** Assumed time between tokens of an instance without output tokens. */
const UNKNOWN_TBT_US = 20_000;
const PRESSED_FROM = 0.9;
const PRESSURE = 1.5;

/**
 * "conductor", of which each is the least. Prefill: the predicted time to the first token, requests in
 * flight x the mean time that the instance reported of its recent ones, and what the cached and the uncached
 * tokens take. Decode: the predicted time between tokens with one request more, 1 / throughput x (1 + 1 / f), x 1.5
 * where requests hold more than 0.9 of HBM. An instance that does both has the sum. AIBrix has the mean time
 * of prefill; the time in the queue is part of the mean here, as instances report it.
 */
class AibrixConductor extends ByOutput {
  override readonly name: string = 'aibrix-pd-conductor';
  readonly #times: ConductorTimes;
  readonly #windowUs: number;
  readonly #blockTokens: number;

  constructor(
    times: ConductorTimes,
    windowUs: number,
    blockTokens: number,
    picker: Picker,
    memoryBlocks: number,
  ) {
    super(windowUs, picker, memoryBlocks);
    this.#times = times;
    this.#windowUs = windowUs;
    this.#blockTokens = blockTokens;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { request, candidates, router } = context;
    const matches = this.matches(context);
    const cost = (instance: InstanceSnapshot, i: number): number => {
      const cached = matches[i] * this.#blockTokens;
      const { role } = instance;
      const ttftUs = role === 'decode' ? 0 : this.#ttftUs(instance, cached, request.promptTokens - cached);
      return ttftUs + (role === 'prefill' ? 0 : this.#tbtUs(instance, router.nowUs));
    };
    return { index: this.least(candidates, scores, cost), reason: 'least time' };
  }

  #ttftUs({ inFlight, recentTtftUs }: InstanceSnapshot, cached: number, uncached: number): number {
    const { hitUs, hitFixedUs } = this.#times;
    const before = inFlight * (recentTtftUs > 0 ? recentTtftUs : this.#missedUs(UNKNOWN_TOKENS));
    return before + (cached > 0 ? hitUs * cached + hitFixedUs : 0) + this.#missedUs(uncached);
  }

  #missedUs(tokens: number): number {
    const { missUs, missFixedUs } = this.#times;
    return tokens > 0 ? missUs * tokens * Math.sqrt(tokens) + missFixedUs : 0;
  }

  #tbtUs(instance: InstanceSnapshot, nowUs: number): number {
    const tokens = this.output.sum(instance.instance, nowUs);
    const tbtUs = tokens > 0 ? this.#windowUs / tokens : UNKNOWN_TBT_US;
    const withOneMore = tbtUs * (1 + 1 / Math.max(1, instance.inFlight));
    return kvUtilization(instance) > PRESSED_FROM ? PRESSURE * withOneMore : withOneMore;
  }
}

//  AIBrix's prefix-cache routing. "Running" is there what the gateway has in flight on a pod, as it is here.

/**
 * Where max - min in flight is above `imbalance`, the fewest in flight. Else the longest match among those
 * with no more in flight than mean + `deviations` x standard deviation, of equal matches the fewest in
 * flight; without one, the fewest in flight.
 */
class AibrixPrefixCache extends RememberingRule {
  override readonly name: string = 'aibrix-prefix-cache';
  readonly #imbalance: number;
  readonly #deviations: number;

  constructor(imbalance: number, deviations: number, picker: Picker, memoryBlocks: number) {
    super(picker, memoryBlocks);
    this.#imbalance = imbalance;
    this.#deviations = deviations;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { candidates } = context;
    const loads = candidates.map(inFlightOf);
    if (Math.max(...loads) - Math.min(...loads) > this.#imbalance) {
      return { index: this.least(candidates, scores, inFlightOf), reason: 'unbalanced' };
    }
    const mean = loads.reduce((sum, load) => sum + load, 0) / loads.length;
    const variance = loads.reduce((sum, load) => sum + (load - mean) * (load - mean), 0) / loads.length;
    const most = mean + this.#deviations * Math.sqrt(variance);
    const matches = this.matches(context).map((blocks, i) => (loads[i] <= most ? blocks : 0));
    const longest = Math.max(...matches);
    const isLongest = (_: unknown, i: number): boolean => longest > 0 && matches[i] === longest;
    const index = this.least(candidates, scores, inFlightOf, isLongest);
    return { index, reason: longest > 0 ? 'longest match' : 'no match' };
  }
}

//  AIBrix's token counter of tenants, its basic variant.

interface VtcWeights {
  readonly fairness: number;
  readonly utilization: number;
  readonly promptWeight: number;
  readonly outputWeight: number;
  /** Requests in flight at which an instance counts as full. */
  readonly maxLoad: number;
  /** Least width of a step of the tenant's tokens from one instance to the next. */
  readonly minTokens: number;
  readonly jitter: number;
}

/**
 * The least wf x |i - clamp(tokens / bucket, 0, n - 1)| + wu x min(in flight / maxLoad, 1) + U(0, jitter) for
 * the i-th instance. tokens: of the tenant's requests that ended in the window, weighted; bucket: halfway
 * between the least and the most of all tenants, at least `minTokens`. The jitter comes from the router's
 * stream under the key of the simulation.
 */
class AibrixVtc extends ScoredRule {
  override readonly name: string = 'aibrix-vtc-basic';
  readonly #weights: VtcWeights;
  readonly #tokens: RecentAmounts;
  readonly #random: GoRandom;

  constructor(weights: VtcWeights, windowUs: number, picker: Picker, random: GoRandom) {
    const tokens = new RecentAmounts(windowUs);
    super(picker, [tokens, ofStream(random)]);
    this.#weights = weights;
    this.#tokens = tokens;
    this.#random = random;
  }

  protected override take({ request, candidates, router }: RoutingContext, scores: Float64Array): Taken {
    const { fairness, utilization, maxLoad, minTokens, jitter } = this.#weights;
    const all = this.#tokens.sums(router.nowUs);
    const middle = all.length === 0 ? 0 : (Math.min(...all) + Math.max(...all)) / 2;
    const place = this.#tokens.sum(request.tenantId, router.nowUs) / Math.max(minTokens, middle);
    const wanted = Math.min(candidates.length - 1, Math.max(0, place));
    const cost = ({ inFlight }: InstanceSnapshot, i: number): number =>
      fairness * Math.abs(i - wanted) +
      utilization * Math.min(inFlight / maxLoad, 1) +
      (jitter > 0 ? jitter * this.#random.float64() : 0);
    return { index: this.least(candidates, scores, cost), reason: 'fair place and load' };
  }

  completed({ request, outputTokens, nowUs }: RequestOutcome): void {
    const { promptWeight, outputWeight } = this.#weights;
    const tokens = promptWeight * request.promptTokens + outputWeight * outputTokens;
    this.#tokens.add(request.tenantId, tokens, nowUs);
  }
}

function ofStream(random: GoRandom): Stateful {
  return { visitState: (visitor) => visitStream(visitor, random) };
}

function prefixCache(
  name: string,
  about: string,
  imbalance: number,
  deviations: number,
): PolicyEntry<RoutingPolicy> {
  return {
    name,
    about,
    readsKeys: true,
    readsReports: false,
    parameters: { imbalance: wholeRule(imbalance), deviations: numberRule(deviations), ...memoryRules },
    make: (p, world) =>
      new AibrixPrefixCache(
        p.number('imbalance'),
        p.number('deviations'),
        pickerOf(p, world),
        p.number('memoryBlocks'),
      ),
  };
}

/** Routing rules of AIBrix. */
export const aibrixRules: readonly PolicyEntry<RoutingPolicy>[] = [
  prefixCache('aibrix-prefix-cache', 'AIBrix: the longest match among those not overloaded', 8, 1),
  prefixCache('aibrix-prefix-cache-readme', 'the same with the figures of its README', 16, 2),
  prebleEntry(
    'aibrix-preble',
    'aibrix',
    'AIBrix: where more than half of the prompt is cached, else least cost',
  ),
  {
    name: 'aibrix-vtc-basic',
    about: "AIBrix: tenants by their tokens over the instances, beside the instances' load",
    readsKeys: false,
    readsReports: false,
    parameters: {
      fairness: numberRule(1),
      utilization: numberRule(1),
      promptWeight: numberRule(1),
      outputWeight: numberRule(2),
      maxLoad: positiveRule(100),
      minTokens: positiveRule(1000),
      jitter: numberRule(0.1),
      windowUs: positiveRule(300_000_000),
      ties: tiesRule,
    },
    make: (p, world) => {
      const weights = {
        fairness: p.number('fairness'),
        utilization: p.number('utilization'),
        promptWeight: p.number('promptWeight'),
        outputWeight: p.number('outputWeight'),
        maxLoad: p.number('maxLoad'),
        minTokens: p.number('minTokens'),
        jitter: p.number('jitter'),
      };
      return new AibrixVtc(weights, p.number('windowUs'), pickerOf(p, world), world.stream('router'));
    },
  },
  {
    name: 'aibrix-pd',
    about: 'AIBrix: match and load to prefill, load, throughput and free HBM to decode',
    readsKeys: true,
    readsReports: true,
    parameters: { windowUs: positiveRule(60_000_000), ...memoryRules },
    make: (p, world) => new AibrixPd(p.number('windowUs'), pickerOf(p, world), p.number('memoryBlocks')),
  },
  {
    name: 'aibrix-pd-conductor',
    about: 'AIBrix: the least predicted time to the first token to prefill, between tokens to decode',
    readsKeys: true,
    readsReports: true,
    parameters: {
      windowUs: positiveRule(60_000_000),
      hitUs: numberRule(5),
      hitFixedUs: numberRule(1000),
      missUs: numberRule(1),
      missFixedUs: numberRule(5000),
      ...memoryRules,
    },
    make: (p, world) => {
      const times = {
        hitUs: p.number('hitUs'),
        hitFixedUs: p.number('hitFixedUs'),
        missUs: p.number('missUs'),
        missFixedUs: p.number('missFixedUs'),
      };
      return new AibrixConductor(
        times,
        p.number('windowUs'),
        world.blockTokens,
        pickerOf(p, world),
        p.number('memoryBlocks'),
      );
    },
  },
  {
    name: 'aibrix-throughput',
    about: 'AIBrix: the least prompt and output tokens of its ended requests, prompts twice',
    readsKeys: false,
    readsReports: false,
    parameters: { ties: tiesRule },
    make: (p, world) => new AibrixThroughput(pickerOf(p, world)),
  },
  {
    name: 'aibrix-least-latency',
    about: 'AIBrix: the least time of its ended requests, scaled to the mean lengths',
    readsKeys: false,
    readsReports: false,
    parameters: { ties: tiesRule },
    make: (p, world) => new AibrixLeastLatency(pickerOf(p, world)),
  },
];
