/**
 * How long steps took, beside what they computed: what a latency model is fitted to. Written in the format
 * that `tierkv latency fit --steps` reads.
 */

import type { StepPlan } from '../../../src/runtime/index.ts';

export interface StepShape {
  readonly prefillRequests: number;
  readonly prefillTokens: number;
  readonly decodeRequests: number;
  /** Tokens in the cache of one request, on average. */
  readonly contextTokens: number;
}

export interface RecordedStep extends StepShape {
  readonly measuredUs: number;
}

/** The last so many steps are kept. */
const recordsMax = 100_000;

export class StepTimes {
  readonly #records: RecordedStep[] = [];
  #next = 0;

  get records(): readonly RecordedStep[] {
    return this.#records;
  }

  /** Asked before the step runs: its plan is gone afterwards. */
  shapeOf(plan: StepPlan): StepShape {
    let context = plan.decodeContextTokens;
    for (let seat = plan.firstPrefill(); seat !== -1; seat = plan.nextPrefill(seat)) {
      context += plan.from(seat) + plan.tokensOf(seat);
    }
    return {
      prefillRequests: plan.prefills,
      prefillTokens: plan.tokens - plan.decodes,
      decodeRequests: plan.decodes,
      contextTokens: Math.round(context / plan.requests),
    };
  }

  record(shape: StepShape, ms: number): void {
    this.#records[this.#next++ % recordsMax] = { ...shape, measuredUs: Math.round(ms * 1000) };
  }

  /** @param experiment @param model names that the table's rows bear */
  csv(experiment: string, model: string): string {
    const head =
      'experiment,model,tp,prefill_requests,prefill_tokens,decode_requests,context_tokens,measured_us';
    const rows = this.#records.map((step) =>
      [
        experiment,
        model,
        1,
        step.prefillRequests,
        step.prefillTokens,
        step.decodeRequests,
        step.contextTokens,
        step.measuredUs,
      ].join(','),
    );
    return `${[head, ...rows].join('\n')}\n`;
  }
}
