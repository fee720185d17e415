import { describe, expect, it } from 'vitest';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import { newShadow, ObservedView } from '../../../src/sim/control/cacheView.ts';
import { KeyLru } from '../../../src/sim/control/keyTables.ts';
import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { keyOf, keysOf, probe, request } from './fixtures.ts';

const shadowOf = (model: 'approximate' | 'events' | 'speculative', fields = {}) => {
  const shadow = newShadow({ model, blocks: 0, eventDelayUs: 100, speculativeTtlUs: 1000, ...fields });
  if (shadow === null) throw new Error('there is a shadow');
  return shadow;
};
const hexOf = (group: number, block: number): string => keysOf(group, block + 1).toHex(block);

describe('keys in the order of their last use', () => {
  it('agree with a Map over random calls, and come back from a snapshot', () => {
    const seed = 7n;
    const random = new PartitionedRandom(seed).stream('workload');
    let lru = new KeyLru();
    const naive = new Map<string, number>();
    for (let i = 0; i < 20_000; i++) {
      const group = random.intn(40);
      const block = random.intn(12);
      const key = keyOf(group, block);
      const name = `${group} ${block}`;
      if (random.intn(3) === 0) {
        expect(lru.remove(key, 0), `seed ${seed}, call ${i}`).toBe(naive.delete(name));
      } else {
        naive.delete(name);
        naive.set(name, i);
        lru.touch(key, 0);
      }
      if (i % 1000 === 0) {
        const copy = new KeyLru();
        copy.fill(lru.inOrder());
        lru = copy;
      }
    }
    expect(lru.size).toBe(naive.size);
    const expected = [...naive.keys()].map((name) => {
      const [group, block] = name.split(' ').map(Number);
      return hexOf(group, block);
    });
    expect(lru.oldestKeys(Infinity)).toEqual(expected);
  });
});

describe('the observed view', () => {
  it('is as old as the interval, and live without one', () => {
    for (const intervalUs of [0, 50]) {
      const view = new ObservedView(intervalUs);
      view.added(probe(0));
      const prompt = request({ promptTokens: 48 });
      for (let block = 0; block < 3; block++) view.event(0, 0, true, keyOf(1, block), 10);
      view.refresh(49);
      expect(view.topBlocks(prompt, 0)).toBe(intervalUs === 0 ? 3 : 0);
      view.refresh(50);
      expect(view.topBlocks(prompt, 0)).toBe(3);
      view.event(0, 0, false, keyOf(1, 1), 60);
      view.refresh(99);
      expect(view.topBlocks(prompt, 0)).toBe(intervalUs === 0 ? 1 : 3);
      view.refresh(100);
      expect(view.topBlocks(prompt, 0)).toBe(1);
      expect(view.topBlocks(prompt, 7)).toBe(0);
    }
  });

  it('places blocks in the fastest tier that has them', () => {
    const view = new ObservedView(0);
    view.added(probe(0, [10, 10]));
    view.event(0, 0, true, keyOf(1, 0), 0);
    view.event(0, 1, true, keyOf(1, 0), 0);
    view.event(0, 1, true, keyOf(1, 1), 0);
    expect(view.place(request({ promptTokens: 48 }), 0)).toEqual({ blocks: 2, byTier: [1, 1] });
  });
});

describe('the approximate shadow', () => {
  it('believes in routed prompts, and sinks the least recently used to the tier below', () => {
    const shadow = shadowOf('approximate');
    shadow.added(probe(0, [4, 2]));
    const first = request({ group: 1, promptTokens: 48 });
    shadow.routed(first, 0, 0);
    expect(shadow.place(first, 0)).toEqual({ blocks: 3, byTier: [3, 0] });
    expect([shadow.utilization(0, 0), shadow.utilization(0, 1)]).toEqual([0.75, 0]);
    expect(shadow.evictionQueue(0, 0, 2)).toEqual([hexOf(1, 0), hexOf(1, 1)]);
    shadow.routed(request({ group: 2, promptTokens: 48 }), 0, 0);
    // two of the first sank, and the last of it is still in HBM
    expect(shadow.place(first, 0)).toEqual({ blocks: 3, byTier: [1, 2] });
    shadow.routed(request({ group: 3, promptTokens: 48 }), 0, 0);
    // three more: the first prompt's blocks left the tier below, the oldest first
    expect(shadow.place(first, 0).blocks).toBe(0);
    expect([shadow.blocks(0, 0), shadow.blocks(0, 1)]).toEqual([4, 2]);
    expect(shadow.place(first, 1)).toEqual({ blocks: 0, byTier: [] });
  });

  it('keeps to a limit of its own where one is set', () => {
    const shadow = shadowOf('approximate', { blocks: 2 });
    shadow.added(probe(0, [100, 100]));
    shadow.routed(request({ promptTokens: 64 }), 0, 0);
    expect([shadow.blocks(0, 0), shadow.blocks(0, 1)]).toEqual([2, 0]);
  });
});

