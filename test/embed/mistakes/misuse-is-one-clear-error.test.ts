/** What a caller passes by mistake is a TierKVError that names it, and nothing is half done. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KVRuntime, KVSequence } from '../../../src/index.ts';
import { blocks, openRuntime } from '../liveRuntime.ts';

const tenant = 'alice';
const tokensOf = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
let kv: KVRuntime;
let sequence: KVSequence;

beforeAll(async () => {
  kv = await openRuntime({ hbmBytes: blocks(20) });
  sequence = await kv.begin(tokensOf(20), { tenant });
});
afterAll(async () => {
  kv.release(sequence);
  kv.manager.checkIntegrity();
  expect(kv.manager.inspect.openSequences).toBe(0);
  await kv.close();
});

describe.each([undefined, null, {}, 7, 'sequence'])('%j in place of a sequence', (wrong) => {
  const none = wrong as never;
  const refused = {
    code: 'TKV_INPUT',
    field: 'sequence',
    message: expect.stringMatching(/must be a sequence\. Pass/),
  };

  it('is refused by the calls that end it, look at it or wait', async () => {
    for (const call of [
      () => kv.release(none),
      () => kv.cancel(none),
      () => kv.openBlocks(none),
      () => kv.slot(none, 0),
      () => kv.blockTable(none),
      () => kv.deviceBlockTable(none),
    ]) {
      expect(call).toThrow(expect.objectContaining(refused));
    }
    for (const call of [
      kv.append(none, []),
      kv.seal(none),
      kv.fork(none),
      kv.truncate(none, 0),
      kv.recover(none),
    ]) {
      await expect(call).rejects.toMatchObject(refused);
    }
    const good = { sequence, tokens: [1] };
    const step = kv.step([good, { sequence: none, tokens: [1] }]);
    await expect(step).rejects.toMatchObject({ ...refused, field: 'entries[1].sequence' });
    expect(sequence.length).toBe(20);
  });
});

it('an invalid batch, or one that names a sequence twice, grows no sequence', async () => {
  await expect(kv.step(undefined as never)).rejects.toMatchObject({ code: 'TKV_INPUT', field: 'entries' });
  await expect(kv.step([undefined as never])).rejects.toMatchObject({ field: 'entries[0].sequence' });
  const entry = { sequence, tokens: [1] };
  await expect(kv.step([entry, { ...entry }])).rejects.toMatchObject({
    code: 'TKV_INPUT',
    field: 'entries[1].sequence',
  });
  expect(sequence.length).toBe(20);
  expect(await kv.step([])).toEqual([]);
});

it.each([
  [{ length: -1 }],
  [{ length: 1.5 }],
  [null],
  [undefined],
  ['ten'],
  [() => 7],
  [[-7n]],
  [[Symbol.iterator]],
])('invalid tokens are refused by each call (case %#)', async (wrong) => {
  const none = wrong as never;
  const refused = { code: 'TKV_INPUT' };
  for (const call of [
    kv.begin(none, { tenant }),
    kv.append(sequence, none),
    kv.step([{ sequence, tokens: none }]),
  ]) {
    await expect(call).rejects.toMatchObject(refused);
  }
  if (Array.isArray(wrong)) return;
  for (const call of [
    () => kv.lookup(none, { tenant }),
    () => kv.prefetch(none, { tenant }),
    () => kv.requestQueue().add(none, tenant),
  ]) {
    expect(call).toThrow(expect.objectContaining(refused));
  }
});

it.each([
  ['options', undefined],
  ['options', null],
  ['tenant', {}],
  ['signal', { tenant, signal: {} }],
  ['priority', { tenant, priority: 'high' }],
  ['shareWaitMs', { tenant, shareWaitMs: -1 }],
  ['retention', { tenant, retention: 7 }],
  ['retention.priority', { tenant, retention: { priority: 101 } }],
  ['retention.priority', { tenant, retention: { priority: 0.5 } }],
  ['retention.keepMs', { tenant, retention: { keepMs: Number.POSITIVE_INFINITY } }],
  ['retention.keepMs', { tenant, retention: { keepMs: '5' } }],
])('begin names the option at fault: %s', async (field, options) => {
  const sequences = kv.manager.inspect.openSequences;
  await expect(kv.begin([1, 2], options as never)).rejects.toMatchObject({ code: 'TKV_INPUT', field });
  expect(kv.manager.inspect.openSequences).toBe(sequences);
});

it('a bad hint at release leaves the sequence as it was', () => {
  const retention = { priority: Number.NaN };
  expect(() => kv.release(sequence, { retention })).toThrow(
    expect.objectContaining({ code: 'TKV_INPUT', field: 'retention.priority' }),
  );
  expect(sequence.ended).toBe(false);
  expect(kv.openBlocks(sequence)).toHaveLength(2);
});

it('what callers must not write is read-only', () => {
  const never = (): void => {
    // @ts-expect-error the runtime says what was found
    sequence.cachedTokens = 7;
    // @ts-expect-error release ends a sequence
    sequence.ended = true;
    // @ts-expect-error seal seals
    sequence.groups[0].sealed = 2;
    // @ts-expect-error tokens come by append and step
    sequence.tokens.append([1]);
    // @ts-expect-error figures are read
    kv.metrics().counters.misses = 0;
    // @ts-expect-error and so is the device
    kv.device = new GPUDevice();
  };
  expect(never).toBeTypeOf('function');
});
