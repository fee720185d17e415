import { describe, expect, it } from 'vitest';
import { Handoffs } from '../../src/sim/cluster/handoffs.ts';
import { fitHandoffs, type MeasuredHandoff } from '../../src/sim/fitting/handoffFit.ts';
import { SeededRandom } from '../../src/testing/index.ts';

const handoff = (bytes: number, ms: number): MeasuredHandoff => ({
  outcome: 'taken',
  taken: 1,
  bytes,
  ms,
});

describe('the link of a pair', () => {
  it('is what made the hand-offs, and the simulator takes it', () => {
    const random = new SeededRandom(7);
    const [baseUs, bytesPerS] = [1800, 4e8];
    const measured = Array.from({ length: 40 }, () => {
      const bytes = 2 ** (12 + random.below(12));
      const noise = 0.95 + random.below(101) / 1000;
      return handoff(bytes, (noise * (baseUs + (bytes * 1e6) / bytesPerS)) / 1000);
    });
    const fit = fitHandoffs(measured);
    expect(fit.baseLatencyUs / baseUs).toBeCloseTo(1, 1);
    expect(fit.bandwidthBytesPerS / bytesPerS).toBeCloseTo(1, 1);
    expect(fit.error).toBeLessThan(0.06);
    expect(fit.handoffs).toBe(40);
    const { handoffs: _, error: __, ...config } = fit;
    expect(
      new Handoffs(
        config,
        () => {},
        () => {},
      ).isPipelined,
    ).toBe(true);
  });

  it('leaves out what was not whole, and says where there is too little', () => {
    const broken: MeasuredHandoff = { outcome: 'vanished', taken: 1, bytes: 100, ms: 9999 };
    const four = [handoff(1000, 1), handoff(2000, 2), handoff(1000, 1), handoff(2000, 2)];
    expect(fitHandoffs([...four, broken, broken])).toMatchObject({ handoffs: 4 });
    const tooFew = expect.objectContaining({ code: 'TKV_INPUT', field: 'handoffs' });
    expect(() => fitHandoffs(four.slice(1))).toThrow(tooFew);
    expect(() => fitHandoffs(Array.from({ length: 9 }, () => handoff(1000, 1)))).toThrow(tooFew);
  });
});
