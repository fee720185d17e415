import { describe, expect, it } from 'vitest';
import { fileLayout, recordOffset } from '../../../src/backends/file/fileLayout.ts';
import {
  type DataFile,
  FileStore,
  type FileStoreOptions,
  IoError,
  type StuckIo,
} from '../../../src/backends/file/index.ts';
import { IoQueue } from '../../../src/backends/file/ioQueue.ts';
import { cutIntoPieces, type Piece, PieceMove, pieceLengths } from '../../../src/backends/file/pieces.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { outcomeNames } from '../../../src/runtime/transfer/outcome.ts';
import type { StoreItem } from '../../../src/runtime/transfer/tierStore.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../src/testing/index.ts';
import { editFile, scratchDir } from './scratch.ts';

const BLOCK = 4096;
const KIB = 1024;
const MIB = 1024 * KIB;

describe('a run in pieces', () => {
  const seed = testSeed(23);
  it(`covers every byte once, in whole blocks and in order, whatever its parts are (seed ${seed})`, () => {
    const random = new SeededRandom(seed);
    for (let round = 0; round < 200; round++) {
      const blocks = 1 + random.below(40);
      const whole = Uint8Array.from({ length: blocks * BLOCK }, (_, i) => (i * 31 + (i >> 8)) & 255);
      const parts: Uint8Array[] = [];
      for (let at = 0; at < whole.length; ) {
        const length = Math.min(whole.length - at, BLOCK * (1 + random.below(12)));
        parts.push(whole.slice(at, at + length));
        at += length;
      }
      const pieceBytes = BLOCK * (1 + random.below(10));
      const lengths = pieceLengths(whole.length, whole.length, pieceBytes);
      const pieces = cutIntoPieces(parts, lengths);
      let at = 0;
      for (const { from, to, parts: own } of pieces) {
        expect(from).toBe(at);
        expect(to % BLOCK).toBe(0);
        expect(to - from).toBeLessThanOrEqual(pieceBytes);
        expect(lengths[0] - (to - from)).toBeLessThanOrEqual(BLOCK);
        expect(Buffer.concat(own).equals(whole.subarray(from, to))).toBe(true);
        at = to;
      }
      expect(at).toBe(whole.length);
    }
  });

  it('shrinks towards the end of a load, and not before', () => {
    const header = BLOCK;
    const lengthsOf = (payload: number, behind?: number): number[] =>
      pieceLengths(payload + header, payload, 2 * MIB, behind).map((bytes) => bytes / KIB);
    expect(lengthsOf(2 * MIB)).toEqual([2048 + 4]);
    expect(lengthsOf(2 * MIB, 32 * MIB)).toEqual([2048 + 4]);
    expect(lengthsOf(2 * MIB, 14 * MIB)).toEqual([1028, 512, 512]);
    expect(lengthsOf(2 * MIB, 0)).toEqual([516, 512, 512, 512]);
    const long = lengthsOf(64 * MIB, 0);
    expect(long.reduce((sum, length) => sum + length, 0)).toBe(64 * 1024 + 4);
    expect(long.toSorted((a, b) => b - a)).toEqual(long);
    expect(long[0]).toBeGreaterThan(2000);
    for (const length of long.slice(-8)) expect(Math.abs(length - 496)).toBeLessThanOrEqual(16);
    expect(lengthsOf(256 * KIB, 0)).toEqual([260]);
  });

  it('moves so many at once, begins none after a failure, and ends when none is under way', async () => {
    const pieces = cutIntoPieces([new Uint8Array(16 * BLOCK)], Array(16).fill(BLOCK));
    const begun: number[] = [];
    let underWay = 0;
    let most = 0;
    let lanesEnded = 0;
    const move = new PieceMove(pieces.length, 3);
    expect([move.widen(), move.widen(), move.widen()]).toEqual([true, true, false]);
    const movePiece = async ({ from }: Piece): Promise<void> => {
      begun.push(from / BLOCK);
      most = Math.max(most, ++underWay);
      for (let turn = 0; turn < (from === 4 * BLOCK ? 1 : 9); turn++) await new Promise(setImmediate);
      underWay--;
      if (from === 4 * BLOCK) throw new IoError('EIO', 'readv');
    };
    const moving = move.run(pieces, movePiece, () => lanesEnded++);
    await expect(moving).rejects.toMatchObject({ code: 'EIO' });
    expect(underWay).toBe(0);
    expect(most).toBe(3);
    expect(begun).toEqual([0, 1, 2, 3, 4, 5]);
    expect(lanesEnded).toBe(3);
    expect(move.widen()).toBe(false);
  });

  it('takes lanes while it goes on, as long as pieces are left', async () => {
    const pieces = cutIntoPieces([new Uint8Array(4 * BLOCK)], Array(4).fill(BLOCK));
    const ends: (() => void)[] = [];
    const move = new PieceMove(pieces.length, 9);
    const held = () => new Promise<void>((resolve) => ends.push(resolve));
    const moving = move.run(pieces, held, () => {});
    expect(ends.length).toBe(1);
    expect([move.widen(), move.widen()]).toEqual([true, true]);
    expect(ends.length).toBe(3);
    ends[0](); // its lane takes the last piece
    await new Promise(setImmediate);
    expect(ends.length).toBe(4);
    expect(move.widen()).toBe(false);
    for (const end of ends) end();
    await moving;
  });
});

