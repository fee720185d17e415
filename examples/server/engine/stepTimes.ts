/**
 * How long steps took, beside what they computed: what a latency model is fitted to. Written in the format
 * that `tierkv latency fit --steps` reads.
 */

import type { PlannedRequest } from '../../../src/index.ts'; // in your project: 'tierkv'

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

/** Requests that compute one token and sample behind it decode; the others prefill. */
export function shapeOf(requests: readonly PlannedRequest[]): StepShape {
  const prefills = requests.filter(({ start, end, samples }) => end - start > 1 || !samples);
  const context = requests.reduce((sum, { end }) => sum + end, 0);
  return {
    prefillRequests: prefills.length,
    prefillTokens: prefills.reduce((sum, { start, end }) => sum + end - start, 0),
    decodeRequests: requests.length - prefills.length,
    contextTokens: Math.round(context / requests.length),
  };
}

/** How many of the last steps are kept, in memory that does not grow. */
const recordsMax = 65_536;
const fields = 5;

export class StepTimes {
  readonly #words: Float64Array = new Float64Array(recordsMax * fields);
  #count = 0;

  get records(): RecordedStep[] {
    return Array.from({ length: Math.min(this.#count, recordsMax) }, (_, i) => {
      const at = i * fields;
      const [prefillRequests, prefillTokens, decodeRequests, contextTokens, measuredUs] =
        this.#words.subarray(at, at + fields);
      return { prefillRequests, prefillTokens, decodeRequests, contextTokens, measuredUs };
    });
  }

  record({ prefillRequests, prefillTokens, decodeRequests, contextTokens }: StepShape, ms: number): void {
    const words = [prefillRequests, prefillTokens, decodeRequests, contextTokens, Math.round(ms * 1000)];
    this.#words.set(words, (this.#count++ % recordsMax) * fields);
  }

  /** @param experiment its name @param model path of its config.json, from which the fit knows its shape */
  csv(experiment: string, model: string): string {
    const head =
      'experiment,model,tp,prefill_requests,prefill_tokens,decode_requests,context_tokens,measured_us';
    const rows = this.records.map((step) =>
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
