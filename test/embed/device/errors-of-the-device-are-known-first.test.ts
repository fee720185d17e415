/**
 * WebGPU says of failed work later, and to no call in particular. Nothing is sealed that such an error may
 * have hit: neither the embedder's own passes nor what the stores do themselves.
 */

import { afterEach, describe, expect, it, vi } from 'vitest';
import type { KVRuntime, KVSequence } from '../../../src/index.ts';
import { ask, blocks, cacheBelow, layout, openRuntime, prompt, tenant, write } from '../liveRuntime.ts';
import { answerTo, ReadingEngine } from '../scheduling/readingEngine.ts';

const { blockTokens } = layout;
const COPY = 0x4 | 0x8;

let kv: KVRuntime;
afterEach(() => kv.close());

const tokens = (count: number): number[] => Array.from({ length: count }, (_, i) => 500 + i);
const found = (count: number): number => kv.lookup(tokens(count), { tenant }).blocks;

/** Passes of an embedder that fail, each in another way. */
const failures: Record<string, () => void | Promise<void>> = {
  'a copy that is not valid': () => {
    const buffer = kv.device.createBuffer({ size: 64, usage: COPY });
    const encoder = kv.device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, buffer, 32, 1000);
    kv.device.queue.submit([encoder.finish()]);
  },
  'a write past the end of a buffer': () => {
    kv.device.queue.writeBuffer(kv.device.createBuffer({ size: 64, usage: COPY }), 60, new Uint8Array(64));
  },
  'memory that the device does not have': () => {
    kv.device.createBuffer({ size: 2 ** 40, usage: COPY });
  },
  'an error that a scope of its own catches': async () => {
    kv.device.pushErrorScope('validation');
    kv.device.createBuffer({ size: 64, usage: 0xffff });
    await kv.device.popErrorScope();
  },
};

async function written(): Promise<KVSequence> {
  const sequence = await kv.begin(tokens(40), { tenant });
  write(kv, sequence, 1);
  return sequence;
}

describe("an error of the embedder's pass, since the block was opened", () => {
  it.each(Object.entries(failures))('%s: seal refuses, and nothing is found', async (_, fail) => {
    kv = await openRuntime({ device: undefined });
    const sequence = await written();
    await fail();
    const refusal = { code: 'TKV_DEVICE', message: expect.stringMatching(/reported an error after block 0/) };
    await expect(kv.seal(sequence, { tail: true })).rejects.toMatchObject(refusal);
    await expect(kv.fork(sequence, 20)).rejects.toMatchObject({ code: 'TKV_DEVICE' });
    const step = kv.step([{ sequence, tokens: [7] }]);
    await expect(step).rejects.toMatchObject({ code: 'TKV_DEVICE', field: 'entries[0].sequence' });
    expect(sequence.length, 'no sequence has grown').toBe(40);
    expect(found(40)).toBe(0);

    expect(await kv.recover(sequence), 'all of it is written again').toEqual([0, 1, 2]);
    write(kv, sequence, 1);
    expect(await kv.seal(sequence)).toBe('done');
    expect(found(40)).toBe(2);
    kv.release(sequence);
  });

  it('before it was opened, or after it was sealed, says nothing of it', async () => {
    kv = await openRuntime({ device: undefined });
    await failures['a copy that is not valid']();
    const sequence = await written();
    expect(await kv.seal(sequence)).toBe('done');
    await failures['a copy that is not valid']();
    expect(found(40)).toBe(2);
    kv.release(sequence);
  });

  it('while its digest is taken: nothing of it is published', async () => {
    kv = await openRuntime({ device: undefined });
    const sequence = await written();
    const sealing = kv.seal(sequence);
    await failures['a copy that is not valid']();
    await expect(sealing).rejects.toMatchObject({ code: 'TKV_DEVICE' });
    expect(found(40)).toBe(0);
    kv.release(sequence);
  });

  it('in a step of the scheduler: stepEnded refuses, and the step is computed again', async () => {
    kv = await openRuntime({ device: undefined, hbmBytes: blocks(40) });
    const scheduler = kv.scheduler();
    const engine = new ReadingEngine(kv);
    const asked = tokens(50);
    scheduler.add({ id: 'r', tokens: asked, maxTokens: 20, tenant });
    let answer: number[] = [];
    for (let step = 0; scheduler.size > 0; step++) {
      if (step === 12) await failures['a copy that is not valid'](); // between two steps
      const plan = scheduler.step();
      if (plan.requests.length === 0) {
        await scheduler.next();
        continue;
      }
      const sampled = await engine.run(plan);
      if (step === 5) {
        await failures['a copy that is not valid']();
        expect(() => scheduler.stepEnded(sampled)).toThrow(expect.objectContaining({ code: 'TKV_DEVICE' }));
        scheduler.stepFailed();
        continue;
      }
      for (const { tokens: out } of scheduler.stepEnded(sampled).finished) answer = [...out];
    }
    expect(answer).toEqual(answerTo(asked, 20));
    expect(scheduler.counters.preemptions).toBe(2);
  });
});

describe('an error of what the store does itself', () => {
  /** The next submit of the pool's own is spoiled, as one is that the device finds fault with. */
  function spoilNext(label: RegExp): () => number {
    const { device } = kv;
    const create = device.createCommandEncoder.bind(device);
    let spoiled = 0;
    vi.spyOn(device, 'createCommandEncoder').mockImplementation((descriptor) => {
      const encoder = create(descriptor);
      if (spoiled === 0 && label.test(descriptor?.label ?? '')) {
        spoiled++;
        const buffer = device.createBuffer({ size: 64, usage: COPY });
        encoder.copyBufferToBuffer(buffer, 0, buffer, 32, 1000);
      }
      return encoder;
    });
    return () => spoiled;
  }

  it('the pass that digests a block, or reads it back for the host to digest: it is not published', async () => {
    kv = await openRuntime({ device: undefined });
    const sequence = await written();
    const spoiled = spoilNext(/digest|readback/);
    expect(await kv.seal(sequence)).toBe('interrupted');
    expect(spoiled()).toBe(1);
    expect(found(40)).toBe(0);
    expect(kv.stores.live?.deviceErrors.count, 'it is not an error of the embedder').toBe(0);
    kv.release(sequence);
  });

  it.each([
    ['an upload', /upload/],
    ['a readback', /readback/],
  ])('%s: the block is computed, whatever scope the embedder has open', async (_, label) => {
    kv = await openRuntime({ device: undefined, ddrBytes: blocks(20) });
    if (String(label) === '/upload/') await cacheBelow(kv, 10, 1);
    kv.device.pushErrorScope('validation');
    const spoiled = spoilNext(label);
    if (String(label) === '/readback/') await cacheBelow(kv, 10, 1);
    const { right, cachedTokens } = await ask(kv, 10);
    expect(spoiled()).toBe(1);
    expect(right).toBe(true);
    expect(cachedTokens).toBeLessThan(prompt(10).length - 1);
    expect(await kv.device.popErrorScope()).toBeNull();
  });

  it('a copy of a block: the fork is interrupted, and nothing of it is left', async () => {
    kv = await openRuntime({ device: undefined });
    const sequence = await written();
    expect(await kv.seal(sequence)).toBe('done');
    const spoiled = spoilNext(/commands/);
    expect(await kv.fork(sequence, 2 * blockTokens + 3)).toBe('interrupted');
    expect(spoiled()).toBe(1);
    kv.release(sequence);
    await kv.idle();
    expect(kv.manager.inspect.openSequences).toBe(0);
  });
});
