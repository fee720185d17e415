/**
 * Sequences that were begun already, and the whole runtime, called off while a real file holds what they wait
 * for.
 */

import { describe, expect, it } from 'vitest';
import type { KVRuntime } from '../../../src/index.ts';
import { listeners, longPrompt, nothingLeaked, openHeld, turn, untilHeld } from '../disk/heldDisk.ts';
import { cacheBelow, contents, prompt, rightContents, tenant, write } from '../liveRuntime.ts';

describe('a sequence that was interrupted', () => {
  async function interrupted(kv: KVRuntime) {
    await cacheBelow(kv, 10, 1);
    const sequence = await kv.begin(prompt(10), { tenant });
    write(kv, sequence, 10);
    const lost = kv.devicesLost + 1;
    kv.device.destroy();
    while (kv.devicesLost < lost || kv.describe().runtime.devicePresent !== true) await turn();
    return sequence;
  }

  it('stays so when the signal of its recovery is raised, and can be recovered later', async () => {
    const { kv, hold, letGo, held } = await openHeld();
    const sequence = await interrupted(kv);
    await expect(kv.recover(sequence, { signal: AbortSignal.abort() })).rejects.toThrow();
    expect(kv.manager.inspect.jobsInFlight).toBe(0);
    hold();
    const client = new AbortController();
    const recovered = kv.recover(sequence, { signal: client.signal });
    await untilHeld(held);
    client.abort();
    await expect(recovered).rejects.toMatchObject({ name: 'AbortError' });
    expect(listeners(client.signal)).toBe(0);
    expect(() => kv.blockTable(sequence)).toThrow(/recover/);
    letGo();
    expect(await kv.recover(sequence)).toEqual([4]);
    expect(await contents(kv, sequence)).toEqual(rightContents(10));
    kv.release(sequence);
    await nothingLeaked(kv);
  });

  it('can be cancelled while it is recovered: its loads are cancelled, and calls that wait are told', async () => {
    const { kv, hold, letGo, held } = await openHeld();
    const sequence = await interrupted(kv);
    hold();
    const recovered = kv.recover(sequence);
    await untilHeld(held);
    kv.cancel(sequence);
    await expect(recovered).rejects.toMatchObject({ code: 'TKV_UNKNOWN_ID' });
    expect(held()).toBeGreaterThan(0);
    expect(kv.manager.inspect.usage(0)).toMatchObject({ heldBytes: 0, slots: { draining: 4 } });
    expect(() => kv.cancel(sequence)).toThrow(/has ended/);
    letGo();
    await nothingLeaked(kv);
  });
});

describe('cancel', () => {
  it('of a sequence without loads is a release: what was sealed stays cached', async () => {
    const { kv } = await openHeld();
    const sequence = await kv.begin(prompt(10), { tenant });
    write(kv, sequence, 10);
    const sealed = kv.seal(sequence);
    kv.cancel(sequence);
    expect(await sealed).toBe('interrupted');
    await kv.idle();
    expect(kv.lookup(prompt(10), { tenant }).byTier[0]).toBe(4);
    await nothingLeaked(kv);
  });

  it('ends an append that waits for slots', async () => {
    const { kv, hold, letGo, held } = await openHeld();
    await cacheBelow(kv, 10, 1);
    const sequence = await kv.begin(longPrompt(500).subarray(0, 16), { tenant });
    hold();
    const client = new AbortController();
    const loading = kv.begin(prompt(10), { tenant, signal: client.signal });
    await untilHeld(held);
    client.abort();
    await expect(loading).rejects.toThrow();
    const appended = kv.append(sequence, longPrompt(500));
    await turn();
    kv.cancel(sequence);
    expect(await appended).toBe('interrupted');
    letGo();
    await nothingLeaked(kv);
  });
});

it('a runtime that is closed ends all waiting calls at once, and no request begins', async () => {
  const { kv, hold, letGo, held } = await openHeld();
  await cacheBelow(kv, 10, 1);
  hold();
  const { signal } = new AbortController();
  const begun = kv.begin(prompt(10), { tenant, signal });
  await untilHeld(held);
  const closed = kv[Symbol.asyncDispose]();
  await expect(begun).rejects.toMatchObject({ code: 'TKV_STATE' });
  expect(held()).toBeGreaterThan(0);
  expect(listeners(signal)).toBe(0);
  await expect(kv.begin(prompt(10), { tenant })).rejects.toThrow(/closed. Open another one/);
  letGo();
  await closed;
  kv.manager.checkIntegrity();
  expect(kv.manager.inspect.usage(0)).toMatchObject({ heldBytes: 0, slots: { draining: 0 } });
});
