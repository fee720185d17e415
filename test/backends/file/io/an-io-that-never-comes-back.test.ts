import { setImmediate } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import type { DataFile } from '../../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import type { StuckIo } from '../../../../src/backends/file/opening.ts';
import { fileLayout, recordOffset } from '../../../../src/backends/file/record.ts';
import type { SlotEntry } from '../../../../src/backends/file/slotTable.ts';
import { BlockNotes, readNotes } from '../../../../src/embed/blockNotes.ts';
import { ends, faulty, item, items, KiB, shape } from '../diskFaults.ts';
import { scratchDir, stopClock } from '../scratch.ts';

describe('file store, when an I/O never comes back', () => {
  interface Stall {
    readonly wrapFile: (file: DataFile) => DataFile;
    readonly stuck: StuckIo[];
    at: number | 'all' | undefined;
    /** I/Os that wait. */
    readonly waiting: () => number;
    /** I/Os of a kind that were begun. */
    readonly calls: (name: string) => number;
    release(): void;
  }

  function stall(): Stall {
    const held: (() => void)[] = [];
    const begun: string[] = [];
    const self: Stall = {
      stuck: [],
      at: undefined,
      waiting: () => held.length,
      calls: (name) => begun.filter((each) => each === name).length,
      wrapFile: faulty((call, at) => {
        begun.push(call);
        return call !== 'allocate' && (self.at === 'all' || self.at === at)
          ? new Promise((resolve) => held.push(resolve))
          : undefined;
      }),
      release() {
        self.at = undefined;
        for (const one of held.splice(0)) one();
      },
    };
    return self;
  }

  it('ends as timedOut only when it retires, and until then keeps its slot but no other', async () => {
    stopClock();
    const io = stall();
    const options = {
      wrapFile: io.wrapFile,
      deadlineMs: 40,
      onStuck: (one: StuckIo) => void io.stuck.push(one),
    };
    await using store = await FileStore.open(scratchDir(), shape, options);
    await store.write(items(4));
    io.at = recordOffset(fileLayout(shape), 0, 0);
    let done = false;
    const late = ends(store, 'write', item(0, 2)).finally(() => {
      done = true;
    });
    await expect.poll(io.waiting).toBe(1);
    vi.advanceTimersByTime(40);
    expect(io.stuck).toEqual([{ operation: 'write', slots: [0], retired: false }]);
    expect(store.describe().stuck).toBe(1);
    expect(await ends(store, 'read', ...items(4).slice(1))).toEqual(['loaded', 'loaded', 'loaded']);
    expect(await ends(store, 'read', item(0, 2))).toEqual(['refused']);
    expect(await ends(store, 'write', item(0, 3))).toEqual(['refused']);
    expect(done).toBe(false);
    io.release();
    expect(await late).toEqual(['timedOut']);
    expect(await ends(store, 'read', item(0, 2))).toEqual(['missing']);
    expect(io.stuck[1]).toEqual({ operation: 'write', slots: [0], retired: true });
    expect(store.describe()).toMatchObject({ stuck: 0, timedOut: 1 });
    expect(await ends(store, 'write', item(0, 2))).toEqual(['loaded']);
    expect(await ends(store, 'read', item(0, 2))).toEqual(['loaded']);
  });

  it('does not let queued requests wait for ever when every I/O is stuck', async () => {
    stopClock();
    const io = stall();
    const options = { wrapFile: io.wrapFile, deadlineMs: 30, queueDepth: 2, ioBytes: 16 * KiB };
    await using store = await FileStore.open(scratchDir(), shape, options);
    await store.write(items(8));
    io.at = 'all';
    const stuck = [ends(store, 'read', item(0)), ends(store, 'read', item(shape.slotsPerPageMax))];
    const queued = ends(store, 'read', ...items(8).slice(2));
    await expect.poll(io.waiting).toBe(2);
    vi.advanceTimersByTime(30);
    expect(await queued).toEqual(Array(6).fill('timedOut'));
    expect(await ends(store, 'read', ...items(8).slice(5))).toEqual(Array(3).fill('timedOut'));
    expect(store.describe().stuck).toBe(2);
    io.release();
    expect(await Promise.all(stuck)).toEqual([['timedOut'], ['timedOut']]);
    expect(await ends(store, 'read', ...items(8))).toEqual(Array(8).fill('loaded'));
    store.checkIntegrity();
  });

  it('does not hold up the disposal beyond the deadline, and keeps the directory until the I/O retires', async () => {
    stopClock();
    const io = stall();
    const dir = scratchDir();
    const store = await FileStore.open(dir, shape, { wrapFile: io.wrapFile, deadlineMs: 30 });
    io.at = 'all';
    const late = ends(store, 'write', item(0));
    await expect.poll(io.waiting).toBe(1);
    const closing = store[Symbol.asyncDispose]();
    vi.advanceTimersByTime(30);
    await closing;
    await expect(FileStore.open(dir, shape)).rejects.toMatchObject({ code: 'TKV_LOCKED' });
    io.release();
    expect(await late).toEqual(['timedOut']);
    const opening = async (): Promise<string> => {
      await (await FileStore.open(dir, shape))[Symbol.asyncDispose]();
      return 'opened';
    };
    await expect.poll(() => opening().catch((error) => error.code)).toBe('opened');
  });

  it('ends the reading of a note at its deadline, and neither a close nor an idle runtime waits for it', async () => {
    stopClock();
    const io = stall();
    const options = { restart: 'warm', deadlineMs: 50, noteOf: () => Uint8Array.of(7) } as const;
    const store = await FileStore.open(scratchDir(), shape, { ...options, wrapFile: io.wrapFile });
    await store.write(items(1));
    const read = (entry: SlotEntry): Promise<Uint8Array | undefined> => store.note(entry);
    expect((await read(store.records()[0]))?.[0]).toBe(7);
    io.at = 'all';
    const told: string[] = [];
    const reading = readNotes(
      { records: () => [...store.records(), ...store.records()], notes: { missing: undefined, read } },
      new BlockNotes(new Uint8Array(32)),
      new AbortController().signal,
      () => {},
      (line) => told.push(line),
    );
    await expect.poll(io.waiting).toBe(2);
    vi.advanceTimersByTime(50);
    await reading;
    expect(told).toHaveLength(1);
    const late = read(store.records()[0]);
    await expect.poll(io.waiting).toBe(3);
    vi.advanceTimersByTime(50);
    await expect(late).rejects.toMatchObject({ code: 'TKV_IO', field: 'dir' });
    io.at = undefined;
    let isClosed = false;
    const closing = store[Symbol.asyncDispose]().then(() => {
      isClosed = true;
    });
    await expect
      .poll(() => {
        vi.advanceTimersByTime(50);
        return isClosed;
      })
      .toBe(true);
    await closing;
    io.release();
  });

  it('reads a note in its turn, not for a call that has ended, and none behind a close', async () => {
    stopClock();
    const io = stall();
    const options = { restart: 'warm', deadlineMs: 50, noteOf: () => Uint8Array.of(7) } as const;
    const store = await FileStore.open(scratchDir(), shape, { ...options, wrapFile: io.wrapFile });
    await store.write(items(1));
    const [entry] = store.records();
    const first = (note: Uint8Array | undefined): number | undefined => note?.[0];
    // `expect.poll` lets the stopped clock go on
    const eightWait = async (): Promise<void> => {
      while (io.waiting() < 8) await setImmediate();
    };
    /** Calls have come as far as they do without a disk. */
    const settled = async (): Promise<void> => {
      for (let i = 0; i < 10; i++) await setImmediate();
    };
    const before = io.calls('readv');
    io.at = 'all';
    const eight = Array.from({ length: 8 }, () => store.note(entry).catch((error) => error.code));
    await eightWait();
    const ninth = store.note(entry);
    const late = expect(ninth).rejects.toMatchObject({ code: 'TKV_IO', field: 'dir' });
    await settled();
    vi.advanceTimersByTime(50);
    await late;
    expect(await Promise.all(eight)).toEqual(Array(8).fill('TKV_IO'));
    const tenth = store.note(entry).then(first);
    await settled();
    expect(io.waiting()).toBe(8);
    io.release();
    expect(await tenth).toBe(7); // and the ninth would have been read before it
    expect(io.calls('readv') - before).toBe(9);

    io.at = 'all';
    const held = Array.from({ length: 8 }, () => store.note(entry).then(first));
    await eightWait();
    const refused = expect(store.note(entry)).rejects.toMatchObject({ code: 'TKV_STATE' });
    await settled();
    const closing = store[Symbol.asyncDispose]();
    await refused;
    io.release();
    expect(await Promise.all(held)).toEqual(Array(8).fill(7));
    await closing;
    for (const call of [() => store.note(entry), () => store.sync(), () => store.checkpoint()]) {
      await expect(call()).rejects.toMatchObject({ code: 'TKV_STATE' });
    }
    expect(io.calls('readv') - before).toBe(17);
  });
});
