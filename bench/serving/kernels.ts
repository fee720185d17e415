/**
 * The kernels over paged blocks, beside the device's own rate of copying as many bytes, in the same rounds.
 * A call is timed from submit to the end of the queue, so times include what the queue costs. Figures are
 * medians; `CPU ms` is what this process computed meanwhile, on all cores: on a software device it tells what
 * a call costs also where the machine is busy.
 *
 * - `decode`: attention of one row for each of 4 sequences of 2,048 tokens.
 * - `copies`: 256 blocks to other blocks of their slab, by the kernel in one dispatch, and by
 *   copyBufferToBuffer, which needs two copies through a scratch buffer, since it copies no buffer onto itself.
 *
 *     npm run bench:kernels -- [--json] [--adapter NAME] [--rounds N] [--kernel lanes|workgroups]
 */

import { parseArgs } from 'node:util';
import { openDevice } from '../../src/backends/webgpu/adapter.ts';
import { BufferUsage } from '../../src/backends/webgpu/device.ts';
import {
  type AttentionKernel,
  BlockCopies,
  BlockTensors,
  int8Layout,
  PagedAttention,
} from '../../src/compute/index.ts';
import { type KVLayout, kvLayout } from '../../src/runtime/geometry/layout.ts';
import { SeededRandom } from '../../src/testing/index.ts';

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    adapter: { type: 'string', default: 'software' },
    rounds: { type: 'string', default: '9' },
    kernel: { type: 'string' },
  },
});
const rounds = Number(options.rounds);
if (!(rounds >= 1)) throw new RangeError('--rounds is 1 or more');
const kernel = options.kernel as AttentionKernel | undefined;
const sequences = 4;
const tokens = 2048;
const qHeads = 8;
const shape = { layers: 1, kvHeads: 2, headDim: 64, blockTokens: 16 };
const layouts: Readonly<Record<string, KVLayout>> = {
  f32: kvLayout({ ...shape, dtype: 'f32' }),
  f16: kvLayout({ ...shape, dtype: 'f16' }),
  int8: int8Layout(shape),
};
const { STORAGE, COPY_SRC, COPY_DST } = BufferUsage;

type Recorded = (encoder: GPUCommandEncoder) => void;
interface Times {
  readonly ms: number;
  readonly bestMs: number;
  readonly cpuMs: number;
}

const live = await openDevice({
  adapter: options.adapter,
  wait: 'spin',
  notice: (line) => console.error(line),
});
const { device } = live;
const decodes = [];
for (const [name, layout] of Object.entries(layouts)) decodes.push(await decode(name, layout));
const copied = await copies(layouts.f32);
await live[Symbol.asyncDispose]();
if (options.json) {
  const head = { bench: 'kernels', adapter: live.adapter, node: process.version, rounds };
  console.log(JSON.stringify({ ...head, decode: { sequences, tokens, rows: decodes }, copies: copied }));
} else {
  const software = live.adapter.software ? ' (SOFTWARE device: says nothing about a GPU)' : '';
  console.log(`${live.adapter.name}${software}, medians of ${rounds} rounds`);
  console.log(`decode, ${sequences} x ${tokens} tokens, ${qHeads} query and 2 KV heads of 64`);
  console.table(decodes);
  console.table(copied);
}

