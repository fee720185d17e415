/**
 * Requests that wait for room, by `begin` and in the scheduler: a flood of one tenant delays another one by one turn of it, also where
 * the two come by different doors. Turns are counted, never time.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { KVRuntime, KVScheduler, KVSequence } from '../../../src/index.ts';
import { LogReader, LogWriter, replayLog } from '../../../src/index.ts';
import { ContinuousBatchKVCacheManager } from '../../../src/views/index.ts';
import { blocks, layout, openHostRuntime } from '../liveRuntime.ts';

/** Room for two requests of `big` at once. */
const ROOM = { ddrBytes: blocks(20), offloadThreshold: 1 };
const BIG = 8;
let prompts = 0;
const big = (): Uint32Array => {
  const from = ++prompts * 10_000;
  return Uint32Array.from({ length: BIG * layout.blockTokens }, (_, i) => from + i);
};
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Requests of `begin` that let go, one after the other, what they got. */
class Begun {
  readonly order: string[] = [];
  readonly #open: { tenant: string; sequence: KVSequence }[] = [];
  readonly #kv: KVRuntime;

  constructor(kv: KVRuntime) {
    this.#kv = kv;
  }

  ask(tenant: string, priority = 0): void {
    void this.#kv.begin(big(), { tenant, wait: true, priority }).then((sequence) => {
      this.order.push(tenant);
      this.#open.push({ tenant, sequence });
    });
  }

  /** Lets the oldest go. @returns false where none is open */
  async next(): Promise<boolean> {
    const first = this.#open.shift();
    if (first === undefined) return false;
    this.#kv.release(first.sequence);
    await turn();
    return true;
  }
}

/** One step of an engine: what it computes is of no matter here. @returns ids of the requests in it */
function stepOf(scheduler: KVScheduler): string[] {
  const { requests } = scheduler.step();
  if (requests.length === 0) return [];
  const sampled = requests.filter(({ samples }) => samples).map(({ id }) => ({ id, token: 1 }));
  scheduler.stepEnded(sampled);
  return requests.map(({ id }) => id);
}

it('begin with wait: each tenant in turn, within a priority', async () => {
  await using kv = await openHostRuntime(ROOM);
  const begun = new Begun(kv);
  for (let i = 0; i < 30; i++) begun.ask('flood');
  await turn();
  for (let i = 0; i < 3; i++) begun.ask('other');
  begun.ask('late', 1);
  begun.ask('urgent', -1);
  await turn();
  while (await begun.next());
  const waited = begun.order.slice(2); // two found room at once
  expect(waited.slice(0, 8)).toEqual([
    'urgent',
    'flood',
    'other',
    'flood',
    'other',
    'flood',
    'other',
    'flood',
  ]);
  expect(waited.at(-1)).toBe('late');
  expect(waited.length).toBe(33);
  expect(kv.room.waiting).toBe(0);
  kv.manager.checkIntegrity();
});

it('the scheduler: each tenant in turn, where no order is named', async () => {
  await using kv = await openHostRuntime(ROOM);
  using scheduler = kv.scheduler({ maxSequences: 1 });
  const add = (tenant: string, i: number): void =>
    scheduler.add({ id: `${tenant} ${i}`, tokens: big(), tenant, maxTokens: 1 });
  for (let i = 0; i < 30; i++) add('flood', i);
  const order = stepOf(scheduler);
  for (let i = 0; i < 3; i++) add('other', i);
  while (scheduler.size > 0) {
    order.push(...stepOf(scheduler));
    await turn();
  }
  expect(order.slice(1, 7).map((id) => id.split(' ')[0])).toEqual([
    'flood',
    'other',
    'flood',
    'other',
    'flood',
    'other',
  ]);
});

