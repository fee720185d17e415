/**
 * What it costs to be looked at: the example server's engine with the tiny model, its steps timed with and without metrics,
 * cache events and the dashboard (four frames a second, a page of Prometheus ten times a second), in turns on one engine. Prints the
 * ratio of the medians and of the means, and the processor time; figures of a software device say nothing about a GPU's.
 *
 *     node bench/serving/observing.ts [--json] [--rounds N]
 */

import { parseArgs } from 'node:util';
import { Engine } from '../../examples/server/engine/index.ts';
import { tinyModelDirectory } from '../../examples/server/tinyModel/make.ts';
import { dashboard } from '../../src/dashboard/index.ts';
import { prometheus, watchRuntime } from '../../src/metrics/index.ts';
import { SeededRandom } from '../../src/testing/index.ts';

const { values } = parseArgs({
  options: { json: { type: 'boolean', default: false }, rounds: { type: 'string', default: '12' } },
});
const rounds = Number(values.rounds);
if (!(rounds >= 2)) throw new RangeError('--rounds is 2 or more');

const mib = 2 ** 20;
const engine = await Engine.open({
  directory: tinyModelDirectory,
  model: 'tiny@1',
  cache: { secretKey: new Uint8Array(32).fill(1), hbmBytes: 4 * mib, ddrBytes: 8 * mib, offloadThreshold: 1 },
});
const { kv } = engine.cache;
watchRuntime(kv).close(); // the engine watches by itself

const stepsMs: { readonly on: number[]; readonly off: number[] } = { on: [], off: [] };
const cpuMs = { on: 0, off: 0 };
let now: 'on' | 'off' = 'off';
const { scheduler } = engine.cache;
let beganMs = 0;
const step = scheduler.step.bind(scheduler);
scheduler.step = () => {
  const startMs = performance.now();
  const plan = step();
  if (plan.tokens > 0) beganMs = startMs;
  return plan;
};
const stepEnded = scheduler.stepEnded.bind(scheduler);
scheduler.stepEnded = (sampled) => {
  const outcome = stepEnded(sampled);
  stepsMs[now].push(performance.now() - beganMs);
  return outcome;
};

/** Requests of ten prompts, some of which lie below HBM by the time they come again. */
async function serve(seed: number): Promise<void> {
  const random = new SeededRandom(seed);
  const answers = Array.from({ length: 24 }, () => {
    const prompt = random.below(10);
    return engine.submit({
      prompt: Array.from({ length: 200 }, (_, at) => 3 + ((prompt * 131 + at * 7) % 500)),
      tenant: `tenant ${prompt % 3}`,
      maxTokens: 32,
      sampling: { temperature: 0, topK: 0, topP: 1, seed: 0 },
      stop: [],
      ignoreEnd: true,
    });
  });
  await Promise.all(answers.map((answer) => answer.text()));
}

async function observed(seed: number): Promise<void> {
  const watch = watchRuntime(kv);
  const board = await dashboard(kv, { everyMs: 250 });
  const page = await prometheus(watch);
  const scrapes = setInterval(() => void page.text(), 100);
  const events = kv.events({ uses: true });
  const reading = (async () => {
    for await (const _ of events);
  })();
  await serve(seed);
  clearInterval(scrapes);
  board.close();
  watch.close();
  await events.return?.();
  await reading;
}

await serve(1);
await observed(1); // both are warm
stepsMs.on.length = 0;
stepsMs.off.length = 0;
for (let round = 0; round < rounds; round++) {
  for (const which of round % 2 === 0 ? (['on', 'off'] as const) : (['off', 'on'] as const)) {
    now = which;
    const before = process.cpuUsage();
    await (which === 'on' ? observed(round + 2) : serve(round + 2));
    const { user, system } = process.cpuUsage(before);
    cpuMs[which] += (user + system) / 1000;
  }
}
await engine.close(false);

const median = (times: readonly number[]): number => [...times].sort((a, b) => a - b)[times.length >> 1];
const mean = (times: readonly number[]): number => times.reduce((sum, each) => sum + each, 0) / times.length;
const result = {
  device: kv.describe().hbm?.adapter ?? '',
  steps: [stepsMs.off.length, stepsMs.on.length],
  medianMs: [median(stepsMs.off), median(stepsMs.on)],
  medianRatio: median(stepsMs.on) / median(stepsMs.off),
  meanRatio: mean(stepsMs.on) / mean(stepsMs.off),
  cpuRatio: cpuMs.on / cpuMs.off,
};
if (values.json) console.log(JSON.stringify(result, null, 2));
else {
  console.log(`${result.steps.join(' and ')} steps without and with, on ${result.device}`);
  console.log(`a step: median ${result.medianMs.map((ms) => ms.toFixed(2)).join(' and ')} ms`);
  console.log(`with / without: median ${result.medianRatio.toFixed(4)}, mean ${result.meanRatio.toFixed(4)}`);
  console.log(`processor time, with / without: ${result.cpuRatio.toFixed(4)}`);
}
