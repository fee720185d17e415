/** The model of measured kernels: gives back what was measured, borrows by name, and is refused where a card has no tables. */

import { describe, expect, it } from 'vitest';
import { engineHardware } from '../../../src/sim/build/engineSettings.ts';
import { stepsLine } from '../../../src/sim/build/runText.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { fromFields } from '../../../src/sim/description/readers.ts';
import { Kernels } from '../../../src/sim/latency/kernels.ts';
import {
  type CardTables,
  Curve,
  FloorRatios,
  parseCardTables,
  timeAt,
} from '../../../src/sim/latency/kernelTables.ts';
import { sumBatch } from '../../../src/sim/latency/latencyModel.ts';
import { engineShape } from '../../../src/sim/latency/physics.ts';
import { loadCoefficients, loadHardware, loadModel } from './setups.ts';

const cards = ['H100', 'H200', 'A100-SXM', 'L40S', 'B200', 'RTX-PRO-6000'];
const tablesOf = (card: string): CardTables => {
  const coefficients = loadCoefficients('kernels', loadHardware(card), undefined);
  if (coefficients.backend !== 'kernels') throw new Error('another backend');
  return coefficients.values.tables;
};

describe('tables', () => {
  it.each(cards)('of %s name their files, and hold each kind of kernel', (card) => {
    const tables = tablesOf(card);
    expect(tables.gpu).toBe(card);
    expect(tables.source).toContain('aisimulate 0.13.0.dev202610270000000085');
    expect(tables.files.every((file) => /\.parquet sha256 [0-9a-f]{64}$/.test(file))).toBe(true);
    for (const kind of ['gemm', 'experts', 'prefill', 'decode', 'reduce'] as const) {
      expect(tables[kind].length).toBeGreaterThan(0);
    }
    // no table of launches from the host
    const small = tables.gemm.filter(({ n, k }) => n * k < 2 ** 24).map(({ us }) => Math.min(...us));
    expect(Math.max(...small)).toBeLessThan(100);
  });

  it('are refused where they are of another schema, or a series is torn', () => {
    expect(() => parseCardTables('{"schema":"x"}', 'a.json')).toThrow(/must be tierkv\.kernels\/1/);
    expect(() => parseCardTables('{', 'a.json')).toThrow(/is not JSON/);
    const torn = { schema: 'tierkv.kernels/1', gemm: [{ sizes: [1, 2], us: [1] }] };
    expect(() => parseCardTables(JSON.stringify(torn), 'a.json')).toThrow(/has 1 times for 2 sizes/);
  });
});

describe('between measured sizes', () => {
  const floor = (size: number): number => 1 + size;
  const series = { sizes: [1, 4, 16], us: [10, 40, 90] };
  it('a measured one is given back, and others lie between their neighbours', () => {
    for (const [i, size] of series.sizes.entries()) expect(timeAt(series, size, floor)).toBe(series.us[i]);
    expect(timeAt(series, 2, floor)).toBeCloseTo(20, 6);
    // beyond them the distance to the floor stays
    expect(timeAt(series, 33, floor)).toBeCloseTo((90 * 34) / 17, 9);
  });

  it('nothing is interpolated from one kernel to another', () => {
    const two = { ...series, kernels: [0, 1, 1] };
    expect(timeAt(two, 1.9, floor)).toBeCloseTo((10 * 2.9) / 2, 9);
    expect(timeAt(two, 2.1, floor)).toBeCloseTo((40 * 3.1) / 5, 9);
  });

  it('a grid gives back times over requests and tokens at its own points', () => {
    const floor2 = (requests: number, tokens: number): number => 2 + requests * tokens;
    const rows = [1, 4].map((requests) => ({
      sizes: [1, 16],
      us: [1, 16].map((t) => 3 * floor2(requests, t)),
    }));
    const grid = new FloorRatios({ requests: [1, 4], rows }, floor2, { requests: 16, tokens: 64 });
    for (const requests of [1, 2, 4, 16])
      for (const tokens of [1, 4, 16, 64]) expect(grid.at(requests, tokens)).toBeCloseTo(3, 1);
  });

  it('a curve never falls, and goes on', () => {
    const curve = new Curve([1, 2, 4], (size) => (size === 2 ? 9 : size));
    expect([1, 1.5, 2, 4, 8].map((size) => curve.at(size))).toEqual([1, 5, 9, 9, 9]);
  });
});

describe('a step', () => {
  const h100 = loadHardware('H100');
  const coefficients = loadCoefficients('kernels', h100, undefined);
  if (coefficients.backend !== 'kernels') throw new Error('another backend');
  const { values } = coefficients;
  const stepOf = (name: string, tp: number): Kernels => {
    const model = loadModel(name);
    return new Kernels(model, h100, engineShape(model, h100, { tp, dp: 1 }), values, false);
  };
  const decodes = (count: number, context: number) =>
    sumBatch(
      Array.from({ length: count }, () => ({
        promptTokens: context,
        progressTokens: context,
        newTokens: 1,
        outputTokens: 9,
      })),
    );

  it('has the measured time of attention at a measured point', () => {
    const model = loadModel('qwen3-32b');
    const grid = values.tables.decode.find(
      (one) =>
        one.heads === 32 && one.kvHeads === 4 && one.headDim === 128 && one.window === 0 && one.kvBytes === 2,
    )!;
    const row = grid.rows[grid.requests.indexOf(16)];
    const at = row.sizes.indexOf(4096);
    const attention = stepOf('qwen3-32b', 2)
      .explain(decodes(16, 4095))
      .find(({ part }) => part === 'attention')!;
    expect(attention.us / model.layers / row.us[at]).toBeCloseTo(1, 1);
  });

  it('names what it borrows, and a model that was measured borrows no experts', () => {
    expect(stepOf('gpt-oss-120b', 1).borrowed.filter((text) => text.startsWith('experts'))).toEqual([]);
    expect(stepOf('glm-4.5-air', 1).borrowed.join()).toMatch(/experts 8 of 128 of 4096 x 1408/);
  });

  it('is told of in the first lines of a run, and refused on a card without tables', async () => {
    const run = { workload: { preset: 'chatbot', requests: 20 }, latency: { model: 'kernels' } } as const;
    const machine = engineHardware(fromFields({ ...run, model: 'qwen3-14b', hardware: 'H200' }));
    expect(stepsLine(machine)).toMatch(/^steps: kernels measured on H200 \(PyPI aisimulate 0\.13/);
    const { metrics } = await simulate({ ...run, model: 'qwen3-14b', hardware: 'H200' });
    expect(metrics.completed_requests).toBe(20);
    await expect(async () =>
      simulate({ ...run, model: 'qwen3-14b', hardware: 'MI300X' }),
    ).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      message: expect.stringContaining('no tables of kernels for MI300X'),
    });
  });
});
