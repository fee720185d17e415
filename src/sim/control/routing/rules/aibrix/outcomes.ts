/** AIBrix's rules that go by what requests turned out to be like on each instance. */

import type { Outcome } from '../../../outcome.ts';
import { OutcomeMeans } from '../../memory/outcomeMeans.ts';
import type { Picker } from '../../picking.ts';
import type { RoutingContext } from '../../routingPolicy.ts';
import { ScoredRule, type Taken } from '../scoredRule.ts';

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

  completed(outcome: Outcome): void {
    this.means.completed(outcome);
  }

  removed(instance: number): void {
    this.means.removed(instance);
  }
}

/** AIBrix: the least 2 x mean prompt + mean output of its requests, in tokens. */
export class AibrixThroughput extends ByOutcomes {
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
export class AibrixLeastLatency extends ByOutcomes {
  override readonly name: string = 'aibrix-least-latency';

  protected override cost(instance: number): number {
    const { requests, promptTokens, outputTokens, ttftUs, decodeUs } = this.means.of(instance);
    if (requests === 0) return 0;
    const all = this.means.overall;
    const prefill = (ttftUs / Math.max(1, promptTokens)) * all.promptTokens;
    return prefill + (decodeUs / Math.max(1, outputTokens)) * all.outputTokens;
  }
}
