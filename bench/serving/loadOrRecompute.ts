/**
 * The time to the first token of a prompt whose prefix was computed before and lies below HBM: when all of it
 * is loaded, when all of it is computed again, and when the engine chooses, by loads and steps that it has
 * measured, how much of it to do in which way. In one run, in turns that change with each round, since what
 * follows a long computation finds caches cold; the planned times are of that moment.
 *
 * - `ddr`, `nvme`: the prefix lies in host memory, in files.
 * - `slow`: it lies in host memory, behind a link made so slow that loading 1,024 tokens takes as long as
 *   computing them. There neither loading nor computing alone is best.
 *
 * The model is the seeded one of the example with one layer and two heads, whose prompts may be longer.
 * Figures of a software device say nothing about a GPU's.
 *
 *     node bench/serving/loadOrRecompute.ts [--json] [--rounds N] [--longest TOKENS] [--link ddr|nvme|slow]
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Engine } from '../../examples/server/engine/index.ts';
import { makeTinyModel } from '../../examples/server/tinyModel/make.ts';
import type { StoreResult } from '../../src/runtime/index.ts';
import { loadOrRecompute, planOf } from '../../src/runtime/planning/loadOrRecompute.ts';
import type { TopTierStore } from '../../src/runtime/tier/tierStore.ts';
import { SeededRandom } from '../../src/testing/index.ts';
import { pushDown } from './pushDown.ts';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '6' },
    longest: { type: 'string', default: '8192' },
    link: { type: 'string' },
  },
});
const rounds = Number(values.rounds);
const longest = Number(values.longest);
const links = (['ddr', 'nvme', 'slow'] as const).filter((link) => (values.link ?? link) === link);
if (!(rounds >= 1) || !(longest >= 64 && longest <= 8192) || links.length === 0) {
  throw new RangeError('--rounds is 1 or more, --longest from 64 to 8192, --link ddr, nvme or slow');
}
type Link = (typeof links)[number];

const blockTokens = 16;
const blockBytes = 2 * blockTokens * 32 * 4;
const mib = 2 ** 20;
const random = new SeededRandom(1);
const randomTokens = (count: number): number[] => Array.from({ length: count }, () => 3 + random.below(509));
const median = (times: readonly number[]): number => [...times].sort((a, b) => a - b)[times.length >> 1];

const directory = mkdtempSync(join(tmpdir(), 'tierkv-bench-'));
const model = join(directory, 'model');
makeTinyModel(model, { layers: 1, heads: 2, kvHeads: 1, contextTokens: 8192 + 64 });

/** Bytes a second that the device's memory takes, as long as it is set. */
let throttle = Number.POSITIVE_INFINITY;

/** Each block is written no sooner than a link of that speed brings it. */
function throttled(hbm: TopTierStore): TopTierStore {
  const write: TopTierStore['write'] = async (items, ended = () => {}) => {
    const ends: StoreResult[] = [];
    if (throttle === Number.POSITIVE_INFINITY) return hbm.write(items, ended);
    let due = performance.now();
    for (const [i, item] of items.entries()) {
      due += (item.bytes.length / throttle) * 1000;
      if (due > performance.now() + 1) await sleep(due - performance.now());
      ends.push(...(await hbm.write([item], (_, end) => ended(i, end))));
    }
    return ends;
  };
  return new Proxy(hbm, {
    get: (store, name) => {
      if (name === 'write') return write;
      const value = Reflect.get(store, name, store);
      return typeof value === 'function' ? value.bind(store) : value;
    },
  });
}

function open(name: string, prefixLoads: string): Promise<Engine> {
  return Engine.open({
    directory: model,
    model: 'bench@1',
    cache: {
      secretKey: new Uint8Array(32).fill(1),
      hbmBytes: 16 * mib,
      ddrBytes: 16 * mib,
      nvme: { dir: mkdtempSync(join(directory, name)), bytes: 64 * mib },
      migration: false,
      offloadThreshold: 1,
      wrapStores: (stores) => ({ ...stores, hbm: throttled(stores.hbm!) }),
    },
    prefixLoads,
    contextTokens: 8192 + 64,
    maxSequences: 8,
  });
}

const whole = await open('whole', 'awaited');
const chosen = await open('chosen', 'overlapped');

/** @returns milliseconds to the first token, when nothing else goes on */
async function ask(engine: Engine, prompt: readonly number[], tenant: string): Promise<number> {
  for (const each of [whole, chosen]) await each.cache.kv.idle();
  await sleep(5);
  const sampling = { temperature: 0, topK: 0, topP: 1, seed: 0 };
  const answer = engine.submit({ prompt, tenant, maxTokens: 1, sampling, stop: [], ignoreEnd: true });
  await answer.text();
  return answer.times.firstTokenMs - answer.times.arrivedMs;
}

interface Row {
  readonly link: Link;
  readonly tokens: number;
  readonly loadMs: number;
  readonly recomputeMs: number;
  readonly chosenMs: number;
  /** Against the better one. */
  readonly ratio: number;
  readonly plannedLoadMs: number;
  readonly plannedRecomputeMs: number;
  readonly plannedChosenMs: number;
  /** Of the prefix, tokens that were computed in the median round. */
  readonly computedTokens: number;
}

let tenants = 0;

