/**
 * A disk by itself, without tierkv: direct I/O at several sizes and depths, a buffered call a block, and fio
 * where it is installed. Writes end with their bytes on the device (fdatasync for buffered ones), and
 * buffered reads begin with none of them in the page cache, where the C library can be called. Figures are
 * medians of a few rounds in which all take turns; `cores` is this process's share, so it says what a byte
 * costs.
 *
 *     UV_THREADPOOL_SIZE=8 node bench/lab/disk.ts [--dir DIR] [--mib 64] [--rounds 5] [--json]
 */

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { HostArena } from '../../src/backends/host/hostArena.ts';
import { loadLibc } from '../../src/backends/host/posix.ts';
import { temporaryDirectory } from '../../src/io/files/temporaryDirectory.ts';
import { median } from '../../src/studies/measure/manager.ts';

const { values: options } = parseArgs({
  options: {
    dir: { type: 'string' },
    mib: { type: 'string', default: '64' },
    rounds: { type: 'string', default: '5' },
    json: { type: 'boolean', default: false },
  },
});
type Operation = 'read' | 'write';
const totalBytes = Number(options.mib) * 2 ** 20;
const unitsOfKib = [64, 256, 2048, 8192].filter((kib) => kib * 1024 <= totalBytes);
const depths = [1, 4, 8, 16];

using dir = temporaryDirectory('tierkv-lab-', options.dir);
const file = path.join(dir.path, 'bytes');
using arena = await HostArena.open({ chunkBytes: [totalBytes], field: 'lab' });
const memory = new Uint8Array(arena.chunks[0], 0, totalBytes).fill(0x5a);
fs.writeFileSync(file, memory, { flush: true });
const libc = await loadLibc();
await using direct = await open(file, fs.constants.O_RDWR | (fs.constants.O_DIRECT ?? 0));
await using buffered = await open(file, 'r+');

/** All bytes in I/Os of `unitBytes`, `depth` at once. */
async function moveAll(
  handle: FileHandle,
  operation: Operation,
  unitBytes: number,
  depth: number,
): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < totalBytes) {
      const at = next;
      next += unitBytes;
      const place = [memory, at, Math.min(unitBytes, totalBytes - at), at] as const;
      await (operation === 'read' ? handle.read(...place) : handle.write(...place));
    }
  };
  await Promise.all(Array.from({ length: depth }, worker));
}

async function moveBuffered(operation: Operation, unitBytes: number): Promise<void> {
  await moveAll(buffered, operation, unitBytes, 1);
  if (operation === 'write') await buffered.datasync();
}

const ways = unitsOfKib.flatMap((kib) =>
  (['read', 'write'] as const).flatMap((operation) => [
    ...depths.map((depth) => ({
      ...{ operation, kib, way: `direct, depth ${depth}`, gbps: [] as number[], cores: [] as number[] },
      run: () => moveAll(direct, operation, kib * 1024, depth),
    })),
    {
      ...{ operation, kib, way: 'buffered', gbps: [] as number[], cores: [] as number[] },
      run: () => moveBuffered(operation, kib * 1024),
    },
  ]),
);
for (let round = 0; round < Number(options.rounds); round++) {
  for (let i = 0; i < ways.length; i++) {
    const one = ways[(i + round * 7) % ways.length];
    if (one.way === 'buffered' && typeof libc !== 'string') libc.dropCache(buffered.fd);
    const cpuBefore = process.cpuUsage();
    const startMs = performance.now();
    await one.run();
    const elapsedMs = performance.now() - startMs;
    const { user, system } = process.cpuUsage(cpuBefore);
    one.gbps.push(totalBytes / elapsedMs / 1e6);
    one.cores.push((user + system) / 1000 / elapsedMs);
  }
}

/** GB/s of fio's direct I/O for a second; undefined where fio is not installed. */
function fioGbps(operation: Operation, kib: number): number | undefined {
  const { stdout, status } = spawnSync(
    'fio',
    [
      ...[`--filename=${file}`, `--rw=${operation}`, `--bs=${kib}k`, `--size=${totalBytes}`, '--name=lab'],
      ...['--direct=1', '--ioengine=libaio', '--iodepth=16', '--time_based', '--runtime=1'],
      '--output-format=json',
    ],
    { encoding: 'utf8' },
  );
  if (status !== 0) return undefined;
  const report: { jobs: Record<Operation, { bw_bytes: number }>[] } = JSON.parse(
    stdout.slice(stdout.indexOf('{')),
  );
  return report.jobs[0][operation].bw_bytes / 1e9;
}

const rows = ways.map(({ operation, kib, way, gbps, cores }) => ({
  ...{ operation, kib, way, gbps: median(gbps), cores: median(cores) },
}));
const fio = unitsOfKib.flatMap((kib) =>
  (['read', 'write'] as const).map((operation) => ({ operation, kib, gbps: fioGbps(operation, kib) })),
);
if (options.json) console.log(JSON.stringify({ bench: 'lab/disk', node: process.version, rows, fio }));
else {
  console.table(rows.map((row) => ({ ...row, gbps: row.gbps.toFixed(2), cores: row.cores.toFixed(2) })));
  if (fio[0].gbps === undefined) console.log('fio is not installed');
  else console.table(fio);
}
