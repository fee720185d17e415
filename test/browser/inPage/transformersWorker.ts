/**
 * transformers.js with its prefix cache in a worker of a page, on WebGPU and on wasm: what is computed without the cache, what
 * with it, and what is found after a reload.
 */

import {
  AutoModelForCausalLM,
  DynamicCache,
  env,
  type PreTrainedModel,
  Tensor,
} from '@huggingface/transformers';
import {
  type CachedModel,
  layoutOf,
  type PrefixTurn,
  withPrefixCache,
} from '../../../src/adapters/browser/transformers.ts';
import type { Asked, Loaded, LoadOptions, RestoredBits } from './transformersLook.ts';

const onnx = env.backends.onnx as {
  readonly wasm: { numThreads: number; wasmPaths: { mjs: string; wasm: string } };
  readonly webgpu: { readonly device?: GPUDevice };
};
env.allowRemoteModels = false;
env.localModelPath = '';
Object.assign(env, { useBrowserCache: false, allowLocalModels: true });
onnx.wasm.numThreads = 1;
const part = 'ort-wasm-simd-threaded.asyncify';
onnx.wasm.wasmPaths = { mjs: new URL(`ort/${part}.mjs`, location.href).href, wasm: `ort/${part}.wasm` };

let model: PreTrainedModel;
let cached: CachedModel<PreTrainedModel>;
let last: PrefixTurn | undefined;
let notices: string[] = [];

async function load({ device, model: folder, hbm, files, revision }: LoadOptions): Promise<Loaded> {
  model = await AutoModelForCausalLM.from_pretrained(new URL(folder, location.href).pathname, {
    dtype: 'fp32',
    device,
    local_files_only: true,
  });
  const { blockBytes } = layoutOf(model);
  notices = [];
  cached = await withPrefixCache(model, {
    weights: folder,
    tenant: 'ann',
    secretKey: new Uint8Array(32).fill(9),
    ddrBytes: 64 * blockBytes,
    ...(hbm ? { hbmBytes: 48 * blockBytes } : {}),
    ...(files === undefined ? {} : { nvme: { dir: files, bytes: 256 * blockBytes, allocation: 'extents' } }),
    ...(revision === undefined ? {} : { revision }),
    liveCaches: 0,
    report: (turn) => {
      last = turn;
    },
    notice: (line) => void notices.push(line),
  });
  const { runtime, identity } = cached.prefixCache;
  return {
    tiers: [...runtime.stores.tiers.keys()],
    isShared: runtime.stores.hasDevice && runtime.device === onnx.webgpu.device,
    identity,
  };
}

const idsTensor = (ids: readonly number[]): Tensor =>
  new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]);
const maskTensor = (length: number): Tensor =>
  new Tensor('int64', new BigInt64Array(length).fill(1n), [1, length]);

async function generated(
  by: { generate(options: never): Promise<unknown> },
  ids: readonly number[],
  options: object,
): Promise<number[]> {
  const inputs = { inputs: idsTensor(ids), attention_mask: maskTensor(ids.length) };
  const asked = { ...inputs, max_new_tokens: 3, eos_token_id: null, ...options };
  const all = (await by.generate(asked as never)) as Tensor;
  return Array.from(all.data as BigInt64Array, Number);
}

async function ask(ids: readonly number[], tenant = 'ann', isCompared = true): Promise<Asked> {
  const plain = isCompared ? await generated(model, ids, {}) : [];
  const tokens = await generated(cached, ids, { prefixCache: { tenant } });
  return { tokens, plain, turn: last! };
}

interface Readable {
  readonly dims: readonly number[];
  readonly location: string;
  readonly ort_tensor: { getData(): Promise<Float32Array> };
}

const bitsOf = async (tensor: Readable): Promise<Uint32Array> => {
  const data = await tensor.ort_tensor.getData();
  return new Uint32Array(data.buffer, data.byteOffset, data.length);
};

/** The bits of restored tensors beside the bits of the same prompt, computed at once. */
async function restoredBits(ids: readonly number[]): Promise<RestoredBits> {
  const { pastKeyValues, cachedTokens, byTier } = await cached.prefixCache.restore(ids, { tenant: 'ann' });
  const entries = Object.entries(pastKeyValues as unknown as Record<string, Readable>);
  const locations = [...new Set(entries.map(([, { location }]) => location))];
  const computed = new DynamicCache();
  await generated(model, ids, { past_key_values: computed, max_new_tokens: 1 });
  let different = entries.length === 0 ? -1 : 0;
  for (const [name, tensor] of entries) {
    const [, heads, tokens, dim] = tensor.dims;
    const whole = computed[name] as unknown as Readable;
    const found = await bitsOf(tensor);
    const wanted = await bitsOf(whole);
    const length = whole.dims[2];
    for (let head = 0; head < heads; head++) {
      for (let i = 0; i < tokens * dim; i++) {
        if (found[head * tokens * dim + i] !== wanted[head * length * dim + i]) different++;
      }
    }
  }
  await pastKeyValues.dispose();
  await computed.dispose();
  return { cachedTokens, byTier, locations, different };
}

/** A control: what the model says where one restored tensor is overwritten. */
async function spoiled(ids: readonly number[]): Promise<readonly number[]> {
  const { pastKeyValues } = await cached.prefixCache.restore(ids, { tenant: 'ann' });
  const [, first] = Object.entries(pastKeyValues as unknown as Record<string, Tensor>)[1];
  const { gpuBuffer } = first.ort_tensor as unknown as { readonly gpuBuffer: GPUBuffer };
  onnx.webgpu.device!.queue.writeBuffer(gpuBuffer, 0, new Float32Array(gpuBuffer.size / 4).fill(3));
  return await generated(model, ids, { past_key_values: pastKeyValues });
}

/** @returns blocks that the files hold, and what a person was told */
async function close(): Promise<{ readonly saved: number; readonly notices: readonly string[] }> {
  const saved = await cached.prefixCache.persist();
  await cached.prefixCache.close();
  await model.dispose();
  return { saved, notices };
}

async function refused(weights: string): Promise<string> {
  return await withPrefixCache(model, { weights, secretKey: new Uint8Array(32), ddrBytes: 1 << 20 }).then(
    () => 'opened',
    ({ code, field, message }) => `${code} ${field} ${message}`,
  );
}

const calls: Readonly<Record<string, (...args: never[]) => Promise<unknown>>> = {
  load,
  ask,
  restoredBits,
  spoiled,
  close,
  refused,
};

addEventListener('message', async ({ data }: MessageEvent<{ id: number; call: string; args: never[] }>) => {
  const { id, call, args } = data;
  try {
    postMessage({ id, result: await calls[call](...args) });
  } catch (error) {
    const { code = '', message, stack } = error as { code?: string; message: string; stack?: string };
    postMessage({ id, problem: `${code} ${message} ${stack}` });
  }
});
