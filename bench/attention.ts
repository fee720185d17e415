/**
 * Decode attention over paged blocks: milliseconds of a call, and the K and V it reads over that time beside
 * the device's own rate of copying as many bytes, in the same rounds. Figures are medians, and a call is
 * timed from submit to the end of the queue, so they include what the queue costs.
 *
 *     node bench/attention.ts [--json] [--adapter NAME] [--rounds N]
 */

import { parseArgs } from 'node:util';
import { BufferUsage } from '../src/backends/webgpu/device/gpuConstants.ts';
import { openDevice } from '../src/backends/webgpu/index.ts';
import { int8Layout, PagedAttention } from '../src/compute/index.ts';
import { type KVLayout, kvLayout } from '../src/runtime/geometry/index.ts';

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    adapter: { type: 'string', default: 'software' },
    rounds: { type: 'string', default: '9' },
  },
});
const rounds = Number(options.rounds);
const sequences = 4;
const tokens = 2048;
const qHeads = 8;
const shape = { layers: 1, kvHeads: 2, headDim: 64, blockTokens: 16 };
const layouts: Readonly<Record<string, KVLayout>> = {
  f32: kvLayout({ ...shape, dtype: 'f32' }),
  f16: kvLayout({ ...shape, dtype: 'f16' }),
  int8: int8Layout(shape),
};

const live = await openDevice({ adapter: options.adapter, notice: (line) => console.error(line) });
const { device } = live;
const rows = [];
for (const [name, layout] of Object.entries(layouts)) rows.push(await measure(name, layout));
await live[Symbol.asyncDispose]();
const head = { bench: 'attention', adapter: live.adapter, node: process.version, rounds, sequences, tokens };
if (options.json) console.log(JSON.stringify({ ...head, rows }));
else {
  const software = live.adapter.software ? ' (software: says nothing about a GPU)' : '';
  console.log(
    `${live.adapter.name}${software}; ${sequences} x ${tokens} tokens, medians of ${rounds} rounds`,
  );
  console.table(rows);
}

async function measure(name: string, layout: KVLayout) {
  const blocks = (sequences * tokens) / layout.blockTokens;
  const { STORAGE, COPY_SRC, COPY_DST } = BufferUsage;
  const buffer = (size: number): GPUBuffer =>
    device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
  const [slab, copied] = [buffer(blocks * layout.blockBytes), buffer(blocks * layout.blockBytes)];
  const source = buffer(sequences * (qHeads + 2 * layout.kvHeads) * 64 * 4);
  const attended = buffer(sequences * qHeads * 64 * 4);
  const limits = { rowsMax: sequences, entriesMax: blocks, contextTokens: tokens };
  using attention = await PagedAttention.open({ device, slabs: [slab], layout, qHeads, ...limits });
  const bound = attention.bind(source, attended);
  const first = (sequence: number): number => (sequence * tokens) / layout.blockTokens;
  attention.setStep({
    rows: Uint32Array.from({ length: sequences * 4 }, (_, i) => [tokens - 1, first(i >> 2), 0, 0][i % 4]),
    entries: Uint32Array.from({ length: blocks * 2 }, (_, i) =>
      i % 2 === 0 ? 0 : (i >> 1) * layout.blockBytes,
    ),
  });
  const attend = (encoder: GPUCommandEncoder): void => {
    const pass = encoder.beginComputePass();
    attention.attend(pass, 0, bound);
    pass.end();
  };
  const copy = (encoder: GPUCommandEncoder): void =>
    encoder.copyBufferToBuffer(slab, 0, copied, 0, slab.size);
  const times: Record<'attend' | 'copy', number[]> = { attend: [], copy: [] };
  for (let round = 0; round <= rounds; round++) {
    const [attendMs, copyMs] = [await timed(attend), await timed(copy)];
    if (round === 0) continue;
    times.attend.push(attendMs);
    times.copy.push(copyMs);
  }
  const median = (list: number[]): number => list.sort((a, b) => a - b)[list.length >> 1];
  const [attendMs, copyMs] = [median(times.attend), median(times.copy)];
  for (const each of [slab, copied, source, attended]) each.destroy();
  return {
    format: name,
    ms: Number(attendMs.toFixed(2)),
    'best ms': Number(Math.min(...times.attend).toFixed(2)),
    'K and V, GB/s': Number((slab.size / attendMs / 1e6).toFixed(3)),
    'copy, GB/s': Number((slab.size / copyMs / 1e6).toFixed(3)),
  };
}

async function timed(record: (encoder: GPUCommandEncoder) => void): Promise<number> {
  const encoder = device.createCommandEncoder();
  record(encoder);
  const started = performance.now();
  device.queue.submit([encoder.finish()]);
  await device.queue.onSubmittedWorkDone();
  return performance.now() - started;
}
