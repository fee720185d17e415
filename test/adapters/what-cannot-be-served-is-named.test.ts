import { DynamicCache, Tensor } from '@huggingface/transformers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  layoutOf,
  type PrefixCacheOptions,
  type PrefixTurn,
  withPrefixCache,
} from '../../src/adapters/transformers/index.ts';
import { kvLayout, TierKVError } from '../../src/index.ts';
import {
  generated,
  idsTensor,
  type LoadedDecoder,
  loadDecoder,
  onesTensor,
  openedRuntime,
  openRuntimeOf,
  randomIds,
  randomNumbers,
  removeDirectories,
} from './decoders.ts';

afterAll(removeDirectories);

const secretKey = new Uint8Array(32).fill(1);
const next = randomNumbers(7);
const prompt = randomIds(next, 70);
let decoder: LoadedDecoder;
let other: LoadedDecoder;
beforeAll(async () => {
  decoder = await loadDecoder();
  other = await loadDecoder({ seed: 2 });
});

const axes = ['batch_size', 2, 'past_sequence_length', 16];

/** A model whose session has these inputs besides those of one layer. */
function modelOf(inputs: object[], config: object = {}, sessions: object = {}): never {
  const layer = (type = 'float32', shape: unknown = axes): object[] => [
    { name: 'past_key_values.0.key', type, shape },
    { name: 'past_key_values.0.value', type, shape },
  ];
  const inputMetadata = [{ name: 'input_ids', type: 'int64' }, ...layer(), ...inputs];
  return { config, sessions: { model: { inputMetadata }, ...sessions }, generate: () => {} } as never;
}

function only(inputs: object[]): never {
  return { config: {}, sessions: { model: { inputMetadata: inputs } }, generate: () => {} } as never;
}

describe('kinds of models', () => {
  test.each<readonly [string, never, RegExp]>([
    ['no model', undefined as never, /model must be a model of transformers.js, and it is undefined/],
    ['a text', 'gpt' as never, /model must be a model of transformers.js, and it is "gpt"/],
    ['an encoder and a decoder', modelOf([], { is_encoder_decoder: true }), /an encoder and a decoder/],
    [
      'inputs of an encoder',
      modelOf([{ name: 'past_key_values.0.encoder.key', type: 'float32', shape: axes }]),
      /an encoder and a decoder/,
    ],
    [
      'several sessions',
      modelOf([], {}, { vision_encoder: {} }),
      /several sessions \(model, vision_encoder\)/,
    ],
    ['convolution states', modelOf([{ name: 'past_conv.0' }]), /convolution states \(input past_conv.0\)/],
    ['state-space states', modelOf([{ name: 'past_ssm.1' }]), /state-space states \(input past_ssm.1\)/],
    ['recurrent states', modelOf([{ name: 'past_recurrent.2' }]), /recurrent states/],
    ['compressed caches', modelOf([{ name: 'past_compressor.2' }]), /compressed caches/],
    [
      'inputs of another kind',
      modelOf([{ name: 'token_type_ids' }]),
      /an input token_type_ids, which may change its KV/,
    ],
    ['no past', only([{ name: 'input_ids' }]), /no past_key_values among its inputs/],
    [
      'a static cache',
      only(
        ['key', 'value'].map((part) => ({
          name: `past_key_values.0.${part}`,
          type: 'float32',
          shape: [1, 2, 512, 16],
        })),
      ),
      /a static cache, such as a sliding window/,
    ],
    [
      'a quantised cache',
      only(
        ['key', 'value'].map((part) => ({ name: `past_key_values.0.${part}`, type: 'int8', shape: axes })),
      ),
      /a quantised cache \(past_key_values.0.key is int8\)/,
    ],
    [
      'other axes',
      only(
        ['key', 'value'].map((part) => ({
          name: `past_key_values.0.${part}`,
          type: 'float32',
          shape: ['b x h', 16, 'past'],
        })),
      ),
      /axes are not \[batch, KV heads, past, head dim\]/,
    ],
    [
      'layers of different shapes',
      modelOf(
        ['key', 'value'].map((part) => ({
          name: `past_key_values.1.${part}`,
          type: 'float32',
          shape: ['b', 4, 'past', 16],
        })),
      ),
      /layers of different shapes/,
    ],
    [
      'half a layer',
      modelOf([{ name: 'past_key_values.1.key', type: 'float32', shape: axes }]),
      /no value of layer 1/,
    ],
  ])('%s', async (_, model, message) => {
    const made = withPrefixCache(model, { weights: decoder.directory, tenant: 'a' });
    await expect(made).rejects.toThrow(message);
    await made.catch((error) => {
      expect(error).toBeInstanceOf(TierKVError);
      expect([error.code, error.field]).toEqual(['TKV_CONFIG', 'model']);
    });
  });
});

