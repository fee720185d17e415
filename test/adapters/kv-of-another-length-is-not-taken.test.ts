/** Models whose RoPE depends on the length of the sequence: KV of one length is never used for another. */

import { DynamicCache } from '@huggingface/transformers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EngineCache } from '../../src/adapters/transformers/engine.ts';
import { type PrefixTurn, withPrefixCache } from '../../src/adapters/transformers/index.ts';
import { regimeAt, ropeRegimesOf } from '../../src/adapters/transformers/ropeRegime.ts';
import type { KVRuntime } from '../../src/index.ts';
import {
  generated,
  type LoadedDecoder,
  loadDecoder,
  openedRuntime,
  randomIds,
  randomNumbers,
  removeDirectories,
} from './decoders.ts';

afterAll(removeDirectories);

const border = 160;
const seed = 11;
let decoder: LoadedDecoder;
beforeAll(async () => {
  decoder = await loadDecoder({ longRopeTokens: border });
});

async function opened(runtime: KVRuntime, liveCaches = 0) {
  const turns: PrefixTurn[] = [];
  const cached = await withPrefixCache(decoder.model, {
    weights: decoder.directory,
    tenant: 'a',
    runtime,
    liveCaches,
    report: (turn) => void turns.push(turn),
  });
  return { cached, turns };
}

describe('longrope', () => {
  test('the model itself has other KV above the border', async () => {
    const ids = randomIds(randomNumbers(seed), border + 20);
    const rows = async (tokens: number): Promise<number[]> => {
      const past = new DynamicCache();
      await generated(decoder.model, ids.slice(0, tokens), { past_key_values: past, max_new_tokens: 1 });
      const key = (past as unknown as Record<string, { data: Float32Array }>)['past_key_values.0.key'];
      return Array.from(key.data.subarray(16 * 10, 16 * 11));
    };
    expect(await rows(border + 20)).not.toEqual(await rows(border - 20));
  });

  test.each([0, 2])(
    'prompts of all lengths get the tokens that the model gives (%i live caches)',
    async (live) => {
      await using runtime = await openedRuntime(decoder.model);
      const { cached, turns } = await opened(runtime, live);
      const next = randomNumbers(seed);
      const text = randomIds(next, 400);
      const lengths = [100, 260, 150, 159, 160, 161, 300, 155, 152, 320, 170, 100, 158];
      for (const tokens of [...lengths, ...Array.from({ length: 20 }, () => 20 + (next() % 300))]) {
        const prompt = text.slice(0, tokens);
        const plain = await generated(decoder.model, prompt, { max_new_tokens: 12 });
        expect(await generated(cached, prompt, { max_new_tokens: 12 }), `${tokens}, seed ${seed}`).toEqual(
          plain,
        );
      }
      const found = (tokens: number): number =>
        turns.findLast((turn) => turn.promptTokens === tokens)!.cachedTokens;
      expect(turns[0]).toMatchObject({ promptTokens: 100, cachedTokens: 0, savedBlocks: 6 });
      expect(turns[1]).toMatchObject({ promptTokens: 260, cachedTokens: 0 });
      expect(turns[4]).toMatchObject({ promptTokens: 160, cachedTokens: 0, savedBlocks: 0 });
      expect(turns[4].uncached).toMatch(
        /RoPE of this model \(longrope\) has other angles from 160 tokens on/,
      );
      // each regime finds its own
      expect(found(158)).toBeGreaterThanOrEqual(144);
      expect(found(320)).toBeGreaterThanOrEqual(288);
    },
  );

  test('a conversation that crosses the border goes on with the tokens that the model gives', async () => {
    await using runtime = await openedRuntime(decoder.model);
    for (const mine of [undefined, new DynamicCache()]) {
      const { cached, turns } = await opened(runtime, 1);
      const next = randomNumbers(seed);
      let text = randomIds(next, 120);
      for (let turn = 0; turn < 6; turn++) {
        const plain = await generated(decoder.model, text, { max_new_tokens: 10 });
        const past = mine === undefined ? {} : { past_key_values: mine };
        expect(await generated(cached, text, { max_new_tokens: 10, ...past })).toEqual(plain);
        text = [...plain, ...randomIds(next, 7)];
      }
      expect(turns.at(-1)?.cachedTokens).toBeGreaterThan(border);
    }
  });

  test('the two halves keep nothing whose length is not known', async () => {
    await using runtime = await openedRuntime(decoder.model);
    const { prefixCache } = (await opened(runtime)).cached;
    const ids = randomIds(randomNumbers(seed), 200);
    const computed = async (tokens: number): Promise<EngineCache> => {
      const past = new DynamicCache();
      await generated(decoder.model, ids.slice(0, tokens), { past_key_values: past, max_new_tokens: 1 });
      return past;
    };
    expect(await prefixCache.save(ids, await computed(200))).toMatchObject({
      savedBlocks: 0,
      uncached: expect.stringMatching(/RoPE/),
    });
    expect(await prefixCache.save(ids, await computed(100))).toMatchObject({ savedBlocks: 6 });
    expect((await prefixCache.restore(ids.slice(0, 120))).cachedTokens).toBe(96);
    expect((await prefixCache.restore(ids)).cachedTokens).toBe(0);
    expect(await prefixCache.restore(ids.slice(0, border))).toMatchObject({
      cachedTokens: 0,
      uncached: expect.stringMatching(/RoPE/),
    });
  });
});

