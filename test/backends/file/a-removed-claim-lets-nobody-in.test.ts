import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { StoreView } from '../../../src/backends/file/inspect.ts';
import { loadLibc } from '../../../src/backends/host/posix.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { scratchDir } from './scratch.ts';

const shape = poolShape(8, 8192, [8192]);
const native = typeof (await loadLibc()) !== 'string';
const locked = { code: 'TKV_LOCKED', field: 'dir' };

function removeClaims(dir: string): number {
  const claims = readdirSync(dir).filter((name) => name.startsWith('tierkv.lock.'));
  for (const name of claims) rmSync(join(dir, name));
  return claims.length;
}

it('a removed claim lets in neither a second store of this process, nor a view, nor another process', async ({
  skip,
}) => {
  skip(!native, 'needs native calls');
  const dir = scratchDir();
  const first = await FileStore.open(dir, shape, { restart: 'warm' });
  const item = patternItem(shape, 3, 0, 1);
  await first.write([item]);
  expect(removeClaims(dir)).toBe(1);
  for (const restart of ['warm', 'empty'] as const) {
    await expect(FileStore.open(dir, shape, { restart })).rejects.toMatchObject(locked);
  }
  await expect(StoreView.open(dir)).rejects.toMatchObject(locked);
  const script = `
    const { FileStore } = await import('./src/backends/file/fileStore.ts');
    const { poolShape } = await import('./src/runtime/tables/slotPool.ts');
    const error = await FileStore.open(${JSON.stringify(dir)}, poolShape(8, 8192, [8192])).catch((e) => e);
    console.log(error.code);`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', (text) => (out += text));
  await once(child, 'close');
  expect(out.trim()).toBe('TKV_LOCKED');
  expect(removeClaims(dir)).toBe(0);

  const target = emptyItem(item);
  await first.read([target]);
  expect(mismatchedWords(target)).toBe(0);
  await first[Symbol.asyncDispose]();
  await using next = await FileStore.open(dir, shape, { restart: 'warm' });
  expect(next.records().map(({ slot }) => slot)).toEqual([3]);
});

it('the lock of a directory ends with its process, also if it was killed', async () => {
  const dir = scratchDir();
  const script = `
    const { FileStore } = await import('./src/backends/file/fileStore.ts');
    const { poolShape } = await import('./src/runtime/tables/slotPool.ts');
    await FileStore.open(${JSON.stringify(dir)}, poolShape(8, 8192, [8192]));
    console.log('open');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child.stdout, 'data');
  await expect(FileStore.open(dir, shape)).rejects.toMatchObject(locked);
  child.kill('SIGKILL');
  await once(child, 'close');
  await (await FileStore.open(dir, shape))[Symbol.asyncDispose]();
});

it('two views of a store may be open at once, and afterwards the store can be opened', async () => {
  const dir = scratchDir();
  await (await FileStore.open(dir, shape, { restart: 'warm' }))[Symbol.asyncDispose]();
  const views = await Promise.all([StoreView.open(dir), StoreView.open(dir)]);
  for (const view of views) await view[Symbol.asyncDispose]();
  await (await FileStore.open(dir, shape, { restart: 'warm' }))[Symbol.asyncDispose]();
});
