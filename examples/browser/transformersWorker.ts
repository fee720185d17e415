/**
 * transformers.js in a worker of a page, with its prefixes in the tiers. On WebGPU keys and values lie in buffers of the GPU,
 * and so do the blocks of the top tier: they go from one to the other by kernels. On wasm host memory is the top tier.
 */

import {
  AutoModelForCausalLM,
  AutoTokenizer,
  env,
  type PreTrainedModel,
  type PreTrainedTokenizer,
  Tensor,
} from '@huggingface/transformers';
import {
  type CachedModel,
  layoutOf,
  type PrefixTurn,
  withPrefixCache,
} from '../../src/adapters/browser/transformers.ts'; // in your project: 'tierkv/transformers'
import type { ChatQuestion, ChatStart, FromChat } from './chatWorker.ts';

// everything is served beside the page
env.allowRemoteModels = false;
env.localModelPath = '';
Object.assign(env, { allowLocalModels: true, useBrowserCache: false });
const { wasm } = env.backends.onnx as { wasm: { numThreads: number; wasmPaths: object } };
const part = 'ort-wasm-simd-threaded.asyncify';
wasm.wasmPaths = { mjs: new URL(`ort/${part}.mjs`, location.href).href, wasm: `ort/${part}.wasm` };
wasm.numThreads = 1;

const send = (message: FromChat): void => postMessage(message);

interface Chat {
  readonly model: CachedModel<PreTrainedModel>;
  readonly tokenizer: PreTrainedTokenizer;
}

let turn: PrefixTurn | undefined;

async function open({ secretKey, device: wished }: ChatStart): Promise<Chat> {
  const device = wished ?? ('gpu' in navigator ? 'webgpu' : 'wasm');
  const folder = new URL('decoder', location.href).pathname;
  const options = { dtype: 'fp32', device, local_files_only: true };
  const tokenizer = await AutoTokenizer.from_pretrained(folder, options);
  const plain = await AutoModelForCausalLM.from_pretrained(folder, options);
  const { blockBytes } = layoutOf(plain);
  const notices: string[] = [];
  const model = await withPrefixCache(plain, {
    weights: folder,
    tenant: 'page',
    secretKey,
    ...(device === 'webgpu' ? { hbmBytes: 256 * blockBytes } : {}),
    ddrBytes: 256 * blockBytes,
    nvme: { dir: 'tierkv-transformers', bytes: 2048 * blockBytes, allocation: 'extents' },
    filesElse: 'without',
    report: (each) => {
      turn = each;
    },
    notice: (line) => void notices.push(line),
  });
  // the first run of a session compiles its kernels
  const { input_ids: inputs, attention_mask } = tokenizer('One. Two. Three.');
  await plain.generate({ inputs, attention_mask, max_new_tokens: 2, eos_token_id: null });
  const { stores, manager } = model.prefixCache.runtime;
  const tiers = [...stores.tiers.keys()];
  const files = tiers.indexOf('nvme');
  const restored = files === -1 ? 0 : manager.inspect.usage(files).slots.ready;
  const where = stores.hasDevice ? `${stores.hbm.adapter.name}, shared with onnxruntime` : device;
  send({ ready: { tiers, device: where, restored, notices } });
  return { model, tokenizer };
}

async function answer({ model, tokenizer }: Chat, { id, text, maxTokens }: ChatQuestion): Promise<void> {
  const { input_ids, attention_mask } = tokenizer(text);
  const beganMs = performance.now();
  let firstTokenMs: number | undefined;
  const tokens: number[] = [];
  let isPrompt = true;
  const streamer = {
    put([ids]: bigint[][]): void {
      // the prompt is put first
      if (isPrompt) {
        isPrompt = false;
        return;
      }
      firstTokenMs ??= performance.now() - beganMs;
      tokens.push(...ids.map(Number));
      const piece = tokenizer.decode(new Tensor('int64', BigInt64Array.from(ids), [ids.length]));
      send({ id, piece });
    },
    end(): void {},
  };
  await model.generate({
    inputs: input_ids,
    attention_mask,
    max_new_tokens: maxTokens,
    eos_token_id: null,
    streamer,
  });
  const { runtime } = model.prefixCache;
  const { promptTokens, cachedTokens, byTier, from } = turn!;
  const found = Object.fromEntries([...runtime.stores.tiers.keys()].map((tier, i) => [tier, byTier[i] ?? 0]));
  send({
    id,
    end: {
      promptTokens,
      cachedTokens,
      // a cache object that goes on lies on the device
      found: from === 'live' ? { hbm: cachedTokens / model.prefixCache.layout.blockTokens } : found,
      firstTokenMs: firstTokenMs ?? 0,
      tokens,
      saved: await runtime.save({ whenFull: 'replace' }).catch((error: unknown) => String(error)),
    },
  });
}

let chat: Promise<Chat> | undefined;

addEventListener('message', async ({ data }: MessageEvent<ChatStart | ChatQuestion>) => {
  try {
    if ('secretKey' in data) await (chat = open(data));
    else await answer(await chat!, data);
  } catch (error) {
    const failed = error instanceof Error ? error.message : String(error);
    send('id' in data ? { id: data.id, failed } : { failed });
  }
});
