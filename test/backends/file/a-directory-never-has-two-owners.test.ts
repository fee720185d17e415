import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { expect, it } from 'vitest';
import { scratchDir } from './scratch.ts';

/**
 * Says that it is ready, reads the end time from stdin, and takes and leaves the directory as fast as it can
 * until then. A file made exclusively shows that it is alone.
 */
const contender = (dir: string, native: boolean): string => `
  import { closeSync, openSync, unlinkSync } from 'node:fs';
  const { DirectoryLock } = await import('./src/backends/file/directoryLock.ts');
  const { loadLibc } = await import('./src/backends/host/posix.ts');
  const loaded = ${native} ? await loadLibc() : undefined;
  const libc = typeof loaded === "string" ? undefined : loaded;
  let [inside, kept, out] = [0, 0, ${JSON.stringify(dir)}];
  console.log('ready');
  const endMs = await new Promise((resolve) => process.stdin.once('data', (text) => resolve(Number(text))));
  process.stdin.destroy();
  while (Date.now() < endMs) {
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
    // All begin together, however long a loaded machine takes to start them.
    const ready = Promise.all(children.map((child) => once(child.stdout, 'data')));
    const runs = children.map(async (child) => {
      let out = '';
      let err = '';
      child.stdout.on('data', (text) => {
        out += text;
      });
      child.stderr.on('data', (text) => {
        err += text;
      });
      const [code] = await once(child, 'close');
      expect(code, err).toBe(0);
      return out.replace('ready', '').trim().split(' ').map(Number);
    });
    await Promise.race([ready, Promise.all(runs)]);
    const endMs = Date.now() + 3000;
    for (const child of children) child.stdin.end(String(endMs));
    const counts = await Promise.all(runs);
    const inside = counts.reduce((sum, [mine]) => sum + mine, 0);
    const keptOut = counts.reduce((sum, [, kept]) => sum + kept, 0);
    expect(inside).toBeGreaterThan(10);
    expect(keptOut).toBeGreaterThan(10);
    expect(readdirSync(dir)).toEqual([]);
  });
}
