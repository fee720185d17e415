/** The threads that copy: right bytes, called off, given back, and dead in the middle of a part. */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  type CopyThreads,
  holdCopyThreads,
  letCopyThreadsGo,
  settleCopiesOn,
} from '../../../src/backends/host/copyThreads.ts';
import { HostArena } from '../../../src/backends/host/hostArena.ts';

const MIB = 1024 * 1024;

let threads: CopyThreads;
beforeEach(async () => {
  const held = await holdCopyThreads(2);
  expect(held).toBeDefined();
  threads = held as CopyThreads;
});
afterEach(() => letCopyThreadsGo());

async function arena(bytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const opened = await HostArena.open({ chunkBytes: [bytes], field: 'test' });
  return new Uint8Array(opened.chunks[0], 0, bytes);
}

function pattern(bytes: Uint8Array, seed: number): void {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >>> 2);
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i + seed, 0x9e3779b1);
}

it('copies moves of every length, cut or whole, and touches nothing else', async () => {
  const [from, into] = [await arena(8 * MIB), await arena(8 * MIB)];
  pattern(from, 1);
  for (const [offset, length, partBytes] of [
    [0, 1, MIB],
    [3, 4097, 1000],
    [64, 5 * MIB + 13, 2 * MIB],
    [0, 8 * MIB, 8 * MIB],
  ] as const) {
    into.fill(0);
    const task = threads.submit(
      [{ into: into.subarray(offset, offset + length), from: from.subarray(offset, offset + length) }],
      partBytes,
    );
    expect(await task?.whole).toBe(true);
    const expected = new Uint8Array(8 * MIB);
    expected.set(from.subarray(offset, offset + length), offset);
    expect(Buffer.compare(into, expected)).toBe(0);
  }
});

it('ends each of many tasks under way at once, with its own bytes', async () => {
  const [from, into] = [await arena(32 * MIB), await arena(32 * MIB)];
  pattern(from, 7);
  const part = 64 * 1024;
  const tasks = Array.from({ length: 64 }, (_, task) =>
    threads.submit(
      Array.from({ length: 8 }, (_, i) => {
        const at = (i * 64 + task) * part;
        return { into: into.subarray(at, at + part), from: from.subarray(at, at + part) };
      }),
      MIB,
    ),
  );
  expect(tasks.filter((task) => task !== undefined)).toHaveLength(64);
  for (const task of tasks) expect(await task?.whole).toBe(true);
  expect(Buffer.compare(into, from)).toBe(0);
  expect(threads.underWay).toBe(0);
});

it('takes nothing where the ring is full, or a side is detached: the caller copies', async () => {
  const [from, into] = [await arena(MIB), await arena(MIB)];
  const gone = new Uint8Array(MIB);
  structuredClone(gone.buffer, { transfer: [gone.buffer] });
  expect(threads.submit([{ into: gone, from }], MIB)).toBeUndefined();
  expect(threads.submit([{ into, from: gone }], MIB)).toBeUndefined();
  expect(threads.submit([{ into, from }], 16)).toBeUndefined(); // 65,536 parts
  expect(threads.underWay).toBe(0);
});

it('has called off or copied all that touches memory which is given back', async () => {
  const [from, into, other] = [await arena(64 * MIB), await arena(64 * MIB), await arena(MIB)];
  pattern(from, 3);
  const doomed = Array.from({ length: 64 }, (_, i) => {
    const [at, end] = [i * MIB, (i + 1) * MIB];
    return threads.submit([{ into: into.subarray(at, end), from: from.subarray(at, end) }], MIB);
  });
  const kept = threads.submit([{ into: other, from: new Uint8Array(MIB).fill(5) }], MIB);
  expect(settleCopiesOn(new Set([into.buffer]))).toBe(true);
  const after = into.slice();
  const whole = await Promise.all(doomed.map((task) => task?.whole));
  expect(whole).toContain(false);
  whole.forEach((isWhole, i) => {
    if (isWhole)
      expect(
        Buffer.compare(into.subarray(i * MIB, (i + 1) * MIB), from.subarray(i * MIB, (i + 1) * MIB)),
      ).toBe(0);
  });
  expect(await kept?.whole).toBe(true);
  expect(Buffer.compare(into, after)).toBe(0); // nothing was written behind it
});

it('settles copies before an arena gives its memory back', async () => {
  const opened = await HostArena.open({ chunkBytes: [32 * MIB], field: 'test' });
  const into = new Uint8Array(opened.chunks[0]);
  const from = (await arena(32 * MIB)).fill(9);
  const task = threads.submit([{ into: into.subarray(0, 32 * MIB), from }], MIB);
  opened[Symbol.dispose]();
  await task?.whole;
  // a copy behind it would have left nines in pages that were given back
  expect(into.subarray(0, 32 * MIB).every((byte) => byte === 0)).toBe(true);
});

it('copies anew what a thread that dies in its part has left, and goes on with the others', async () => {
  const [from, into] = [await arena(16 * MIB), await arena(16 * MIB)];
  pattern(from, 11);
  for (const [dying, left] of [
    [0, 1],
    [1, 0],
  ]) {
    into.fill(0);
    threads.letDie(dying);
    while (threads.count > left) {
      const tasks = Array.from({ length: 16 }, (_, i) => {
        const [at, end] = [i * MIB, (i + 1) * MIB];
        return threads.submit([{ into: into.subarray(at, end), from: from.subarray(at, end) }], MIB);
      });
      for (const task of tasks) expect((await task?.whole) ?? true).toBe(true);
      await new Promise((resolve) => setImmediate(resolve));
    }
    if (left > 0) expect(Buffer.compare(into, from)).toBe(0);
    expect(threads.underWay).toBe(0);
  }
  expect(threads.submit([{ into, from }], MIB)).toBeUndefined();
});

it('ends a process in the middle of copies as the process wants', async () => {
  const program = `
    import { holdCopyThreads } from './src/backends/host/copyThreads.ts';
    const threads = await holdCopyThreads(2);
    const [from, into] = [new Uint8Array(2 ** 28), new Uint8Array(2 ** 28)];
    const task = threads.submit([{ into, from }], 2 ** 20);
    if (process.argv[1] === 'exit') setImmediate(() => process.exit(7));
    else task.whole.then((whole) => { process.exitCode = whole ? 5 : 6; });
  `;
  const end = (how: string): Promise<number> =>
    promisify(execFile)(process.execPath, ['--input-type=module', '-e', program, how]).then(
      () => 0,
      (error: { readonly code: number }) => error.code,
    );
  expect(await end('exit')).toBe(7);
  expect(await end('alone')).toBe(5); // the copy keeps the process, and idle threads do not
});
