/**
 * Each cause of a miss on a live runtime with real stores: what `kv.explain` says is what was done to the block. The last tests
 * are controls: without its cause, none of them is named.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { CacheExplanation, MissCause } from '../../src/embed/explanation.ts';
import type { KVRuntime, KVRuntimeConfig } from '../../src/index.ts';
import { Outcome } from '../../src/runtime/index.ts';
import {
  blocks,
  cacheBelow,
  openRuntime,
  prompt,
  promptBlocks,
  tenant,
  write,
} from '../embed/liveRuntime.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-explain-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let dirs = 0;
const nvme = (): NonNullable<KVRuntimeConfig['nvme']> => {
  const dir = mkdtempSync(join(folder, `${dirs++}-`));
  return { dir, bytes: blocks(40) };
};

async function computed(
  kv: KVRuntime,
  seed: number,
  options: Partial<Parameters<KVRuntime['begin']>[1]> = {},
): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant, ...options });
  write(kv, sequence, seed);
  await kv.seal(sequence);
  kv.release(sequence);
  await kv.idle();
}

const causesOf = ({ blocks: all }: CacheExplanation): (MissCause | null)[] => all.map(({ cause }) => cause);
const now = (kv: KVRuntime, seed: number): CacheExplanation => kv.explain(prompt(seed), { tenant });
const all = (cause: MissCause | null): (MissCause | null)[] => Array(promptBlocks).fill(cause);

/** Begins the prompt, and explains it as the request that it was. */
async function asked(kv: KVRuntime, seed: number): Promise<CacheExplanation> {
  const sequence = await kv.begin(prompt(seed), { tenant });
  const explanation = kv.explain(sequence);
  kv.release(sequence);
  await kv.idle();
  return explanation;
}

