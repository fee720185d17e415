/**
 * `src/adapters/transformers/weights.ts` in a page: the content of an ONNX file and of all that it names by their addresses,
 * from where transformers.js takes it itself, its cache first. Nothing is kept beside a file: each load of the page hashes
 * what it reads. A page has no room for a second session, so what the loaded model computes for a few tokens counts beside
 * the files, to the bit: whatever it was loaded from, it never finds the KV of another one.
 */

import { sha256 } from '../../backends/file/sha256.ts';
import { bytesOfEntries } from '../transformers/blockCopies.ts';
import { type EngineModule, engineDevice, entriesOf } from '../transformers/engine.ts';
import { decoderNames, fileSuffix, weightNames, weightsFault } from '../transformers/identity.ts';
import { layoutOfShape } from '../transformers/modelShape.ts';
import { locationParts, OnnxFileReader } from '../transformers/onnxFile.ts';
import type { WeightsOptions } from '../transformers/weights.ts';
import { probeIds, probeTokens } from '../transformers/witness.ts';

/** Bytes that are hashed at a time: the browser's own SHA-256 takes whole buffers. */
const PART_BYTES = 16 << 20;
/** Hexadecimal digits of a word. */
const WORD_DIGITS = 8;

interface EngineCacheStorage {
  match(address: string): Promise<unknown>;
}

interface EngineEnv {
  readonly fetch?: typeof fetch;
  readonly useBrowserCache?: boolean;
  readonly cacheKey?: string;
  readonly useCustomCache?: boolean;
  readonly customCache?: EngineCacheStorage | null;
}

/** The response that the engine would load from an address; undefined where there is nothing. */
async function responseOf(address: string, engine: EngineModule): Promise<Response | undefined> {
  const env = engine.env as EngineEnv;
  let cache: EngineCacheStorage | null | undefined;
  if (env.useCustomCache === true) cache = env.customCache;
  else if (env.useBrowserCache === true) {
    const { caches } = globalThis as {
      readonly caches?: { open(name: string): Promise<EngineCacheStorage> };
    };
    cache = await caches?.open(env.cacheKey ?? 'transformers-cache').catch(() => undefined);
  }
  const kept = await cache?.match(address);
  if (kept instanceof Response) return kept;
  const response = await (env.fetch ?? fetch)(address).catch((cause: unknown) => {
    throw weightsFault(`names ${address}, which cannot be fetched: ${(cause as Error).message}`, {
      path: address,
      cause,
    });
  });
  if (response.ok) return response;
  await response.body?.cancel();
  return undefined;
}

/**
 * Tells the weights of a model apart: hashes of the content of its files, in order, and of the model's outputs.
 * @throws TKV_CONFIG where a file does not exist, cannot be read or is not an ONNX file
 */
export async function weightsOf(
  weights: string | readonly string[],
  options: WeightsOptions,
): Promise<string[]> {
  const { engine, shape } = options;
  const hashes = new Map<string, string>();
  const add = async (address: string): Promise<readonly string[]> => {
    if (hashes.has(address)) return [];
    const { hash, data } = await contentOf(address, engine);
    hashes.set(address, hash);
    return data;
  };
  let hasGraph = false;
  for (const name of weightNames(weights)) {
    const isFile = isGraph(name) || /\.(onnx_data(_\d+)?|data|bin)$/.test(name);
    const file = isFile
      ? name
      : await graphBelow(name.replace(/\/$/, ''), shape.session.config?.dtype, engine);
    hasGraph ||= isGraph(file);
    const folder = file.slice(0, file.lastIndexOf('/') + 1);
    for (const location of await add(file)) {
      await add(`${folder}${locationParts(location).map(encodeURIComponent).join('/')}`);
    }
  }
  if (!hasGraph) throw weightsFault('names no file that ends in .onnx');
  return [...hashes.values(), await computedBits(options)];
}

/** A hash of the KV that the loaded model computes for a few tokens. */
async function computedBits({ model, shape, engine }: WeightsOptions): Promise<string> {
  const cache = new engine.DynamicCache();
  try {
    const tensor = (data: BigInt64Array): unknown =>
      new engine.Tensor('int64' as never, data as never, [1, probeTokens]);
    await model.generate({
      inputs: tensor(probeIds(model)),
      attention_mask: tensor(new BigInt64Array(probeTokens).fill(1n)),
      max_new_tokens: 1,
      do_sample: false,
      past_key_values: cache,
    } as never);
    const layout = layoutOfShape(shape, probeTokens);
    const device = await engineDevice(engine);
    const layers = await bytesOfEntries(shape, layout, entriesOf(cache), probeTokens, device);
    const digests: Uint8Array[] = [];
    for (const bytes of layers.flatMap(({ key, value }) => [key, value])) digests.push(await digestOf(bytes));
    return hashOf(digests, layers.length);
  } finally {
    await cache.dispose();
  }
}

function isGraph(address: string): boolean {
  return address.endsWith('.onnx');
}

async function exists(address: string, engine: EngineModule): Promise<boolean> {
  const response = await responseOf(address, engine);
  await response?.body?.cancel();
  return response !== undefined;
}

async function graphBelow(address: string, dtype: string | undefined, engine: EngineModule): Promise<string> {
  const suffix = fileSuffix(dtype);
  for (const name of decoderNames) {
    const file = `${address}/onnx/${name}${suffix}.onnx`;
    if (await exists(file, engine)) return file;
  }
  const looked = decoderNames.map((name) => `onnx/${name}${suffix}.onnx`).join(', ');
  throw weightsFault(`names ${address}, which has none of ${looked}`, { path: address });
}

/**
 * A hash of a file's content, the SHA-256 of the SHA-256 of its parts and its length, and what an ONNX file names.
 * @throws TKV_CONFIG where the file cannot be read, or is not an ONNX file
 */
async function contentOf(
  file: string,
  engine: EngineModule,
): Promise<{ readonly hash: string; readonly data: readonly string[] }> {
  const response = await responseOf(file, engine);
  if (response?.body == null) throw weightsFault(`names ${file}, which does not exist`, { path: file });
  const digests: Uint8Array[] = [];
  const part = new Uint8Array(PART_BYTES);
  let [filled, total] = [0, 0];
  const close = async (): Promise<void> => {
    digests.push(await digestOf(part.subarray(0, filled)));
    filled = 0;
  };
  const graph = isGraph(file) ? new OnnxFileReader() : undefined;
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      graph?.push(value);
      for (let at = 0; at < value.length; ) {
        const bytes = value.subarray(at, at + PART_BYTES - filled);
        part.set(bytes, filled);
        at += bytes.length;
        filled += bytes.length;
        total += bytes.length;
        if (filled === PART_BYTES) await close();
      }
    }
    const data = graph?.finish() ?? [];
    for (const location of data) locationParts(location);
    await close();
    return { hash: hashOf(digests, total), data };
  } catch (cause) {
    throw weightsFault(`names ${file}, which cannot be read: ${(cause as Error).message}`, {
      path: file,
      cause,
    });
  }
}

async function digestOf(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>));
}

/** Hash of the digests of parts, and of their total length. */
function hashOf(digests: readonly Uint8Array[], total: number): string {
  const all = new Uint8Array(digests.length * 32 + 8);
  digests.forEach((digest, i) => {
    all.set(digest, 32 * i);
  });
  new DataView(all.buffer).setBigUint64(digests.length * 32, BigInt(total));
  return Array.from(sha256(all), (word) => word.toString(16).padStart(WORD_DIGITS, '0')).join('');
}
