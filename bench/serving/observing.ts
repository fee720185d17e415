/**
 * What it costs to be looked at: the example server's engine with the tiny model, its steps timed with and without metrics,
 * cache events and the dashboard (four frames a second, a page of Prometheus ten times a second), in turns on one engine. The
 * parts are opened before the steps are timed. Prints the median over pairs of rounds of the ratio of their median steps, of
 * the processor time of the thread that serves, and of the whole process; figures of a software device say nothing about a
 * GPU's. With `--control` nothing is opened in either: what then differs from 1 is the noise of this machine.
 *
 * `--profile` samples the serving thread in the rounds that are looked at, and says how much of a step goes to code of the
 * metrics, the dashboard and the events: that holds on a busy machine too, where two rounds differ by a tenth by chance.
 *
 *     node bench/serving/observing.ts [--json] [--rounds N] [--parts metrics,scrapes,events,dashboard] [--control | --profile]
 */

import { type Profiler, Session } from 'node:inspector/promises';
import { parseArgs } from 'node:util';
import { Engine } from '../../examples/server/engine/index.ts';
import { tinyModelDirectory } from '../../examples/server/tinyModel/make.ts';
import { dashboard } from '../../src/observe/dashboard/dashboard.ts';
import { prometheus } from '../../src/observe/metrics/prometheus.ts';
import { watchRuntime } from '../../src/observe/metrics/watch.ts';
import { SeededRandom } from '../../src/testing/index.ts';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '20' },
    parts: { type: 'string', default: 'metrics,scrapes,events,dashboard' },
    control: { type: 'boolean', default: false },
    profile: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);
if (!(rounds >= 2)) throw new RangeError('--rounds is 2 or more');
const parts = new Set(values.control ? [] : values.parts.split(','));

const mib = 2 ** 20;
const engine = await Engine.open({
  directory: tinyModelDirectory,
  model: 'tiny@1',
  cache: { secretKey: new Uint8Array(32).fill(1), hbmBytes: 4 * mib, ddrBytes: 8 * mib, offloadThreshold: 1 },
});
const { kv } = engine.cache;
watchRuntime(kv).close(); // the engine watches by itself

let stepsMs: number[] = [];
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
  stepsMs.push(performance.now() - beganMs);
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

/** Opens what looks on. @returns what closes it */
async function observers(): Promise<() => Promise<void>> {
  const closing: (() => unknown)[] = [];
  if (parts.has('metrics') || parts.has('scrapes')) {
    const watch = watchRuntime(kv);
    closing.push(() => watch.close());
    if (parts.has('scrapes')) {
      const page = await prometheus(watch);
      const scrapes = setInterval(() => void page.text(), 100);
      closing.unshift(() => clearInterval(scrapes));
    }
  }
  if (parts.has('dashboard')) {
    const board = await dashboard(kv, { everyMs: 250 });
    const watch = watchRuntime(kv);
    closing.unshift(() => board.close());
    closing.push(() => watch.close());
  }
  if (parts.has('events')) {
    const events = kv.events({ uses: true });
    const reading = (async () => {
      for await (const _ of events);
    })();
    closing.push(async () => {
      await events.return?.();
      await reading;
    });
  }
  return async () => {
    for (const close of closing) await close();
  };
}

interface Round {
  readonly steps: number;
  readonly medianMs: number;
  readonly threadMs: number;
  readonly processMs: number;
}

const session = values.profile ? new Session() : undefined;
session?.connect();
await session?.post('Profiler.enable');
await session?.post('Profiler.setSamplingInterval', { interval: 200 });
/** Milliseconds of the serving thread in code that looks on, by file; and steps in which it was. */
const looking: Map<string, number> = new Map();
let lookedSteps = 0;
let isWarm = false;

const lookingOn =
  /\/src\/(metrics|dashboard)\/|\/prom-client\/|\/src\/embed\/(observability|requestObserver)\.ts/;

