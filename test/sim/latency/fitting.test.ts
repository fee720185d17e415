/** The fitting tools find what they are given, and tell apart what they are not. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fitLink } from '../../../src/sim/latency/capacity.ts';
import {
  fitEngine,
  kernelCoefficients,
  predictRecords,
  prepareRecords,
} from '../../../src/sim/latency/fit/engineFit.ts';
import {
  fitLinear,
  nonNegativeLeastSquares,
  regimeOf,
  scoreOf,
  scoresBy,
} from '../../../src/sim/latency/fit/linearFit.ts';
import type { MeasuredRequest } from '../../../src/sim/latency/fit/measuredRuns.ts';
import { type RequestTimes, replayRequests } from '../../../src/sim/latency/fit/runReplay.ts';
import {
  averageStep,
  batchOf,
  formatStepRecords,
  parseEngineLog,
  parseStepRecords,
  type StepRecord,
} from '../../../src/sim/latency/fit/stepRecords.ts';
import { type LatencyModel, sumBatch } from '../../../src/sim/latency/latencyModel.ts';
import { h100, loadKernelTables, modelLookup, modelOn, setups } from './setups.ts';

const lookup = modelLookup();

function record(over: Partial<StepRecord>): StepRecord {
  return {
    experiment: 'a',
    model: 'llama-3.1-8b-instruct',
    tp: 1,
    prefillRequests: 0,
    prefillTokens: 0,
    decodeRequests: 16,
    contextTokens: 500,
    measuredUs: 8000,
    ...over,
  };
}

describe('least squares without negative coefficients', () => {
  it('finds the coefficients that made the targets', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0, max: 50, noNaN: true }), { minLength: 3, maxLength: 3 }),
        (truth) => {
          const rows = Array.from({ length: 20 }, (_, i) => [1, i, (i * i) % 7]);
          const targets = rows.map((row) => row.reduce((sum, x, j) => sum + x * truth[j], 0));
          const found = nonNegativeLeastSquares(rows, targets);
          found.forEach((value, j) => {
            expect(value).toBeCloseTo(truth[j], 3);
          });
        },
      ),
      { numRuns: 30 },
    );
  });

  it('gives 0 if only a negative coefficient would fit', () => {
    expect(nonNegativeLeastSquares([[1], [2]], [-1, -2])).toEqual([0]);
  });

  it('recovers a linear model from steps that it made', () => {
    const steps = Array.from({ length: 60 }, (_, i) => {
      const one = record({ decodeRequests: 1 + ((i * 7) % 50), contextTokens: 100 + ((i * 37) % 900) });
      const sums = batchOf(one);
      return { ...one, measuredUs: 4000 + 30 * sums.decodeRequests + 0.05 * sums.decodeContextTokens };
    });
    const [constant, , decode, context] = fitLinear(steps).coefficients.beta;
    expect(constant).toBeCloseTo(4000, 0);
    expect(decode).toBeCloseTo(30, 1);
    expect(context).toBeCloseTo(0.05, 3);
  });
});

describe('fitting the engine', () => {
  const start = kernelCoefficients(h100, loadKernelTables());
  const truth = { ...start, engine: { ...start.engine, perLayerUs: 51, reduceEfficiency: 0.62 } };
  const made = [
    { model: 'llama-3.1-8b-instruct', tp: 1, experiment: 'a' },
    { model: 'llama-2-70b-hf', tp: 4, experiment: 'b' },
  ].flatMap((one) => [4, 20, 60, 120].map((decodeRequests) => record({ ...one, decodeRequests })));
  const steps = predictRecords(truth, h100, prepareRecords(made, h100, lookup)).map(
    ({ record: one, predictedUs }) => ({ ...one, measuredUs: predictedUs }),
  );

  it('finds the overhead that made the steps', () => {
    const { engine } = fitEngine(start, h100, steps, lookup);
    expect(engine.perLayerUs).toBeCloseTo(51, 2);
    expect(engine.reduceEfficiency).toBeCloseTo(0.62, 3);
  });

  it('is not moved by a step with a large prefill, whose time may be a neighbour’s', () => {
    const odd = record({ prefillRequests: 1, prefillTokens: 1500, contextTokens: 1500, measuredUs: 10 });
    expect(fitEngine(start, h100, [...steps, odd], lookup)).toEqual(fitEngine(start, h100, steps, lookup));
  });

  it('refuses records without anything to fit to', () => {
    expect(() => fitEngine(start, h100, [], lookup)).toThrow(/hold no step to fit to/);
  });

  it('leaves reductions alone when no step has any', () => {
    const alone = steps.filter(({ tp }) => tp === 1);
    expect(fitEngine(start, h100, alone, lookup).engine.reduceEfficiency).toBe(1);
  });
});

describe('links', () => {
  it('are found from the times of two or more sizes', () => {
    const samples = [4096, 65536, 2 ** 20, 2 ** 26].map((bytes) => ({
      bytes,
      latencyUs: 12.5 + bytes / 21_000,
    }));
    const { baseLatencyUs, bandwidthBytesPerS } = fitLink(samples);
    expect(baseLatencyUs).toBeCloseTo(12.5, 6);
    expect(bandwidthBytesPerS / 21e9).toBeCloseTo(1, 9);
  });

  it('have no negative latency, and a bandwidth even where time does not grow', () => {
    const steep = fitLink([
      { bytes: 100, latencyUs: 1 },
      { bytes: 200, latencyUs: 4 },
    ]);
    expect(steep.baseLatencyUs).toBe(0);
    const flat = fitLink([
      { bytes: 100, latencyUs: 5 },
      { bytes: 200, latencyUs: 4 },
    ]);
    expect(flat).toEqual({ baseLatencyUs: 0, bandwidthBytesPerS: 200 / 4e-6 });
  });
});

describe('step records', () => {
  const header =
    'step.id,step.ts_start_ns,batch.num_prefill_reqs,batch.num_decode_reqs,batch.prefill_tokens,kv.blocks_total_gpu,kv.blocks_free_gpu,experiment_id,model,tp';
  const log = (...rows: string[]): string => `${[header, ...rows].join('\n')}\n`;

  it('are steps whose successor was logged too, with its start as their end', () => {
    const text = log(
      '7,1000000,1,4,9,100,75,e1,m,2',
      '8,9000000,0,5,0,100,74,e1,m,2', // the next one is missing
      '10,20000000,0,5,0,100,74,e1,m,2', // the next one is of another experiment
      '11,21000000,0,5,0,100,74,e2,m,2',
      '12,421000000,0,5,0,100,74,e2,m,2', // 400 ms: the engine was idle
    );
    expect(parseEngineLog(text, 'log')).toEqual([
      {
        experiment: 'e1',
        model: 'm',
        tp: 2,
        prefillRequests: 1,
        prefillTokens: 9,
        decodeRequests: 4,
        contextTokens: 80,
        measuredUs: 8000,
      },
    ]);
  });

  it('are those after which a request was left: a wait for requests is not part of a step', () => {
    const parsed = (more: string, ...rows: string[]): number[] =>
      parseEngineLog(`${[header + more, ...rows].join('\n')}\n`, 'log').map(({ measuredUs }) => measuredUs);
    const step = (id: number, atMs: number, prefills: number, decodes: number, more = ''): string =>
      `${id},${atMs}000000,${prefills},${decodes},${9 * prefills},100,75,e1,m,2${more}`;
    // 10 ms; 20 ms; the last request is done and the next comes 200 ms later; a prompt in two parts or two prompts: not known
    const steps: [number, number, number, number][] = [
      [1, 100, 1, 0],
      [2, 110, 0, 1],
      [3, 130, 0, 1],
      [4, 330, 1, 0],
      [5, 345, 1, 0],
      [6, 360, 0, 0],
      [7, 370, 0, 1],
    ];
    expect(parsed('', ...steps.map((each) => step(...each)))).toEqual([10_000, 20_000]);
    // running, waiting and finished since the step before: the prompt of 4 goes on in 5
    const queues = [',1,0,0', ',1,0,0', ',1,0,0', ',1,0,1', ',1,0,0', ',0,0,1', ',1,0,0'];
    const columns = ',queue.running_depth,queue.waiting_depth,batch.num_finished';
    expect(parsed(columns, ...steps.map((each, i) => step(...each, queues[i])))).toEqual([
      10_000, 20_000, 15_000,
    ]);
  });

  it.each([1, 16, 32, 128])(
    'count contexts in blocks of %d tokens where the engine has such',
    (blockTokens) => {
      const text = log('7,1000000,1,4,9,100,75,e1,m,2', '8,9000000,0,5,0,100,74,e1,m,2');
      expect(parseEngineLog(text, 'log', blockTokens)[0].contextTokens).toBe(5 * blockTokens);
    },
  );

  it('survive being written and read', () => {
    const records = [record({}), record({ prefillRequests: 2, prefillTokens: 31, measuredUs: 12345.678 })];
    expect(parseStepRecords(formatStepRecords(records), 'records')).toEqual(records);
  });

  it('become batches with all their tokens', () => {
    const sums = batchOf(record({ prefillRequests: 3, prefillTokens: 100, contextTokens: 50 }));
    expect([sums.prefillTokens, sums.prefillRequests, sums.decodeRequests, sums.decodeContextTokens]).toEqual(
      [100, 3, 16, 800],
    );
    expect(sums.prefillCachedTokens).toBe(3 * 50 - 100);
  });

  it('of a whole run follow from its rate and times', () => {
    const run = { experiment: 'r', model: 'm', tp: 1, promptTokens: 700, outputTokens: 101, requestsPerS: 5 };
    const average = averageStep({ ...run, endToEndUs: 2_100_000, firstTokenUs: 100_000 });
    expect(average).toMatchObject({ decodeRequests: 10, contextTokens: 751, measuredUs: 20_000 });
  });
});

describe('scores', () => {
  const all = [
    { predictedUs: 110, measuredUs: 100 },
    { predictedUs: 80, measuredUs: 100 },
  ];

  it('are mean, signed mean and worst of the relative errors', () => {
    const score = scoreOf(all);
    expect(score.mapePercent).toBeCloseTo(15);
    expect(score.biasPercent).toBeCloseTo(-5);
    expect(score.worstPercent).toBeCloseTo(20);
  });

  it('are given by group', () => {
    const groups = scoresBy(all, ({ predictedUs }) => (predictedUs > 100 ? 'slow' : 'fast'));
    expect([...groups.keys()]).toEqual(['slow', 'fast']);
    expect(groups.get('fast')!.biasPercent).toBeCloseTo(-20);
  });

  it('have three regimes', () => {
    expect([0, 1, 127, 128].map(regimeOf)).toEqual([
      'decode',
      'small prefill',
      'small prefill',
      'large prefill',
    ]);
  });
});

describe('replaying requests', () => {
  const model = modelOn('linear', setups[0], false); // 3000 + 20/prompt token + 5/decode + 0.01/context + ...
  const one = {
    arrivalUs: 0,
    promptTokens: 100,
    outputTokens: 3,
    firstTokenUs: 0,
    lastTokenUs: 0,
    cachedTokens: 0,
  };

  it('gives the first token with the prompt and then one a step', () => {
    const [times] = replayRequests([one], model, { requests: 8, tokensPerStep: 2048 });
    const prefillUs = Math.trunc(3000 + 20 * 100 + 0.0001 * ((100 * 99) / 2));
    expect(times.firstTokenUs).toBe(prefillUs);
    expect(times.lastTokenUs).toBe(prefillUs + Math.trunc(3005 + 1) + Math.trunc(3005 + 1.01));
  });

  it('cuts prompts at the tokens of a step and keeps requests waiting beyond the limit', () => {
    const short = { ...one, promptTokens: 10, outputTokens: 1 };
    const [a, b] = replayRequests([short, short], model, { requests: 1, tokensPerStep: 2048 });
    expect(b.firstTokenUs).toBe(2 * a.firstTokenUs);
    const [whole] = replayRequests([one], model, { requests: 1, tokensPerStep: 100 });
    const [cut] = replayRequests([one], model, { requests: 1, tokensPerStep: 50 });
    expect(cut.firstTokenUs).toBeGreaterThan(whole.firstTokenUs + 2900);
  });

  it('waits for an arrival', () => {
    const [times] = replayRequests([{ ...one, arrivalUs: 50_000 }], model, {
      requests: 1,
      tokensPerStep: 2048,
    });
    expect(times.firstTokenUs).toBeGreaterThan(55_000 - 1);
  });

  it('computes what the prefix cache did not have', () => {
    const limits = { requests: 1, tokensPerStep: 2048 };
    const [all] = replayRequests([one], model, limits);
    const [half] = replayRequests([{ ...one, cachedTokens: 50 }], model, limits);
    expect(all.firstTokenUs - half.firstTokenUs).toBeGreaterThan(990);
    const [most] = replayRequests([{ ...one, cachedTokens: 100 }], model, limits);
    expect(most.firstTokenUs).toBe(3020); // the last token is computed
  });

  it('holds requests back while KV is full, and lets the last one give way and compute again', () => {
    const long = { ...one, promptTokens: 64, outputTokens: 40 };
    const of = (kvTokens: number): number[] =>
      replayRequests([long, long], model, { requests: 8, tokensPerStep: 2048, kvTokens }).map(
        ({ lastTokenUs }) => lastTokenUs,
      );
    const [free, freeToo] = of(1 << 20);
    expect(of(224)).toEqual([free, freeToo]);
    // room for one alone: the second waits for the end of the first
    const [first, second] = of(112);
    expect(first).toBeLessThan(free);
    expect(second).toBeGreaterThan(first + free / 2);
    // room for both prompts, not for both answers
    const [kept, gaveWay] = of(160);
    expect(kept).toBeLessThanOrEqual(free);
    expect(gaveWay).toBeGreaterThan(freeToo);
    expect(of(96)).toEqual([Infinity, Infinity]);
  });

  it('gives what single steps give, also where KV is short', () => {
    const request = fc.record({
      gapUs: fc.nat({ max: 40_000 }),
      promptTokens: fc.integer({ min: 1, max: 90 }),
      outputTokens: fc.integer({ min: 1, max: 40 }),
      cachedTokens: fc.nat({ max: 40 }),
    });
    let preempted = 0;
    fc.assert(
      fc.property(
        fc.array(request, { minLength: 1, maxLength: 12 }),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 4, max: 64 }),
        fc.integer({ min: 6, max: 30 }),
        (gaps, most, tokensPerStep, blocks) => {
          let arrivalUs = 0;
          const requests = gaps.map(({ gapUs, ...tokens }) => {
            arrivalUs += gapUs;
            return { ...one, ...tokens, arrivalUs };
          });
          const limits = { requests: most, tokensPerStep, kvTokens: blocks * 16 };
          const times = replayRequests(requests, model, limits);
          const single = inSingleSteps(requests, model, limits);
          preempted += single.preempted;
          expect(times).toEqual(single.times);
        },
      ),
      { numRuns: 200 },
    );
    expect(preempted).toBeGreaterThan(20);
  });

  it('deals requests to replicas in turn', () => {
    const limits = { requests: 1, tokensPerStep: 2048 };
    const [a, b] = replayRequests([one, one], model, { ...limits, replicas: 2 });
    expect(b).toEqual(a);
    expect(replayRequests([one, one], model, limits)[1].lastTokenUs).toBe(2 * a.lastTokenUs);
  });
});

/** The same batching in its plainest form: each step looks at each request. */
function inSingleSteps(
  requests: readonly MeasuredRequest[],
  model: LatencyModel,
  limits: { readonly requests: number; readonly tokensPerStep: number; readonly kvTokens: number },
): { times: RequestTimes[]; preempted: number } {
  const blocksOf = (tokens: number): number => Math.ceil(tokens / 16);
  const states = requests.map(({ promptTokens, cachedTokens, outputTokens }) => ({
    prompt: promptTokens,
    progress: Math.min(cachedTokens, promptTokens - 1),
    generated: 0,
    outputTokens,
    held: 0,
    times: { firstTokenUs: Infinity, lastTokenUs: Infinity },
  }));
  type State = (typeof states)[number];
  const capacity = limits.kvTokens / 16;
  const queue = states
    .map((state, index) => ({ state, arrivalUs: requests[index].arrivalUs }))
    .filter(({ state }) => blocksOf(state.prompt + state.outputTokens - 1) <= capacity);
  let running: State[] = [];
  let nowUs = 0;
  let preempted = 0;
  while (running.length + queue.length > 0) {
    if (running.length === 0) nowUs = Math.max(nowUs, queue[0].arrivalUs);
    let budget = limits.tokensPerStep;
    const step = new Map<State, number>();
    const grant = (state: State): boolean => {
      const tokens = Math.min(budget, Math.max(1, state.prompt - state.progress));
      const used = running.reduce((sum, { held }) => sum + held, 0);
      const held = blocksOf(state.progress + tokens);
      if (used - (running.includes(state) ? state.held : 0) + held > capacity) return false;
      state.held = held;
      budget -= tokens;
      step.set(state, tokens);
      return true;
    };
    const before = preempted;
    for (let i = 0; i < running.length && budget > 0; i++) {
      const state = running[i];
      while (running.includes(state) && !grant(state)) {
        const last = running.pop()!;
        const prompt = requests[states.indexOf(last)].promptTokens + last.generated;
        Object.assign(last, { held: 0, progress: 0, prompt });
        queue.unshift({ state: last, arrivalUs: 0 });
        preempted++;
      }
    }
    while (before === preempted && budget > 0 && running.length < limits.requests && queue.length > 0) {
      const [{ state, arrivalUs }] = queue;
      if (arrivalUs > nowUs || !grant(state)) break;
      running.push(state);
      queue.shift();
    }
    const sums = sumBatch(
      [...step].map(([{ prompt, progress, outputTokens }, newTokens]) => ({
        ...{ promptTokens: prompt, progressTokens: progress, newTokens, outputTokens },
      })),
    );
    if (step.size > 0) nowUs += model.stepTimeUs(sums);
    for (const [state, tokens] of step) {
      state.progress += tokens;
      if (state.progress < state.prompt) continue;
      state.generated++;
      if (state.generated === 1) state.times.firstTokenUs = nowUs;
      if (state.generated === state.outputTokens) state.times.lastTokenUs = nowUs;
    }
    running = running.filter(({ generated, outputTokens }) => generated < outputTokens);
  }
  return { times: states.map(({ times }) => times), preempted };
}
