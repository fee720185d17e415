/**
 * A step counts only when the device took all its commands and its numbers are finite: otherwise its requests
 * end as errors, or are computed again, and nothing of it is found by others.
 */

import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import {
  openCheckpoint,
  readModelConfig,
  tensorShapes,
} from '../../../examples/server/engine/checkpoint/index.ts';
import {
  type Answer,
  Engine,
  type GenerationRequest,
  sampleToken,
} from '../../../examples/server/engine/index.ts';
import { Decoder, stepNeeds } from '../../../examples/server/engine/model/decoder.ts';
import {
  type BufferLimits,
  DeviceBuffers,
  requireWithin,
} from '../../../examples/server/engine/model/deviceBuffers.ts';
import { weightNeeds } from '../../../examples/server/engine/model/weights.ts';
import { tinyModelDirectory } from '../../../examples/server/tinyModel/make.ts';
import { openDevice } from '../../../src/backends/webgpu/adapter.ts';
import { kvLayout } from '../../../src/index.ts';
import { sharedDevice } from '../../sharedDevice.ts';
import { blockBytes, LiveServer, model, removeStateDirectories } from './liveServer.ts';
import { setWeight, tinyCopy, untiedCopy } from './tinyCopy.ts';

afterAll(removeStateDirectories);
afterEach(() => vi.restoreAllMocks());

const NAN = 0x7fc0;
const INFINITY = 0x7f80;
const BELOW = 0xff80; // -Infinity

/** Token 7 stands in the prompt, in its first block. */
const prompt = Array.from({ length: 40 }, (_, i) => (i === 5 ? 7 : 20 + i));
const without = Array.from({ length: 40 }, (_, i) => 100 + i);
const request = (tokens: readonly number[], maxTokens = 6): GenerationRequest => ({
  prompt: tokens,
  tenant: 'a',
  maxTokens,
  sampling: { temperature: 0, topK: 0, topP: 1, seed: 0 },
  stop: [],
  ignoreEnd: true,
});

async function engineOn(directory: string, errors: unknown[] = [], stepTokens = 16): Promise<Engine> {
  return Engine.open({
    directory,
    cache: { secretKey: new Uint8Array(32), hbmBytes: 64 * blockBytes, device: sharedDevice },
    stepTokens,
    onError: (error) => errors.push(error),
  });
}

const hits = (engine: Engine): number => engine.cache.kv.metrics().counters['hits.hbm'];

