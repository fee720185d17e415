import { EventEmitter } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { HostArena, stretchOf } from '../../../src/backends/arena/index.ts';
import { DigestThreads, type DigestWorker } from '../../../src/backends/digest/digestThreads.ts';
import type { DigestRequest } from '../../../src/backends/digest/digestWorker.ts';
import { hostDigest } from '../../../src/backends/digest/index.ts';
import { digestBytes } from '../../../src/runtime/digest.ts';
import { fillPattern } from '../../../src/runtime/pattern.ts';

const KIB = 1024;

const arena = await HostArena.open({ chunkBytes: [4096 * KIB, 300 * KIB], field: 'test' });
const withoutLibc = stretchOf(arena.chunks[0]) === undefined;
if (withoutLibc) console.warn('tests of digest threads skipped: nobody knows addresses here');

/** The first bytes of a buffer of the arena. */
function filled(bytes: number, seed: number, chunk = 0): Uint8Array {
  const buffer = arena.chunks[chunk];
  fillPattern(new Uint32Array(buffer, 0, bytes / 4), seed, 3);
  return new Uint8Array(buffer, 0, bytes);
}

/** Stands for a thread; does nothing by itself. */
class HeldWorker extends EventEmitter {
  readonly requests: DigestRequest[] = [];
  refs = 0;
  terminated = false;
  postMessage(request: DigestRequest): void {
    this.requests.push(request);
  }
  ref(): void {
    this.refs += 1;
  }
  unref(): void {
    this.refs -= 1;
  }
  async terminate(): Promise<number> {
    this.terminated = true;
    this.emit('exit', 1);
    return 1;
  }
}

const opened: DigestThreads[] = [];
function threadsOf(max: number): { threads: DigestThreads; workers: HeldWorker[] } {
  const workers: HeldWorker[] = [];
  const threads = new DigestThreads(max, () => {
    workers.push(new HeldWorker());
    return workers.at(-1)! as unknown as DigestWorker;
  });
  opened.push(threads);
  return { threads, workers };
}

afterEach(async () => {
  for (const threads of opened.splice(0)) await threads[Symbol.asyncDispose]();
});

