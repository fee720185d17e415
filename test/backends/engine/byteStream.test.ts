import { expect, it } from 'vitest';
import { ByteStream } from '../../../src/backends/engine/byteStream.ts';
import { corrupt, loaded } from '../../../src/runtime/transfer/slotLedger.ts';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';

const seed = testSeed(41);

it(`counts the leading bytes without a gap, in whatever order pieces come, and keeps the last of them back (seed ${seed})`, async () => {
  const random = new SeededRandom(seed);
  for (let round = 0; round < 300; round++) {
    const pieces: { from: number; to: number }[] = [];
    let bytes = 0;
    for (let left = 1 + random.below(12); left > 0; left--) {
      const to = bytes + 1 + random.below(9);
      pieces.push({ from: bytes, to });
      bytes = to;
    }
    for (let i = pieces.length - 1; i > 0; i--) {
      const other = random.below(i + 1);
      [pieces[i], pieces[other]] = [pieces[other], pieces[i]];
    }
    const stream = new ByteStream(bytes);
    const there = new Set<number>();
    for (const { from, to } of pieces) {
      const before = stream.leading;
      stream.arrived(from, to);
      for (let at = from; at < to; at++) there.add(at);
      let prefix = 0;
      while (there.has(prefix)) prefix++;
      expect(stream.leading).toBe(prefix < bytes ? prefix : before);
    }
    expect(stream.leading).toBeLessThan(bytes);
    stream.end(loaded);
    expect(stream.leading).toBe(bytes);
    await stream.beyond(bytes - 1);
  }
});

it('wakes whoever waits when there are more bytes, and everybody when there will be none', async () => {
  const woken: string[] = [];
  const stream = new ByteStream(30);
  const waits = [0, 10, 29].map((bytes) => stream.beyond(bytes).then(() => woken.push(`beyond ${bytes}`)));
  stream.arrived(10, 20);
  await Promise.resolve();
  expect(woken).toEqual([]);
  stream.arrived(0, 10);
  await Promise.all(waits.slice(0, 2));
  expect(woken).toEqual(['beyond 0', 'beyond 10']);
  expect(stream.failure).toBeUndefined();
  const end = corrupt('the header names another slot');
  stream.end(end);
  await waits[2];
  expect(stream.failure).toBe(end);
  expect(stream.leading).toBe(20);
});

it('has all bytes at the end of a read that told of none', () => {
  const stream = new ByteStream(8);
  stream.end(loaded);
  expect(stream.leading).toBe(8);
});