describe('options', () => {
  test.each<readonly [string, object, string, RegExp]>([
    ['an unknown name', { tenent: 'a' }, 'tenent', /Did you mean 'tenant'/],
    ['weights left out', { weights: undefined }, 'weights', /weights must be a path/],
    ['an empty tenant', { tenant: '' }, 'tenant', /tenant must be text/],
    ['an empty revision', { revision: '' }, 'revision', /revision must be text/],
    ['live caches below 0', { liveCaches: -1 }, 'liveCaches', /not an integer/],
    ['a report that is not a function', { report: 1 }, 'report', /report must be a function/],
    ['another module', { transformers: {} }, 'transformers', /transformers has no Tensor/],
    ['null for a module', { transformers: null }, 'transformers', /transformers is null/],
    ['extras that are a text', { extras: 'lora' }, 'extras', /extras must be an object, and it is "lora"/],
    ['a text for a number', { secretKey, blockTokens: '5' }, 'blockTokens', /is "5", not an integer/],
    ['migration by a name', { secretKey, migration: 'on' }, 'migration', /migration must be an object/],
    ['null for a runtime', { secretKey, runtime: null }, 'runtime', /runtime is null/],
    ['no secret', {}, 'secretKey', /secretKey is missing/],
  ])('%s', async (_, options, field, message) => {
    const { model, directory } = decoder;
    const made = withPrefixCache(model, {
      weights: directory,
      tenant: 'a',
      ...options,
    } as PrefixCacheOptions);
    await expect(made).rejects.toThrow(message);
    await made.catch((error) => expect(error.field).toBe(field));
  });

  test('a runtime of another layout, and settings beside a runtime', async () => {
    const { model, directory } = decoder;
    const layout = kvLayout({ layers: 4, kvHeads: 2, headDim: 16, dtype: 'f32', blockTokens: 16 });
    await using wrong = await openRuntimeOf(layout);
    const options = { weights: directory, tenant: 'a' };
    await expect(withPrefixCache(model, { ...options, runtime: wrong })).rejects.toMatchObject({
      code: 'TKV_MISMATCH',
      field: 'layers',
    });
    await using runtime = await openedRuntime(model);
    await expect(withPrefixCache(model, { ...options, runtime, ddrBytes: 1 })).rejects.toMatchObject({
      field: 'ddrBytes',
    });
    await expect(withPrefixCache(model, { ...options, runtime: {} as never })).rejects.toMatchObject({
      field: 'runtime',
    });
    expect(layoutOf(model, 32)).toMatchObject({
      layers: 3,
      kvHeads: 2,
      headDim: 16,
      dtype: 'f32',
      blockTokens: 32,
    });
  });

  test('of one call', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const cached = await withPrefixCache(model, { weights: directory, runtime });
    await expect(generated(cached, prompt)).rejects.toMatchObject({ code: 'TKV_INPUT', field: 'tenant' });
    for (const [prefixCache, field] of [
      [{ tenent: 'a' }, 'prefixCache.tenent'],
      [{ tenant: 'a', extras: { 'transformers.model': 'x' } }, 'extras.transformers.model'],
      [{ tenant: 'a', extras: 7 }, 'extras'],
      [true, 'prefixCache'],
    ]) {
      await expect(generated(cached, prompt, { prefixCache })).rejects.toMatchObject({
        code: 'TKV_INPUT',
        field,
      });
    }
    expect(await generated(cached, prompt, { prefixCache: { tenant: 'a' } })).toEqual(
      await generated(model, prompt),
    );
  });
});