describe('what a configuration says', () => {
  const scaled = (rope: object, rest: object = {}): object => ({
    max_position_embeddings: 8192,
    rope_scaling: rope,
    ...rest,
  });

  test.each([
    [{}, undefined],
    [scaled({ type: 'linear', factor: 2 }), undefined],
    [scaled({ rope_type: 'llama3', original_max_position_embeddings: 4096 }), undefined],
    [scaled({ rope_type: 'yarn' }), undefined],
    [{ rope_scaling: null, rope_parameters: { rope_type: 'default', rope_theta: 1e4 } }, undefined],
    [scaled({ type: 'longrope', original_max_position_embeddings: 4096 }), ['longrope', 4096, true]],
    [scaled({ type: 'su' }, { original_max_position_embeddings: 2048 }), ['su', 2048, true]],
    [scaled({ rope_type: 'dynamic', factor: 2 }), ['dynamic', 8192, false]],
    [{ use_dynamic_ntk: true, seq_length: 2048 }, ['dynamic', 2048, false]],
    [{ text_config: scaled({ rope_type: 'dynamic' }) }, ['dynamic', 8192, false]],
    [
      {
        rope_parameters: {
          sliding_attention: { rope_type: 'default' },
          full_attention: { rope_type: 'longrope', original_max_position_embeddings: 1024 },
        },
      },
      ['longrope', 1024, true],
    ],
  ])('%j', (config, expected) => {
    const regimes = ropeRegimesOf(config);
    expect(regimes && [regimes.kind, regimes.tokens, regimes.isOneAbove]).toEqual(expected);
  });

  test.each([
    [scaled({ rope_type: 'spiral' }), /RoPE of the kind "spiral"/],
    [{ rope_scaling: { rope_type: 'dynamic' } }, /"dynamic" without original_max_position_embeddings/],
    [
      {
        rope_parameters: { a: { rope_type: 'dynamic' }, b: { rope_type: 'longrope' } },
        max_position_embeddings: 9,
      },
      /layers whose RoPE changes in different ways/,
    ],
  ])('refused: %j', (config, message) => {
    expect(() => ropeRegimesOf(config)).toThrow(message);
    try {
      ropeRegimesOf(config);
    } catch (error) {
      expect(error).toMatchObject({ code: 'TKV_CONFIG', field: 'model' });
    }
  });

  test('above the border dynamic NTK has KV of each length alone', () => {
    const dynamic = { kind: 'dynamic', tokens: 10, isOneAbove: false };
    expect(regimeAt(dynamic, 9)).toEqual({ name: 'dynamic below 10', mostTokens: 9 });
    expect(regimeAt(dynamic, 10)).toBeUndefined();
    expect(regimeAt(dynamic, 11)).toBeUndefined();
  });
});
