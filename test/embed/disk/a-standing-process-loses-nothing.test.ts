/**
 * A process that was stopped and continued, or kept by one long call, has lost no transfer: deadlines count
 * time in which it ran, and what has ended meanwhile is taken first.
 */

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';

const DEADLINE_MS = 3000;
/** Longer than the deadline. */
const STANDS_MS = 4500;
const right = { cachedTokens: 64, failed: [0, 0, 0, 0, 0, 0] };

function child(...args: number[]) {
  const program = join(import.meta.dirname, 'standing.ts');
  const process_ = spawn(process.execPath, [program, ...args.map(String)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: process_.stdout })[Symbol.asyncIterator]();
  const line = async (): Promise<string> => (await lines.next()).value ?? '';
  return { process: process_, line };
}

// at the same time, since both only stand
it.runIf(process.platform === 'linux')(
  'stopped and continued: the read that ended meanwhile is a hit',
  { concurrent: true, timeout: 60_000 },
  async () => {
    const { process: stopped, line } = child(DEADLINE_MS);
    expect(await line()).toBe('held');
    stopped.kill('SIGSTOP');
    const state = (): string => readFileSync(`/proc/${stopped.pid}/stat`, 'utf8').split(') ')[1][0];
    while (state() !== 'T') await sleep(5);
    await sleep(STANDS_MS);
    stopped.stdin.write('go\n');
    stopped.kill('SIGCONT');
    expect(JSON.parse(await line())).toEqual(right);
  },
);

it('kept by one long call: the same', { concurrent: true, timeout: 60_000 }, async () => {
  const { line } = child(DEADLINE_MS, STANDS_MS);
  expect(JSON.parse(await line())).toEqual(right);
});