describe.skipIf(withoutLibc)('digests on other threads', () => {
  it('are those of the host, wherever in which buffer the bytes lie', async () => {
    await using threads = new DigestThreads(2);
    const memories = [filled(1024 * KIB, 1), filled(300 * KIB, 2, 1)];
    const stretches = memories.flatMap((memory) => [
      memory,
      memory.subarray(4096, 4096 + 128 * KIB),
      memory.subarray(20, 20 + 150 * KIB + 12),
    ]);
    threads.digest(memories[0], 0);
    await expect.poll(() => threads.digest(memories[0], 0) !== undefined).toBe(true);
    for (let round = 0; round < 3; round++) {
      const found = await Promise.all(stretches.map((bytes, i) => threads.digest(bytes, 1000 * i)));
      expect(found).toEqual(stretches.map((bytes, i) => hostDigest(bytes, 1000 * i)));
    }
    expect(await threads.digest(memories[0], 0)).toEqual(digestBytes(memories[0]));
    expect(threads.describe()).toEqual({ digestThreads: 1, digestThreadsMax: 2, digestThreadFailure: '' });
  });

  it('are left to the caller until a thread is up, for short bytes, and for bytes that no thread can see', () => {
    const { threads, workers } = threadsOf(1);
    const bytes = filled(256 * KIB, 3);
    expect(threads.digest(bytes, 0)).toBeUndefined();
    expect(threads.digest(bytes, 0)).toBeUndefined();
    expect(workers.length).toBe(1);
    workers[0].emit('online');
    expect(threads.digest(bytes.subarray(0, 127 * KIB), 0)).toBeUndefined();
    expect(threads.digest(new Uint8Array(256 * KIB), 0)).toBeUndefined();
    expect(threads.digest(bytes, 0)).toBeInstanceOf(Promise);
  });

  it('never start a thread where none is wanted', () => {
    const { threads, workers } = threadsOf(0);
    expect(threads.digest(filled(256 * KIB, 3), 0)).toBeUndefined();
    expect(workers.length).toBe(0);
  });

  it('of one turn are one message, which names a buffer once; the thread keeps the process up only meanwhile', async () => {
    const { threads, workers } = threadsOf(1);
    const bytes = filled(256 * KIB, 4);
    threads.digest(bytes, 0);
    const [worker] = workers;
    worker.emit('online');
    expect(worker.refs).toBe(-1);
    const first = [threads.digest(bytes, 5), threads.digest(bytes.subarray(64 * KIB), 6)];
    await Promise.resolve();
    expect(worker.refs).toBe(0);
    expect(worker.requests).toMatchObject([
      {
        buffers: [[0, stretchOf(arena.chunks[0])]],
        tasks: [
          { buffer: 0, at: 0, bytes: 256 * KIB, firstWord: 5 },
          { buffer: 0, at: 64 * KIB, bytes: 192 * KIB, firstWord: 6 },
        ],
      },
    ]);
    worker.emit('message', Uint32Array.of(1, 2, 3, 4));
    expect(await Promise.all(first)).toEqual([
      { lo: 1, hi: 2 },
      { lo: 3, hi: 4 },
    ]);
    expect(worker.refs).toBe(-1);
    void threads.digest(bytes, 0);
    await Promise.resolve();
    expect(worker.requests[1].buffers).toEqual([]);
  });

  it('get a further thread when those there are have much to do, and the one with the least to do takes the next', async () => {
    const { threads, workers } = threadsOf(2);
    const bytes = filled(4096 * KIB, 5);
    threads.digest(bytes, 0);
    workers[0].emit('online');
    for (let i = 0; i < 4; i++) void threads.digest(bytes, 0);
    expect(workers.length).toBe(2);
    void threads.digest(bytes, 0);
    workers[1].emit('online');
    void threads.digest(bytes, 77);
    for (let i = 0; i < 20; i++) void threads.digest(bytes, 0);
    await Promise.resolve();
    expect(workers.length).toBe(2);
    expect(workers[0].requests[0].tasks.length).toBeLessThan(16);
    expect(workers[1].requests[0].tasks[0].firstWord).toBe(77);
  });

  it('are done here when the thread ends, sent or not, and no other thread is started', async () => {
    const { threads, workers } = threadsOf(2);
    const bytes = filled(512 * KIB, 6);
    threads.digest(bytes, 0);
    workers[0].emit('online');
    const sent = threads.digest(bytes, 0);
    await Promise.resolve();
    const unsent = threads.digest(bytes, 9);
    workers[0].emit('error', new Error('out of memory'));
    workers[0].emit('exit', 1);
    expect(await Promise.all([sent, unsent])).toEqual([hostDigest(bytes, 0), hostDigest(bytes, 9)]);
    expect(threads.digest(bytes, 0)).toBeUndefined();
    expect(threads.describe()).toEqual({
      digestThreads: 0,
      digestThreadsMax: 2,
      digestThreadFailure: 'out of memory',
    });
    expect(workers.length).toBe(1);
  });

  it('are done here when no thread can be started at all', () => {
    const threads = new DigestThreads(1, () => {
      throw new Error('no threads');
    });
    const bytes = filled(512 * KIB, 7);
    expect(threads.digest(bytes, 0)).toBeUndefined();
    expect(threads.digest(bytes, 0)).toBeUndefined();
    expect(threads.describe()).toMatchObject({ digestThreads: 0, digestThreadFailure: 'no threads' });
  });

  it('that are under way when all is closed are done here', async () => {
    const { threads, workers } = threadsOf(1);
    const bytes = filled(512 * KIB, 8);
    threads.digest(bytes, 0);
    workers[0].emit('online');
    const waiting = threads.digest(bytes, 3);
    await threads[Symbol.asyncDispose]();
    expect(await waiting).toEqual(hostDigest(bytes, 3));
    expect(workers[0].terminated).toBe(true);
    expect(threads.digest(bytes, 0)).toBeUndefined();
  });
});

it('is left to the caller, and no thread started, where nobody knows the address of an arena', async () => {
  const { threads, workers } = threadsOf(2);
  using plain = await HostArena.open({ chunkBytes: [512 * KIB], native: false, field: 'test' });
  for (let i = 0; i < 3; i++) expect(threads.digest(new Uint8Array(plain.chunks[0]), 0)).toBeUndefined();
  expect(workers.length).toBe(0);
});
