/**
 * Upstream's minimal reproductions of D1, D1b, D2 and D3 on the models of its stores, and what the repaired
 * model does on the same calls.
 */

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { copies } from '../goldenFolders.ts';
import { asUpstream, repaired, type UpstreamState, UpstreamStore } from '../upstream/upstreamStore.ts';
import { MirrorStore } from './mirrorStore.ts';
import { mirrorState } from './operations.ts';

const span = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);
const prompt = span(1, 16);

interface Recorded {
  readonly defect: string;
  readonly state: UpstreamState;
  readonly state_after: UpstreamState;
  readonly state_before: UpstreamState;
  readonly map_B: readonly number[];
  readonly got_cached: number;
  readonly expected_cached: number;
  readonly cached_ids_passed: readonly number[];
  readonly blocks_of_B: readonly number[];
}

describe('upstream, and the repaired model', () => {
  const [d1, d1b, d2, d3]: Recorded[] = JSON.parse(
    readFileSync(new URL('micro/defects.json', copies), 'utf8'),
  );

  /** A prompt that was served before and is cached whole. */
  function served(repairs: typeof asUpstream): UpstreamStore {
    const store = new UpstreamStore(16, 4, repairs);
    store.allocate('A', prompt, [], true);
    store.release('A');
    return store;
  }

  it('D1: a prompt that is cached whole claims nothing; repaired, it claims three blocks and computes one', () => {
    const store = served(asUpstream);
    const cached = store.cached(prompt);
    expect(cached.length).toBe(4);
    expect(store.allocate('B', [], cached, true)).toBe(true);
    const { blocks, free, hash_entries, hits, map, misses, used } = d1.state_after;
    expect(store.state()).toEqual({ blocks, free, hash_entries, hits, map, misses, used });
    const better = served(repaired);
    const found = better.cached(prompt);
    expect(found.length).toBe(3);
    expect(better.allocate('B', prompt.slice(12), found, true)).toBe(true);
    expect([better.hits, better.used]).toEqual([3, 4]);
  });

  it('D1b: its first answer token has one block; repaired, five', () => {
    const store = served(asUpstream);
    store.allocate('B', [], store.cached(prompt), true);
    store.allocate('B', [99], [], false);
    expect(store.owned.get('B')).toEqual(d1b.map_B);
    const better = served(repaired);
    better.allocate('B', prompt.slice(12), better.cached(prompt), true);
    better.allocate('B', [99], [], false);
    expect(better.owned.get('B')?.length).toBe(5);
  });

  it('D2: a block that goes takes the entry of its living double with it; repaired, the double is found', () => {
    const run = (repairs: typeof asUpstream): UpstreamStore => {
      const store = new UpstreamStore(8, 4, repairs);
      // two requests compute the same prompt in one step, and the first one ends
      const same = span(1, 8);
      store.allocate('A', same, [], true);
      store.allocate('B', same, [], true);
      store.release('A');
      store.allocate('C', span(500, 24), [], true);
      return store;
    };
    const upstream = run(asUpstream);
    expect(upstream.cached(span(1, 9)).length).toBe(d2.got_cached);
    expect(upstream.state().map).toEqual(d2.state.map);
    expect(upstream.state().hash_entries).toBe(d2.state.hash_entries);
    expect(run(repaired).cached(span(1, 9)).length).toBe(d2.expected_cached);
  });

  it('D3: a reload writes over the prefix that the request has matched', () => {
    const store = new MirrorStore(8, 4, { cpuBlocks: 64, bandwidth: 100, baseTicks: 0 });
    store.allocate('A', prompt, [], true, { prompt, start: 0 });
    store.allocate('A', [99], [], false, { prompt, start: 16 });
    store.mirror([['A', 16]]);
    store.release('A');
    const other = span(700, 24);
    store.allocate('X', other, [], true, { prompt: other, start: 0 });
    const { blocks_of_B: blocks, cached_ids_passed: ids } = d3;
    expect(store.state().free).toEqual(d3.state_before.free);
    store.release('X');
    const asked = [...prompt, 950, 951, 952];
    const cached = store.cached(asked);
    expect(cached).toEqual(ids);
    expect(store.allocate('B', asked.slice(8), cached, true, { prompt: asked, start: 8 })).toBe(true);
    expect(store.owned.get('B')).toEqual(blocks);
    const state = mirrorState(store);
    for (const field of [
      'free',
      'hits',
      'used',
      'cpu_hits',
      'pending_latency',
      'cpu_lru',
      'hash_entries',
    ] as const) {
      expect(state[field], field).toEqual((d3.state_after as unknown as Record<string, unknown>)[field]);
    }
    // the first block of the request has the KV of the prompt's last
    const blocksNow = store.state().blocks;
    const hashOf = (block: number): string => blocksNow.find(([id]) => id === block)?.[3] ?? '';
    expect([hashOf(0), hashOf(1)]).toEqual(['b0c326d8', 'e46d438e']);
  });
});
