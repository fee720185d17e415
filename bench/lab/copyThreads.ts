/**
 * The first question to a GPU: what 0 (`set`), 1, 2, 4 and more threads copy into and out of its mapped buffers, by size
 * of a batch. What is behind the bus and what lies in host memory differ here.
 *
 *     node bench/lab/copyThreads.ts [--mib 8] [--buffers 8] [--rounds 9] [--out FILE]
 */

import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { type HostMove, holdCopyThreads, letCopyThreadsGo } from '../../src/backends/host/copyThreads.ts';
import { openDevice } from '../../src/backends/webgpu/adapter.ts';
import { ReadbackBuffers, UploadBuffers } from '../../src/backends/webgpu/uploads.ts';

const { values } = parseArgs({
  options: {
    mib: { type: 'string', default: '8' },
    buffers: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '9' },
    out: { type: 'string' },
  },
});
const bytes = Number(values.mib) * 1024 * 1024;
const cores = availableParallelism();
const threads = await holdCopyThreads(cores);
if (threads === undefined) throw new Error('there are no threads: run npm install koffi');
const live = await openDevice();
const size = { bytes, count: Number(values.buffers) };
const ways = { in: new UploadBuffers(live, size, 'lab'), out: new ReadbackBuffers(live, size, 'lab') };
const counts = [...new Set([0, 1, 2, 4, 8, cores].filter((count) => count <= cores))];
const rows: { way: string; mib: number; threads: number; gbps: number }[] = [];

for (const way of ['in', 'out'] as const) {
  await ways[way].withRanges(async (ranges) => {
    const host = ranges.map(({ byteLength }) => new Uint8Array(byteLength).fill(3));
    for (let part = bytes; part >= 512 * 1024; part /= 2) {
      const moves = ranges.map((range, i): HostMove => {
        const [there, here] = [range.subarray(0, part), host[i].subarray(0, part)];
        return way === 'in' ? { into: there, from: here } : { into: here, from: there };
      });
      const taken = new Map(counts.map((count) => [count, [] as number[]]));
      for (let round = 0; round <= Number(values.rounds); round++) {
        for (const [count, times] of taken) {
          const startMs = performance.now();
          await copyAll(count, moves, part);
          if (round > 0) times.push(performance.now() - startMs);
        }
      }
      for (const [count, times] of taken) {
        const middle = times.sort((a, b) => a - b)[times.length >> 1];
        const gbps = (ranges.length * part) / middle / 1e6;
        rows.push({ way, mib: part / 1024 / 1024, threads: count, gbps });
        console.log(
          `${way} ${part / 1024} KiB by ${count === 0 ? 'set' : `${count} threads`}: ${gbps.toFixed(2)} GB/s`,
        );
      }
    }
  });
}
if (values.out !== undefined) {
  writeFileSync(values.out, `${JSON.stringify({ adapter: live.adapter, cores, bytes, rows }, null, 2)}\n`);
}
for (const buffers of Object.values(ways)) await buffers.destroy();
await live[Symbol.asyncDispose]();
letCopyThreadsGo();

async function copyAll(count: number, moves: readonly HostMove[], partBytes: number): Promise<void> {
  const left = [...moves];
  const lane = async (): Promise<void> => {
    for (let move = left.shift(); move !== undefined; move = left.shift()) {
      const task = count === 0 ? undefined : threads?.submit([move], partBytes);
      if (task === undefined) move.into.set(move.from);
      else await task.whole;
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, count) }, lane));
}
