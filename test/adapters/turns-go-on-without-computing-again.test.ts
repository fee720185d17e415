import { DynamicCache, pipeline, type Tensor, TextStreamer } from '@huggingface/transformers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type PrefixTurn, withPrefixCache } from '../../src/adapters/transformers/index.ts';
import {
  generated,
  idsTensor,
  type LoadedDecoder,
  load,
  loadDecoder,
  onesTensor,
  openedRuntime,
  randomIds,
  randomNumbers,
  removeDirectories,
} from './decoders.ts';

afterAll(removeDirectories);

const next = randomNumbers(39);
const prompt = randomIds(next, 100);

describe.each([
  ['GQA', {}],
  ['GQA, f16', { kvDtype: 'f16' }],
  ['MQA', { kvHeads: 1 }],
  ['MHA', { kvHeads: 4, layers: 2 }],
  ['weights in a file beside', { external: 'model.onnx_data' }],
] as const)('%s', (_, shape) => {
  let decoder: LoadedDecoder;
  beforeAll(async () => {
    decoder = await loadDecoder(shape);
  });

  test('a prompt that was computed once is restored, and its tokens are the same', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const turns: PrefixTurn[] = [];
    const report = (turn: PrefixTurn): void => void turns.push(turn);
    const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime, report });
    const plain = await generated(model, prompt);
    expect(await generated(cached, prompt)).toEqual(plain);
    expect(await generated(cached, prompt)).toEqual(plain);
    const longer = [...plain, ...randomIds(next, 30)];
    expect(await generated(cached, longer)).toEqual(await generated(model, longer));
    expect(turns.map(({ from, cachedTokens, savedBlocks }) => [from, cachedTokens, savedBlocks])).toEqual([
      ['computed', 0, 6], // 107 tokens have KV
      ['restored', 96, 0],
      ['live', 107, 3],
    ]);
    expect(cached.prefixCache.counters).toEqual({
      turns: 3,
      promptTokens: 100 + 100 + 138,
      liveTokens: 107,
      restoredTokens: 96,
      savedBlocks: 9,
      uncached: 0,
    });
  });

  test('the KV that is restored has the bits that were saved, at every length', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime });
    const computed = new DynamicCache();
    await generated(model, prompt, { attention_mask: onesTensor(100), past_key_values: computed });
    expect(await cached.prefixCache.save(prompt, computed).catch((error: Error) => error.message)).toMatch(
      /ids has 100 tokens, and the cache object holds 107/,
    );
    const all = (await generated(model, prompt)).slice(0, 107);
    expect(await cached.prefixCache.save(all, computed)).toEqual({ savedBlocks: 6, blocks: 6 });
    for (const [tokens, found] of [
      [16, 0],
      [17, 16],
      [64, 48],
      [97, 96],
      [100, 96],
    ]) {
      const { pastKeyValues, cachedTokens } = await cached.prefixCache.restore(all.slice(0, tokens));
      expect([tokens, cachedTokens]).toEqual([tokens, found]);
      const names = Object.keys(pastKeyValues);
      expect(names).toEqual(found === 0 ? [] : Object.keys(computed));
      for (const name of names) {
        const restored = (pastKeyValues as unknown as Record<string, Tensor>)[name];
        expect(rowsOf(restored, found)).toEqual(rowsOf(computed[name], found));
      }
    }
  });
});

/** The bytes of the first tokens of each head. */
function rowsOf(tensor: Tensor, tokens: number): Uint8Array {
  const [, heads, length, dim] = tensor.dims;
  const data = tensor.data as Float32Array;
  const row = dim * data.BYTES_PER_ELEMENT;
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return Buffer.concat(
    Array.from({ length: heads }, (_, head) =>
      bytes.subarray(head * length * row, (head * length + tokens) * row),
    ),
  );
}

