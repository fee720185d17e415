import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { scratchDir } from './scratch.ts';

/**
 * Says that it is ready, begins with the first byte of stdin, and takes and leaves the directory as fast as it can until
 * that ends. A file made exclusively shows that it is alone. It tells now and then how often it was inside and kept out.
 */
const contender = (dir: string, native: boolean): string => `
  import { closeSync, openSync, unlinkSync } from 'node:fs';
  const { DirectoryLock } = await import('./src/backends/file/directoryLock.ts');
  const { loadLibc } = await import('./src/backends/host/posix.ts');
  const loaded = ${native} ? await loadLibc() : undefined;
  const libc = typeof loaded === "string" ? undefined : loaded;
  let [inside, kept, out] = [0, 0, ${JSON.stringify(dir)}];
  console.log('ready');
  let isOver = false;
  process.stdin.once('end', () => (isOver = true));
  await new Promise((resolve) => process.stdin.once('data', resolve));
  process.stdin.resume();
  for (let round = 1; !isOver; round++) {
    if (round % 20 === 0) {
      console.log(inside, kept);
      await new Promise((resolve) => setImmediate(resolve));
    }
    try {
      const lock = await DirectoryLock.acquire(out, libc);
      const fd = openSync(out + '/inside', 'wx');
      inside++;
      for (let spin = 0; spin < 20000; spin++);
      unlinkSync(out + '/inside');
      closeSync(fd);
      lock.release();
    } catch (error) {
      if (error.code !== 'TKV_LOCKED') throw error;
      kept++;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  console.log(inside, kept);`;

for (const native of [true, false]) {
  it(`a directory never has two owners while four processes try at once (${native ? 'native lock' : 'claim alone'})`, async () => {
    const dir = scratchDir();
    const children = Array.from({ length: 4 }, () =>
      spawn(process.execPath, ['--input-type=module', '-e', contender(dir, native)], {
        stdio: ['pipe', 'pipe', 'pipe'],
      }),
    );
    /** How often each was inside and kept out, as far as it has told. */
    const told = children.map((): number[] => []);
    const sumOf = (at: number): number => told.reduce((sum, counts) => sum + (counts[at] ?? 0), 0);
    // All begin together, however long a loaded machine takes to start them.
    const ready = Promise.all(children.map((child) => once(child.stdout, 'data')));
    let isOver = false;
    const runs = Promise.all(
      children.map(async (child, i) => {
        let out = '';
        let err = '';
        child.stdout.on('data', (text) => {
          out += text;
          const line = out.split('\n').at(-2) ?? '';
          if (line !== 'ready') told[i] = line.split(' ').map(Number);
        });
        child.stderr.on('data', (text) => {
          err += text;
        });
        const [code] = await once(child, 'close');
        expect(code, err).toBe(0);
      }),
    ).finally(() => {
      isOver = true;
    });
    await Promise.race([ready, runs]);
    for (const child of children) child.stdin.write('go');
    await sleep(3000);
    // thousands of rounds by now; a machine that is busy with other things goes on until there were some
    while (!isOver && Math.min(sumOf(0), sumOf(1)) <= 10) await sleep(20);
    for (const child of children) child.stdin.end();
    await runs;
    expect(sumOf(0)).toBeGreaterThan(10);
    expect(sumOf(1)).toBeGreaterThan(10);
    expect(readdirSync(dir)).toEqual([]);
  });
}
