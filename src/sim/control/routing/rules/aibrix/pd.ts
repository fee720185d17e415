/** AIBrix's rules for prefill and decode pods: the least of two costs, and of two predicted times. */

import { kvUtilization } from '../../../admission/index.ts';
import type { InstanceSnapshot } from '../../../instances.ts';
import type { Outcome } from '../../../outcome.ts';
import { RecentAmounts } from '../../memory/recent.ts';
import type { Picker } from '../../picking.ts';
import type { RoutingContext } from '../../routingPolicy.ts';
import { RememberingRule } from '../rememberingRule.ts';
import { inFlightOf, type Taken } from '../scoredRule.ts';

/** A rule that counts the output tokens of the requests that ended on each instance in a window. */
abstract class ByOutput extends RememberingRule {
  override readonly readsReports: boolean = true;
  protected readonly output: RecentAmounts;

  constructor(windowUs: number, picker: Picker, memoryBlocks: number) {
    const output = new RecentAmounts(windowUs);
    super(picker, memoryBlocks, [output]);
    this.output = output;
  }

  completed({ instance, outputTokens, nowUs }: Outcome): void {
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
export class AibrixPd extends ByOutput {
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
export interface ConductorTimes {
  /** hitUs x cached tokens + hitFixedUs. */
  readonly hitUs: number;
  readonly hitFixedUs: number;
  /** missUs x uncached tokens^1.5 + missFixedUs. */
  readonly missUs: number;
  readonly missFixedUs: number;
}

/** Prompt whose time counts for a request on an instance that has reported none. */
const UNKNOWN_TOKENS = 512;
/** Of an instance without output tokens. */
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
export class AibrixConductor extends ByOutput {
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
