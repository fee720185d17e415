/**
 * What is told of random caches, whatever the order in which blocks come and go: a block never before its parent, and
 * in the end a router that forgets as Dynamo's does, and our own picture, know exactly what is cached.
 */

import { describe, expect, it } from 'vitest';
import type { CacheEvent } from '../../../src/embed/observability.ts';
import { CachePicture } from '../../../src/serve/gateway/events/cachePicture.ts';
import { PublishedBlocks, type Telling } from '../../../src/serve/gateway/events/publishedBlocks.ts';
import { hashName, type KVEvent } from '../../../src/serve/gateway/events/wire.ts';

type Stored = Extract<CacheEvent, { type: 'stored' }>;

const keyOf = (block: number): string => (block + 1).toString(16).padStart(32, '0');

/** Block b > 0 hangs on block (b - 1) >> 1: a tree. */
const stored = (block: number, extra: Partial<Stored> = {}): Stored => ({
  type: 'stored',
  number: 0,
  tier: 'hbm',
  key: keyOf(block),
  parent: block === 0 ? null : keyOf((block - 1) >> 1),
  tokens: 2,
  bytes: 1,
  tokenIds: Uint32Array.of(block, block + 1000),
  tenant: 'alice',
  group: 0,
  ...extra,
});
const names = (tellings: readonly Telling[]): string[] =>
  tellings.map(({ type, tier, block }) => `${type === 'stored' ? '+' : '-'}${block.tokenIds[0]}@${tier}`);

describe('a block', () => {
  it('waits for its parent, and is told in all its tiers behind it', () => {
    const blocks = new PublishedBlocks(false);
    expect(blocks.stored(stored(3), 1)).toEqual([]);
    expect(blocks.stored(stored(1), 0)).toEqual([]);
    expect(blocks.stored(stored(3), 2)).toEqual([]);
    expect(names(blocks.stored(stored(0), 0))).toEqual(['+0@0', '+1@0', '+3@1', '+3@2']);
  });

  it('is told once more in the first tier when its parent comes back there', () => {
    const blocks = new PublishedBlocks(false);
    for (const block of [0, 1, 3]) blocks.stored(stored(block), 0);
    expect(names(blocks.removed(keyOf(0), 0))).toEqual(['-0@0']);
    expect(names(blocks.stored(stored(0), 1))).toEqual(['+0@1']);
    expect(names(blocks.stored(stored(0), 0))).toEqual(['+0@0', '+1@0', '+3@0']);
  });

  it('whose tokens are not known is counted, and told when they are', () => {
    const blocks = new PublishedBlocks(false);
    const { tokenIds: _, ...nameless } = stored(0);
    expect(blocks.stored(nameless, 2)).toEqual([]);
    expect(blocks.nameless).toBe(1);
    expect(names(blocks.stored(stored(0), 2))).toEqual(['+0@2']);
    expect(blocks.nameless).toBe(0);
  });

  it('that is shorter than its tokens say is left out', () => {
    const blocks = new PublishedBlocks(false);
    expect(blocks.stored(stored(0, { tokens: 1 }), 0)).toEqual([]);
  });
});

/** Dynamo's device tree: a block needs its parent, and goes with it. */
class ForgetfulRouter {
  readonly device: Map<string, string | null> = new Map();

  apply({ type, tier, block }: Telling): void {
    if (tier !== 0) return;
    const hash = hashName(block.hash);
    const parent = block.parentHash === null ? null : hashName(block.parentHash);
    if (type === 'removed') this.#forget(hash);
    else if (parent === null || this.device.has(parent)) this.device.set(hash, parent);
  }

  #forget(hash: string): void {
    this.device.delete(hash);
    for (const [child, parent] of this.device) if (parent === hash) this.#forget(child);
  }
}

const asEvent = ({ type, tier, block }: Telling): KVEvent => {
  const hashes = [hashName(block.hash)];
  const medium = String(tier);
  if (type === 'removed') return { type, hashes, medium, group: null };
  return {
    type,
    hashes,
    parent: block.parentHash === null ? null : hashName(block.parentHash),
    tokenIds: [...block.tokenIds],
    blockTokens: block.tokenIds.length,
    medium,
    group: null,
    layers: null,
    loraName: null,
    salt: block.tenant,
    extraKeys: null,
  };
};

describe('random caches', () => {
  it.each([1, 2, 3, 4, 5, 6, 7, 8])('are told rightly (seed %i)', (seed) => {
    let at = seed;
    const draw = (limit: number): number => {
      at = (Math.imul(at, 1664525) + 1013904223) >>> 0;
      return Math.floor((at / 2 ** 32) * limit);
    };
    const BLOCKS = 15;
    const truth = Array.from({ length: BLOCKS }, () => new Set<number>());
    const blocks = new PublishedBlocks(false);
    const router = new ForgetfulRouter();
    const picture = new CachePicture();
    const tell = (tellings: readonly Telling[]): void => {
      for (const telling of tellings) router.apply(telling);
      picture.apply({ topic: '', number: 0n, publishedAtS: 0, rank: null, events: tellings.map(asEvent) });
    };
    for (let step = 0; step < 3000; step++) {
      const [block, tier] = [draw(BLOCKS), draw(3)];
      if (truth[block].delete(tier)) tell(blocks.removed(keyOf(block), tier));
      else {
        truth[block].add(tier);
        tell(blocks.stored(stored(block), tier));
      }
      blocks.checkIntegrity();
      const where = `seed ${seed}, step ${step}`;
      const leaf = BLOCKS - 1 - draw(8);
      const chain: number[] = [];
      for (let one = leaf; ; one = (one - 1) >> 1) {
        chain.unshift(one);
        if (one === 0) break;
      }
      const tokens = chain.flatMap((one) => [one, one + 1000]);
      const ends = (holds: (one: number) => boolean): number => {
        const end = chain.findIndex((one) => !holds(one));
        return end === -1 ? chain.length : end;
      };
      const found = picture.match(tokens, { salt: 'alice' });
      expect(found.blocks, where).toBe(ends((one) => truth[one].size > 0));
      for (const medium of [0, 1, 2]) {
        expect(found.byMedium[medium] ?? 0, where).toBe(ends((one) => truth[one].has(medium)));
      }
      expect(picture.match(tokens, { salt: 'bob' }).blocks).toBe(0);
      const onDevice = ends((one) => router.device.has(keyOf(one).slice(16)));
      expect(onDevice, where).toBe(ends((one) => truth[one].has(0)));
      if (step % 100 === 0) {
        const anew = new CachePicture();
        const known = new Set<string | null>([null]);
        for (const telling of blocks.state()) {
          const event = asEvent(telling);
          if (event.type !== 'stored') throw new Error('a state has stores alone');
          known.add(event.hashes[0]);
          anew.apply({ topic: '', number: 0n, publishedAtS: 0, rank: null, events: [event] });
        }
        expect(anew.match(tokens, { salt: 'alice' }), where).toEqual(found);
      }
    }
    for (let block = 0; block < BLOCKS; block++) {
      for (const tier of [...truth[block]]) tell(blocks.removed(keyOf(block), tier));
    }
    expect(blocks.count).toBe(0);
    expect(picture.blocks).toEqual({});
  });
});
