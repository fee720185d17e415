/**
 * Parts of many blocks between device and host: through the kernels, by one copyBufferToBuffer a run, by
 * whichever of the two the store chooses, and by moving the whole blocks. All ways take turns within each
 * round; figures are medians in microseconds a block. Nothing is verified on the way, so that the ways are
 * compared and not the checks.
 *
 *     node bench/kv/boxes.ts [--json] [--adapter NAME] [--rounds N]
 */

import { parseArgs } from 'node:util';
import { openDevice } from '../../src/backends/webgpu/adapter.ts';
import { choosePath, hardwareRule, softwareRule } from '../../src/backends/webgpu/boxes.ts';
import { HbmStore } from '../../src/backends/webgpu/hbmStore.ts';
import { type BoxPath, type BoxPlan, boxPlan } from '../../src/backends/webgpu/types.ts';
import { type KVBox, tokenBox } from '../../src/runtime/geometry/box.ts';
import { type KVLayout, kvLayout } from '../../src/runtime/geometry/layout.ts';
import { poolShape } from '../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../src/runtime/tier/tier.ts';
import type { StoreItem, StoreResult } from '../../src/runtime/tier/tierStore.ts';

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    adapter: { type: 'string', default: 'software' },
    rounds: { type: 'string', default: '7' },
  },
});
const rounds = Number(options.rounds);

interface Model {
  readonly name: string;
  readonly layout: KVLayout;
  readonly blocks: number;
}

/** The KV of Llama 3.1 8B and of Qwen2.5 0.5B, in blocks of 16 tokens. */
const models: readonly Model[] = [
  {
    name: '8B',
    layout: kvLayout({ layers: 32, kvHeads: 8, headDim: 128, dtype: 'f16', blockTokens: 16 }),
    blocks: 64,
  },
  {
    name: '0.5B',
    layout: kvLayout({ layers: 24, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 }),
    blocks: 256,
  },
];

function boxesOf(layout: KVLayout): Record<string, KVBox> {
  const block = tokenBox(layout, 0, layout.blockTokens);
  return {
    'HEAD, one': { ...block, headEnd: 1 },
    'TOKEN, one': tokenBox(layout, 5, 6),
    'TOKEN, four': tokenBox(layout, 4, 8),
    'TOKEN, eight': tokenBox(layout, 8, 16),
    'LAYER, one': { ...block, layerStart: 1, layerEnd: 2 },
  };
}

const ways = ['kernel', 'copies', 'chosen', 'whole'] as const;
type Way = (typeof ways)[number];

interface Row {
  readonly model: string;
  readonly box: string;
  readonly direction: 'read' | 'write';
  readonly blocks: number;
  readonly runs: number;
  readonly runBytes: number;
  /** Median microseconds a block. */
  readonly us: Readonly<Record<Way, number>>;
  /** What `chosen` was. */
  readonly path: BoxPath;
  readonly software: boolean;
}

const live = await openDevice({ adapter: options.adapter, notice: (line) => console.error(line) });
const rule = live.adapter.software ? softwareRule : hardwareRule;
const rows: Row[] = [];
for (const model of models) await measureModel(model);
await live[Symbol.asyncDispose]();
print();

