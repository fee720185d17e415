/**
 * Transfers between device, host memory and files in two checkouts, side by side:
 *
 *     node bench/lab/pairedTransfers.ts OLD NEW [--rounds 8] [--runs 40] [--json FILE]
 *
 * `bench links --quick`, which pairedCheckouts.ts compares, takes samples of 5 ms: one transfer each, before the code is
 * compiled. Here each process moves 4 or 16 MiB `--runs` times over each link, the links in turns, after some that count for
 * nothing. Processes alternate between the checkouts (ABBA), and each pair gives one ratio of median times and one of median
 * processor times. Prints the median over the pairs, and their range. Above 1 the new checkout is slower.
 *
 * Each checkout is a folder with `src` and `node_modules`. Both run on the software device unless TIERKV_ADAPTER says else.
 */

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { LinkRig as Rig, Route } from '../../src/studies/measure/contestants.ts';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '8' },
    runs: { type: 'string', default: '40' },
    json: { type: 'string' },
    child: { type: 'boolean', default: false },
  },
});
/** First transfers of a link in a process, which do not count: enough for V8 to compile what runs often. */
const WARMING = 5;
const MIB = 1024 * 1024;

/** What a process found: medians by link. */
type Found = Readonly<Record<string, { readonly ms: number; readonly processorMs: number }>>;

if (options.child) {
  console.log(JSON.stringify(await measured(positionals[0], Number(options.runs))));
  process.exit(0); // a device keeps its process
}

if (positionals.length !== 2) throw new Error('name two checkouts: the old one and the new one');
const checkouts = positionals.map((folder) => resolve(folder));
const pairs: (readonly [old: Found, now: Found])[] = [];
for (let round = 0; round < Number(options.rounds); round++) {
  const found: Found[] = [];
  for (const which of round % 2 === 0 ? [0, 1] : [1, 0]) found[which] = ofProcess(checkouts[which]);
  pairs.push([found[0], found[1]]);
}
const report: Record<string, object> = {};
for (const link of Object.keys(pairs[0][0])) {
  const ratiosOf = (what: 'ms' | 'processorMs'): number[] =>
    pairs.map(([old, now]) => now[link][what] / old[link][what]).sort((a, b) => a - b);
  const [ms, processorMs] = [ratiosOf('ms'), ratiosOf('processorMs')];
  const text = (all: readonly number[]): string =>
    `${median(all).toFixed(3)} (${all[0].toFixed(3)} to ${all[all.length - 1].toFixed(3)})`;
  console.log(`${link.padEnd(36)} time ${text(ms)}, processor ${text(processorMs)}`);
  report[link] = { ms, processorMs };
}
if (options.json !== undefined) fs.writeFileSync(options.json, `${JSON.stringify(report, null, 2)}\n`);

