/**
 * Steps of upstream's engine: hundreds of mixed batches, each as long as the time until the next step says.
 */

import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { sumBatch } from '../../../src/sim/latency/latencyModel.ts';
import { modelOn, request } from './setups.ts';

interface StepTrace {
  readonly requests: { id: string; input: number[]; output: number[] }[];
  readonly events: { ev: string; t: number; done: number; batch_after: [string, number, number][] | null }[];
}

const folder = new URL('../../../../shared/goldens/blis/micro/', import.meta.url);
const absent = !existsSync(folder);
if (absent)
  console.warn('SKIPPED: the step traces goldens/blis/micro/steps-*.json are not here to compare with');

const names = [
  'simple',
  'chunked',
  'preempt-fcfs',
  'preempt-priority',
  'sjf',
  'maxlen',
  'prefix-single',
  'prefix6-single',
];

describe.skipIf(absent)('engine steps of upstream (needs the step traces)', () => {
  const model = modelOn('trained-physics', { model: 'llama-3.1-8b-instruct', tp: 1, dp: 1 }, false);

  it.each(names)('%s takes the same time for every batch', (name) => {
    const trace = JSON.parse(readFileSync(new URL(`steps-${name}.json`, folder), 'utf8')) as StepTrace;
    const byId = new Map(trace.requests.map((one) => [one.id, one]));
    const steps = trace.events.filter(({ ev }) => ev === 'StepEvent');
    let compared = 0;
    for (let i = 0; i + 1 < steps.length; i++) {
      const { batch_after: batch, done, t } = steps[i];
      // a request that completed is in the step but not in the batch after it
      if (batch === null || batch.length === 0 || done !== (steps[i - 1]?.done ?? 0)) continue;
      const requests = batch
        .filter(([, , newTokens]) => newTokens > 0)
        .map(([id, progress, newTokens]) => {
          const { input, output } = byId.get(id)!;
          return request(input.length, progress - newTokens, newTokens, output.length);
        });
      expect(t + model.stepTimeUs(sumBatch(requests))).toBe(steps[i + 1].t);
      compared++;
    }
    expect(compared).toBeGreaterThan(10);
  });
});
