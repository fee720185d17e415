/**
 * The example server's engine in a worker of a page: tiny model, kernels on the browser's WebGPU, KV in GPU memory, host
 * memory and the private files of the origin. What a page said before it was reloaded is found in the files.
 */

import { TierKVError } from '../../src/index.ts';
import { Engine, type EngineOptions } from '../server/engine/index.ts';
import { fetchFiles } from './pageFiles.ts';

// the engine's hash of a model is written for Node
Object.assign(globalThis, {
  Buffer: {
    from: (text: string) => new TextEncoder().encode(text),
    byteLength: (text: string) => new TextEncoder().encode(text).length,
  },
});

const model = ['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'];
const shaders = ['embed', 'finite', 'matmul', 'rmsNorm', 'rope', 'swiglu'];

export interface ChatQuestion {
  readonly id: number;
  readonly text: string;
  readonly maxTokens: number;
}

export interface ChatStart {
  readonly secretKey: Uint8Array;
  /** From the page's address, where it says one. */
  readonly device: string | null;
}

export interface ChatEnd {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Blocks that were found, by the name of their tier. */
  readonly found: Readonly<Record<string, number>>;
  readonly firstTokenMs: number;
  readonly tokens: readonly number[];
  /** Blocks that the files hold now; 0 without files. */
  /** Blocks that the files hold, or why not all are saved. */
  readonly saved: number | string;
}

export type FromChat =
  | {
      readonly ready: {
        readonly tiers: readonly string[];
        readonly device: string;
        readonly restored: number;
        readonly notices: readonly string[];
      };
    }
  | { readonly failed: string }
  | { readonly id: number; readonly piece: string }
  | { readonly id: number; readonly end: ChatEnd }
  | { readonly id: number; readonly failed: string };

const send = (message: FromChat): void => postMessage(message);
const notices: string[] = [];

async function openEngine(secretKey: Uint8Array): Promise<Engine> {
  await fetchFiles([
    ...model.map((name) => `model/${name}`),
    ...shaders.map((name) => `shaders/${name}.wgsl`),
  ]);
  const notice = (line: string): void => void notices.push(line);
  const cache = { secretKey, hbmBytes: 8 << 20, ddrBytes: 16 << 20, notice };
  const options = { directory: 'model', maxSequences: 2, stepTokens: 64 } satisfies Partial<EngineOptions>;
  const nvme = { dir: 'tierkv-chat', bytes: 64 << 20, allocation: 'extents' } as const;
  try {
    return await Engine.open({ ...options, cache: { ...cache, nvme } });
  } catch (error) {
    if (!(error instanceof TierKVError) || !['TKV_LOCKED', 'TKV_IO'].includes(error.code)) throw error;
    notice(`Without files: ${error.message}`);
    return await Engine.open({ ...options, cache });
  }
}

async function answer(engine: Engine, { id, text, maxTokens }: ChatQuestion): Promise<void> {
  const { kv } = engine.cache;
  const { manager } = kv;
  const tiers = [...kv.stores.tiers.keys()];
  const before = [...manager.inspect.counters.hits];
  const answered = engine.submit({
    prompt: engine.tokenizer.encode(text, true),
    tenant: 'page',
    maxTokens,
    sampling: { temperature: 0, topK: 0, topP: 1, seed: 0 },
    stop: [],
    ignoreEnd: true,
  });
  for await (const piece of answered) send({ id, piece });
  if (answered.failure !== undefined) throw new Error(answered.failure.message);
  const found = Object.fromEntries(
    tiers.map((tier, i) => [tier, manager.inspect.counters.hits[i] - before[i]]),
  );
  const { arrivedMs, firstTokenMs } = answered.times;
  send({
    id,
    end: {
      promptTokens: answered.promptTokens,
      cachedTokens: answered.cachedTokens,
      found,
      firstTokenMs: firstTokenMs - arrivedMs,
      tokens: answered.tokens,
      saved: await kv.save({ whenFull: 'replace' }).catch((error: unknown) => String(error)),
    },
  });
}

let engine: Promise<Engine> | undefined;

addEventListener('message', async ({ data }: MessageEvent<ChatStart | ChatQuestion>) => {
  try {
    if ('secretKey' in data) {
      engine = openEngine(data.secretKey);
      const { kv } = (await engine).cache;
      const tiers = [...kv.stores.tiers.keys()];
      const position = tiers.indexOf('nvme');
      const restored = position === -1 ? 0 : kv.manager.inspect.usage(position).slots.ready;
      send({ ready: { tiers, device: kv.stores.hbm.adapter.name, restored, notices } });
    } else await answer(await engine!, data);
  } catch (error) {
    const failed = error instanceof Error ? error.message : String(error);
    send('id' in data ? { id: data.id, failed } : { failed });
  }
});
