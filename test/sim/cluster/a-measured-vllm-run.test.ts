/**
 * The simulated instance beside a real vLLM that was measured: TTFT, TPOT and E2E of 300 requests under more
 * load than it serves. With coefficients of half of the requests the other half is predicted, and with those
 * of another GPU all of them.
 */

import { expect, it } from 'vitest';
import {
  fittedComparison,
  type MeasuredComparison,
  unfittedComparison,
} from '../../../bench/sim/measuredRun.ts';

it.each<[string, () => MeasuredComparison, number]>([
  ['fitted to the first half, judged on the second', fittedComparison, 0.02],
  ["H100's coefficients, nothing fitted", unfittedComparison, 0.2],
])('%s', (_, compare, ttft) => {
  const { errors, steps, belowFloor } = compare();
  const bounds = { TTFT: ttft, TPOT: 0.1, E2E: 0.1 };
  for (const { what, meanError, p90Error } of errors) {
    expect(Math.abs(meanError), `${what}, mean`).toBeLessThan(bounds[what]);
    expect(Math.abs(p90Error), `${what}, p90`).toBeLessThan(bounds[what]);
  }
  expect(steps).toBeGreaterThan(2000);
  expect(belowFloor).toBe(0);
});