async function measureModel(model: Model): Promise<void> {
  const shape = poolShape(model.blocks, model.layout.blockBytes, [model.layout.blockBytes]);
  const open = (boxPath?: 'kernel' | 'copies'): Promise<HbmStore> =>
    HbmStore.open(live, shape, {
      verifyWrites: false,
      ...(boxPath === undefined ? {} : { boxPath }),
    });
  const stores: Record<Way, HbmStore> = {
    kernel: await open('kernel'),
    copies: await open('copies'),
    chosen: await open(),
    whole: await open(),
  };
  const whole = blockItems(model);
  for (const store of Object.values(stores)) requireLoaded(await store.write(whole));
  for (const [name, box] of Object.entries(boxesOf(model.layout))) {
    const plan = boxPlan(model.layout, box);
    const items = whole.map((item) => ({
      ...item,
      plan,
      bytes: new Uint8Array(plan.boxBytes).fill(item.slot),
    }));
    const read = await interleaved((way) =>
      way === 'whole' ? stores.whole.read(whole) : stores[way].readBoxes(items),
    );
    const write = await interleaved((way) =>
      way === 'whole' ? stores.whole.write(whole) : stores[way].writeBoxes(items),
    );
    rows.push(rowOf(model, name, plan, 'read', read), rowOf(model, name, plan, 'write', write));
  }
  for (const store of Object.values(stores)) await store[Symbol.asyncDispose]();
}

function blockItems({ layout, blocks }: Model): StoreItem[] {
  return Array.from({ length: blocks }, (_, slot) => ({
    slot: (slot * 37) % blocks,
    sizeClass: 0,
    generation: 1,
    key: new Uint32Array(4),
    digest: { lo: 0, hi: 0 },
    bytes: new Uint8Array(layout.blockBytes).fill(slot),
  }));
}

/** Median milliseconds of each way; every round begins with another one, and the first round warms up. */
async function interleaved(run: (way: Way) => Promise<readonly StoreResult[]>): Promise<Record<Way, number>> {
  const times: Record<Way, number[]> = { kernel: [], copies: [], chosen: [], whole: [] };
  for (let round = 0; round <= rounds; round++) {
    for (let i = 0; i < ways.length; i++) {
      const way = ways[(round + i) % ways.length];
      const started = performance.now();
      const ends = await run(way);
      const elapsedMs = performance.now() - started;
      requireLoaded(ends);
      if (round > 0) times[way].push(elapsedMs);
    }
  }
  const median = (way: Way): number => times[way].sort((a, b) => a - b)[times[way].length >> 1];
  return {
    kernel: median('kernel'),
    copies: median('copies'),
    chosen: median('chosen'),
    whole: median('whole'),
  };
}

function requireLoaded(ends: readonly StoreResult[]): void {
  const bad = ends.find((end) => end.outcome !== Outcome.LOADED);
  if (bad !== undefined) throw new Error(bad.reason);
}

function rowOf(
  { name, blocks }: Model,
  box: string,
  plan: BoxPlan,
  direction: 'read' | 'write',
  ms: Readonly<Record<Way, number>>,
): Row {
  const us = (way: Way): number => (ms[way] * 1000) / blocks;
  return {
    model: name,
    box,
    direction,
    blocks,
    runs: plan.runs,
    runBytes: plan.runBytes,
    us: { kernel: us('kernel'), copies: us('copies'), chosen: us('chosen'), whole: us('whole') },
    path: choosePath(rule, plan, blocks),
    software: live.adapter.software,
  };
}

function print(): void {
  if (options.json) {
    console.log(
      JSON.stringify({ bench: 'boxes', adapter: live.adapter, node: process.version, rounds, rows }),
    );
    return;
  }
  const software = live.adapter.software ? ' (software: says nothing about a GPU)' : '';
  console.log(`${live.adapter.name}${software}; microseconds a block, medians of ${rounds} rounds`);
  console.table(
    Object.fromEntries(
      rows.map((row) => [
        `${row.model}, ${row.box}, ${row.direction}`,
        {
          blocks: row.blocks,
          runs: row.runs,
          'bytes a run': row.runBytes,
          kernel: row.us.kernel.toFixed(1),
          'copy a run': row.us.copies.toFixed(1),
          chosen: `${row.us.chosen.toFixed(1)} (${row.path})`,
          'whole blocks': row.us.whole.toFixed(1),
          'copies / kernel': (row.us.copies / row.us.kernel).toFixed(2),
          'whole / chosen': (row.us.whole / row.us.chosen).toFixed(2),
        },
      ]),
    ),
  );
}