describe('calls that go without the cache', () => {
  test('say why, give what the model gives, and store nothing', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const turns: PrefixTurn[] = [];
    const report = (turn: PrefixTurn): void => void turns.push(turn);
    const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime, report });
    const two = new Tensor('int64', BigInt64Array.from([...prompt, ...prompt], BigInt), [2, 70]);
    const padded = onesTensor(70);
    padded.data[0] = 0n;
    const foreign = async (): Promise<object> => {
      const cache = new DynamicCache();
      await model.generate({
        inputs: idsTensor(prompt.slice(0, 40)),
        attention_mask: onesTensor(40),
        max_new_tokens: 1,
        past_key_values: cache,
      });
      return cache;
    };
    for (const [options, why] of [
      [{ inputs: two }, /input_ids has 2 sequences/],
      [{ attention_mask: padded }, /attention_mask hides tokens/],
      [{ position_ids: onesTensor(70) }, /position_ids is given/],
      [
        { past_key_values: foreign, attention_mask: onesTensor(70) },
        /holds tokens that the prefix cache has not seen/,
      ],
    ] as const) {
      const ready = async (): Promise<object> => {
        const past = 'past_key_values' in options ? { past_key_values: await options.past_key_values() } : {};
        return { ...options, ...past };
      };
      expect(await generated(cached, prompt, await ready())).toEqual(
        await generated(model, prompt, await ready()),
      );
      expect(turns.pop()).toMatchObject({ from: 'computed', cachedTokens: 0, savedBlocks: 0 });
      expect(cached.prefixCache.counters.savedBlocks).toBe(0);
      await generated(cached, prompt, await ready());
      expect(turns.pop()?.uncached).toMatch(why);
    }
    expect((await cached.prefixCache.restore(prompt)).cachedTokens).toBe(0);
    await expect(cached.generate({ inputs: 'text' as never })).rejects.toThrow(); // the error of the model itself
    expect(turns.pop()?.uncached).toBe(undefined);
  });

  test('a cache object of other tokens is emptied, and the answer is right', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const turns: PrefixTurn[] = [];
    const report = (turn: PrefixTurn): void => void turns.push(turn);
    const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime, report });
    const mine = new DynamicCache();
    await generated(cached, prompt, { past_key_values: mine });
    const changed = [...prompt.slice(0, 50), ...randomIds(next, 60)];
    const plain = await generated(model, changed);
    expect(await generated(cached, changed, { past_key_values: mine })).toEqual(plain);
    expect(turns.pop()?.uncached).toMatch(/emptied: ids does not match the cache object: token 50/);
    // a control: transformers.js alone would have gone on from the wrong tokens
    const wrong = new DynamicCache();
    await generated(model, prompt, { attention_mask: onesTensor(70), past_key_values: wrong });
    const asked = { attention_mask: onesTensor(110), past_key_values: wrong };
    expect(await generated(model, changed, asked)).not.toEqual(plain);
    // the same prompt once more: nothing would be left to compute
    const again = await generated(cached, plain, { past_key_values: mine });
    expect(again).toEqual(await generated(model, plain));
    expect(await generated(cached, plain, { past_key_values: mine })).toEqual(again);
    expect(turns.pop()?.uncached).toMatch(/emptied: ids has 118 tokens, and the cache object holds/);
    expect(await generated(cached, plain, { past_key_values: mine, prefixCache: { tenant: 'b' } })).toEqual(
      again,
    );
    expect(turns.pop()).toMatchObject({ from: 'computed', cachedTokens: 0 });
    const data = mine['past_key_values.2.key'].data as Float32Array<ArrayBuffer>;
    structuredClone(data.buffer, { transfer: [data.buffer] });
    const more = [...again, 5];
    expect(await generated(cached, more, { past_key_values: mine, prefixCache: { tenant: 'b' } })).toEqual(
      await generated(model, more),
    );
    expect(turns.pop()?.uncached).toMatch(/past_key_values.2.key'\] has a detached buffer/);
  });

  test('a cache that keeps a window is not stored', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    // a model that forgets its first tokens, as sliding windows do
    const windowed = {
      config: model.config,
      sessions: model.sessions,
      async generate(options: { past_key_values: InstanceType<typeof DynamicCache> }) {
        const result = await model.generate(options as never);
        const { past_key_values: cache } = options;
        for (const [name, tensor] of Object.entries(cache)) {
          cache[name] = tensor.slice(null, null, [-32, tensor.dims[2]], null);
        }
        return result;
      },
    };
    const turns: PrefixTurn[] = [];
    const report = (turn: PrefixTurn): void => void turns.push(turn);
    const cached = await withPrefixCache(windowed, { weights: directory, tenant: 'a', runtime, report });
    const plain = await generated(model, prompt);
    for (let i = 0; i < 2; i++) {
      expect(await generated(cached, prompt)).toEqual(plain);
      expect(turns.pop()).toMatchObject({
        from: 'computed',
        savedBlocks: 0,
        uncached: 'the cache object holds 32 tokens after 77 were computed, as sliding windows do',
      });
    }
  });

  test('a runtime that is closed costs no answer', async () => {
    const { model, directory } = decoder;
    const runtime = await openedRuntime(model);
    const turns: PrefixTurn[] = [];
    const lines: string[] = [];
    const cached = await withPrefixCache(model, {
      weights: directory,
      tenant: 'a',
      runtime,
      report: (turn) => void turns.push(turn),
      notice: (line) => void lines.push(line),
    });
    await generated(cached, prompt);
    await runtime.close();
    const longer = [...prompt, ...randomIds(next, 40)];
    expect(await generated(cached, longer)).toEqual(await generated(model, longer));
    expect(turns.pop()?.uncached).toMatch(/nothing was saved: .*closed/);
    expect(lines.join('\n')).toMatch(/tierkv\/transformers: nothing was saved/);
  });
});

