/**
 * `src/adapters/transformers/weights.ts` in a page: the content of ONNX files by their addresses, from where transformers.js
 * takes it itself, its cache first. Nothing is kept beside a file: each load of the page hashes what it reads.
 */

import type { EngineModule } from '../adapters/transformers/engine.ts';
import { decoderNames, fileSuffix, weightNames, weightsFault } from '../adapters/transformers/identity.ts';
import type { HashOptions } from '../adapters/transformers/weights.ts';
import { sha256 } from '../backends/file/sha256.ts';

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

/** What the engine would load from an address; undefined where there is nothing. */
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
 * Hashes of the content of a model's files, in order: of those named, or of those below an address with the dtype.
 * @throws TKV_CONFIG where one does not exist, or cannot be read
 */
export async function weightHashes(
  weights: string | readonly string[],
  { dtype, engine }: HashOptions,
): Promise<string[]> {
  const files: string[] = [];
  for (const name of weightNames(weights)) {
    if (/\.onnx(_data(_\d+)?)?$/.test(name)) files.push(name);
    else files.push(...(await filesBelow(name.replace(/\/$/, ''), fileSuffix(dtype), engine)));
  }
  const hashes: string[] = [];
  for (const file of files) hashes.push(await contentHash(file, engine));
  return hashes;
}

async function exists(address: string, engine: EngineModule): Promise<boolean> {
  const response = await responseOf(address, engine);
  await response?.body?.cancel();
  return response !== undefined;
}

async function filesBelow(address: string, suffix: string, engine: EngineModule): Promise<string[]> {
  for (const name of decoderNames) {
    const file = `${address}/onnx/${name}${suffix}.onnx`;
    if (!(await exists(file, engine))) continue;
    const files = [file];
    // the engine's names of parts: _data, _data_1, _data_2, ...
    for (let part = 0; ; part++) {
      const data = `${file}_data${part === 0 ? '' : `_${part}`}`;
      if (!(await exists(data, engine))) return files;
      files.push(data);
    }
  }
  const looked = decoderNames.map((name) => `onnx/${name}${suffix}.onnx`).join(', ');
  throw weightsFault(`names ${address}, which has none of ${looked}`, { path: address });
}

/**
 * A hash of a file's content: the SHA-256 of the SHA-256 of its parts and its length.
 * @throws TKV_CONFIG where the file cannot be read
 */
async function contentHash(file: string, engine: EngineModule): Promise<string> {
  const response = await responseOf(file, engine);
  if (response?.body == null) throw weightsFault(`names ${file}, which does not exist`, { path: file });
  const digests: Uint8Array[] = [];
  const part = new Uint8Array(PART_BYTES);
  let [filled, total] = [0, 0];
  const close = async (): Promise<void> => {
    digests.push(new Uint8Array(await crypto.subtle.digest('SHA-256', part.subarray(0, filled))));
    filled = 0;
  };
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      for (let at = 0; at < value.length; ) {
        const bytes = value.subarray(at, at + PART_BYTES - filled);
        part.set(bytes, filled);
        at += bytes.length;
        filled += bytes.length;
        total += bytes.length;
        if (filled === PART_BYTES) await close();
      }
    }
  } catch (cause) {
    throw weightsFault(`names ${file}, which cannot be read: ${(cause as Error).message}`, {
      path: file,
      cause,
    });
  }
  await close();
  const all = new Uint8Array(digests.length * 32 + 8);
  digests.forEach((digest, i) => {
    all.set(digest, 32 * i);
  });
  new DataView(all.buffer).setBigUint64(digests.length * 32, BigInt(total));
  return Array.from(sha256(all), (word) => word.toString(16).padStart(WORD_DIGITS, '0')).join('');
}