async function decode(format: string, layout: KVLayout) {
  const blocks = (sequences * tokens) / layout.blockTokens;
  const [slab, other] = [buffer(blocks * layout.blockBytes), buffer(blocks * layout.blockBytes)];
  const source = buffer(sequences * (qHeads + 2 * layout.kvHeads) * 64 * 4);
  const attended = buffer(sequences * qHeads * 64 * 4);
  const perSequence = tokens / layout.blockTokens;
  const entries = Uint32Array.from({ length: blocks * 2 }, (_, i) => (i % 2) * (i >> 1) * layout.blockBytes);
  const random = new SeededRandom(1);
  const numbers = (count: number): Float32Array<ArrayBuffer> =>
    Float32Array.from({ length: count }, () => random.word() / 2 ** 31 - 1);
  const tensors = await BlockTensors.open({ device, slabs: [slab], layout, tokensMax: tokens });
  for (let sequence = 0; sequence < sequences; sequence++) {
    const own = entries.slice(2 * sequence * perSequence, 2 * (sequence + 1) * perSequence);
    tensors.write({ layer: 0, entries: own, tokens }, numbers(tokens * 2 * layout.kvHeads * 64));
  }
  device.queue.writeBuffer(source, 0, numbers(source.size / 4));
  const limits = { rowsMax: sequences, entriesMax: blocks, contextTokens: tokens };
  using attention = await PagedAttention.open({
    ...{ device, slabs: [slab], layout, qHeads, ...limits },
    ...(kernel === undefined ? {} : { kernel }),
  });
  const bound = attention.bind(source, attended);
  const rows = Array.from({ length: sequences }, (_, i) => [tokens - 1, i * perSequence, 0, 0]);
  attention.setStep({ rows: Uint32Array.from(rows.flat()), entries });
  const times = await measured({
    attend: inPass((pass) => attention.attend(pass, 0, bound)),
    copy: (encoder) => encoder.copyBufferToBuffer(slab, 0, other, 0, slab.size),
  });
  for (const each of [slab, other, source, attended]) each.destroy();
  const gbPerS = ({ ms }: Times): number => slab.size / ms / 1e6;
  return {
    format,
    kernel: attention.shape.kernel,
    ms: rounded(times.attend.ms),
    'best ms': rounded(times.attend.bestMs),
    'CPU ms': rounded(times.attend.cpuMs),
    'K and V, GB/s': rounded(gbPerS(times.attend)),
    'copy, GB/s': rounded(gbPerS(times.copy)),
    'share of copy': rounded(gbPerS(times.attend) / gbPerS(times.copy)),
  };
}

async function copies(layout: KVLayout) {
  const pairsMax = 256;
  const slab = buffer(2 * pairsMax * layout.blockBytes);
  const scratch = buffer(layout.blockBytes);
  using kernel = await BlockCopies.open({ device, slabs: [slab], layout, pairsMax });
  const at = (block: number) => ({ slab: 0, offsetBytes: block * layout.blockBytes });
  kernel.setPairs(Array.from({ length: pairsMax }, (_, i) => ({ from: at(2 * i), to: at(2 * i + 1) })));
  const size = layout.blockBytes;
  const times = await measured({
    'by the kernel': inPass((pass) => kernel.record(pass)),
    'by copyBufferToBuffer': (encoder) => {
      for (let i = 0; i < pairsMax; i++) {
        encoder.copyBufferToBuffer(slab, 2 * i * size, scratch, 0, size);
        encoder.copyBufferToBuffer(scratch, 0, slab, (2 * i + 1) * size, size);
      }
    },
  });
  slab.destroy();
  scratch.destroy();
  return Object.entries(times).map(([way, { ms, bestMs, cpuMs }]) => {
    const [best, cpu] = [rounded(bestMs), rounded(cpuMs)];
    return {
      blocks: `${pairsMax} x ${size / 1024} KiB`,
      way,
      ms: rounded(ms),
      'best ms': best,
      'CPU ms': cpu,
    };
  });
}

/** Each work once a round, by turns, after a round that is not counted. */
async function measured<K extends string>(works: Readonly<Record<K, Recorded>>): Promise<Record<K, Times>> {
  const names = Object.keys(works) as K[];
  const taken = names.map(() => ({ ms: [] as number[], cpuMs: [] as number[] }));
  for (let round = 0; round <= rounds; round++) {
    for (const [i, name] of names.entries()) {
      const encoder = device.createCommandEncoder();
      works[name](encoder);
      const cpu = process.cpuUsage();
      const startMs = performance.now();
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
      const ms = performance.now() - startMs;
      const { user, system } = process.cpuUsage(cpu);
      if (round === 0) continue;
      taken[i].ms.push(ms);
      taken[i].cpuMs.push((user + system) / 1000);
    }
  }
  const median = (list: number[]): number => list.sort((a, b) => a - b)[list.length >> 1];
  const times = taken.map(({ ms, cpuMs }): Times => {
    return { ms: median(ms), bestMs: Math.min(...ms), cpuMs: median(cpuMs) };
  });
  return Object.fromEntries(names.map((name, i) => [name, times[i]])) as Record<K, Times>;
}

function inPass(record: (pass: GPUComputePassEncoder) => void): Recorded {
  return (encoder) => {
    const pass = encoder.beginComputePass();
    record(pass);
    pass.end();
  };
}

function buffer(size: number): GPUBuffer {
  return device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
}

function rounded(value: number): number {
  return Number(value.toPrecision(3));
}
