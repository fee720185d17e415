/** A refusal names what the caller passed, in the words of the door at which it was passed, and a remedy that works there. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { KVRuntime } from '../../../src/index.ts';
import { blocks, layout, openHostRuntime } from '../liveRuntime.ts';

const tenant = 'alice';
const tokens = Array.from({ length: 40 }, (_, i) => i);
const dir = mkdtempSync(join(tmpdir(), 'tierkv-words-'));
let kv: KVRuntime;
beforeAll(async () => {
  kv = await openHostRuntime({ nvme: { dir, bytes: blocks(64) } });
});
afterAll(async () => {
  await kv.close();
  rmSync(dir, { recursive: true });
});

async function refusalOf(call: () => unknown): Promise<{ code: string; field: string; message: string }> {
  try {
    await call();
  } catch (error) {
    return error as { code: string; field: string; message: string };
  }
  throw new Error('nothing was refused');
}

it.each([
  [
    'the settings of a layout',
    { layers: 2, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 },
    'has no',
  ],
  ['nothing', undefined, 'is undefined'],
  ['text', 'llama', 'is "llama"'],
  ['a layout with a width that is text', { ...layout, valueDim: '64' }, 'not a number'],
])('%s in place of a layout', async (_, wrong, says) => {
  const refusal = await refusalOf(() =>
    KVRuntime.open({ layout: wrong as never, model: 'm', secretKey: new Uint8Array(32) }),
  );
  expect(refusal.code).toBe('TKV_CONFIG');
  expect(refusal.field).toMatch(/^layout/);
  expect(refusal.message).toContain(says);
  expect(refusal.message).toContain('Pass what kvLayout({ ... }) gives');
});

it('every call that wants a tenant says so where it is given no options', async () => {
  const calls = {
    begin: () => kv.begin(tokens, undefined as never),
    'begin without tokens': () => (kv.begin as () => unknown)(),
    lookup: () => kv.lookup(tokens, undefined as never),
    prefetch: () => kv.prefetch(tokens, undefined as never),
    putState: () => kv.putState(tokens, new Uint8Array(9), undefined as never),
    getState: () => kv.getState(tokens, undefined as never),
  };
  for (const [name, call] of Object.entries(calls)) {
    expect(await refusalOf(call), name).toMatchObject({ code: 'TKV_INPUT', field: 'options' });
    expect((await refusalOf(call)).message, name).toContain('Pass { tenant }.');
  }
});

it('a prompt that can never run names tokens, and the memory that this runtime has', async () => {
  using scheduler = kv.scheduler({});
  const long = { id: 'long', tokens: new Uint32Array(1_000_000), tenant, maxTokens: 1 };
  const refusal = await refusalOf(() => scheduler.add(long));
  expect(refusal).toMatchObject({ code: 'TKV_CAPACITY', field: 'tokens' });
  expect(refusal.message).toContain(`at most ${scheduler.tokensMost - 1} can run`);
  expect(refusal.message).toContain('raise ddrBytes');
  expect(refusal.message).not.toContain('HBM');
  scheduler.close();
  using bounded = kv.scheduler({ maxModelTokens: 50 });
  expect((await refusalOf(() => bounded.add(long))).message).toContain('raise maxModelTokens');
  expect(bounded.size).toBe(0);
});

it('a directory that this process has open is said to be its own', async () => {
  const refusal = await refusalOf(() => openHostRuntime({ nvme: { dir, bytes: blocks(64) } }));
  expect(refusal).toMatchObject({ code: 'TKV_LOCKED', field: 'nvme.dir' });
  expect(refusal.message).toContain('belongs to this process. Close the runtime that has it');
});

it('a sequence without blocks or tokens offers none', async () => {
  using sequence = await kv.begin(tokens, { tenant });
  await kv.truncate(sequence, 0);
  for (const call of [() => kv.readBlock(sequence, 0), () => kv.slot(sequence, 0)]) {
    const refusal = await refusalOf(call);
    expect(refusal).toMatchObject({ code: 'TKV_INPUT', field: 'index' });
    expect(refusal.message).toContain('the sequence has no blocks. Append tokens first.');
  }
  const fork = await refusalOf(() => kv.fork(sequence, 10_000));
  expect(fork.message).toContain('the sequence has no tokens. Name 0.');
});

it('a quota names its parameter', async () => {
  for (const bytes of [1e12, -1, 1.5]) {
    expect(await refusalOf(() => kv.setQuota('a', 'ddr', bytes))).toMatchObject({
      code: 'TKV_CONFIG',
      field: 'bytes',
    });
  }
});

it('ids in 32-bit floats are refused at every door: those above 2^24 are rounded', async () => {
  const rounded = new Float32Array([1, 2, 2 ** 24 + 1]) as never;
  const reuse = kv.crossRequestCache();
  using scheduler = kv.scheduler({});
  const calls = {
    begin: () => kv.begin(rounded, { tenant }),
    lookup: () => kv.lookup(rounded, { tenant }),
    prefetch: () => kv.prefetch(rounded, { tenant }),
    putState: () => kv.putState(rounded, new Uint8Array(9), { tenant }),
    getState: () => kv.getState(rounded, { tenant }),
    tryReuse: () => reuse.tryReuse('a', rounded, tenant),
    add: () => scheduler.add({ id: 'a', tokens: rounded, tenant, maxTokens: 1 }),
  };
  for (const [name, call] of Object.entries(calls)) {
    const refusal = await refusalOf(call);
    expect(refusal.code, name).toBe('TKV_INPUT');
    expect(refusal.message, name).toContain('Float32Array');
  }
  expect(kv.manager.inspect.openSequences).toBe(0);
});

it('a closed runtime answers no question about its cache, and opens no part', async () => {
  const closed = await openHostRuntime({});
  await closed.close();
  const calls = {
    lookup: () => closed.lookup(tokens, { tenant }),
    prefetch: () => closed.prefetch(tokens, { tenant }),
    setQuota: () => closed.setQuota(tenant, 'ddr', 1),
    requestQueue: () => closed.requestQueue(),
    crossRequestCache: () => closed.crossRequestCache(),
    pagedCache: () => closed.pagedCache(),
    begin: () => closed.begin(tokens, { tenant }),
  };
  for (const [name, call] of Object.entries(calls))
    expect((await refusalOf(call)).code, name).toBe('TKV_STATE');
});
