/** What goes wrong around a scheduler: a lost device, calls out of order, invalid requests. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { KVSchedulerConfig } from '../../../src/index.ts';
import { deviceBytes } from '../deviceBytes.ts';
import { longPrompt, openHeld } from '../disk/heldDisk.ts';
import { blocks, layout, openRuntime } from '../liveRuntime.ts';
import { answerTo, ReadingEngine } from './readingEngine.ts';
import { serveAll } from './serving.ts';

const tenant = 'a';
const prompt = (from: number): number[] => Array.from({ length: 50 }, (_, i) => from + i);

describe('a lost device', () => {
  it.each(['between two steps', 'while a step is computed'])('%s costs no token', async (when) => {
    await using kv = await openRuntime({ hbmBytes: blocks(40), ddrBytes: blocks(40) });
    const scheduler = kv.scheduler();
    const engine = new ReadingEngine(kv);
    for (const from of [0, 100, 200]) {
      scheduler.add({ id: `from ${from}`, tokens: prompt(from), maxTokens: 30, tenant });
    }
    let steps = 0;
    engine.onSubmitted = () => {
      if (++steps === 12 && when !== 'between two steps') kv.device.destroy();
    };
    const { finished, interrupted } = await serveAll(kv, scheduler, engine, (step) => {
      if (step === 12 && when === 'between two steps') kv.device.destroy();
    });
    for (const from of [0, 100, 200]) {
      expect([...(finished.get(`from ${from}`)?.tokens ?? [])]).toEqual(answerTo(prompt(from), 30));
    }
    expect(kv.devicesLost).toBe(1);
    if (when !== 'between two steps') expect(interrupted).toBeGreaterThan(0);
  });
});

describe('a seal that fails', () => {
  it('has its request computed again, and no request finds the block', async () => {
    let fails = 0;
    await using kv = await openRuntime({
      hbmBytes: blocks(40),
      wrapStores: (stores) => ({
        ...stores,
        hbm: new Proxy(stores.hbm!, {
          get: (store, name) => {
            const value = Reflect.get(store, name);
            if (name !== 'seal' || fails > 0) return typeof value === 'function' ? value.bind(store) : value;
            fails++;
            return async (items: readonly unknown[]) => items.map(() => ({ outcome: 'refused' }));
          },
        }),
      }),
    });
    const scheduler = kv.scheduler();
    scheduler.add({ id: 'r', tokens: prompt(0), maxTokens: 40, tenant });
    const engine = new ReadingEngine(kv);
    const { finished } = await serveAll(kv, scheduler, engine);
    expect(fails).toBe(1);
    expect([...(finished.get('r')?.tokens ?? [])]).toEqual(answerTo(prompt(0), 40));
    expect(scheduler.counters.preemptions).toBe(1);
  });
});

describe('a slot that changes its tenant', () => {
  it('is cleared before the plan that writes it', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(5) });
    const scheduler = kv.scheduler();
    const engine = new ReadingEngine(kv);
    const partial: number[] = [];
    for (const owner of ['a', 'b', 'a']) {
      scheduler.add({ id: owner, tokens: prompt(500), maxTokens: 1, tenant: owner });
      const plan = scheduler.step();
      const [{ blockTable }] = plan.requests;
      const last = blockTable.blocks - 1;
      const [slab, offset] = blockTable.entries.subarray(2 * last);
      partial.push(await firstWord(kv.device, blockTable.slabs[slab], offset + 5 * layout.rowBytes));
      // Also the rows that no token of this request fills.
      kv.device.queue.writeBuffer(blockTable.slabs[slab], offset, new Uint8Array(layout.blockBytes).fill(99));
      scheduler.stepEnded(await engine.run(plan));
      await kv.idle();
    }
    expect(partial).toEqual([0, 0, 0]);
  });
});

async function firstWord(device: GPUDevice, buffer: GPUBuffer, offsetBytes: number): Promise<number> {
  const bytes = await deviceBytes(device, { buffer, offsetBytes, sizeBytes: 4 });
  return new Uint32Array(bytes.buffer)[0];
}

describe('next', () => {
  it('waits until there is something to plan, and no longer', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(8) });
    const held = await kv.begin(prompt(900), { tenant });
    const scheduler = kv.scheduler();
    expect(scheduler.step().requests).toEqual([]);
    let woken = 0;
    const wait = async (): Promise<void> => {
      await scheduler.next();
      woken++;
    };
    let waiting = wait();
    await nextTurn();
    expect(woken).toBe(0);
    scheduler.add({ id: 'r', tokens: Array.from({ length: 100 }, (_, i) => i), maxTokens: 2, tenant });
    await waiting;
    expect(scheduler.step().requests, 'the other sequence holds the room').toEqual([]);
    waiting = wait();
    await nextTurn();
    expect(woken).toBe(1);
    kv.release(held);
    await waiting;
    expect(scheduler.step().requests.map(({ id, end }) => [id, end])).toEqual([['r', 100]]);
    await expect(scheduler.next({ signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow(
      'enough',
    );
  });

  it('ends when the call of another gives a waiting request its slots, though no job has ended', async () => {
    const { kv, hold, letGo } = await openHeld();
    const cached = await kv.begin(longPrompt(1), { tenant });
    await kv.seal(cached);
    kv.release(cached);
    await kv.idle();
    hold();
    const scheduler = kv.scheduler();
    scheduler.add({
      id: 'r',
      tokens: longPrompt(2).subarray(0, 6 * layout.blockTokens),
      maxTokens: 1,
      tenant,
    });
    expect(scheduler.step().requests, 'its slots leave for a disk that does not answer').toEqual([]);
    let woken = 0;
    const waiting = scheduler.next().then(() => woken++);
    await nextTurn();
    expect(woken).toBe(0);
    // What this one evicts is more than may leave at a time, so it is dropped; the first slots are r's.
    const begun = kv.begin(longPrompt(3).subarray(0, 12 * layout.blockTokens), { tenant });
    for (let turns = 0; turns < 5; turns++) await nextTurn();
    expect(woken).toBe(1);
    expect(scheduler.step().requests.map(({ id }) => id)).toEqual(['r']);
    letGo();
    scheduler.close();
    await waiting;
    kv.release(await begun);
  });

  it('ends with the runtime', async () => {
    const kv = await openRuntime({});
    const scheduler = kv.scheduler();
    scheduler.step();
    const waiting = scheduler.next();
    await Promise.all([expect(waiting).rejects.toMatchObject({ code: 'TKV_STATE' }), kv.close()]);
    expect(() => scheduler.step()).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
  });
});

describe('a mistake is one clear error, and nothing is done', () => {
  const configs: [KVSchedulerConfig | Record<string, unknown>, string, string][] = [
    [{ preemption: 'restart' }, 'preemption', 'handed out'],
    [{ preemption: 'offload' }, 'preemption', 'a tier below HBM'],
    [{ publish: 'whenPlanned' }, 'publish', 'sharedPrefixes'],
    [{ queueOrder: 'fcsf' }, 'queueOrder', "Did you mean 'fcfs'?"],
    [{ maxSequences: 0 }, 'maxSequences', '0'],
  ];
  it.each(configs)('scheduler(%j)', async (config, field, text) => {
    await using kv = await openRuntime({});
    const make = (): unknown => kv.scheduler(config as KVSchedulerConfig);
    expect(make).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
    expect(make).toThrow(text);
    kv.scheduler();
    expect(() => kv.scheduler()).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
  });

  it('layer groups have no scheduler', async () => {
    const layerGroups = [
      { first: 0, end: 1 },
      { first: 1, end: 2 },
    ];
    await using kv = await openRuntime({ layerGroups });
    expect(() => kv.scheduler()).toThrow(expect.objectContaining({ field: 'layerGroups' }));
  });

  const good = { id: 'r', tokens: [1, 2, 3], maxTokens: 4, tenant };
  const requests: [Record<string, unknown>, string, string][] = [
    [{ id: '' }, 'TKV_INPUT', 'id'],
    [{ id: 'known' }, 'TKV_INPUT', 'id'],
    [{ tokens: [] }, 'TKV_INPUT', 'tokens'],
    [{ tokens: 'text' }, 'TKV_INPUT', 'tokens'],
    [{ tokens: [1, -2] }, 'TKV_INPUT', 'tokens[1]'],
    [{ tokens: new Array(2000).fill(1) }, 'TKV_CAPACITY', 'tokens'],
    [{ tenant: undefined }, 'TKV_INPUT', 'tenant'],
    [{ maxTokens: 0 }, 'TKV_CONFIG', 'maxTokens'],
    [{ maxTokens: 1.5 }, 'TKV_CONFIG', 'maxTokens'],
    [{ stopTokens: [2, 0.5] }, 'TKV_INPUT', 'stopTokens[1]'],
    [{ stopTokens: 7 }, 'TKV_INPUT', 'stopTokens'],
    [{ priority: 0.5 }, 'TKV_CONFIG', 'priority'],
  ];
  it('add', async () => {
    await using kv = await openRuntime({});
    const scheduler = kv.scheduler();
    scheduler.add({ ...good, id: 'known' });
    for (const [wrong, code, field] of requests) {
      const add = (): void => scheduler.add({ ...good, ...wrong });
      expect(add, JSON.stringify(wrong).slice(0, 40)).toThrow(expect.objectContaining({ code, field }));
    }
    expect(scheduler.size).toBe(1);
    scheduler.checkIntegrity();
  });

  it('stepEnded', async () => {
    await using kv = await openRuntime({});
    const scheduler = kv.scheduler({ longPrefillTokens: 20 });
    expect(() => scheduler.stepEnded([])).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
    expect(() => scheduler.stepFailed()).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
    scheduler.add(good);
    scheduler.add({ ...good, id: 'long', tokens: prompt(0) });
    expect(scheduler.step().requests.map(({ id, samples }) => [id, samples])).toEqual([
      ['r', true],
      ['long', false],
    ]);
    expect(() => scheduler.step()).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
    const right = { id: 'r', token: 5 };
    for (const [sampled, field] of [
      [[], 'sampled'],
      [[{ id: 'r', token: 0.5 }], 'sampled[0].token'],
      [[right, right], 'sampled[1].id'],
      [[right, { id: 'long', token: 1 }], 'sampled[1].id'],
      [[{ id: 'unknown', token: 1 }], 'sampled[0].id'],
      [5, 'sampled'],
    ] as const) {
      const end = (): unknown => scheduler.stepEnded(sampled as never);
      expect(end, JSON.stringify(sampled)).toThrow(expect.objectContaining({ code: 'TKV_INPUT', field }));
      expect(scheduler.progress('r')?.knownTokens).toBe(3);
    }
    scheduler.stepEnded([right]);
    expect(scheduler.progress('r')?.knownTokens).toBe(4);
  });
});