it('a flood of begin delays a request of the scheduler by one turn, and a flood of the scheduler one of begin', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-doors-'));
  const log = join(dir, 'doors.log');
  try {
    {
      await using kv = await openHostRuntime({ ...ROOM, log });
      using scheduler = kv.scheduler({ maxSequences: 4 });
      const begun = new Begun(kv);
      for (let i = 0; i < 30; i++) begun.ask('flood');
      await turn();
      scheduler.add({ id: 'other', tokens: big(), tenant: 'other', maxTokens: 1 });
      expect(stepOf(scheduler)).toEqual([]); // all room is taken
      const before = begun.order.length;
      for (let steps = 0; scheduler.size > 0; steps++) {
        expect(steps, 'the request of the scheduler has its turn').toBeLessThan(60);
        await begun.next();
        stepOf(scheduler);
      }
      expect(begun.order.length - before).toBeLessThanOrEqual(1);
      while (await begun.next());
      expect(begun.order.length).toBe(30);

      const served: string[] = [];
      for (let i = 0; i < 30; i++)
        scheduler.add({ id: `${i}`, tokens: big(), tenant: 'flood', maxTokens: 3 });
      served.push(...stepOf(scheduler));
      begun.ask('other');
      await turn();
      expect(kv.room.waiting).toBe(1);
      const seen = new Set(served);
      while (kv.room.waiting > 0) {
        expect(seen.size, 'the request of begin has its turn').toBeLessThan(30);
        for (const id of stepOf(scheduler)) seen.add(id);
        await turn();
      }
      expect(seen.size - new Set(served).size).toBeLessThanOrEqual(1);
      while (await begun.next());
      while (scheduler.size > 0) {
        stepOf(scheduler);
        await turn();
      }
      expect(begun.order.at(-1)).toBe('other');
      kv.manager.checkIntegrity();
      scheduler.checkIntegrity();
    }
    const text = readFileSync(log, 'utf8');
    expect(text).toContain(' sharedStep ');
    const lines = text.trimEnd().split('\n');
    const head = new LogReader(log);
    head.read(lines[0]);
    let again = '';
    const writer = new LogWriter(head.config, {
      log: (more) => {
        again += more;
      },
    });
    replayLog(lines, log, writer);
    writer.end();
    expect(again === text, 'the inputs of the log give the same decisions').toBe(true);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

it('a scheduler that ends its waiting requests, or closes, holds up no request', async () => {
  for (const end of ['abort', 'close'] as const) {
    await using kv = await openHostRuntime(ROOM);
    const scheduler = kv.scheduler({});
    const begun = new Begun(kv);
    for (let i = 0; i < 2; i++) begun.ask('first');
    await turn();
    scheduler.add({ id: 'waits', tokens: big(), tenant: 'other', maxTokens: 1 });
    stepOf(scheduler);
    begun.ask('second');
    await turn();
    await begun.next();
    expect(begun.order, 'it is the turn of the scheduler').toEqual(['first', 'first']);
    if (end === 'abort') scheduler.abort('waits');
    else scheduler.close();
    await turn();
    expect(begun.order).toEqual(['first', 'first', 'second']);
    while (await begun.next());
    scheduler.close();
  }
});

describe.each(['reuse by tables', 'the paged cache'] as const)('%s, which cannot wait', (door) => {
  /** One request of eight blocks by the door. @returns what lets it go, or undefined where it is refused */
  function asker(kv: KVRuntime): () => (() => void) | undefined {
    if (door === 'the paged cache') {
      const cache = kv.pagedCache();
      return () => {
        const taken = cache.allocateBlock(BIG);
        const letGo = (): void => {
          for (const block of taken) cache.releaseBlock(block);
        };
        return taken.length === 0 ? undefined : letGo;
      };
    }
    const cache = kv.crossRequestCache();
    let asked = 0;
    return () => {
      const id = `reuse ${++asked}`;
      const tokens = big();
      cache.tryReuse(id, tokens, 'door');
      if (cache.allocate(id, tokens.length)) return () => cache.release(id);
      cache.release(id);
      return undefined;
    };
  }

  it('passes no request of begin twice, however often it asks', async () => {
    await using kv = await openHostRuntime(ROOM);
    const ask = asker(kv);
    const open = [ask(), ask()];
    expect(open.map((each) => each !== undefined)).toEqual([true, true]);
    const begun = new Begun(kv);
    begun.ask('waits');
    await turn();
    expect(kv.room.waiting).toBe(1);
    let passed = 0;
    while (begun.order.length === 0) {
      expect(passed, 'the request of begin has its turn').toBeLessThan(2);
      open.shift()?.();
      for (let i = 0; i < 3; i++) {
        const taken = ask(); // in the same turn in which the room came free
        if (taken !== undefined) passed++;
        if (taken !== undefined) open.push(taken);
      }
      await turn();
    }
    expect(passed).toBeLessThanOrEqual(1);
    while (await begun.next());
    for (const each of open) each?.();
    kv.manager.checkIntegrity();
  });

  it('has its turn in a flood of begin, and holds up no request where it asks no more', async () => {
    await using kv = await openHostRuntime(ROOM);
    const ask = asker(kv);
    const begun = new Begun(kv);
    for (let i = 0; i < 30; i++) begun.ask('flood');
    await turn();
    expect(ask(), 'all room is taken').toBeUndefined();
    // the room that comes free is there when the door asks: others of the flood wait behind it
    let taken: (() => void) | undefined;
    const before = begun.order.length;
    while (taken === undefined) {
      expect(begun.order.length - before, 'the door has its turn').toBeLessThan(3);
      const going = begun.next();
      taken = ask();
      await going;
    }
    taken();
    await turn();
    ask(); // it leaves a place in line, and never asks again
    while (await begun.next());
    expect(begun.order.length).toBe(30);
    expect(kv.room.waiting).toBe(0);
  });
});

it('blocks that go on with a request of the paged cache need no turn', async () => {
  await using kv = await openHostRuntime(ROOM);
  using cache = kv.pagedCache();
  const pages = new ContinuousBatchKVCacheManager(cache, {
    maxPagesPerRequest: 20,
    initialPagesPerRequest: 1,
  });
  const tokens = (count: number): number => count * layout.blockTokens;
  pages.allocateCache('runs', tokens(BIG));
  const begun = new Begun(kv);
  for (let i = 0; i < 2; i++) begun.ask('waits');
  await turn();
  expect(kv.room.waiting, 'the second one waits').toBe(1);
  expect(pages.tryExtendCache('runs', tokens(1)), 'what runs comes to its end').toBe(true);
  expect(() => pages.allocateCache('comes', tokens(1))).toThrow(/find no room/);
  pages.releaseCache('runs');
  while (await begun.next());
  expect(begun.order).toEqual(['waits', 'waits']);
});

it('a begin that waits ends with the runtime', async () => {
  const kv = await openHostRuntime(ROOM);
  const held = await kv.begin(big(), { tenant: 'a' });
  const tokens = big();
  const computing = await kv.begin(tokens, { tenant: 'a' });
  const room = kv.begin(big(), { tenant: 'a', wait: true });
  const shared = kv.begin(tokens, { tenant: 'a', wait: true, shareWaitMs: 2 ** 30 });
  const ends = Promise.allSettled([room, shared]);
  await turn();
  expect([held.ended, computing.ended, kv.room.waiting]).toEqual([false, false, 1]);
  await kv.close();
  for (const end of await ends)
    expect(end).toMatchObject({ status: 'rejected', reason: { code: 'TKV_STATE' } });
});
