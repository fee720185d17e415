/**
 * This server's engine as `tierkv parity --engine` takes one:
 *
 *     npm run tierkv -- parity --engine examples/server/parity/engine.ts
 *
 * It computes every token of the traffic with the tiny model; the answers are the traffic's own, so that a
 * conversation goes on as the simulator knows it. The latency model of the prediction is fitted to the steps
 * that the engine ran, as `tierkv latency fit --backend linear` does it.
 */

import nodePath from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { kvLayout, Outcome } from '../../../src/index.ts';
import { configError } from '../../../src/runtime/errors.ts';
import { fitLinear } from '../../../src/sim/latency/fit/linearFit.ts';
import { Linear } from '../../../src/sim/latency/linear.ts';
import type { WorkloadRequest } from '../../../src/sim/workload/request.ts';
import type { EngineSetting, ParityEngine } from '../../../src/studies/parity/engine.ts';
import type { ParityRunner, RealRun, RunnerJob, ServedRequest } from '../../../src/studies/parity/traffic.ts';
import { Arrivals, requestKey, TokenIds } from '../../../src/studies/parity/traffic.ts';
import { readModelConfig } from '../engine/checkpoint/modelConfig.ts';
import { type Answer, Engine } from '../engine/index.ts';
import { tinyModelDirectory } from '../tinyModel/make.ts';

const blockTokens = 16;
const config = readModelConfig(nodePath.join(tinyModelDirectory, 'config.json'));
const { layers, kvHeads, headDim, vocabulary } = config;
const layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens });
const name = 'examples/server on its tiny model';

const engine: ParityEngine = { name, layout, runner: (setting) => new EngineRunner(setting) };
export default engine;

class EngineRunner implements ParityRunner {
  readonly name: string = name;
  readonly #setting: EngineSetting;

  constructor(setting: EngineSetting) {
    this.#setting = setting;
  }

  async run(job: RunnerJob): Promise<RealRun> {
    const { tierOptions, eviction, scheduler, adapter } = this.#setting;
    const engine = await Engine.open({
      directory: tinyModelDirectory,
      model: 'tiny@1',
      cache: {
        secretKey: new Uint8Array(32).fill(1),
        ...tierOptions,
        eviction: { policy: eviction },
        offloadThreshold: 1,
        leavingShare: 1,
        migration: false,
        log: job.logPath,
        notice: job.notice,
        ...(adapter === undefined ? {} : { adapter }),
      },
      blockTokens,
      stepTokens: scheduler.maxBatchedTokens ?? 256,
      maxSequences: scheduler.maxSequences ?? 64,
      preemption: scheduler.preemption,
      prefixLoads: 'awaited', // what is found of a request is known when it joins the batch
    });
    try {
      const requests = await serve(engine, job);
      const { kv } = engine.cache;
      await kv.idle();
      const steps = engine.steps.records.map((step) => ({
        ...step,
        experiment: 'parity',
        model: name,
        tp: 1,
      }));
      return {
        requests,
        latency: new Linear(fitLinear(steps).coefficients),
        latencyName: `linear, fitted to the ${steps.length} steps of the run`,
        adapter: { name: kv.stores.pool.adapter.name, software: kv.stores.pool.adapter.software },
        wrongBlocks: kv.manager.inspect.counters.loadsFailed[Outcome.CORRUPT],
        interruptedSteps: kv.devicesLost,
      };
    } finally {
      await engine.close(false);
    }
  }
}

/** Each request is sent when it arrives; its session goes on when its answer has ended. */
async function serve(engine: Engine, { traffic, signal, progress }: RunnerJob): Promise<ServedRequest[]> {
  const arrivals = new Arrivals(traffic.open());
  const ids = new TokenIds();
  const served: ServedRequest[] = [];
  const startMs = performance.now();
  const timeUs = (ms: number): number => Math.round((ms - startMs) * 1000);
  let open = 0;
  let added = 0;
  let wake = (): void => {};
  const watch = async (request: WorkloadRequest, answer: Answer): Promise<void> => {
    await answer.text();
    const { firstTokenMs, endedMs } = answer.times;
    const outputTokens = answer.tokens.length;
    const { id, sessionId, round, arrivalUs } = request;
    const [firstTokenUs, lastTokenUs] = [timeUs(firstTokenMs), timeUs(endedMs)];
    served.push({
      key: requestKey(id, sessionId, round),
      arrivalUs,
      firstTokenUs,
      lastTokenUs,
      outputTokens,
    });
    arrivals.ended(request, outputTokens, lastTokenUs);
    open--;
    progress(served.length);
    wake();
  };
  while (open > 0 || arrivals.timeUs < Infinity) {
    signal.throwIfAborted();
    const leftMs = arrivals.timeUs / 1000 - (performance.now() - startMs);
    if (leftMs <= 0) {
      const request = arrivals.take();
      open++;
      void watch(request, submit(engine, request, ids, added++));
      continue;
    }
    const ended = new Promise<void>((resolve) => {
      wake = resolve;
    });
    await Promise.race([ended, sleep(Math.min(leftMs, 100))]);
  }
  return served;
}

function submit(engine: Engine, request: WorkloadRequest, ids: TokenIds, own: number): Answer {
  const known = (tokens: Int32Array): number[] =>
    Array.from(tokens, (token) => 3 + (token % (vocabulary - 3)));
  const { inputTokens, outputTokens } = request;
  if (inputTokens + outputTokens > engine.contextTokens) {
    const problem = `holds no request of ${inputTokens} and ${outputTokens} tokens`;
    throw configError('--hbm', problem, 'Raise it, or serve shorter prompts.');
  }
  return engine.submit({
    prompt: known(ids.prompt(request, own)),
    tenant: 'parity',
    maxTokens: outputTokens,
    sampling: { temperature: 0, topK: 0, topP: 1, seed: 0 },
    stop: [],
    ignoreEnd: true,
    recorded: known(ids.output(request, own)),
  });
}
