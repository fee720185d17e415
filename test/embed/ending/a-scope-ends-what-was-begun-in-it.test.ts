/** `using` and `await using`: what a scope began ends with it, however the scope is left, once. */

import { expect, it } from 'vitest';
import { blocks, openHostRuntime, prompt, tenant, write } from '../liveRuntime.ts';

it('a sequence is released where its scope ends, and its sealed blocks stay', async () => {
  await using kv = await openHostRuntime({ ddrBytes: blocks(20) });
  {
    using sequence = await kv.begin(prompt(10), { tenant });
    write(kv, sequence, 10);
    await kv.seal(sequence);
    expect(kv.manager.inspect.openSequences).toBe(1);
  }
  expect(kv.manager.inspect.openSequences).toBe(0);
  expect(kv.lookup(prompt(10), { tenant }).blocks).toBeGreaterThan(0);
  kv.manager.checkIntegrity();
});

it('an error in the scope leaves nothing open, and nothing unwritten is found', async () => {
  await using kv = await openHostRuntime({ ddrBytes: blocks(20) });
  const failing = async (): Promise<void> => {
    using sequence = await kv.begin(prompt(10), { tenant });
    throw new Error(`the engine failed after ${sequence.cachedTokens} tokens`);
  };
  await expect(failing()).rejects.toThrow('the engine failed');
  expect(kv.manager.inspect.openSequences).toBe(0);
  expect(kv.lookup(prompt(10), { tenant }).blocks).toBe(0);
});

it('one that was released, cancelled or forked away before is left alone', async () => {
  await using kv = await openHostRuntime({ ddrBytes: blocks(40) });
  {
    using released = await kv.begin(prompt(10), { tenant });
    using cancelled = await kv.begin(prompt(50), { tenant });
    write(kv, released, 10);
    await kv.seal(released);
    const forked = await kv.fork(released, 16);
    if (forked === 'interrupted') throw new Error('nothing interrupts it');
    using branch = forked;
    kv.release(released);
    kv.cancel(cancelled);
    expect(branch.ended).toBe(false);
  }
  expect(kv.manager.inspect.openSequences).toBe(0);
  kv.manager.checkIntegrity();
});

it('a sequence that outlives its runtime ends quietly', async () => {
  const kv = await openHostRuntime({ ddrBytes: blocks(20) });
  {
    using sequence = await kv.begin(prompt(10), { tenant });
    await kv.close();
    expect(sequence.ended).toBe(false);
  }
  expect(kv.manager.inspect.openSequences).toBe(0);
});

it('a scheduler ends with its scope', async () => {
  await using kv = await openHostRuntime({ ddrBytes: blocks(20) });
  {
    using scheduler = kv.scheduler();
    scheduler.add({ id: 'r', tokens: [1, 2, 3], tenant, maxTokens: 1 });
  }
  expect(kv.manager.inspect.openSequences).toBe(0);
  using again = kv.scheduler();
  expect(again).toBeDefined();
});
