/**
 * Requests that begin in one turn of the event loop share what they have in common, as those of a later turn
 * do: the first computes it, the others wait and find it. What each opened to compute is the decision.
 */

import { describe, expect, it } from 'vitest';
import type { BeginOptions, KVRuntime, KVSequence } from '../../../src/index.ts';
import { blocks, byteOf, layout, openRuntime, write } from '../liveRuntime.ts';

const { blockTokens } = layout;
/** No clock decides anything here: waits end because what they wait for has ended. */
const shareWaitMs = 600_000;
const tokensOf = (count: number, from = 0): number[] => Array.from({ length: count }, (_, i) => from + i);

interface Served {
  readonly cachedTokens: number;
  /** Blocks that were open to be computed. */
  readonly computed: number[];
  /** What block 0 and the last full block hold, as the request reads them. */
  readonly bytes: readonly number[];
}

/** A server's way of one request; its blocks hold `seed` plus their number. */
async function serve(
  kv: KVRuntime,
  tokens: readonly number[],
  seed: number,
  options: Partial<BeginOptions> = {},
): Promise<Served> {
  const sequence = await kv.begin(tokens, { tenant: 'alice', shareWaitMs, ...options });
  if (options.arriving === true) await computeParts(kv, sequence);
  const computed = write(kv, sequence, seed);
  expect(await kv.seal(sequence)).toBe('done');
  const last = Math.floor(tokens.length / blockTokens) - 1;
  const bytes = [await byteOf(kv, sequence, 0), await byteOf(kv, sequence, last)];
  const { cachedTokens } = sequence;
  kv.release(sequence);
  kv.manager.checkIntegrity();
  return { cachedTokens, computed: [...new Set(computed)], bytes };
}

async function computeParts(kv: KVRuntime, sequence: KVSequence): Promise<void> {
  for (let part = await kv.nextPart(sequence); part !== null; part = await kv.nextPart(sequence)) {
    expect(part).not.toBe('interrupted');
  }
}

const computedBlocks = (all: readonly Served[]): number =>
  all.reduce((sum, { computed }) => sum + computed.length, 0);

describe.each([
  ['', {}],
  [' that wait for room', { wait: true }],
  [' whose blocks arrive', { arriving: true }],
])('eight equal prompts%s', (_, options: Partial<BeginOptions>) => {
  it('are computed once: seven find all but the last token', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(64) });
    const all = await Promise.all(Array.from({ length: 8 }, () => serve(kv, tokensOf(65), 40, options)));
    expect(all.map(({ cachedTokens }) => cachedTokens)).toEqual([0, ...Array(7).fill(64)]);
    expect(computedBlocks(all), 'five of the first, and the last token of each other').toBe(5 + 7);
    for (const { bytes } of all) expect(bytes).toEqual([40, 43]);
    expect(kv.manager.inspect.counters.misses).toBe(4);
  });
});

it('requests that wait for room that one has at a time share as well', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(9) });
  const first = await kv.begin(tokensOf(8 * blockTokens, 9000), { tenant: 'bob' });
  const all = Array.from({ length: 4 }, () => serve(kv, tokensOf(65), 40, { wait: true }));
  await new Promise((resolve) => setImmediate(resolve));
  kv.release(first);
  const served = await Promise.all(all);
  expect(served.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 64, 64, 64]);
});

it('prompts with a part in common compute that part once', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(64) });
  const common = tokensOf(3 * blockTokens);
  const all = await Promise.all(
    [1000, 2000, 3000].map((from) => serve(kv, [...common, ...tokensOf(2 * blockTokens + 1, from)], 40)),
  );
  expect(all.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 48, 48]);
  expect(computedBlocks(all)).toBe(6 + 3 + 3);
  const nested = await Promise.all(
    [2, 5, 3].map((count) => serve(kv, tokensOf(count * blockTokens + 1, 50_000), 60)),
  );
  expect(nested.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 32, 48]);
});

it('prompts in layer groups share too', async () => {
  const layerGroups = [
    { first: 0, end: 1 },
    { first: 1, end: 2 },
  ];
  await using kv = await openRuntime({ hbmBytes: blocks(64), layerGroups });
  const all = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const sequence = await kv.begin(tokensOf(65), { tenant: 'alice', shareWaitMs });
      await kv.seal(sequence);
      kv.release(sequence);
      return sequence.cachedTokens;
    }),
  );
  expect(all).toEqual([0, 64, 64]);
});

it('a tail that the first seals is found by those of the same turn', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(64) });
  const all = await Promise.all(
    [0, 1, 2].map(async () => {
      const sequence = await kv.begin(tokensOf(41), { tenant: 'alice', shareWaitMs });
      write(kv, sequence, 7);
      await kv.seal(sequence, { tail: true });
      kv.release(sequence);
      return sequence.cachedTokens;
    }),
  );
  expect(all[0]).toBe(0);
  // The last token is always left to compute, and a tail is found by its own tokens: full blocks at least.
  for (const cached of all.slice(1)) expect(cached).toBeGreaterThanOrEqual(32);
});

it('tenants share nothing, whenever they come', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(64) });
  const all = await Promise.all(
    ['alice', 'bob', 'alice', 'bob'].map((tenant) =>
      serve(kv, tokensOf(65), tenant === 'alice' ? 40 : 90, { tenant }),
    ),
  );
  expect(all.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 0, 64, 64]);
  expect(all.map(({ bytes }) => bytes[0])).toEqual([40, 90, 40, 90]);
});

it('the others go on when the first gives up, and one of them computes', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(64) });
  const first = kv.begin(tokensOf(65), { tenant: 'alice', shareWaitMs });
  const rest = Array.from({ length: 3 }, () => serve(kv, tokensOf(65), 40));
  kv.cancel(await first);
  expect((await Promise.all(rest)).map(({ cachedTokens }) => cachedTokens)).toEqual([0, 64, 64]);
});

it('a request that was refused or aborted while others wait for it holds them up no longer', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(8) });
  const abort = new AbortController();
  const first = kv.begin(tokensOf(65), { tenant: 'alice', shareWaitMs, signal: abort.signal });
  abort.abort(new Error('gone'));
  const second = serve(kv, tokensOf(65), 40);
  await first.then((sequence) => kv.cancel(sequence)).catch(() => {});
  expect((await second).cachedTokens).toBe(0);
});