function ofProcess(checkout: string): Found {
  const args = [import.meta.filename, '--child', checkout, '--runs', options.runs];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: checkout, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${checkout}: ${stderr}`);
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Found;
}

/** Of the module that has this name in the checkout: older ones have it elsewhere. */
async function load<T>(checkout: string, name: string, files: readonly string[]): Promise<T> {
  const file = files.map((each) => join(checkout, 'src', each)).find((each) => fs.existsSync(each));
  if (file === undefined) throw new Error(`${checkout} has none of ${files.join(', ')}`);
  return ((await import(file)) as Record<string, T>)[name];
}

async function measured(checkout: string, runs: number): Promise<Found> {
  type Runtime = typeof import('../../src/runtime/index.ts');
  const { poolShape, Tier } = (await import(join(checkout, 'src/runtime/index.ts'))) as Runtime;
  type Opener = typeof import('../../src/backends/webgpu/adapter.ts').openDevice;
  const webgpu = 'backends/webgpu/index.ts';
  const openDevice = await load<Opener>(checkout, 'openDevice', ['backends/webgpu/adapter.ts', webgpu]);
  const HbmStore = await load<typeof import('../../src/backends/webgpu/hbmStore.ts').HbmStore>(
    checkout,
    'HbmStore',
    ['backends/webgpu/hbmStore.ts', webgpu],
  );
  const MemoryStore = await load<typeof import('../../src/backends/host/memoryStore.ts').MemoryStore>(
    checkout,
    'MemoryStore',
    ['backends/host/memoryStore.ts', 'backends/memory/index.ts'],
  );
  const FileStore = await load<typeof import('../../src/backends/file/fileStore.ts').FileStore>(
    checkout,
    'FileStore',
    ['backends/file/fileStore.ts'],
  );
  const StagingSlots = await load<typeof import('../../src/backends/engine/stagedBatch.ts').StagingSlots>(
    checkout,
    'StagingSlots',
    ['backends/engine/stagingSlots.ts', 'backends/engine/stagedBatch.ts'],
  );
  const LinkRig = await load<typeof Rig>(checkout, 'LinkRig', [
    'measure/contestants.ts',
    'cli/bench/links/rig.ts',
  ]);
  const links: Readonly<Record<string, readonly [verified: boolean, ways: Route['ways']]>> = {
    'ddrToHbm unverified': [false, [[Tier.DDR, Tier.HBM]]],
    'ddrToHbm verified': [true, [[Tier.DDR, Tier.HBM]]],
    hbmToDdr: [false, [[Tier.HBM, Tier.DDR]]],
    ddrToNvme: [false, [[Tier.DDR, Tier.NVME]]],
    nvmeToDdr: [false, [[Tier.NVME, Tier.DDR]]],
  };
  const found: Record<string, { ms: number; processorMs: number }> = {};
  const live = await openDevice({ notice: () => {} });
  for (const unitBytes of [MIB / 16, MIB / 4, 2 * MIB]) {
    const units = Math.min(64, (16 * MIB) / unitBytes);
    const slots = Array.from({ length: units }, (_, i) => 2 * ((5 * i) % units)); // apart, in another order
    const shape = poolShape(2 * units, unitBytes, [unitBytes]);
    const dir = fs.mkdtempSync(join(tmpdir(), 'tierkv-transfers-'));
    try {
      await using hbm = await HbmStore.open(live, shape, { label: 'verified' });
      await using unverified = await HbmStore.open(live, shape, { label: 'unverified', verifyWrites: false });
      await using ddr = await MemoryStore.open(shape);
      await using nvme = await FileStore.open(dir, shape);
      using staging = await StagingSlots.open(unitBytes, StagingSlots.countFor(unitBytes));
      for (const [i, slot] of slots.entries()) {
        ddr.view(slot, 0).fill(i + 1);
        ddr.markWritten(slot, 1);
      }
      const rigs = [unverified, hbm].map((store) => new LinkRig(slots, ddr, { hbm: store, nvme }, staging));
      // by this order each tier has the blocks before they are read from it
      const took = Object.entries(links).map(([name, [verified, ways]]) => {
        const rig = rigs[Number(verified)];
        return { name: `${name} ${unitBytes}`, rig, ways, ms: [] as number[], processorMs: [] as number[] };
      });
      for (let run = 0; run < WARMING + runs; run++) {
        for (const { rig, ways, ms, processorMs } of took) {
          await live.whenDone();
          const move = rig.move(ways);
          const used = process.cpuUsage();
          const began = performance.now();
          await move();
          const elapsedMs = performance.now() - began;
          const { user, system } = process.cpuUsage(used);
          if (run < WARMING) continue;
          ms.push(elapsedMs);
          processorMs.push((user + system) / 1000);
        }
      }
      for (const { name, ms, processorMs } of took) {
        found[name] = { ms: median(ms), processorMs: median(processorMs) };
      }
    } finally {
      fs.rmSync(dir, { recursive: true });
    }
  }
  return found;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