describe('save', () => {
  test('refuses what is not the KV of these ids, and stores nothing of it', async () => {
    const { model, directory } = decoder;
    await using runtime = await openedRuntime(model);
    const mine = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime });
    const theirs = await withPrefixCache(other.model, { weights: other.directory, tenant: 'a', runtime });
    const { prefixCache } = mine;
    const cacheOf = async (): Promise<InstanceType<typeof DynamicCache>> => {
      const cache = new DynamicCache();
      await generated(model, prompt, { attention_mask: onesTensor(70), past_key_values: cache });
      return cache;
    };
    const all = await generated(model, prompt);
    const name = 'past_key_values.1.value';
    const made = async (tensor?: Tensor): Promise<object> => {
      const cache = await cacheOf();
      if (tensor === undefined) delete (cache as Record<string, unknown>)[name];
      else cache[name] = tensor;
      return cache;
    };
    const floats = (...dims: number[]): Tensor =>
      new Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b)), dims);
    const detached = floats(1, 2, 77, 16);
    const { buffer } = detached.data as Float32Array<ArrayBuffer>;
    structuredClone(buffer, { transfer: [buffer] });
    for (const [cache, ids, field] of [
      [await made(), all, `pastKeyValues.${name}`],
      [await made(floats(1, 2, 76, 16)), all, `pastKeyValues.${name}`],
      [await made(floats(1, 4, 77, 16)), all, `pastKeyValues.${name}`],
      [await made(floats(2, 77, 16)), all, `pastKeyValues.${name}`],
      [
        await made(new Tensor('int8', new Int8Array(2 * 77 * 16), [1, 2, 77, 16])),
        all,
        `pastKeyValues.${name}`,
      ],
      [await made(detached), all, `pastKeyValues.${name}`],
      [{ ...(await cacheOf()) }, all, 'pastKeyValues'],
      [undefined, all, 'pastKeyValues'],
      [await cacheOf(), prompt.slice(0, 60), 'ids'],
      [await cacheOf(), 'text', 'ids'],
      [await cacheOf(), [1, -1], 'ids[1]'],
      [await cacheOf(), [1.5], 'ids[0]'],
      [await cacheOf(), new Tensor('int64', new BigInt64Array(8), [2, 4]), 'ids'],
    ] as const) {
      const saved = prefixCache.save(ids, cache as never);
      await expect(saved).rejects.toMatchObject({ code: 'TKV_INPUT', field });
    }
    expect((await prefixCache.restore(all)).cachedTokens).toBe(0);

    // a control: the same, whole
    expect(await prefixCache.save(all, await cacheOf())).toEqual({ savedBlocks: 4, blocks: 4 });
    const { pastKeyValues, cachedTokens } = await prefixCache.restore(all);
    expect(cachedTokens).toBe(64);
    await expect(theirs.prefixCache.save(all, pastKeyValues)).rejects.toThrow(/belongs to another model/);
    await expect(prefixCache.save(all, pastKeyValues, { tenant: 'b' })).rejects.toMatchObject({
      field: 'tenant',
    });
    await expect(prefixCache.save([9, ...all.slice(1)], pastKeyValues)).rejects.toThrow(
      /token 0 is 9, and it holds/,
    );
    await expect(prefixCache.restore(all, { tenannt: 'b' } as never)).rejects.toMatchObject({
      field: 'tenannt',
    });
    expect((await prefixCache.restore(all, { tenant: 'b' })).cachedTokens).toBe(0);
  });

  test('takes f16 as Uint16Array and as Float16Array', async () => {
    const { model, directory } = await loadDecoder({ kvDtype: 'f16' });
    const all = await generated(model, prompt);
    for (const asWords of [false, true]) {
      await using runtime = await openedRuntime(model);
      const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', runtime });
      const cache = new DynamicCache();
      await generated(model, prompt, { attention_mask: onesTensor(70), past_key_values: cache });
      for (const [name, tensor] of Object.entries(cache)) {
        const { buffer, byteOffset, length } = tensor.data as Uint16Array;
        const words = new Uint16Array(buffer, byteOffset, length);
        const data = asWords ? words : new Float16Array(words.slice().buffer);
        Object.assign(cache, { [name]: { type: 'float16', dims: tensor.dims, location: 'cpu', data } });
      }
      expect(await cached.prefixCache.save(all, cache)).toEqual({ savedBlocks: 4, blocks: 4 });
      expect(await generated(cached, prompt)).toEqual(all);
      expect(cached.prefixCache.counters.restoredTokens).toBe(64);
    }
  });
});