describe('a queue of long runs', () => {
  it('gives lanes to the oldest first, and those that come free to the next', async () => {
    const pieces = 6;
    const queue = new IoQueue(5, 10_000);
    const log: string[] = [];
    const ends = new Map<string, () => void>();
    const whole = new Uint8Array(pieces * BLOCK);
    const job = (name: string) => {
      const move = new PieceMove(pieces, 4);
      const movePiece = ({ from }: Piece): Promise<void> => {
        const piece = `${name}${from / BLOCK}`;
        log.push(piece);
        return new Promise((resolve) => ends.set(piece, resolve));
      };
      return {
        begin(laneEnded: () => void) {
          const run = move.run(cutIntoPieces([whole], Array(pieces).fill(BLOCK)), movePiece, laneEnded);
          return run.then(() => void log.push(`${name} ended`));
        },
        widen: () => move.widen(),
        overdue: () => {},
        giveUp: () => {},
      };
    };
    const begunOnceEnded = async (...done: string[]): Promise<string> => {
      log.length = 0;
      for (const piece of done) ends.get(piece)!();
      await new Promise(setImmediate);
      return log.join(' ');
    };
    for (const name of ['a', 'b', 'c']) queue.push(job(name));
    expect(await begunOnceEnded()).toBe('');
    expect([...ends.keys()].join(' ')).toBe('a0 a1 a2 a3 b0');
    expect(queue.inFlight).toBe(5);
    expect(await begunOnceEnded('a0', 'a1')).toBe('a4 a5');
    expect(await begunOnceEnded('a2', 'a3')).toBe('b1 b2');
    expect(await begunOnceEnded('a4')).toBe('b3');
    expect(await begunOnceEnded('a5')).toBe('a ended c0');
    expect(queue.inFlight).toBe(5);
    expect(await begunOnceEnded('b0', 'b1', 'c0')).toBe('b4 b5 c1');
    expect(await begunOnceEnded('b2', 'b3', 'b4', 'b5')).toBe('c2 c3 c4 b ended');
    expect(await begunOnceEnded('c1', 'c2', 'c3', 'c4')).toBe('c5');
    expect(await begunOnceEnded('c5')).toBe('c ended');
    expect(queue.inFlight).toBe(0);
  });
});

