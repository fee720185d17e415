/**
 * Differences from upstream that `docs/reference/blis-differences.md` declares, each in a run of the command: what
 * a user sees, and what `--as-upstream` gives instead.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { smallWorkload } from '../evaluate/smallWorkload.ts';
import { printed } from './printed.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-declared-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

const base = ['--model', 'qwen3-14b', '--rate', '40', '--num-requests', '30'];
async function counts(...args: string[]): Promise<{ completed: number; injected: number }> {
  const file = path.join(folder, 'metrics.json');
  await printed(...args, '--metrics-path', file);
  const { completed_requests: completed, injected_requests: injected } = JSON.parse(
    fs.readFileSync(file, 'utf8'),
  );
  return { completed, injected };
}

describe('admission under --flow-control', () => {
  const queued = [
    ...base,
    ...['--num-instances', '2', '--flow-control', '--saturation-detector', 'utilization'],
    ...['--admission-policy', 'reject-all'],
  ];

  it('decides first', async () => {
    expect((await counts(...queued)).completed).toBe(0);
  });

  it('is passed over under --as-upstream, where the queue takes its place', async () => {
    expect((await counts(...queued, '--as-upstream')).completed).toBe(30);
  });
});

describe('a tie of always-busiest', () => {
  // an odd number, so that the counts tell who had the first one
  const two = [...base, '--num-requests', '31', '--num-instances', '2', '--routing-policy'];
  const served = async (policy: string, seed: string): Promise<number[]> => {
    const file = path.join(folder, `${policy}-${seed}.jsonl`);
    await printed(...two, policy, '--seed', seed, '--requests', file);
    const rows = fs.readFileSync(file, 'utf8').trimEnd().split('\n');
    const instances = rows.map((row) => JSON.parse(row).instance);
    return [0, 1].map((one) => instances.filter((instance) => String(instance).endsWith(String(one))).length);
  };

  it.each(['1', '2', '3', '4'])('goes to the first instance, with seed %s', async (seed) => {
    expect(await served('always-busiest', seed)).toEqual([31, 0]);
  });

  it('is drawn by least-loaded, so that some seed begins with the second', async () => {
    const first = await Promise.all(
      ['1', '2', '3', '4', '5', '6'].map((seed) => served('least-loaded', seed)),
    );
    expect(new Set(first.map(String)).size).toBeGreaterThan(1);
  });
});

it('a specification beside a CSV of its name is read as a specification', async () => {
  const spec = path.join(folder, 'spec.yaml');
  fs.writeFileSync(spec, smallWorkload);
  const alone = await counts('--model', 'qwen3-14b', '--workload-spec', spec);
  fs.writeFileSync(path.join(folder, 'spec.csv'), 'request_id,client_id\n1,2\n');
  expect(await counts('--model', 'qwen3-14b', '--workload-spec', spec)).toEqual(alone);
  expect(await counts('--model', 'qwen3-14b', spec)).toEqual(alone);
});