describe('all ways to a model', () => {
  let decoder: LoadedDecoder;
  beforeAll(async () => {
    decoder = await loadDecoder();
  });

  test('chats of a pipeline and streamers give the same', async () => {
    const { directory } = decoder;
    const generator = await pipeline('text-generation', directory, { dtype: 'fp32' });
    const chat = [{ role: 'user', content: 'Tell me a story about the sea and the old captain' }];
    const streamed: string[] = [];
    const asked = (): object => ({
      max_new_tokens: 12,
      streamer: new TextStreamer(generator.tokenizer, {
        skip_prompt: true,
        callback_function: (text: string) => void streamed.push(text),
      }),
    });
    const plain = await generator(chat, asked());
    const plainText = streamed.splice(0).join('');
    await using runtime = await openedRuntime(generator.model);
    const turns: PrefixTurn[] = [];
    const report = (turn: PrefixTurn): void => void turns.push(turn);
    generator.model = await withPrefixCache(generator.model, {
      weights: directory,
      tenant: 'a',
      runtime,
      report,
    });
    for (let i = 0; i < 2; i++) {
      expect(await generator(chat, asked())).toEqual(plain);
      expect(streamed.splice(0).join('')).toBe(plainText);
    }
    expect(turns[0]).toMatchObject({ from: 'computed', cachedTokens: 0 });
    expect(turns[1]).toMatchObject({ from: 'restored' });
    expect(turns[1].cachedTokens).toBeGreaterThan(0);
  });

  test('a cache object of the caller is filled, and goes on from turn to turn', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const turns: PrefixTurn[] = [];
    const report = (turn: PrefixTurn): void => void turns.push(turn);
    const cached = await withPrefixCache(model, {
      weights: directory,
      tenant: 'a',
      runtime,
      liveCaches: 0,
      report,
    });
    await generated(cached, prompt);
    const mine = new DynamicCache();
    let text = prompt;
    for (let i = 0; i < 4; i++) {
      const options = { past_key_values: mine };
      const answer = await generated(cached, text, options);
      expect(answer).toEqual(await generated(model, text));
      expect(mine.get_seq_length()).toBe(answer.length - 1);
      text = [...answer, ...randomIds(next, 5)];
    }
    expect(turns.map(({ from }) => from)).toEqual(['computed', 'restored', 'live', 'live', 'live']);
    expect(turns.map(({ savedBlocks }) => savedBlocks)).toEqual([6, 0, 1, 1, 1]); // 107, 120, 133, 146 tokens
  });

  test('the two halves, around a call of the model itself', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const { prefixCache } = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime });
    const plain = await generated(model, prompt);
    for (const found of [0, 96]) {
      const { pastKeyValues, cachedTokens } = await prefixCache.restore(idsTensor(prompt));
      expect(cachedTokens).toBe(found);
      const options = { attention_mask: onesTensor(100), past_key_values: pastKeyValues };
      expect(await generated(model, prompt, options)).toEqual(plain);
      expect(await prefixCache.save(plain, pastKeyValues)).toEqual({
        savedBlocks: found === 0 ? 6 : 0,
        blocks: 6,
      });
    }
  });

  test('return_dict_in_generate gives sequences and the cache object', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime });
    for (let i = 0; i < 2; i++) {
      const result = (await cached.generate({
        inputs: idsTensor(prompt),
        max_new_tokens: 4,
        return_dict_in_generate: true,
      })) as { sequences: Tensor; past_key_values: DynamicCacheLike };
      expect(result.sequences.dims).toEqual([1, 104]);
      expect(result.past_key_values.get_seq_length()).toBe(103);
    }
    expect(cached.prefixCache.counters.restoredTokens).toBe(96);
  });

  test('calls at the same time each have their own cache object', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime, liveCaches: 3 });
    const prompts = Array.from({ length: 6 }, (_, i) => [
      ...prompt.slice(0, 40 + 10 * (i % 3)),
      ...randomIds(next, 9),
    ]);
    const plain = [];
    for (const ids of prompts) plain.push(await generated(model, ids));
    for (let round = 0; round < 3; round++) {
      expect(await Promise.all(prompts.map((ids) => generated(cached, ids)))).toEqual(plain);
    }
    expect(cached.prefixCache.counters.restoredTokens).toBeGreaterThan(0);
  });

  test('all else is the model, and `prefixCache: false` leaves the cache alone', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime });
    expect(cached.config).toBe(model.config);
    expect(cached.sessions).toBe(model.sessions);
    expect(cached instanceof (model.constructor as new () => object)).toBe(true);
    const plain = await generated(model, prompt);
    expect(await generated(cached, prompt, { prefixCache: false })).toEqual(plain);
    expect(cached.prefixCache.counters.turns).toBe(0);
    expect(await generated(await load(directory), prompt)).toEqual(plain);
  });
});

interface DynamicCacheLike {
  get_seq_length(): number;
}
