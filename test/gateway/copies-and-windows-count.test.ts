/** What lies in a publisher's caches where blocks have copies, and where layers need the last blocks alone. */

import { describe, expect, it } from 'vitest';
import { CacheBook } from '../../src/serve/gateway/blockNews.ts';
import { CachePicture } from '../../src/serve/gateway/events/cachePicture.ts';
import type { KVEvent, KVEventBatch } from '../../src/serve/gateway/events/wire.ts';
import { PromptCutter } from '../../src/serve/gateway/prompts.ts';

const tokens = (block: number): number[] => Array.from({ length: 16 }, (_, i) => block * 100 + i);
const all = [1, 2, 3, 4].flatMap(tokens);

const stored = (more: object = {}): KVEvent => ({
  type: 'stored',
  hashes: ['1', '2', '3', '4'],
  parent: null,
  tokenIds: all,
  blockTokens: 16,
  medium: 'GPU',
  group: 0,
  layers: 'full_attention',
  loraName: null,
  salt: null,
  extraKeys: null,
  ...more,
});
const removed = (hashes: string[], more: object = {}): KVEvent => ({
  type: 'removed',
  hashes,
  medium: 'GPU',
  group: 0,
  ...more,
});
const sliding = { group: 1, layers: 'sliding_window', window: 32 };
const copy = { hashes: ['4'], parent: '3', tokenIds: tokens(4) };

function picture(...events: KVEvent[]): CachePicture {
  const made = new CachePicture();
  for (const [i, event] of events.entries()) {
    made.apply({ topic: '', number: BigInt(i), publishedAtS: 0, rank: null, events: [event] });
  }
  return made;
}
const batchOf = (event: KVEvent): KVEventBatch => ({
  topic: '',
  number: 99n,
  publishedAtS: 0,
  rank: null,
  events: [event],
});
const blocksOf = (...events: KVEvent[]): number => picture(...events).match(all).blocks;

describe('a window of two blocks', () => {
  it('needs the last two blocks of a prefix: those before may be gone', () => {
    const freed = removed(['1', '2'], { group: 1 });
    const found = picture(stored(), stored(sliding), freed).match(all);
    expect(found).toEqual({ blocks: 4, tokens: 64, byMedium: { GPU: 4 } });
    expect(blocksOf(stored(), stored(sliding), removed(['1', '2', '3'], { group: 1 }))).toBe(0);
    expect(blocksOf(stored(), stored(sliding), removed(['4'], { group: 1 }))).toBe(3);
    expect(blocksOf(stored(), stored(sliding), removed(['1', '4'], { group: 1 }))).toBe(3);
    expect(blocksOf(stored(), stored(sliding), removed(['2', '4'], { group: 1 }))).toBe(1);
  });

  it('goes no further than the layers that need all', () => {
    expect(blocksOf(stored(), stored(sliding), removed(['3']), removed(['1'], { group: 1 }))).toBe(0);
    expect(blocksOf(stored(), stored(sliding), removed(['4']), removed(['1'], { group: 1 }))).toBe(3);
  });

  it('of a width that is not told is taken for all', () => {
    const untold = { group: 1, layers: 'sliding_window' };
    expect(blocksOf(stored(), stored(untold), removed(['1', '2'], { group: 1 }))).toBe(0);
  });
});

describe('a window whose last blocks alone are told, with the tokens of all', () => {
  const last = (count: number, more: object = {}): KVEvent => {
    const hashes = ['1', '2', '3', '4'].slice(4 - count);
    return stored({ ...sliding, hashes, ...more });
  };

  it('has these, where they lie in the prompt', () => {
    expect(blocksOf(stored(), last(2))).toBe(4);
    expect(blocksOf(stored(), last(1)), 'the window needs two').toBe(0);
    expect(blocksOf(stored(), last(4))).toBe(4);
    expect(blocksOf(stored(), last(2, { parent: 'x' })), 'what is before is not known').toBe(0);
    expect(picture(stored(), last(2)).blocks).toEqual({ GPU: 6 });
  });

  it('goes on behind them, and is forgotten with them', () => {
    const more = stored({ ...sliding, hashes: ['5'], parent: '4', tokenIds: tokens(5) });
    const dense = stored({ hashes: ['5'], parent: '4', tokenIds: tokens(5) });
    const made = picture(stored(), dense, last(2), more);
    expect(made.match([...all, ...tokens(5)]).blocks).toBe(5);
    expect(blocksOf(stored(), last(2), removed(['3'], { group: 1 }))).toBe(0);
    const gone = picture(stored(), last(2), removed(['3', '4'], { group: 1 }), removed(['1', '2', '3', '4']));
    expect(gone.blocks).toEqual({});
    expect(blocksOf(stored(), last(2), last(2), removed(['3'], { group: 1 })), 'a second copy is left').toBe(
      4,
    );
  });

  it('is the same in any order of what is told, and where the others are told later', () => {
    const events = [
      last(2),
      stored({ ...sliding, hashes: ['1', '2'], tokenIds: all.slice(0, 32) }),
      stored({ ...sliding, hashes: ['5'], parent: '4', tokenIds: tokens(5) }),
      stored({ ...sliding, hashes: ['7'], parent: '5', tokenIds: [...tokens(6), ...tokens(7)] }),
    ];
    const prompt = [...all, ...tokens(5), ...tokens(6), ...tokens(7)];
    const whole = ['1', '2', '3', '4', '5', '6', '7'];
    const dense = stored({ hashes: whole, tokenIds: prompt });
    const orders = [
      [0, 1, 2, 3],
      [3, 2, 1, 0],
      [2, 3, 0, 1],
      [1, 3, 0, 2],
    ];
    for (const order of orders) {
      const made = picture(dense, ...order.map((i) => events[i]));
      expect(made.match(prompt.slice(0, 80)).blocks, String(order)).toBe(5);
      expect(made.match(prompt).blocks, String(order)).toBe(5);
      made.apply(batchOf(removed(whole.slice(1), { group: 1 })));
      expect(made.match(prompt).blocks).toBe(1);
    }
  });
});

describe('a second copy of a block', () => {
  it('may go, and the first one is found', () => {
    expect(blocksOf(stored(), stored(copy), removed(['4']))).toBe(4);
    expect(blocksOf(stored(), stored(copy), removed(['4']), removed(['4']))).toBe(3);
    expect(blocksOf(stored(), stored({ ...copy, medium: 'CPU' }), removed(['4']))).toBe(4);
    const cleared: KVEvent = { type: 'cleared', reason: 'published', medium: 'GPU' };
    expect(blocksOf(stored(), stored(copy), cleared)).toBe(0);
  });

  it('counts so in what decisions are told too', () => {
    const book = new CacheBook(new PromptCutter(16, new Uint8Array(32), null), [100, 100]);
    const told = (event: KVEvent): boolean[] => book.take(event, 'm', 0).map((input) => input.stored);
    expect(told(stored())).toEqual([true]);
    expect(told(stored(copy))).toEqual([]);
    expect(told(removed(['4']))).toEqual([]);
    expect(told(removed(['4']))).toEqual([false]);
    expect(told(removed(['4']))).toEqual([]);
    expect(told(stored(copy))).toEqual([true]);
    expect(told(stored(copy))).toEqual([]);
    expect(told({ type: 'cleared', reason: 'published', medium: 'GPU' })).toEqual([false]);
    expect(told(removed(['4']))).toEqual([]);
  });
});
