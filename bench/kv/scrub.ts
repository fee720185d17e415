/**
 * What clearing a slot costs that passes from one tenant to another: two tenants take turns in an HBM that is
 * full of the other's blocks, so that every block of every request changes its tenant. Measured from `begin`
 * until the device has done what was submitted, with `scrub` and without, in the same rounds and in changing
 * order; without a prefill, which costs many times as much.
 *
 *     node bench/kv/scrub.ts [--rounds 15] [--adapter NAME] [--json FILE]
 */

import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { type KVLayout, KVRuntime, kvLayout } from '../../src/index.ts';
import { formatBytes, renderTable } from '../../src/io/printing/text.ts';
import { median } from '../../src/studies/measure/manager.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '15' },
    adapter: { type: 'string' },
    json: { type: 'string' },
  },
});
const rounds = Number(values.rounds);
if (!(rounds >= 1)) throw new RangeError('--rounds must be 1 or more');

const BLOCKS = 16;
const WARM_UP = 2;
const BYTES_OF_BLOCK = [64, 512, 2048].map((kib) => kib * 1024);

interface Row {
  readonly blockBytes: number;
  readonly withUs: number;
  readonly withoutUs: number;
  /** Of one block: the difference of the medians. */
  readonly blockUs: number;
  readonly clearedGbps: number;
}

function layoutOf(blockBytes: number): KVLayout {
  // K and V, 4 heads, 16 tokens of 64 elements in f16: 16 KiB a layer
  return kvLayout({ layers: blockBytes / 16_384, kvHeads: 4, headDim: 64, dtype: 'f16', blockTokens: 16 });
}

function open(layout: KVLayout, scrub: boolean): Promise<KVRuntime> {
  return KVRuntime.open({
    layout,
    model: 'bench@1',
    secretKey: new Uint8Array(32).fill(1),
    hbmBytes: BLOCKS * layout.blockBytes,
    scrub,
    ...(values.adapter === undefined ? {} : { adapter: values.adapter }),
  });
}

/** Microseconds of one request whose blocks all held another tenant's KV; they are sealed afterwards. */
async function requestUs(kv: KVRuntime, round: number): Promise<number> {
  const tokens = Uint32Array.from({ length: (BLOCKS - 1) * 16 }, (_, i) => round * 10_000 + i);
  const startMs = performance.now();
  const sequence = await kv.begin(tokens, { tenant: `tenant ${round % 2}` });
  await kv.device.queue.onSubmittedWorkDone();
  const tookUs = (performance.now() - startMs) * 1000;
  await kv.seal(sequence);
  kv.release(sequence);
  return tookUs;
}

async function measure(blockBytes: number): Promise<{ readonly row: Row; readonly adapter: string }> {
  const layout = layoutOf(blockBytes);
  await using scrubbed = await open(layout, true);
  await using plain = await open(layout, false);
  const times: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds + WARM_UP; round++) {
    for (const which of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
      const tookUs = await requestUs(which === 0 ? scrubbed : plain, round);
      if (round >= WARM_UP) times[which].push(tookUs);
    }
  }
  const [withUs, withoutUs] = times.map(median);
  const blockUs = (withUs - withoutUs) / (BLOCKS - 1);
  const { name, software } = scrubbed.stores.hbm.adapter;
  return {
    row: { blockBytes, withUs, withoutUs, blockUs, clearedGbps: blockBytes / blockUs / 1e3 },
    adapter: `${name}${software ? ' (a SOFTWARE device, whose times say nothing about a GPU)' : ''}`,
  };
}

const measured = [];
for (const blockBytes of BYTES_OF_BLOCK) measured.push(await measure(blockBytes));
const rows = measured.map(({ row }) => row);
const [{ adapter }] = measured;
const right = 'right' as const;
console.log(adapter);
console.log(
  renderTable(
    [
      { title: `begin of ${BLOCKS - 1} blocks of` },
      { title: 'scrubbed, µs', align: right },
      { title: 'not, µs', align: right },
      { title: 'a block, µs', align: right },
      { title: 'cleared, GB/s', align: right },
    ],
    rows.map(({ blockBytes, withUs, withoutUs, blockUs, clearedGbps }) => [
      formatBytes(blockBytes),
      withUs.toFixed(0),
      withoutUs.toFixed(0),
      blockUs.toFixed(1),
      blockUs > 0 ? clearedGbps.toFixed(2) : 'below the noise',
    ]),
  ),
);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify({ adapter, rows }, null, 2)}\n`);