/** Adds up what the profile has of code that looks on, with all that it calls. */
function addUp({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile): void {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const ownUs = new Map<number, number>();
  for (const [i, id] of samples.entries()) ownUs.set(id, (ownUs.get(id) ?? 0) + timeDeltas[i]);
  const visit = (id: number, under: string): void => {
    const node = byId.get(id);
    if (node === undefined) return;
    const { url } = node.callFrame;
    const file = under !== '' ? under : lookingOn.test(url) ? url.split('/').slice(-2).join('/') : '';
    if (file !== '') looking.set(file, (looking.get(file) ?? 0) + (ownUs.get(id) ?? 0) / 1000);
    for (const child of node.children ?? []) visit(child, file);
  };
  visit(nodes[0].id, '');
}

async function round(which: 'on' | 'off', seed: number): Promise<Round> {
  const close = which === 'on' ? await observers() : async (): Promise<void> => {};
  const profiles = which === 'on' && isWarm;
  if (profiles) await session?.post('Profiler.start');
  stepsMs = [];
  const [thread, all] = [process.threadCpuUsage(), process.cpuUsage()];
  await serve(seed);
  const sum = ({ user, system }: { user: number; system: number }): number => (user + system) / 1000;
  const threadMs = sum(process.threadCpuUsage(thread));
  const processMs = sum(process.cpuUsage(all));
  const steps = stepsMs.length;
  if (profiles && session !== undefined) {
    addUp((await session.post('Profiler.stop')).profile);
    lookedSteps += steps;
  }
  await close();
  return { steps, medianMs: median(stepsMs), threadMs: threadMs / steps, processMs: processMs / steps };
}

const median = (numbers: readonly number[]): number => {
  const sorted = [...numbers].sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
};

for (const which of ['off', 'on', 'off', 'on'] as const) await round(which, 1);
isWarm = true;
const pairs: Record<'on' | 'off', Round>[] = [];
for (let number = 0; number < rounds; number++) {
  const pair: Partial<Record<'on' | 'off', Round>> = {};
  for (const which of number % 2 === 0 ? (['on', 'off'] as const) : (['off', 'on'] as const)) {
    pair[which] = await round(which, number + 2);
  }
  pairs.push(pair as Record<'on' | 'off', Round>);
}
await engine.close(false);

/** Median over the pairs, and the middle half of them. */
function ratio(
  of: (round: Round) => number,
): readonly [middle: number, quarter: number, threeQuarters: number] {
  const all = pairs.map(({ on, off }) => of(on) / of(off)).sort((a, b) => a - b);
  return [median(all), all[Math.floor((all.length - 1) / 4)], all[Math.ceil((3 * (all.length - 1)) / 4)]];
}
const result = {
  device: kv.describe().hbm?.adapter ?? '',
  parts: [...parts],
  pairs: pairs.length,
  stepsOfARound: median(pairs.map(({ off }) => off.steps)),
  medianStepMs: [median(pairs.map(({ off }) => off.medianMs)), median(pairs.map(({ on }) => on.medianMs))],
  threadMsAStep: [median(pairs.map(({ off }) => off.threadMs)), median(pairs.map(({ on }) => on.threadMs))],
  stepRatio: ratio(({ medianMs }) => medianMs),
  threadRatio: ratio(({ threadMs }) => threadMs),
  processRatio: ratio(({ processMs }) => processMs),
  ...(session === undefined
    ? {}
    : {
        lookingMsAStep: Object.fromEntries(
          [...looking].sort(([, a], [, b]) => b - a).map(([file, ms]) => [file, ms / lookedSteps]),
        ),
      }),
};
if (values.json) console.log(JSON.stringify(result, null, 2));
else {
  const { medianStepMs, threadMsAStep } = result;
  const fixed = (numbers: readonly number[], digits: number): string[] =>
    numbers.map((each) => each.toFixed(digits));
  const line = (name: string, [middle, low, high]: readonly number[]): void =>
    console.log(
      `${name.padEnd(44)} ${middle.toFixed(4)}  (half of the pairs ${fixed([low, high], 4).join(' to ')})`,
    );
  console.log(`${result.pairs} pairs of rounds of ${result.stepsOfARound} steps, on ${result.device}`);
  console.log(`on: ${[...parts].join(', ') || 'nothing (control)'}`);
  console.log(`median step, off and on: ${fixed(medianStepMs, 2).join(' and ')} ms`);
  console.log(`the serving thread's time a step: ${fixed(threadMsAStep, 2).join(' and ')} ms`);
  line('on / off: median step', result.stepRatio);
  line('on / off: processor time of the thread', result.threadRatio);
  line('on / off: processor time of the process', result.processRatio);
  if (result.lookingMsAStep !== undefined) {
    const each = Object.entries(result.lookingMsAStep);
    const all = each.reduce((sum, [, ms]) => sum + ms, 0);
    const share = ((100 * all) / medianStepMs[1]).toFixed(2);
    console.log(`in code that looks on: ${all.toFixed(4)} ms a step, ${share} % of the median step`);
    for (const [file, ms] of each) console.log(`  ${file.padEnd(42)} ${ms.toFixed(4)} ms`);
  }
}
