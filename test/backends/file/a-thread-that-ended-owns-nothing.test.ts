/** A directory belongs to a thread as long as the thread lives, also among threads of one process. */

import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { DirectoryLock } from '../../../src/backends/file/directoryLock.ts';
import { loadLibc } from '../../../src/backends/host/posix.ts';
import { scratchDir } from './scratch.ts';

const owner = `
  const { parentPort, workerData } = require('node:worker_threads');
  (async () => {
    const { DirectoryLock } = await import(workerData.lock);
    const { loadLibc } = await import(workerData.posix);
    const libc = await loadLibc();
    globalThis.held = await DirectoryLock.acquire(workerData.dir, libc);
    parentPort.postMessage('owns it');
    setInterval(() => {}, 1000);
  })();`;

it('a directory is free once the thread that owned it was ended, and not before', async ({ skip }) => {
  const libc = await loadLibc();
  if (typeof libc === 'string') return skip(libc);
  const dir = scratchDir();
  const source = (path: string): string => new URL(`../../../src/backends/${path}`, import.meta.url).href;
  const thread = new Worker(owner, {
    eval: true,
    workerData: { dir, lock: source('file/directoryLock.ts'), posix: source('host/posix.ts') },
  });
  expect(await once(thread, 'message')).toEqual(['owns it']);
  await expect(DirectoryLock.acquire(dir, libc)).rejects.toMatchObject({ code: 'TKV_LOCKED' });
  await thread.terminate();
  const lock = await DirectoryLock.acquire(dir, libc);
  await expect(DirectoryLock.acquire(dir, libc)).rejects.toMatchObject({ code: 'TKV_LOCKED' });
  lock.release();
});
