/**
 * A client that goes away while its request waits: on the software device, over a real file whose reads can
 * be held.
 */

import { afterEach, describe, expect, it, vi } from 'vitest';
import { SeededRandom } from '../../../src/testing/patternItems.ts';
import {
  cleanups,
  HBM_BLOCKS,
  listeners,
  longPrompt,
  nothingLeaked,
  openHeld,
  turn,
  untilHeld,
} from '../disk/heldDisk.ts';
import { ask, cacheBelow, contents, prompt, rightContents, tenant, write } from '../liveRuntime.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

describe('begin with a signal', () => {
  it('raised before: rejects with its reason, and nothing was asked of the manager', async () => {
    const { kv } = await openHeld();
    await cacheBelow(kv, 10, 1);
    const before = JSON.stringify(kv.manager.inspect.dump());
    const opened = vi.spyOn(kv.manager, 'open');
    const reason = new Error('the client is gone');
    await expect(kv.begin(prompt(10), { tenant, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(kv.begin(prompt(10), { tenant, signal: AbortSignal.abort() })).rejects.toMatchObject({
      name: 'AbortError',
    });
    expect(opened).not.toHaveBeenCalled();
    expect(JSON.stringify(kv.manager.inspect.dump())).toBe(before);
  });

  it('raised during a reload: rejects before the disk has answered, and all comes free when it has', async () => {
    const { kv, hold, letGo, held } = await openHeld();
    await cacheBelow(kv, 10, 1);
    hold();
    const client = new AbortController();
    const begun = kv.begin(prompt(10), { tenant, signal: client.signal });
    await untilHeld(held);
    expect(listeners(client.signal)).toBe(1);
    client.abort();
    await expect(begun).rejects.toMatchObject({ name: 'AbortError' });
    expect(held()).toBeGreaterThan(0);
    expect(listeners(client.signal)).toBe(0);
    kv.manager.checkIntegrity();
    expect(kv.manager.inspect.usage(0)).toMatchObject({ heldBytes: 0, slots: { draining: 4 } });

    letGo();
    await nothingLeaked(kv);
    expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
  });

  it('leaves others alone that wait for the same blocks, and requests that come while its loads drain', async () => {
    const { kv, hold, letGo, held } = await openHeld();
    await cacheBelow(kv, 10, 1);
    await cacheBelow(kv, 20, 1);
    hold();
    const client = new AbortController();
    const gone = [10, 20].map((seed) => kv.begin(prompt(seed), { tenant, signal: client.signal }));
    const sharing = kv.begin(prompt(10), { tenant });
    await untilHeld(held);
    client.abort();
    for (const begun of gone) await expect(begun).rejects.toMatchObject({ name: 'AbortError' });
    const late = kv.begin(prompt(20), { tenant });
    letGo();
    for (const [begun, seed] of [[sharing, 10] as const, [late, 20] as const]) {
      const sequence = await begun;
      expect(sequence.cachedTokens).toBe(64);
      write(kv, sequence, seed);
      expect(await contents(kv, sequence)).toEqual(rightContents(seed));
      kv.release(sequence);
    }
    await nothingLeaked(kv);
  });

  it('raised while it waits for slots of others to come free: gives up its place in the queue', async () => {
    const { kv, hold, letGo, held } = await openHeld();
    await cacheBelow(kv, 10, 1);
    hold();
    const client = new AbortController();
    const loading = kv.begin(prompt(10), { tenant, signal: client.signal });
    await untilHeld(held);
    client.abort();
    await expect(loading).rejects.toThrow();

    const next = new AbortController();
    const waiting = kv.begin(longPrompt(500), { tenant, signal: next.signal });
    await turn();
    next.abort('no longer wanted');
    await expect(waiting).rejects.toBe('no longer wanted');
    kv.manager.checkIntegrity();
    expect(kv.manager.inspect.usage(0).heldBytes).toBe(0);
    letGo();
    await nothingLeaked(kv);
  });

  it('raised while the device is lost: rejects before there is another', async () => {
    const { kv } = await openHeld();
    await cacheBelow(kv, 10, 1);
    const { promise: allowed, resolve: allow } = Promise.withResolvers<void>();
    cleanups.push(allow);
    const replace = kv.stores.replaceDevice;
    vi.spyOn(kv.stores, 'replaceDevice').mockImplementation(() => allowed.then(replace));
    kv.device.destroy();
    while (kv.devicesLost === 0) await turn();
    const client = new AbortController();
    const begun = kv.begin(prompt(10), { tenant, signal: client.signal });
    await turn();
    client.abort();
    await expect(begun).rejects.toMatchObject({ name: 'AbortError' });
    expect(kv.describe().runtime.devicePresent).toBe(false);
    allow();
    expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
    await nothingLeaked(kv);
  });

  it('raised afterwards: the sequence stays as it is', async () => {
    const { kv } = await openHeld();
    await cacheBelow(kv, 10, 1);
    const client = new AbortController();
    const sequence = await kv.begin(prompt(10), { tenant, signal: client.signal });
    client.abort();
    await kv.idle();
    expect(kv.blockTable(sequence).length).toBe(5);
    write(kv, sequence, 10);
    expect(await kv.seal(sequence)).toBe('done');
    expect(await contents(kv, sequence)).toEqual(rightContents(10));
    kv.release(sequence);
    await nothingLeaked(kv);
  });

  it('leaves no listener on it, however the call ends', async () => {
    const { kv } = await openHeld();
    await cacheBelow(kv, 10, 1);
    const { signal } = new AbortController();
    const first = await kv.begin(prompt(10), { tenant, signal });
    await expect(kv.begin(longPrompt(500), { tenant, signal })).rejects.toMatchObject({
      code: 'TKV_FULL',
    });
    await expect(kv.begin([-1, ...prompt(10)], { tenant, signal })).rejects.toMatchObject({
      code: 'TKV_INPUT',
    });
    kv.release(first);
    await expect(kv.recover(first, { signal })).rejects.toMatchObject({ code: 'TKV_UNKNOWN_ID' });
    expect(listeners(signal)).toBe(0);
  });

  it('raised at any moment, again and again: nothing leaks and nothing wrong is served', async () => {
    const { kv } = await openHeld();
    const random = new SeededRandom(7);
    const seeds = [10, 20, 30];
    for (const seed of seeds) await cacheBelow(kv, seed, 1);
    let aborted = 0;
    for (let round = 0; round < 60; round++) {
      const clients = seeds.map((seed) => {
        const client = new AbortController();
        const begun = kv.begin(prompt(seed), { tenant, signal: client.signal });
        return { seed, client, begun: begun.catch(() => undefined) };
      });
      for (let turns = random.below(12); turns > 0; turns--) await (random.chance(0.5) ? turn() : null);
      for (const { client } of clients) if (random.chance(0.6)) client.abort();
      for (const { seed, client, begun } of clients) {
        const sequence = await begun;
        expect(listeners(client.signal)).toBe(0);
        if (sequence === undefined) {
          aborted++;
          continue;
        }
        write(kv, sequence, seed);
        expect(await contents(kv, sequence)).toEqual(rightContents(seed));
        kv.release(sequence);
      }
      kv.manager.evict(0, HBM_BLOCKS, kv.nowUs());
      kv.manager.checkIntegrity();
    }
    expect(aborted).toBeGreaterThan(0);
    await nothingLeaked(kv);
    for (const seed of seeds) expect((await ask(kv, seed)).right).toBe(true);
  });
});
