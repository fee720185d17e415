/** What watches a runtime is told of each end: of requests that failed early, of events that several wait for, of its log. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { watchRuntime } from '../../../src/observe/metrics/watch.ts';
import { openHostRuntime, prompt, promptBlocks, tenant, write } from '../liveRuntime.ts';

it('a request that fails before it waits for room is open no more', async () => {
  await using kv = await openHostRuntime();
  const { requests } = watchRuntime(kv);
  const ended: string[] = [];
  kv.observe({
    requests: {
      asked: () => ({
        hashed: () => {},
        placed: () => {},
        filled: () => {},
        prefilled: () => {},
        token: () => {},
        ended: (_, how) => void ended.push(how),
      }),
    },
  });
  const matching = vi.spyOn(kv.manager, 'matchLength').mockImplementation(() => {
    throw new Error('as an answer of the shared tier that never came');
  });
  await expect(kv.begin(prompt(1), { tenant })).rejects.toThrow('shared tier');
  matching.mockRestore();
  expect(ended).toEqual(['refused']);
  expect({ open: requests.open, waiting: requests.waiting }).toEqual({ open: 0, waiting: 0 });
  kv.release(await kv.begin(prompt(1), { tenant }));
  expect(ended).toEqual(['refused', 'released']);
});

it('each of several calls that wait for events at once has its own', async () => {
  await using kv = await openHostRuntime();
  const events = kv.events();
  const waiting = Array.from({ length: promptBlocks + 1 }, () => events.next());
  const sequence = await kv.begin(prompt(1), { tenant });
  write(kv, sequence, 1);
  await kv.seal(sequence);
  kv.release(sequence);
  await events.return?.();
  const ends = await Promise.all(waiting);
  expect(ends.map(({ done }) => done)).toEqual([...Array(promptBlocks).fill(false), true]);
  const numbers = ends.slice(0, promptBlocks).map(({ value }) => value.number);
  expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  expect(new Set(numbers).size).toBe(promptBlocks);
});

it('a log is whole where a store does not close', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-log-'));
  try {
    const logs = ['whole', 'failed'].map((name) => join(dir, `${name}.log`));
    for (const log of logs) {
      const kv = await openHostRuntime({ log });
      const { stores } = kv;
      const close = stores[Symbol.asyncDispose].bind(stores);
      if (log === logs[1]) {
        vi.spyOn(stores, Symbol.asyncDispose).mockImplementation(async () => {
          await close();
          throw new Error('as a disk that fails');
        });
      }
      const sequence = await kv.begin(prompt(1), { tenant });
      kv.release(sequence);
      if (log === logs[1]) await expect(kv.close()).rejects.toThrow('disk that fails');
      else await kv.close();
    }
    const last = (path: string): string | undefined =>
      readFileSync(path, 'utf8').trimEnd().split('\n').at(-1);
    expect(last(logs[1])?.length).toBeGreaterThan(0);
    expect(last(logs[1])?.slice(0, 8)).toBe(last(logs[0])?.slice(0, 8));
    expect(readFileSync(logs[1], 'utf8').endsWith('\n')).toBe(true);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});