describe('a weight that is not finite', () => {
  it.each([
    ['model.norm.weight', 3, NAN, 64],
    ['model.norm.weight', 3, INFINITY, 64],
    ['model.layers.0.self_attn.q_proj.weight', 11, NAN],
    ['model.layers.0.self_attn.k_proj.weight', 11, INFINITY],
    ['model.layers.2.self_attn.k_proj.weight', 0, BELOW],
    ['model.layers.1.self_attn.v_proj.weight', 129, NAN],
    ['model.layers.2.self_attn.o_proj.weight', 7, BELOW],
    ['model.layers.1.mlp.down_proj.weight', 5, INFINITY],
    ['model.layers.0.input_layernorm.weight', 100, NAN],
  ])(
    '%s[%i] = %i: each request ends as an error, and no block of it is found',
    async (name, index, bits, stepTokens = 16) => {
      const directory = tinyCopy();
      setWeight(directory, name, index, bits);
      const errors: unknown[] = [];
      const engine = await engineOn(directory, errors, stepTokens);
      for (let round = 0; round < 2; round++) {
        const answer = engine.submit(request(prompt));
        expect(await answer.text()).toBe('');
        expect(answer.finish).toBe('error');
        expect(answer.failure).toMatchObject({ code: 'not_finite', isPassing: false });
        expect(answer.tokens).toEqual([]);
      }
      await engine.cache.kv.idle();
      expect(hits(engine)).toBe(0);
      expect(engine.cache.kv.metrics().gauges['cachedBytes.hbm']).toBe(0);
      expect(errors).toHaveLength(2);
      engine.cache.scheduler.checkIntegrity();
      await engine.close();
    },
  );

  it('ends the requests that it touches: others of the same steps get what they get alone', async () => {
    const directory = untiedCopy();
    const alone = await engineOn(directory, [], 64);
    const expected = alone.submit(request(without, 12));
    await expected.text();
    await alone.close();
    setWeight(directory, 'model.embed_tokens.weight', 7 * 128 + 3, NAN);
    const engine = await engineOn(directory, [], 64);
    const answers = [prompt, without, prompt].map((tokens) => engine.submit(request(tokens, 12)));
    await Promise.all(answers.map((answer) => answer.text()));
    expect(answers.map(({ finish }) => finish)).toEqual(['error', 'length', 'error']);
    expect(answers[1].tokens).toEqual(expected.tokens);
    expect(answers[0].failure?.message).toMatch(/at token 5 of this request/);
    await engine.close();
  });

  it('is an error of the API, whole and streamed, and no 200 with an end', async () => {
    const directory = tinyCopy();
    setWeight(directory, 'model.norm.weight', 0, NAN);
    await using server = await LiveServer.start({ directory, hbmBytes: 64 * blockBytes, ddrBytes: 0 });
    const body = { model, prompt, max_tokens: 4 };
    const whole = await server.post('/v1/completions', JSON.stringify(body));
    expect(whole.status).toBe(500);
    expect(await whole.json()).toMatchObject({ error: { type: 'server_error', code: 'not_finite' } });
    const stream = await server.post('/v1/completions', JSON.stringify({ ...body, stream: true }));
    const text = await stream.text();
    expect(text).toMatch(/"code":"not_finite"/);
    expect(text).not.toMatch(/\[DONE\]|finish_reason":"/);
    expect(server.lines.filter((line) => /NaN or an infinity/.test(line))).toHaveLength(2);
  });
});

describe('a token is drawn', () => {
  const options = { topK: 0, topP: 1, seed: 1 };
  it.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    'from logits that are finite, and never with a %d among them',
    (value) => {
      for (const temperature of [0, 1]) {
        for (const at of [0, 1, 3]) {
          const logits = Float32Array.of(1, 2, 3, 4);
          logits[at] = value;
          expect(() => sampleToken(logits, { ...options, temperature }, 0)).toThrow(/NaN or an infinity/);
        }
      }
    },
  );
});

describe('an error of the device in the step', () => {
  it.each(['validation', 'out-of-memory', 'internal'] as const)(
    'of the kind %s: its requests end as errors, nothing of it is found, and the next are served',
    async (kind) => {
      const errors: unknown[] = [];
      const engine = await engineOn(tinyModelDirectory, errors, 64);
      const { device } = engine.cache.kv;
      const right = engine.submit(request(without));
      await right.text();
      await engine.cache.kv.idle();
      const before = hits(engine);
      const cached = engine.cache.kv.metrics().gauges['cachedBytes.hbm'];
      const filters: string[] = [];
      const push = device.pushErrorScope.bind(device);
      const pop = device.popErrorScope.bind(device);
      let isFailing = true;
      vi.spyOn(device, 'pushErrorScope').mockImplementation((filter) => {
        filters.push(filter);
        return push(filter);
      });
      vi.spyOn(device, 'popErrorScope').mockImplementation(async () => {
        const filter = filters.pop();
        const error = await pop();
        if (filter !== kind || !isFailing) return error;
        isFailing = false;
        return { message: 'as the test wants it' } as GPUError;
      });
      const answer = engine.submit(request(prompt));
      await answer.text();
      expect(answer.finish).toBe('error');
      expect(answer.failure).toMatchObject({ code: 'device', isPassing: true });
      expect(String(errors[0])).toMatch(/refused a step \(as the test wants it\)/);
      await engine.cache.kv.idle();
      expect(engine.cache.kv.metrics().gauges['cachedBytes.hbm']).toBe(cached);
      expect(hits(engine)).toBe(before);
      vi.restoreAllMocks();
      const again = engine.submit(request(without));
      await again.text();
      expect(again.tokens).toEqual(right.tokens);
      expect((await textOf(engine, prompt)).finish).toBe('length');
      await engine.close();
    },
  );

  it('is one that WebGPU reports, too: a copy out of bounds', async () => {
    const engine = await engineOn(tinyModelDirectory, [], 64);
    const { device } = engine.cache.kv;
    const create = device.createCommandEncoder.bind(device);
    const small = device.createBuffer({ size: 16, usage: 0x4 });
    let isFirst = true;
    vi.spyOn(device, 'createCommandEncoder').mockImplementation((descriptor) => {
      const encoder = create(descriptor);
      if (descriptor?.label !== 'step' || !isFirst) return encoder;
      isFirst = false;
      encoder.copyBufferToBuffer(small, 0, small, 8, 64);
      return encoder;
    });
    const answer = await textOf(engine, prompt);
    expect(answer.failure?.code).toBe('device');
    expect(answer.tokens).toEqual([]);
    await engine.cache.kv.idle();
    expect(engine.cache.kv.metrics().gauges['cachedBytes.hbm']).toBe(0);
    await engine.close();
  });
});