describe('the event-fed shadow', () => {
  it('knows an event a fixed time after it was sent, and nothing of routing', () => {
    const shadow = shadowOf('events');
    shadow.added(probe(0));
    const prompt = request({ promptTokens: 32 });
    shadow.routed(prompt, 0, 0);
    expect(shadow.topBlocks(prompt, 0)).toBe(0);
    shadow.event(0, 0, true, keyOf(1, 0), 5);
    shadow.event(0, 0, true, keyOf(1, 1), 20);
    for (const [nowUs, blocks] of [
      [104, 0],
      [105, 1],
      [120, 2],
    ]) {
      shadow.refresh(nowUs);
      expect(shadow.topBlocks(prompt, 0), `at ${nowUs}`).toBe(blocks);
    }
  });

  it('expects the blocks it has not routed to for longest to go first', () => {
    const shadow = shadowOf('events', { eventDelayUs: 0 });
    shadow.added(probe(0));
    for (const group of [1, 2]) shadow.event(0, 0, true, keyOf(group, 0), 0);
    expect(shadow.evictionQueue(0, 0, 9)).toEqual([hexOf(1, 0), hexOf(2, 0)]);
    shadow.routed(request({ group: 1, promptTokens: 16 }), 0, 0);
    expect(shadow.evictionQueue(0, 0, 1)).toEqual([hexOf(2, 0)]);
  });

  it('with speculation believes in a routed prompt until its time is up, or an event says otherwise', () => {
    const shadow = shadowOf('speculative');
    shadow.added(probe(0));
    const prompt = request({ promptTokens: 32 });
    shadow.routed(prompt, 0, 0);
    expect(shadow.topBlocks(prompt, 0)).toBe(2);
    shadow.refresh(999);
    expect(shadow.topBlocks(prompt, 0)).toBe(2);
    shadow.refresh(1000);
    expect(shadow.topBlocks(prompt, 0)).toBe(0);
    shadow.routed(prompt, 0, 2000);
    shadow.event(0, 0, true, keyOf(1, 0), 2010);
    shadow.event(0, 0, false, keyOf(1, 1), 2020);
    shadow.refresh(2120);
    expect(shadow.topBlocks(prompt, 0)).toBe(1);
    shadow.refresh(9000);
    expect(shadow.topBlocks(prompt, 0)).toBe(1);
  });
});

describe('every view', () => {
  it('goes on from a snapshot as if nothing had been in between, and forgets an instance that left', () => {
    const views = [
      () => new ObservedView(50),
      () => shadowOf('approximate'),
      () => shadowOf('events'),
      () => shadowOf('speculative'),
    ];
    for (const make of views) {
      const random = new PartitionedRandom(11n).stream('workload');
      let one = make();
      const twin = make();
      for (const view of [one, twin]) for (const number of [0, 1]) view.added(probe(number, [20, 10]));
      for (let nowUs = 0; nowUs < 3000; nowUs += 10) {
        const [instance, tier, group, block] = [2, 2, 5, 6].map((bound) => random.intn(bound));
        const stored = random.intn(3) > 0;
        const prompt = request({ group, promptTokens: 16 * (block + 1) });
        for (const view of [one, twin]) {
          view.event(instance, tier, stored, keyOf(group, block), nowUs);
          view.refresh(nowUs);
          if (random.position % 2 === 0) view.routed(prompt, instance, nowUs);
        }
        expect(one.place(prompt, instance)).toEqual(twin.place(prompt, instance));
        if (nowUs % 200 === 0) {
          const restored = make();
          for (const number of [0, 1]) restored.added(probe(number, [20, 10]));
          restoreState(restored, structuredClone(saveState(one)));
          one = restored;
        }
      }
      one.removed(1);
      expect(one.place(request(), 1)).toEqual({ blocks: 0, byTier: [] });
    }
  });
});
