/** The accuracy that this project promises, on measurements that a fit did not see. */

import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { beforeAll, describe, expect, it } from 'vitest';
import { check, type LatencyCheckReport } from '../../../src/sim/fitting/check.ts';
import { fitCoefficients } from '../../../src/sim/fitting/fit.ts';
import { fitToRequests } from '../../../src/sim/fitting/fitRequests.ts';
import { parseEngineLog } from '../../../src/sim/latency/fit/stepRecords.ts';
import { isFull } from '../../sized.ts';
import { loadMeasurements, loadModel } from './setups.ts';

const data = (name: string): URL => new URL(`../../../data/latency/${name}`, import.meta.url);
const readJson = (name: string): unknown => JSON.parse(readFileSync(data(name), 'utf8'));

let report: LatencyCheckReport;
beforeAll(() => {
  report = check({ gpu: 'H100' });
});

function score(scores: LatencyCheckReport['heldOut'], what: string): LatencyCheckReport['heldOut'][number] {
  const found = scores.find((one) => one.what === what);
  if (found === undefined) throw new Error(`no score of ${what}`);
  return found;
}

describe('steps of a real H100 engine', () => {
  it('are predicted within 6% on every experiment that was held out of the fit', () => {
    const decodes = report.heldOut.filter(({ what }) => /^experiment .*, decode$/.test(what));
    expect(decodes).toHaveLength(3);
    for (const { mapePercent, count } of decodes) {
      expect(count).toBeGreaterThan(300);
      expect(mapePercent).toBeLessThan(6);
    }
    expect(score(report.heldOut, 'decode')).toMatchObject({ count: 1358 });
    expect(score(report.heldOut, 'decode').mapePercent).toBeLessThan(3);
  });

  it('are predicted better than by upstream, whose errors on them are known', () => {
    const upstream = score(report.sameSteps, 'trained-physics, all steps');
    expect([upstream.count, upstream.mapePercent.toFixed(1), upstream.biasPercent.toFixed(1)]).toEqual([
      1967,
      '6.9',
      '2.1',
    ]);
    expect(score(report.sameSteps, 'roofline, all steps').mapePercent.toFixed(1)).toBe('52.8');
    const ours = score(report.sameSteps, 'calibrated, all steps, each experiment held out');
    expect(ours.count).toBe(1967);
    expect(ours.mapePercent).toBeLessThan(upstream.mapePercent / 2);
  });

  it('are held out with all experiments of a model that only they have', () => {
    const fold = report.folds.find(({ heldOut }) => heldOut.includes('codellama-34b'))!;
    const all = report.folds.map(({ reduceEfficiency }) => reduceEfficiency);
    expect(fold.perLayerUs).toBeGreaterThan(0);
    expect(new Set(all).size).toBe(all.length); // each fold is a fit of its own
  });

  it('are never predicted below the physical floor', () => {
    expect(report.belowFloor.predicted).toBe(0);
    for (const { predictedUs, floorUs } of report.steps) expect(predictedUs).toBeGreaterThanOrEqual(floorUs);
  });

  it('of whole runs that no fit saw are within 6% on average, a mixture of experts among them', () => {
    const unseen = report.runs.filter(({ what }) => !what.endsWith('(fitted on)'));
    expect(unseen.map(({ what }) => what.slice(16))).toEqual([
      'llama-2-70b-tp4-roleplay',
      'mixtral-8x7b-v0-1-tp2-roleplay',
      'codellama-34b-tp2-roleplay',
    ]);
    for (const { mapePercent } of unseen) expect(mapePercent).toBeLessThan(6);
  });
});

describe('prefills from 128 to 8192 tokens', () => {
  it('are within 10% of measured kernels, matrix products and attention alike', () => {
    expect(score(report.kernels, 'matrix products, 128 to 8192 rows').mapePercent).toBeLessThan(10);
    expect(score(report.kernels, 'attention of prefills to 8192 tokens').mapePercent).toBeLessThan(10);
  });

  it('are within 10% as whole steps on one GPU, against kernels put together', () => {
    const composed = report.kernels.filter(({ what }) => what.startsWith('step of'));
    expect(composed).toHaveLength(4);
    for (const { mapePercent, count } of composed) {
      expect(count).toBe(7);
      expect(mapePercent).toBeLessThan(10);
    }
  });
});

describe('a measured run on another GPU', () => {
  it('is replayed within 2% on the half that the fit did not see', () => {
    const judged = report.otherGpu.filter(({ what }) => what.includes('judged on the second'));
    expect(judged).toHaveLength(3);
    for (const { meanErrorPercent, p90ErrorPercent } of judged) {
      expect(Math.abs(meanErrorPercent)).toBeLessThan(2);
      expect(Math.abs(p90ErrorPercent)).toBeLessThan(2);
    }
  });
});

describe('shipped coefficients', () => {
  it('of H100 come out of a fit to the shipped measurements', () => {
    const { file } = fitCoefficients({ backend: 'calibrated', gpu: 'H100', holdOut: [] });
    expect(file).toEqual(readJson('calibrated-h100.json'));
  });

  // ten seconds of a core: `npm run campaign -- full` does it
  it.runIf(isFull)('of RTX PRO 6000 come out of a fit to the shipped run', () => {
    const { file, fitted } = fitToRequests({
      requests: data('rtx-pro-6000-run.csv').pathname,
      gpu: 'RTX-PRO-6000',
      model: 'llama-3.1-8b-instruct',
      tp: 1,
      maxSequences: 128,
      maxBatchedTokens: 2048,
      dp: 1,
      memoryUtilization: 0.9,
      blockTokens: 16,
      fitShare: 0.5,
    });
    expect(fitted).toBe(150);
    expect(file).toEqual(readJson('calibrated-rtx-pro-6000.json'));
  });
});

const log = new URL('../../../../shared/goldens/blis/real-h100/vllm_h100_steps.csv.gz', import.meta.url);
const absent = !existsSync(log);
if (absent) console.warn('SKIPPED: the step log vllm_h100_steps.csv.gz is not here to compare with');

describe('shipped step records', () => {
  it.skipIf(absent)('are the pairs of consecutive steps in the engine log (needs the whole log)', () => {
    const text = gunzipSync(readFileSync(log)).toString('utf8');
    const records = parseEngineLog(text, 'log').map((record) => ({
      ...record,
      model: loadModel(record.model).name,
    }));
    expect(records).toEqual(loadMeasurements(undefined, undefined).steps);
  });
});