describe('a live runtime', () => {
  it('says that it remembers nothing where it was not asked to', async () => {
    await using kv = await openRuntime({});
    expect(() => kv.explain('any')).toThrow(/explain: true/);
  });

  it('served from HBM, then from a lower tier, and never seen', async () => {
    await using kv = await openRuntime({ explain: true, nvme: nvme() });
    expect(causesOf(await asked(kv, 1))).toEqual(all('neverSeen'));
    await computed(kv, 1);
    const served = await asked(kv, 1);
    expect(causesOf(served)).toEqual(all(null));
    expect(served.blocks.map(({ tier }) => tier)).toEqual(Array(promptBlocks).fill('hbm'));
    kv.manager.evict(0, promptBlocks, kv.nowUs());
    await kv.idle();
    const loaded = await asked(kv, 1);
    expect(loaded.blocks.map(({ tier, cause }) => [tier, cause])).toEqual(
      Array(promptBlocks).fill(['nvme', null]),
    );
    expect(loaded.cost).toMatchObject({ computedBlocks: 0, loadedBytes: blocks(promptBlocks) });
  });

  it('evicted: when, from where, by whose request, and how much room would have kept it', async () => {
    await using kv = await openRuntime({ explain: true, eviction: { policy: 'lru' } });
    await computed(kv, 1);
    for (let seed = 2; seed < 8; seed++) await computed(kv, seed, { tenant: 'tenant-b' });
    const explanation = await asked(kv, 1);
    expect(causesOf(explanation)).toEqual(all('evicted'));
    const [first] = explanation.blocks;
    expect(first.lost).toMatchObject({ tier: 'hbm', by: 'admit', tenant: 'tenant-b' });
    expect(first.lost?.sequence).toBeGreaterThan(1);
    expect(first.why).toMatch(
      /evicted from hbm at .* by lru, to make room .* by sequence \d+ of tenant-b, .* after its last use/,
    );
    expect(first.usedSince).toBe(27); // six prompts of four blocks, and the three behind it
    expect(first.remedy).toMatch(
      /27 other blocks were used since, and the tiers hold 19: LRU keeps it with 9 more blocks/,
    );
  });

  it('evicted because the server asked for it', async () => {
    await using kv = await openRuntime({ explain: true });
    await computed(kv, 1);
    kv.manager.evict(0, promptBlocks, kv.nowUs());
    const [{ lost, why }] = now(kv, 1).blocks;
    expect(lost).toMatchObject({ by: 'evict', sequence: null });
    expect(why).toContain('because the server or migration asked for it');
  });

  it('still being written by another request', async () => {
    await using kv = await openRuntime({ explain: true });
    const writer = await kv.begin(prompt(1), { tenant });
    const reader = await kv.begin(prompt(1), { tenant, shareWaitMs: 0 });
    const explanation = kv.explain(reader);
    expect(causesOf(explanation)).toEqual(all('beingWritten'));
    expect(explanation.blocks[0].why).toContain(`sequence ${writer.groups[0].table.id}`);
    kv.release(writer);
    kv.release(reader);
    expect(causesOf(now(kv, 1))).toEqual(all('abandoned'));
  });

  it('another tenant has it', async () => {
    await using kv = await openRuntime({ explain: true });
    await computed(kv, 1, { tenant: 'tenant-b' });
    const explanation = await asked(kv, 1);
    expect(causesOf(explanation)).toEqual(all('anotherTenant'));
    expect(explanation.blocks[0].why).toContain('tenant-b has it in hbm');
  });

  it('another model has it: other extras, and another runtime of the process', async () => {
    await using kv = await openRuntime({ explain: true });
    await using other = await openRuntime({ explain: true, model: 'other@2' });
    await computed(kv, 1, { extras: { adapter: 'math' } });
    expect(causesOf(await asked(kv, 1))).toEqual(all('anotherModel'));
    await computed(other, 2);
    expect(causesOf(now(kv, 2))).toEqual(all('neverSeen'));
    const explanation = kv.explain(prompt(2), { tenant, others: [other] });
    expect(causesOf(explanation)).toEqual(all('anotherModel'));
    expect(explanation.blocks[0].why).toContain('other@2');
  });

  for (const [name, outcome, cause] of [
    ['damaged', Outcome.CORRUPT, 'damaged'],
    ['not held any more', Outcome.MISSING, 'missing'],
  ] as const) {
    it(`${name}: for the request that met it, and for the next`, async () => {
      let fails = false;
      await using kv = await openRuntime({
        explain: true,
        nvme: nvme(),
        leavingShare: 1,
        wrapStores: (stores) => ({ ...stores, nvme: failing(stores.nvme!, outcome, () => fails) }),
      });
      await cacheBelow(kv, 1, 1);
      fails = true;
      const met = await asked(kv, 1);
      expect(causesOf(met)).toEqual(all(cause));
      expect(met.blocks[0].tier).toBe('nvme');
      const next = now(kv, 1);
      expect(causesOf(next)).toEqual(all(cause));
    });
  }

  it('late', async () => {
    let holds = false;
    let waiting = 0;
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    const until = (): Promise<void> | undefined => {
      if (!holds) return undefined;
      waiting++;
      return ended;
    };
    await using kv = await openRuntime({
      explain: true,
      transferDeadlineMs: 10_000,
      nvme: nvme(),
      leavingShare: 1,
      wrapStores: (stores) => ({ ...stores, nvme: held(stores.nvme!, until) }),
    });
    await cacheBelow(kv, 1, 1);
    holds = true;
    const begun = kv.begin(prompt(1), { tenant });
    while (waiting === 0) await new Promise((resolve) => setImmediate(resolve));
    for (const { job } of kv.manager.inspect.dump().jobs) kv.manager.setDeadline(job, kv.nowUs());
    kv.manager.tick(kv.nowUs() + 1);
    const sequence = await begun;
    const explanation = kv.explain(sequence);
    end();
    kv.release(sequence);
    expect(causesOf(explanation)).toEqual(all('late'));
    expect(explanation.blocks[0].why).toContain('by its deadline of 10.00 s');
  });

  it('lost with the tier, and not written on its way down', async () => {
    let fails = false;
    await using kv = await openRuntime({
      explain: true,
      nvme: nvme(),
      leavingShare: 1,
      migration: false,
      wrapStores: (stores) => ({ ...stores, nvme: failing(stores.nvme!, Outcome.REFUSED, () => fails) }),
    });
    await computed(kv, 1);
    kv.manager.loseTier(0, kv.nowUs());
    expect(causesOf(now(kv, 1))).toEqual(all('tierLost'));
    await computed(kv, 2);
    fails = true;
    // its room is needed, or it would stay
    for (let seed = 3; kv.lookup(prompt(2), { tenant }).byTier[0] > 0; seed++) await computed(kv, seed);
    expect(causesOf(now(kv, 2))).toEqual(all('notWritten'));
  });

  it('behind a gap, and the last token', async () => {
    await using kv = await openRuntime({ explain: true });
    await computed(kv, 1);
    const short = prompt(1).subarray(0, promptBlocks * 16);
    expect(causesOf(kv.explain(short, { tenant }))).toEqual([null, null, null, 'lastToken']);
    const asTokenizersGiveIt = BigInt64Array.from(short, BigInt);
    expect(kv.explain(asTokenizersGiveIt, { tenant }).blocks).toEqual(kv.explain(short, { tenant }).blocks);
    kv.manager.evict(0, 1, kv.nowUs()); // one block, whichever the policy names
    const gone = now(kv, 1).blocks.findIndex(({ cause }) => cause === 'evicted');
    const behind = now(kv, 1).blocks.slice(gone + 1);
    expect(behind.every(({ cause }) => cause === 'behindGap')).toBe(true);
  });

  it('requests of a scheduler by their ids, within bounds, and a nearest name for a wrong one', async () => {
    await using kv = await openRuntime({ explain: { blocks: 16 } });
    const scheduler = kv.scheduler();
    const serve = async (id: string, seed: number): Promise<void> => {
      scheduler.add({ id, tokens: prompt(seed), tenant, maxTokens: 1 });
      while (scheduler.size > 0) {
        const plan = scheduler.step();
        if (plan.requests.length === 0) await scheduler.next();
        else {
          const sampled = plan.requests.filter(({ samples }) => samples);
          scheduler.stepEnded(sampled.map((each) => ({ id: each.id, token: 3 })));
        }
      }
      await kv.idle();
    };
    await serve('first', 1);
    await serve('again', 1);
    expect(kv.explain('again')).toMatchObject({ request: 'again', tenant, blockTokens: 16 });
    expect(causesOf(kv.explain('again'))).toEqual(all(null));
    expect(() => kv.explain('agian')).toThrow(/Did you mean 'again'\?/);
    for (let i = 0; i < 8; i++) await serve(`more ${i}`, 10 + i);
    expect(() => kv.explain('first')).toThrow(/were forgotten/);
  });

  it('control: forgetting blocks is told, and a block that is forgotten is not claimed to be new', async () => {
    await using kv = await openRuntime({ explain: { blocks: 16 }, hbmBytes: blocks(10) });
    for (let seed = 1; seed < 12; seed++) await computed(kv, seed);
    const explanation = now(kv, 1);
    expect(explanation.blocks[0].why).toBe('never seen, as far as is remembered');
    expect(explanation.limits.join()).toContain('are forgotten');
  });

  it('refuses wrong options by name', async () => {
    await expect(openRuntime({ explain: { block: 3 } as never })).rejects.toThrow(/Did you mean 'blocks'/);
    await expect(openRuntime({ explain: 'yes' as never })).rejects.toThrow(/explain must be true or false/);
    await expect(openRuntime({ explain: { blocks: 3 } })).rejects.toThrow(/explain\.blocks/);
  });
});

/** A store whose reads and writes end so while `fails` says so. */
function failing<Store extends object>(store: Store, outcome: Outcome, fails: () => boolean): Store {
  return new Proxy(store, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== 'function') return value;
      if (property !== 'read' && property !== 'write') return value.bind(target);
      return async (items: readonly unknown[], ended?: (i: number, result: object) => void) => {
        if (!fails()) return value.call(target, items, ended);
        await undefined; // ends come after the call has returned
        const result = { outcome, reason: 'on purpose' };
        for (const index of items.keys()) ended?.(index, result);
        return items.map(() => result);
      };
    },
  });
}

/** A store whose reads wait. */
function held<Store extends object>(store: Store, until: () => Promise<void> | undefined): Store {
  return new Proxy(store, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== 'function') return value;
      return async (...args: unknown[]) => {
        if (property === 'read') await until();
        return value.apply(target, args);
      };
    },
  });
}
