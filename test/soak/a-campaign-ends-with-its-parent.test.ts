/** A campaign ends with the process that started it, whichever way that one ends. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';

const attached = path.join(import.meta.dirname, '../attachedProcess.ts');
const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    // a child whose end was not fetched yet has a process number, and does nothing
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
};

it.skipIf(process.platform !== 'linux').each(['SIGKILL', 'SIGTERM'] as const)(
  'a %s of the first process ends the last one of a chain',
  async (signal) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-attached-'));
    onTestFinished(() => fs.rmSync(folder, { recursive: true }));
    const file = path.join(folder, 'pid');
    const last = `fs.writeFileSync(${JSON.stringify(file)}, String(process.pid)); setInterval(() => {}, 1000)`;
    const middle = `const { runAttached } = await import(${JSON.stringify(attached)});
      await runAttached(['-e', ${JSON.stringify(last)}])`;
    const first = `const { runAttached } = await import(${JSON.stringify(attached)});
      await runAttached(['--input-type=module', '-e', ${JSON.stringify(middle)}])`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', first], { stdio: 'ignore' });
    const ended = once(child, 'close');
    while (!fs.existsSync(file) || fs.readFileSync(file, 'utf8') === '') {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const pid = Number(fs.readFileSync(file, 'utf8'));
    expect(isAlive(pid)).toBe(true);
    child.kill(signal);
    await ended;
    while (isAlive(pid)) await new Promise((resolve) => setTimeout(resolve, 50));
  },
);