async function textOf(engine: Engine, tokens: readonly number[]): Promise<Answer> {
  const answer = engine.submit(request(tokens));
  await answer.text();
  return answer;
}

describe('a model or a setting that the device cannot hold', () => {
  const config = readModelConfig(join(tinyModelDirectory, 'config.json'));
  const limits = { rows: 256, samples: 64, entries: 4096, contextTokens: 8192 };
  const needs = [...weightNeeds({ ...config, tied: false }), ...stepNeeds(config, limits)];
  const roomy: BufferLimits = { maxBufferSize: 2 ** 30, maxStorageBufferBindingSize: 2 ** 30 };

  it.each(needs)('is refused for $label by the limit that is too low, with the bytes of both', (need) => {
    expect(() => requireWithin(roomy, [need])).not.toThrow();
    const low = need.bytes - 1;
    const inBuffer = { ...roomy, maxBufferSize: low };
    expect(() => requireWithin(inBuffer, [need])).toThrow(`maxBufferSize of this device is ${low}`);
    const inBinding = { ...roomy, maxStorageBufferBindingSize: low };
    const refusal = `${need.field}: ${need.what} ${need.bytes} bytes, and maxStorageBufferBindingSize of`;
    if (need.isBound) expect(() => requireWithin(inBinding, [need])).toThrow(refusal);
    else expect(() => requireWithin(inBinding, [need])).not.toThrow();
  });

  it('is refused for each tensor of the model by its name', () => {
    const named = needs.map(({ what }) => what).join(' ');
    for (const name of tensorShapes({ ...config, tied: false }).keys()) expect(named).toContain(name);
  });

  it('is refused before anything is made on the device', async () => {
    await using live = await openDevice();
    const checkpoint = openCheckpoint(tinyModelDirectory);
    const made = vi.spyOn(live.device, 'createBuffer');
    const device = new Proxy(live.device, {
      get: (target, name) => {
        if (name === 'limits') return { maxBufferSize: 2 ** 28, maxStorageBufferBindingSize: 100_000 };
        const value = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    const on = { device, waitFor: <T>(start: () => Promise<T>): Promise<T> => live.waitFor(start) };
    const layout = kvLayout({ layers: 3, kvHeads: 2, headDim: 32, dtype: 'f32', blockTokens: 16 });
    const opening = Decoder.open(on, checkpoint, layout, [], limits);
    await expect(opening).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'model.embed_tokens.weight' });
    expect(made).not.toHaveBeenCalled();
    checkpoint.tensors.close();
  });

  it('is refused where the device does not give a buffer, by its name', async () => {
    await using live = await openDevice();
    const buffers = new DeviceBuffers(live.device, (start) => live.waitFor(start));
    buffers.make('small', 64, 0x80);
    buffers.make('gate, up 7', live.device.limits.maxBufferSize + 4, 0x80);
    await expect(buffers.given()).rejects.toMatchObject({ code: 'TKV_DEVICE', field: 'gate, up 7' });
  });
});
