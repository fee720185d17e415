/**
 * Makes the tiny model that comes with the repository, in the files of a real checkpoint:
 *
 *     node examples/server/tinyModel/make.ts [DIRECTORY]
 *
 * Its weights are random numbers of a fixed seed, so what it says has no meaning. But it is a whole Llama
 * decoder: each next token depends on the KV of all tokens before it, so that one wrong byte shows. The same
 * bytes come out on every machine: integers and f32 products only.
 */

import fs from 'node:fs';
import nodePath from 'node:path';
import { fileURLToPath } from 'node:url';
import { type ModelConfig, tensorShapes, toBf16 } from '../engine/checkpoint/index.ts';
import { byteTokens, learnMerges } from './byteTokenizer.ts';

/** Where the model of the repository lies. */
export const tinyModelDirectory: string = fileURLToPath(new URL('./files', import.meta.url));

const special = ['<|endoftext|>', '<|im_start|>', '<|im_end|>'];
const vocabulary = 512;
const contextTokens = 8192;

const tiny: ModelConfig = {
  layers: 3,
  hidden: 128,
  heads: 4,
  kvHeads: 2,
  headDim: 32,
  ffn: 192,
  vocabulary,
  normEpsilon: 1e-5,
  ropeBase: 10_000,
  contextTokens,
  tied: true,
  window: 0,
  endTokens: [0, 2],
};

/** Text of our own, from which the tokenizer learns its pairs. */
const sampleText = `The cache keeps the keys and the values of each token. A block holds the tokens of one
part of a prompt, and a table says where each block lies. When the device has no room, the block that was used
last leaves it, first for the memory of the host and then for the disk. When another request begins with the
same tokens, the block comes back, and nothing has to be computed again. What comes back is compared with what
was written. A server that keeps this promise gives the same answer with the cache and without it. Hello! How
are you today? I am here to help you with your questions. Tell me a story about the sea and the mountain. Once
upon a time there lived an old captain, whose little ship knew every island between the harbour and the northern
light. Summer after summer they carried letters, apples, books and wonderful instruments.`;

/** What a bench may have otherwise than the model of the repository. */
export type TinyShape = Partial<Pick<ModelConfig, 'layers' | 'heads' | 'kvHeads' | 'ffn' | 'contextTokens'>>;

export function makeTinyModel(directory: string, shape: TinyShape = {}): void {
  const config: ModelConfig = { ...tiny, ...shape };
  fs.mkdirSync(directory, { recursive: true });
  const write = (name: string, json: object): void =>
    fs.writeFileSync(nodePath.join(directory, name), `${JSON.stringify(json, null, 1)}\n`);
  write('config.json', configJson(config));
  write('tokenizer.json', tokenizerJson());
  write('tokenizer_config.json', {
    tokenizer_class: 'PreTrainedTokenizerFast',
    eos_token: '<|im_end|>',
    clean_up_tokenization_spaces: false,
    chat_template:
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + " +
      "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}" +
      '{% endif %}',
  });
  fs.writeFileSync(nodePath.join(directory, 'model.safetensors'), safetensors(config));
}

function configJson(config: ModelConfig): object {
  return {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    hidden_act: 'silu',
    hidden_size: config.hidden,
    intermediate_size: config.ffn,
    num_hidden_layers: config.layers,
    num_attention_heads: config.heads,
    num_key_value_heads: config.kvHeads,
    head_dim: config.headDim,
    max_position_embeddings: config.contextTokens,
    rms_norm_eps: config.normEpsilon,
    rope_theta: config.ropeBase,
    tie_word_embeddings: config.tied,
    vocab_size: config.vocabulary,
    eos_token_id: config.endTokens,
    torch_dtype: 'bfloat16',
  };
}

function tokenizerJson(): object {
  const merges = learnMerges(sampleText, vocabulary - special.length - 256);
  const tokens = [...special, ...byteTokens(), ...merges.map(([left, right]) => left + right)];
  return {
    version: '1.0',
    added_tokens: special.map((content, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: merges.map(([left, right]) => `${left} ${right}`),
    },
  };
}

/** How large the elements of a tensor are, so that attention, MLP and embedding all have a say. */
function scaleOf(name: string, shape: readonly number[]): number {
  if (name.includes('embed_tokens')) return 0.2;
  const fanIn = shape[1] ?? 1;
  const gain = /[qk]_proj/.test(name) ? 1.5 : 1.2;
  return gain / Math.sqrt(fanIn);
}

function safetensors(config: ModelConfig): Uint8Array {
  const header: Record<string, object> = {};
  const parts: Uint8Array[] = [];
  let at = 0;
  let state = 0x7e57c0de;
  /** The sum of four uniform numbers, close to normal, with variance 1. */
  const bell = (): number => {
    let sum = 0;
    for (let i = 0; i < 4; i++) {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      sum += (state >>> 8) / 2 ** 24;
    }
    return (sum - 2) * Math.sqrt(3);
  };
  for (const [name, shape] of tensorShapes(config)) {
    const elements = shape.reduce((product, size) => product * size, 1);
    const isNorm = shape.length === 1;
    const scale = scaleOf(name, shape);
    const values = Float32Array.from({ length: elements }, () =>
      isNorm ? 1 + 0.1 * bell() : scale * bell(),
    );
    const bytes = new Uint8Array(toBf16(values).buffer);
    header[name] = { dtype: 'BF16', shape, data_offsets: [at, at + bytes.length] };
    parts.push(bytes);
    at += bytes.length;
  }
  const text = JSON.stringify(header);
  const head = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  return Buffer.concat([length, head, ...parts]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) makeTinyModel(process.argv[2] ?? tinyModelDirectory);
