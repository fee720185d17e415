/** The scheduler of a runtime on the software device: every token of every answer is made from real bytes. */

import { describe, expect, it } from 'vitest';
import type { KVRuntime, KVSchedulerConfig } from '../../../src/index.ts';
import { blocks, layout, openRuntime } from '../liveRuntime.ts';
import { answerTo, nextToken, ReadingEngine } from './readingEngine.ts';
import { type Serving, serveAll } from './serving.ts';

const promptOf = (length: number, from: number): number[] => Array.from({ length }, (_, i) => from + i);

interface Client {
  readonly id: string;
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly tenant: string;
}

/** Twelve requests of two tenants; those of a tenant share the beginnings of three prompts. */
const clients: readonly Client[] = Array.from({ length: 12 }, (_, i) => ({
  id: `request ${i}`,
  prompt: promptOf(20 + 7 * i, 100 * (i % 3)),
  maxTokens: 20 + i,
  tenant: `tenant ${i % 2}`,
}));

async function serve(kv: KVRuntime, config: KVSchedulerConfig): Promise<Serving & { written: number }> {
  const scheduler = kv.scheduler(config);
  const engine = new ReadingEngine(kv);
  for (const { id, prompt, maxTokens, tenant } of clients) {
    scheduler.add({ id, tokens: prompt, maxTokens, tenant });
  }
  const serving = await serveAll(kv, scheduler, engine);
  scheduler.close();
  return { ...serving, written: engine.written };
}

function expectRight({ finished }: Serving): void {
  for (const { id, prompt, maxTokens } of clients) {
    const { tokens, reason } = finished.get(id) ?? {};
    expect([id, reason, [...(tokens ?? [])]]).toEqual([id, 'length', answerTo(prompt, maxTokens)]);
  }
}

const tokensOfAll = clients.reduce((sum, { prompt, maxTokens }) => sum + prompt.length + maxTokens - 1, 0);

describe('a runtime with a scheduler', () => {
  it.each(['recompute', 'offload'])(
    'answers more requests than HBM has room for, by %s',
    async (preemption) => {
      await using kv = await openRuntime({ hbmBytes: blocks(20), ddrBytes: blocks(200) });
      const serving = await serve(kv, { preemption, maxBatchedTokens: 96, maxSequences: 8 });
      expectRight(serving);
      expect(serving.preempted.length).toBeGreaterThan(0);
      expect(kv.manager.inspect.counters.hits[0] + kv.manager.inspect.counters.hits[1]).toBeGreaterThan(0);
      if (preemption === 'offload') expect(kv.manager.inspect.counters.hits[1]).toBeGreaterThan(0);
      expect(kv.manager.inspect.openSequences).toBe(0);
    },
  );

  it('computes nothing twice where there is room for all', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(200) });
    const first = await serve(kv, { maxBatchedTokens: 64 });
    expectRight(first);
    expect(first.preempted).toEqual([]);
    expect(first.written).toBeLessThanOrEqual(tokensOfAll);
    const again = await serve(kv, { maxBatchedTokens: 64 });
    expectRight(again);
    const found = clients.reduce(
      (sum, { prompt }) => sum + Math.floor((prompt.length - 1) / layout.blockTokens) * layout.blockTokens,
      0,
    );
    expect(again.written, 'all but what is cached of the prompts').toBe(tokensOfAll - found);
  });

  it('ends an answer at a stop token, where the engine says so, and when it is called off', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(40) });
    const scheduler = kv.scheduler({ sharedPrefixes: 'computed' });
    const engine = new ReadingEngine(kv);
    const prompt = promptOf(30, 0);
    const answer = answerTo(prompt, 10);
    const tenant = 'a';
    scheduler.add({ id: 'token', tokens: prompt, maxTokens: 10, tenant, stopTokens: [1, answer[3]] });
    scheduler.add({ id: 'engine', tokens: prompt, maxTokens: 10, tenant });
    scheduler.add({ id: 'waiting', tokens: prompt, maxTokens: 10, tenant });
    scheduler.add({ id: 'running', tokens: prompt, maxTokens: 10, tenant });
    expect(scheduler.abort('waiting')).toBe('ended');
    const ends: [string, string, number[]][] = [];
    for (let step = 1; scheduler.size > 0; step++) {
      const plan = scheduler.step();
      const sampled = await engine.run(plan);
      if (step === 6) expect(scheduler.abort('running')).toBe('endsWithStep');
      const { finished } = scheduler.stepEnded(
        sampled.map((each) => ({ ...each, stop: each.id === 'engine' && step === 2 })),
      );
      for (const { id, reason, tokens } of finished) ends.push([id, reason, [...tokens]]);
    }
    expect(ends).toEqual([
      ['engine', 'stop', answer.slice(0, 2)],
      ['token', 'stop', answer.slice(0, 4)],
      ['running', 'aborted', answer.slice(0, 6)],
    ]);
    expect(scheduler.abort('running')).toBe('unknown');
  });

  it('computes what several requests of one step have in common once', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(60) });
    const scheduler = kv.scheduler();
    const engine = new ReadingEngine(kv);
    const prompt = promptOf(40, 0);
    for (let i = 0; i < 8; i++) scheduler.add({ id: `${i}`, tokens: prompt, maxTokens: 3, tenant: 'a' });
    scheduler.add({ id: 'other', tokens: prompt, maxTokens: 3, tenant: 'b' });
    const { finished } = await serveAll(kv, scheduler, engine);
    for (const { tokens } of finished.values()) expect([...tokens]).toEqual(answerTo(prompt, 3));
    // Two tenants compute the prompt, seven requests the eight tokens behind its full blocks, all two more.
    expect(engine.written).toBe(2 * 40 + 7 * 8 + 9 * 2);
  });

  it('publishes full blocks with their bytes: another request, and begin, find them', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(40) });
    const scheduler = kv.scheduler();
    const engine = new ReadingEngine(kv);
    const prompt = promptOf(40, 0);
    scheduler.add({ id: 'first', tokens: prompt, maxTokens: 30, tenant: 'a' });
    const { finished } = await serveAll(kv, scheduler, engine);
    await kv.idle();
    const talk = [...prompt, ...(finished.get('first')?.tokens ?? [])];
    const found = Math.floor((talk.length - 1) / layout.blockTokens);
    expect(kv.lookup([...talk, 1], { tenant: 'a' }).byTier[0]).toBe(found);
    expect(kv.lookup([...talk, 1], { tenant: 'b' }).blocks).toBe(0);
    engine.written = 0;
    scheduler.add({ id: 'next', tokens: [...talk, 1, 2], maxTokens: 1, tenant: 'a' });
    const next = await serveAll(kv, scheduler, engine);
    expect([...(next.finished.get('next')?.tokens ?? [])]).toEqual([nextToken([...talk, 1, 2])]);
    expect(engine.written).toBe(talk.length + 2 - found * layout.blockTokens);
  });
});
