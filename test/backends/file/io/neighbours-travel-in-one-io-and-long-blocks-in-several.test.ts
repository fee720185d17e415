import { describe, expect, it } from 'vitest';
import type { DataFile } from '../../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import { type FileLayout, fileLayout, recordOffset } from '../../../../src/backends/file/record.ts';
import { longestIoBytes, planIos, type SlotRequest } from '../../../../src/backends/file/recordIo.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../../src/runtime/tier/tier.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../../src/testing/index.ts';
import { scratchDir } from '../scratch.ts';

const BLOCK = 4096;
const KiB = 1024;

function requestOf(
  layout: FileLayout,
  slot: number,
  item: SlotRequest['item'] = patternItem(layout.shape, slot, 0, 1),
): SlotRequest {
  return {
    kind: 'read',
    item,
    record: layout.records[0],
    offset: recordOffset(layout, slot, 0),
    end() {},
    staged: false,
    sequence: 0,
    iosLeft: 0,
    failure: undefined,
    lo: 0,
    hi: 0,
  };
}

describe('the plan of a batch', () => {
  const seed = testSeed(31);
  it(`moves every byte once, in I/Os from once to twice the wanted length where it can (seed ${seed})`, () => {
    const random = new SeededRandom(seed);
    for (let round = 0; round < 200; round++) {
      const slotBytes = [4 * KiB, 40_004, 64 * KiB, 4][random.below(4)];
      const layout = fileLayout(poolShape(600, slotBytes, [slotBytes]));
      const { recordBytes, payloadBytes } = layout.records[0];
      const ioBytes = BLOCK * (1 + random.below(40));
      const slots = random.distinctBelow(600, 400);
      const item = patternItem(layout.shape, 0, 0, 1); // a plan looks at no byte
      const requests = slots.map((slot) => requestOf(layout, slot, item));
      const plans = planIos(requests, ioBytes);

      // an `expect` for each of the 80,000 parts would take most of the time
      const wrong: string[] = [];
      const hold = (what: string, isHeld: boolean): void => {
        if (!isHeld) wrong.push(`round ${round}: ${what}`);
      };
      let at = 0;
      const ios = new Map<SlotRequest, number>();
      for (const { offset, parts } of plans) {
        hold('I/Os rise', offset >= at);
        at = offset;
        for (const { request, from, to } of parts) {
          hold('parts lie side by side', request.offset + from === at);
          hold('parts are whole blocks', from % BLOCK === 0 && to % BLOCK === 0);
          at += to - from;
          ios.set(request, (ios.get(request) ?? 0) + 1);
        }
        hold('an I/O is as long as allowed', at - offset <= longestIoBytes(ioBytes));
        hold(
          'neighbours are twice the wanted length at most',
          parts.length === 1 || parts.length * payloadBytes <= 2 * ioBytes,
        );
      }
      const moved = plans.flatMap(({ parts }) => parts).reduce((sum, { from, to }) => sum + to - from, 0);
      hold('every byte moves once', moved === slots.length * recordBytes);
      for (const request of requests) hold('I/Os are counted', request.iosLeft === ios.get(request));

      plans.slice(1).forEach(({ offset, parts }, i) => {
        const before = plans[i].parts;
        const [{ request }] = before;
        const touches = request.offset + before[0].from + before.length * recordBytes === offset;
        if (!touches || parts[0].from > 0 || before.length === 256) return;
        // Two neighbours stay apart only where the first is long enough, or both would be too long.
        const payload = before.length * payloadBytes;
        hold('neighbours travel together', payload >= ioBytes || payload + payloadBytes > 2 * ioBytes);
      });
      expect(wrong).toEqual([]);
    }
  });

  it('cuts a long block into I/Os of about one length', () => {
    const MiB = 1024 * KiB;
    const lengthsOf = (bytes: number): number[] => {
      const layout = fileLayout(poolShape(1, bytes, [bytes]));
      return planIos([requestOf(layout, 0)], 2 * MiB).map(({ parts }) => (parts[0].to - parts[0].from) / KiB);
    };
    expect(lengthsOf(3 * MiB)).toEqual([3072 + 4]);
    expect(lengthsOf(4 * MiB)).toEqual([2048 + 4, 2048]);
    expect(lengthsOf(7 * MiB)).toEqual([2392, 2388, 2392]);
    expect(lengthsOf(16 * MiB).length).toBe(8);
  });
});

it('blocks of one turn that lie side by side travel together, also when they come in different calls', async () => {
  const shape = poolShape(64, 16 * KiB, [16 * KiB]);
  const calls: string[] = [];
  await using store = await FileStore.open(scratchDir(), shape, {
    ioBytes: 64 * KiB,
    wrapFile: (file) => recordedCalls(file, calls),
  });
  calls.length = 0;
  const items = Array.from({ length: 12 }, (_, slot) => patternItem(shape, slot, 0, 1));
  const targets = items.map((item) => emptyItem(item));
  const written = await Promise.all(items.toReversed().map((item) => store.write([item])));
  const read = await store.read(targets);
  const ends = [...written.flat(), ...read].map(({ outcome }) => outcomeNames[outcome]);
  expect(new Set(ends)).toEqual(new Set(['loaded']));
  expect(targets.map((target) => mismatchedWords(target))).toEqual(items.map(() => 0));
  const four = 4 * 20 * KiB; // each with a header of 4 KiB before it
  const three = [0, 1, 2].map((i) => 8192 + i * four);
  expect(calls.toSorted()).toEqual([
    ...three.map((at) => `read ${four} at ${at}`).toSorted(),
    ...three.map((at) => `write ${four} at ${at}`).toSorted(),
  ]);
});

function recordedCalls(file: DataFile, calls: string[]): DataFile {
  const note = (call: string, parts: readonly Uint8Array[], at: number): void => {
    calls.push(`${call} ${parts.reduce((sum, part) => sum + part.byteLength, 0)} at ${at}`);
  };
  return {
    readv(parts, at) {
      note('read', parts, at);
      return file.readv(parts, at);
    },
    writev(parts, at) {
      note('write', parts, at);
      return file.writev(parts, at);
    },
    allocate: (at, bytes) => file.allocate(at, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  };
}
