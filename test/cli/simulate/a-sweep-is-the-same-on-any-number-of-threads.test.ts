/** `tierkv sweep`: every point of the grid once, in order, whatever the threads; and the cheapest good one. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { cheapest, cheapestByDemand, cheapestText } from '../../../src/cli/sweep/report.ts';
import { hasRun, type PointResult, planPoint, runPoint } from '../../../src/sim/build/point.ts';
import { demandOf } from '../../../src/sim/build/sweep.ts';
import { pointsOf, runPoints } from './sweptPoints.ts';

const args = '--model qwen3-14b --workload chatbot --num-requests 60'.split(' ');
const points = pointsOf(['num-instances=1,2', 'rate=20,80'], args);

describe('a sweep', () => {
  it('has each combination once, the last option changing first', () => {
    expect(points.map(({ values }) => Object.values(values).join(' '))).toEqual([
      '1 20',
      '1 80',
      '2 20',
      '2 80',
    ]);
  });

  it('is the same on one thread, on three, and without any', async () => {
    const one = await runPoints(points, 1);
    expect(await runPoints(points, 3)).toEqual(one);
    expect(points.map((point) => runPoint(planPoint(point)))).toEqual(one);
    expect(one.filter(hasRun).map(({ gpus }) => gpus)).toEqual([1, 1, 2, 2]);
  });

  it('is the same where policies draw and blocks move between tiers', async () => {
    const drawing =
      '--admission-policy probabilistic --routing-policy weighted --total-kv-blocks 700 --kv-cpu-blocks 500';
    const grid = ['seed=1,2', 'simulation-seed=1,2', 'eviction=lru,hazard'];
    const drawn = pointsOf(grid, [...args, ...drawing.split(' '), '--rate', '60', '--num-instances', '2']);
    expect(await runPoints(drawn, 2)).toEqual(drawn.map((point) => runPoint(planPoint(point))));
  });

  it('names the cheapest point that meets the targets, or none', () => {
    const results = points.map((point) => runPoint(planPoint(point)));
    const [slow] = results.filter(({ gpus }) => gpus === 1).sort((a, b) => b.e2eP99Ms - a.e2eP99Ms);
    expect(cheapest(results, { e2eMs: Infinity })?.gpus).toBe(1);
    expect(cheapest([slow, results[2]], { e2eMs: slow.e2eP99Ms - 1 })).toBe(results[2]);
    expect(cheapest(results, { ttftMs: 1 })).toBeUndefined();
  });

  it('compares points of one demand alone', () => {
    const point = (values: Record<string, string>, gpus: number, e2eP99Ms: number): PointResult => ({
      ...runPoint(planPoint(points[0])),
      values,
      gpus,
      e2eP99Ms,
    });
    const grid = [
      point({ rate: '1', 'num-instances': '1' }, 1, 50),
      point({ rate: '1', 'num-instances': '2' }, 2, 40),
      point({ rate: '9', 'num-instances': '1' }, 1, 900),
      point({ rate: '9', 'num-instances': '2' }, 2, 90),
      point({ rate: '99', 'num-instances': '2' }, 2, 900),
    ];
    const found = cheapestByDemand(grid, { e2eMs: 100 });
    expect(found).toEqual([
      { demand: { rate: '1' }, best: grid[0] },
      { demand: { rate: '9' }, best: grid[3] },
      { demand: { rate: '99' }, best: undefined },
    ]);
    expect(cheapestText(found)).toBe(
      'at --rate 1 cheapest: --rate 1 --num-instances 1\nat --rate 9 cheapest: --rate 9 --num-instances 2\n' +
        'at --rate 99 no point meets the targets\n',
    );
    expect(
      demandOf({ model: 'a', seed: '1', 'num-requests': '5', 'think-time-ms': '1', ddr: '0', tp: '2' }),
    ).toEqual({
      ...{ model: 'a', seed: '1', 'num-requests': '5', 'think-time-ms': '1' },
    });
    const fields = {
      'workload.rate': '1',
      'models[0].name': 'a',
      'models[0].tp': '2',
      'pools[0].replicas': '3',
    };
    expect(demandOf(fields)).toEqual({ 'workload.rate': '1', 'models[0].name': 'a' });
  });

  it('a mistake in one point names the point', async () => {
    const file = path.join(os.tmpdir(), `no-such-${process.pid}.yaml`);
    expect(fs.existsSync(file)).toBe(false);
    const bad = pointsOf(['total-kv-blocks=100,-1'], args);
    const [good, failed] = await runPoints(bad, 2);
    expect(good).toMatchObject({ values: { 'total-kv-blocks': '100' }, injected: 60 });
    expect(failed).toMatchObject({
      values: { 'total-kv-blocks': '-1' },
      error: { code: 'TKV_CONFIG', field: '--hbm' },
    });
    expect(cheapest([good, failed], {})).toBe(good);
    expect(() => pointsOf(['rate'], args)).toThrow(/grid is "rate"/);
    expect(() => pointsOf(['rate=1', 'rate=2'], args)).toThrow(/names rate twice/);
  });
});
