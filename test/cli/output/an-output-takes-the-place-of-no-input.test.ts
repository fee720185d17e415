import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryDirectory } from '../../../src/io/files/temporaryDirectory.ts';
import { endOf } from '../printed.ts';

/** Calls that read IN, with an option that names the same file as an output. LINK is a symbolic link to it. */
const calls: readonly (readonly [call: readonly string[], option: string])[] = [
  [['explain', 'IN', '--request', '1', '--json', 'IN'], '--json'],
  [['explain', 'kv.log', '--prefix', 'IN', '--json', 'LINK'], '--json'],
  [['gateway', 'replay', 'IN', '--json', 'LINK'], '--json'],
  [['gateway', 'shadows', 'g.log', '--workload', 'IN', '--deployment', 'd.yaml', '--json', 'IN'], '--json'],
  [['simulate', 'IN', '--model', 'qwen3-14b', '--requests', 'IN'], '--requests'],
  [['simulate', '--deployment', 'IN', '--report', 'IN'], '--report'],
  [['replay', 'IN', '--json', 'IN'], '--json'],
  [['replay', 'IN', '--eviction', 'all', '--hbm', '10', '--plot', 'IN'], '--plot'],
  [['plan', 'IN', '--model', 'qwen3-14b', '--target', 'ttft_p99=1s', '--out', 'IN'], '--out'],
  [['evaluate', 'IN', '--trace', 'IN'], '--trace'],
  [['evaluate', 'routing/lor', '--plan', 'IN', '--json', 'IN'], '--json'],
  [['evolve', '--plan', 'IN', '--out', 'search', '--json', 'IN'], '--json'],
  [['observe', 'IN', '--target', 'http://127.0.0.1:1', '--vocabulary', '9', '--out', 'IN'], '--out'],
  [['compare', 'IN', '--gpu', 'H100', '--model', 'qwen3-8b', '--json', 'IN'], '--json'],
  [['latency', 'fit', '--requests', 'IN', '--gpu', 'H100', '--model', 'qwen3-8b', '--out', 'IN'], '--out'],
  [['latency', 'check', '--steps', 'IN', '--plot', 'IN'], '--plot'],
  [['workload', 'describe', 'IN', '--json', 'IN'], '--json'],
  [['parity', 'IN', '--json', 'IN'], '--json'],
  [['sweep', '--grid', 'num-instances=1,2', '--json', 'IN', '--plot', 'LINK'], '--plot'],
];

it.each(calls)('%j is refused for %s', async (call, option) => {
  using scratch = temporaryDirectory('tierkv-in-place-');
  const file = join(scratch.path, 'in.json');
  const link = join(scratch.path, 'link');
  writeFileSync(file, 'what a user has');
  symlinkSync(file, link);
  const { status, stdout, stderr } = await endOf(
    call.map((word) => (word === 'IN' ? file : word === 'LINK' ? link : word)),
  );
  expect(stderr).toMatch(
    new RegExp(`^tierkv: ${option} is \\S+, the same file as \\S+\\. Name another\\. \\[TKV_CONFIG\\]\n$`),
  );
  expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
  expect(readFileSync(file, 'utf8')).toBe('what a user has');
});
