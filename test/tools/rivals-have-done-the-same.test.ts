/**
 * `bench/lab/rivals.ts` compares times of the same work only. The rival of these tests is a program that says how
 * many requests it completed; tierkv's run is a real one.
 */

import { execFile } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, it } from 'vitest';

const run = promisify(execFile);
const dir = mkdtempSync(join(tmpdir(), 'tierkv-rivals-test-'));
afterAll(() => rmSync(dir, { recursive: true }));

function rivalSaying(answer: string): Promise<{ stdout: string }> {
  const rival = join(dir, 'rival');
  writeFileSync(rival, `#!/bin/sh\necho '${answer}'\n`);
  chmodSync(rival, 0o755);
  return run(process.execPath, [
    ...['bench/lab/rivals.ts', '--aisimulate', rival],
    ...['--requests', '40', '--rounds', '1', '--json'],
  ]);
}

it('prints both costs where both completed the same requests', async () => {
  const { stdout } = await rivalSaying('{"completed_requests": 40}');
  const [only] = JSON.parse(stdout).results;
  expect([only.aisimulate.completed, only.tierkv.completed]).toEqual([40, 40]);
  expect(only.tierkv.cpuS).toBeGreaterThan(0);
});

it('fails where they differ, with both counts', async () => {
  await expect(rivalSaying('{"completed_requests": 41}')).rejects.toThrow(
    /aisimulate completed 41 requests, tierkv 40/,
  );
});

it('fails where a program does not say what it completed', async () => {
  await expect(rivalSaying('{"completed": 40}')).rejects.toThrow(/says undefined, not how many/);
});
