/** What can never be, or would cost without end, is refused before any work; what failed has taken nothing. */

import { describe, expect, it, vi } from 'vitest';
import { TenantChains, TenantOwners } from '../../../src/embed/tenancy.ts';
import { KeyChain } from '../../../src/runtime/index.ts';
import { OWNERS } from '../../../src/runtime/manager/ownerQuotas.ts';
import { scratchDir } from '../../backends/file/scratch.ts';
import {
  ask,
  blocks,
  cacheBelow,
  layout,
  openHostRuntime,
  openRuntime,
  prompt,
  tenant,
} from '../liveRuntime.ts';

const tokensOf = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

describe('a prompt beyond all memory', () => {
  it('is refused by its length, before a token is looked at or hashed', async () => {
    await using kv = await openRuntime({});
    const sequence = await kv.begin(tokensOf(20), { tenant });
    const hashes = vi.spyOn(KeyChain.prototype, 'hashBlocks');
    const endless = { length: 1e15 } as never; // only the length is read of a value that is not an array
    const never = { code: 'TKV_CAPACITY' };
    await expect(kv.begin(endless, { tenant })).rejects.toMatchObject(never);
    await expect(kv.begin(new Uint32Array(10_000_000), { tenant })).rejects.toMatchObject(never);
    await expect(
      kv.append(sequence, { ...Object.fromEntries(tokensOf(20).entries()), length: 1e15 } as never),
    ).rejects.toMatchObject(never);
    const sparse = kv.append(sequence, new Array<number>(4_294_967_295)); // to copy it would take minutes
    await expect(sparse).rejects.toMatchObject({ code: 'TKV_INPUT' });
    await expect(kv.step([{ sequence, tokens: new Uint32Array(10_000_000) }])).rejects.toMatchObject(never);
    expect(hashes).not.toHaveBeenCalled();
    hashes.mockRestore();
    expect(kv.lookup(new Uint32Array(10_000_000), { tenant }).blocks).toBe(0);
    kv.release(sequence);
  });
});

describe('append', () => {
  it('that is refused takes no block, also for one invalid token id behind many valid ones', async () => {
    await using kv = await openRuntime({});
    const sequence = await kv.begin(tokensOf(20), { tenant });
    const before = kv.room;
    const wrong = [...tokensOf(100), Number.NaN];
    await expect(kv.append(sequence, wrong)).rejects.toMatchObject({
      code: 'TKV_INPUT',
      field: 'tokens[100]',
    });
    expect([kv.room, sequence.blocks, sequence.length]).toEqual([before, 2, 20]);
    expect(await kv.append(sequence, tokensOf(100))).toBe('done');
    expect(kv.openBlocks(sequence)).toHaveLength(7);
    kv.release(sequence);
  });

  it('twice at once is done twice; with fewer tokens than there are it says which is missing', async () => {
    await using kv = await openRuntime({});
    const sequence = await kv.begin(tokensOf(20), { tenant });
    const both = [kv.append(sequence, tokensOf(40)), kv.append(sequence, tokensOf(60))];
    expect(await Promise.all(both)).toEqual(['done', 'done']);
    expect(sequence.length).toBe(60);
    await expect(kv.append(sequence, tokensOf(30))).rejects.toMatchObject({
      code: 'TKV_INPUT',
      field: 'tokens[30]',
    });
    kv.release(sequence);
  });
});

it.each([
  ['hbmBytes', { hbmBytes: 2 ** 45 }],
  ['ddrBytes', { ddrBytes: 2 ** 45 }],
  ['hbmBytes', { hbmBytes: 1.5 }],
  ['hbmBytes', { hbmBytes: '1 GiB' }],
  ['ddrBytes', { ddrBytes: -1 }],
  ['ddrBytes', { ddrBytes: 7 }],
  ['nvme.bytes', { nvme: { dir: '/tmp', bytes: Number.NaN } }],
])('a size that no machine has is one line that names %s', async (field, config) => {
  const error: unknown = await openRuntime(config as never).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ field, code: expect.stringMatching(/^TKV_(CONFIG|DEVICE|CAPACITY|IO)$/) });
  expect(String(error)).not.toMatch(/\n|\.cpp|undefined/);
});

describe('tenants', () => {
  it('beyond four thousand cost no more memory, and find their blocks all the same', () => {
    const namespace = { secretKey: new Uint8Array(32).fill(3), epoch: 0, model: 'm@1', layout, extras: {} };
    const chains = new TenantChains(namespace, [{ first: 0, end: layout.layers }]);
    const first = chains.of('tenant 0');
    expect(chains.of('tenant 0'), 'one that is met often is kept').toBe(first);
    for (let i = 1; i <= 5000; i++) chains.of(`tenant ${i}`);
    expect(chains.of('tenant 0'), 'one not met for long is made again').not.toBe(first);
    expect(chains.of('tenant 5000')).toBe(chains.of('tenant 5000'));
  });

  it('beyond the numbers that there are share the last one, which is always cleared', () => {
    const owners = new TenantOwners();
    const numbers = Array.from({ length: OWNERS + 10 }, (_, i) => owners.of(`tenant ${i}`));
    expect(new Set(numbers.slice(0, OWNERS - 2)).size).toBe(OWNERS - 2);
    expect(new Set(numbers.slice(OWNERS - 2))).toEqual(new Set([OWNERS - 1]));
    expect(owners.of('tenant 7')).toBe(numbers[7]);
  });
});

it('a block that came up from the disk goes to DDR when it leaves HBM again', async () => {
  await using kv = await openRuntime({
    hbmBytes: blocks(20),
    ddrBytes: blocks(20),
    nvme: { dir: scratchDir(), bytes: blocks(40) },
  });
  await cacheBelow(kv, 3, 2);
  expect(kv.lookup(prompt(3), { tenant }).byTier).toEqual([0, 0, 4]);
  expect(await ask(kv, 3)).toMatchObject({ cachedTokens: 64, right: true });
  kv.manager.evict(0, 5, kv.nowUs());
  await kv.idle();
  expect(kv.lookup(prompt(3), { tenant }).byTier, 'the copy on the disk is not the fastest').toEqual([
    0, 4, 0,
  ]);
});

it('a bound of what is remembered is refused before files are opened: the directory stays free', async () => {
  const nvme = { dir: scratchDir(), bytes: blocks(40) };
  for (const [explain, field] of [
    [{ blocks: 3 }, 'explain.blocks'],
    [{ tokens: -1 }, 'explain.tokens'],
    [{ block: 3 }, undefined],
  ] as const) {
    const opening = openHostRuntime({ nvme, explain: explain as never });
    await expect(opening).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      ...(field === undefined ? {} : { field }),
    });
  }
  await using kv = await openHostRuntime({ nvme, explain: { blocks: 16 } });
  expect(kv.describe().nvme.records).toBe(0);
});
