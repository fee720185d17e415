import { describe, expect, it } from 'vitest';
import { parseCoefficients } from '../../../src/sim/latency/coefficients.ts';
import { sumBatch } from '../../../src/sim/latency/latencyModel.ts';
import { modelOn, request, setups } from './setups.ts';

describe('blackbox', () => {
  const model = modelOn('blackbox', setups[0], false);

  it('is trunc(beta0 + beta1 x prefill tokens + beta2 x decodes)', () => {
    // 7051.796874715078 + 19.538416565504026 x 512 + 25.431830886933543 x 2 = 17106.3298...
    const batch = sumBatch([request(512, 0, 512, 1), request(9, 9, 1, 5), request(99, 120, 1, 50)]);
    expect(model.stepTimeUs(batch)).toBe(17106);
    // context and attention do not matter
    expect(model.stepTimeUs(sumBatch([request(9, 5000, 1, 9000)]))).toBe(7077);
    expect(model.queueingTimeUs(10_000)).toBe(4680);
  });

  it('takes three coefficients, no more and no fewer', () => {
    const names = ['step', 'prefillToken', 'decode', 'contextToken'];
    const make = (values: number[]): unknown => {
      const alpha = { alpha0: 0, alpha1: 0, alpha2: 0 };
      const beta = Object.fromEntries(values.map((value, i) => [names[i], value]));
      const file = { schema: 'tierkv.latency/1', backend: 'blackbox', alpha, beta };
      return parseCoefficients(JSON.stringify(file), 'c.json');
    };
    expect(make([1, 2, 3])).toMatchObject({ backend: 'blackbox', values: { beta: [1, 2, 3] } });
    expect(() => make([1, 2])).toThrow(/c\.json.*2 of 3/);
    expect(() => make([1, 2, 3, 4])).toThrow(/contextToken/);
  });
});