describe('a file store that moves its records in pieces', () => {
  const sizes = [64 * 1024, 40_004];
  const shape = poolShape(8, 64 * 1024, sizes);
  const item = (page: number, sizeClass: number, generation = 1): StoreItem =>
    patternItem(shape, page * shape.slotsPerPageMax, sizeClass, generation);
  const options = (wrapFile: (file: DataFile) => DataFile = (file) => file): FileStoreOptions => ({
    pieceBytes: 2 * BLOCK,
    deadlineMs: 500,
    wrapFile,
  });
  const bytesOf = (parts: readonly Uint8Array[]): number =>
    parts.reduce((sum, part) => sum + part.byteLength, 0);
  const seam = (fault: (from: number, to: number) => Promise<void> | undefined) => (file: DataFile) => ({
    readv: async (parts: readonly Uint8Array[], at: number) => {
      await fault(at, at + bytesOf(parts));
      await file.readv(parts, at);
    },
    writev: async (parts: readonly Uint8Array[], at: number) => {
      await fault(at, at + bytesOf(parts));
      await file.writev(parts, at);
    },
    allocate: (at: number, bytes: number) => file.allocate(at, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  });
  const outcomes = async (store: FileStore, call: 'read' | 'write', list: StoreItem[]): Promise<string[]> =>
    (await store[call](list)).map(({ outcome }) => outcomeNames[outcome]);

  it('writes and reads them with several I/Os at once', async () => {
    let underWay = 0;
    let most = 0;
    let calls = 0;
    const counted = (file: DataFile): DataFile => {
      const count = async (io: Promise<void>): Promise<void> => {
        calls++;
        most = Math.max(most, ++underWay);
        await io.finally(() => underWay--);
      };
      return {
        readv: (parts, at) => count(file.readv(parts, at)),
        writev: (parts, at) => count(file.writev(parts, at)),
        allocate: (at, bytes) => file.allocate(at, bytes),
        sync: () => file.sync(),
        close: () => file.close(),
      };
    };
    await using store = await FileStore.open(scratchDir(), shape, options(counted));
    for (const sizeClass of [0, 1]) {
      calls = most = 0;
      const one = item(sizeClass, sizeClass);
      expect(await outcomes(store, 'write', [one])).toEqual(['loaded']);
      const target = emptyItem(one);
      expect(await outcomes(store, 'read', [target])).toEqual(['loaded']);
      expect(mismatchedWords(target)).toBe(0);
      // 16 and 10 blocks of payload, written and read in twos
      expect(calls).toBe([8 + 8, 5 + 5][sizeClass]);
      expect(most).toBeGreaterThan(2);
    }
    store.checkIntegrity();
  });

  it('tells of each as soon as its bytes are where the reader wants them', async () => {
    await using store = await FileStore.open(scratchDir(), shape, options());
    for (const sizeClass of [0, 1]) {
      for (const checkedLater of [true, false]) {
        const one = item(sizeClass, sizeClass);
        await store.write([one]);
        const target = emptyItem(one);
        const told = new Uint8Array(one.bytes.byteLength);
        let pieces = 0;
        const onArrived = (from: number, to: number): void => {
          pieces++;
          for (let at = from; at < to; at++) told[at]++;
          expect(Buffer.compare(target.bytes.subarray(from, to), one.bytes.subarray(from, to))).toBe(0);
        };
        expect(await outcomes(store, 'read', [{ ...target, checkedLater, onArrived }])).toEqual(['loaded']);
        expect(pieces).toBeGreaterThan(4);
        expect(told.every((count) => count === 1)).toBe(true);
      }
    }
  });

  it('reads a record again where its memory did not do for direct I/O, but never once bytes were told of', async () => {
    let refused: (from: number) => boolean = () => false;
    const wrapFile = seam((from) =>
      refused(from) ? Promise.reject(new IoError('EINVAL', 'readv')) : undefined,
    );
    const buffered = { ...options(wrapFile), mode: 'buffered' } as const;
    await using store = await FileStore.open(scratchDir(), shape, buffered);
    const one = item(0, 0);
    await store.write([one]);
    const last = recordOffset(fileLayout(shape), one.slot, 0) + 15 * BLOCK;
    const read = async (): Promise<[string[], number]> => {
      let told = 0;
      const ends = await outcomes(store, 'read', [{ ...emptyItem(one), onArrived: () => void told++ }]);
      return [ends, told];
    };
    let left = 8;
    refused = () => left-- > 0;
    expect(await read()).toEqual([['loaded'], 8]);
    left = 1;
    refused = (from) => from === last && left-- > 0;
    expect(await read()).toEqual([['refused'], 7]);
    expect(await read()).toEqual([['loaded'], 8]);
    store.checkIntegrity();
  });

  it('finds a flipped bit in any of them', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape, options());
    for (const sizeClass of [0, 1]) {
      const one = item(sizeClass, sizeClass);
      await store.write([one]);
      const { payloadOffset } = fileLayout(shape).records[sizeClass];
      const start = recordOffset(fileLayout(shape), one.slot, sizeClass) + payloadOffset;
      for (let at = 0; at < sizes[sizeClass]; at += BLOCK - 4) {
        const flip = (): void =>
          editFile(`${dir}/tierkv.blocks`, start + at, 1, (bytes) => void (bytes[0] = bytes[0] ^ 16));
        flip();
        expect(await outcomes(store, 'read', [emptyItem(one)]), `byte ${at}`).toEqual(['corrupt']);
        flip();
      }
      expect(await outcomes(store, 'read', [emptyItem(one)])).toEqual(['loaded']);
    }
  });

  it('refuses a record when one of its pieces fails, and no other record', async () => {
    let bad = -1;
    const wrapFile = seam((from, to) =>
      from <= bad && bad < to ? Promise.reject(new IoError('EIO', 'io')) : undefined,
    );
    await using store = await FileStore.open(scratchDir(), shape, options(wrapFile));
    const all = [0, 1, 2].map((page) => item(page, 0));
    expect(await outcomes(store, 'write', all)).toEqual(['loaded', 'loaded', 'loaded']);
    bad = recordOffset(fileLayout(shape), all[1].slot, 0) + 6 * BLOCK;
    const read = (): Promise<string[]> =>
      outcomes(
        store,
        'read',
        all.map((one) => emptyItem(one)),
      );
    expect(await read()).toEqual(['loaded', 'refused', 'loaded']);
    bad = -1;
    expect(await read()).toEqual(['loaded', 'loaded', 'loaded']);
    store.checkIntegrity();
  });

  it('keeps the slot of a record of which one piece hangs, and no other', async () => {
    const stuck: StuckIo[] = [];
    let hanging = -1;
    let release: () => void = () => {};
    const wrapFile = seam((from, to) =>
      from <= hanging && hanging < to ? new Promise<void>((resolve) => (release = resolve)) : undefined,
    );
    await using store = await FileStore.open(scratchDir(), shape, {
      ...options(wrapFile),
      onStuck: (one) => stuck.push(one),
    });
    const all = [0, 1, 2].map((page) => item(page, 0));
    expect(await outcomes(store, 'write', all)).toEqual(['loaded', 'loaded', 'loaded']);
    hanging = recordOffset(fileLayout(shape), all[0].slot, 0) + 6 * BLOCK;
    const late = outcomes(store, 'write', [item(0, 0, 2)]);
    await expect.poll(() => store.describe().stuck).toBe(1);
    expect(
      await outcomes(
        store,
        'read',
        all.slice(1).map((one) => emptyItem(one)),
      ),
    ).toEqual(['loaded', 'loaded']);
    hanging = -1;
    release();
    expect(await late).toEqual(['timedOut']);
    expect(stuck.map(({ retired }) => retired)).toEqual([false, true]);
    expect(await outcomes(store, 'write', [item(0, 0, 3)])).toEqual(['loaded']);
    store.checkIntegrity();
  });
});