async function measure(link: Link, tokens: number): Promise<Row> {
  const prompt = randomTokens(tokens + 1);
  // everything that is cached leaves HBM, and DDR too where files are measured
  const levels = link === 'nvme' ? 2 : 1;
  const times: { load: number[]; recompute: number[]; chosen: number[]; computed: number[] } = {
    load: [],
    recompute: [],
    chosen: [],
    computed: [],
  };
  const planned: number[][] = [[], [], []];
  for (const engine of [whole, chosen]) await ask(engine, prompt, 'prefix');
  for (let round = 0; round < rounds; round++) {
    for (const engine of [whole, chosen]) await pushDown(engine.cache.kv, levels);
    if (round === 0) await ask(chosen, prompt, 'prefix'); // the link is measured once before it counts
    await pushDown(chosen.cache.kv, levels);
    const turns = [
      async () => times.load.push(await ask(whole, prompt, 'prefix')),
      async () => times.recompute.push(await ask(whole, prompt, `stranger ${tenants++}`)),
      async () => {
        plan(link, tokens).forEach((ms, i) => {
          planned[i].push(ms);
        });
        const before = chosen.cache.scheduler.counters.recomputedBlocks;
        times.chosen.push(await ask(chosen, prompt, 'prefix'));
        const blocks = chosen.cache.scheduler.counters.recomputedBlocks - before;
        times.computed.push(blocks * blockTokens);
      },
    ];
    for (let i = 0; i < turns.length; i++) await turns[(round + i) % turns.length]();
  }
  const [loadMs, recomputeMs, chosenMs] = [times.load, times.recompute, times.chosen].map(median);
  const [plannedLoadMs, plannedRecomputeMs, plannedChosenMs] = planned.map(median);
  return {
    link,
    tokens,
    loadMs,
    recomputeMs,
    chosenMs,
    ratio: chosenMs / Math.min(loadMs, recomputeMs),
    plannedLoadMs,
    plannedRecomputeMs,
    plannedChosenMs,
    computedTokens: median(times.computed),
  };
}

/** What loading, computing and the choice would take by what the engine knows now, in milliseconds. */
function plan(link: Link, tokens: number): number[] {
  const { kv, scheduler } = chosen.cache;
  const compute = scheduler.computeEstimate;
  if (compute === undefined) return [Number.NaN, Number.NaN, Number.NaN];
  const left = { blocks: tokens / blockTokens, blockTokens, blockBytes, computedTokens: 0 };
  const load = kv.manager.inspect.linkEstimate(link === 'nvme' ? 2 : 1, kv.nowUs());
  const ends = [
    planOf(0, left, compute, load),
    planOf(left.blocks, left, compute, load),
    loadOrRecompute(left, compute, load),
  ];
  return ends.map(({ endUs }) => endUs / 1000);
}

/** An engine that has just started compiles kernels in its first steps, which says nothing of those after. */
async function warmUp(): Promise<void> {
  for (const tokens of [64, 256, 1024, 64, 256]) {
    for (const engine of [whole, chosen])
      await ask(engine, randomTokens(tokens + 1), `stranger ${tenants++}`);
  }
}

const rows: Row[] = [];
const lengths = [64, 128, 256, 512, 1024, 2048, 4096, 8192].filter((tokens) => tokens <= longest);
if (!values.json) {
  console.log(
    `device: ${chosen.cache.kv.describe().hbm.adapter ?? 'unknown'}; ${rounds} rounds, medians in ms`,
  );
  console.log(
    'link   tokens     load  recompute   chosen  of better  computed   planned: load recompute chosen',
  );
}
await warmUp();
for (const link of links) {
  throttle = Number.POSITIVE_INFINITY;
  if (link === 'slow') {
    const prompt = randomTokens(1025);
    const recompute = [];
    for (let i = 0; i < 3; i++) recompute.push(await ask(whole, prompt, `pace ${i}`));
    throttle = ((1024 / blockTokens) * blockBytes * 1000) / median(recompute);
  }
  for (const tokens of lengths) {
    const row = await measure(link, tokens);
    rows.push(row);
    if (values.json) continue;
    const ms = (value: number, width: number): string => value.toFixed(1).padStart(width);
    console.log(
      `${link.padEnd(5)} ${String(tokens).padStart(7)} ${ms(row.loadMs, 8)} ${ms(row.recomputeMs, 10)} ` +
        `${ms(row.chosenMs, 8)} ${row.ratio.toFixed(2).padStart(10)} ${String(row.computedTokens).padStart(9)} ` +
        `${ms(row.plannedLoadMs, 15)} ${ms(row.plannedRecomputeMs, 9)} ${ms(row.plannedChosenMs, 6)}`,
    );
  }
}
const over = median(rows.map(({ ratio }) => ratio));
const plannedOver = median(
  rows.map(
    ({ plannedLoadMs, plannedRecomputeMs, plannedChosenMs }) =>
      plannedChosenMs / Math.min(plannedLoadMs, plannedRecomputeMs),
  ),
);
if (values.json)
  console.log(JSON.stringify({ rows, medianOfBetter: over, plannedMedianOfBetter: plannedOver }));
else {
  console.log(
    `chosen against the better of the two, in the median over all rows: ${over.toFixed(2)}, by the plans ` +
      plannedOver.toFixed(2),
  );
}
await whole.close();
await chosen.close();
rmSync(directory, { recursive: true });
