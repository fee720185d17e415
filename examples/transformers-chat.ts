/**
 * A chat on transformers.js whose second start answers from disk:
 *
 *     node examples/transformers-chat.ts             # makes a tiny model, asks, and prints what came from where
 *     node examples/transformers-chat.ts             # once more: the prompt is restored
 *     node examples/transformers-chat.ts --model DIRECTORY --dtype q4 --ask 'What is in the manual?'
 *
 * Blocks and the key lie in `--state` (.tierkv/transformers-chat). The tiny model has random weights: what it says has
 * no meaning. A real one is a directory with config.json, tokenizer.json and onnx/model.onnx.
 */

import fs from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { AutoModelForCausalLM, AutoTokenizer, env, TextStreamer } from '@huggingface/transformers';
import { type PrefixTurn, withPrefixCache } from '../src/adapters/transformers/index.ts'; // in your project: 'tierkv/transformers'
import { makeDecoder } from './tinyDecoder/make.ts';

const { values } = parseArgs({
  options: {
    state: { type: 'string', default: '.tierkv/transformers-chat' },
    model: { type: 'string' },
    dtype: { type: 'string', default: 'fp32' },
    tokens: { type: 'string', default: '24' },
    ask: { type: 'string', multiple: true },
  },
});
const asked = values.ask ?? [
  'How does the cache find my question again?',
  'And after the process has ended?',
];

/** A secret of this installation, made at the first start: blocks are named under it. */
function keptSecret(file: string): Uint8Array {
  if (!fs.existsSync(file)) {
    fs.writeFileSync(file, crypto.getRandomValues(new Uint8Array(32)), { mode: 0o600 });
  }
  return new Uint8Array(fs.readFileSync(file));
}

/** A long beginning that each chat has, as the instructions of an assistant are. */
const instructions = Array.from(
  { length: 40 },
  (_, i) => `Rule ${i + 1}: a block that was computed once is not computed again.`,
).join(' ');

const state = path.resolve(values.state);
const blocks = path.join(state, 'blocks');
fs.mkdirSync(blocks, { recursive: true });
const directory = path.resolve(values.model ?? path.join(state, 'tiny-decoder'));
if (values.model === undefined && !fs.existsSync(directory)) makeDecoder(directory);

env.allowRemoteModels = false; // this example reads local files only
env.localModelPath = ''; // and takes a path as it is
const model = await AutoModelForCausalLM.from_pretrained(directory, { dtype: values.dtype as 'fp32' });
const tokenizer = await AutoTokenizer.from_pretrained(directory);

let turn: PrefixTurn | undefined;
const chat = await withPrefixCache(model, {
  weights: directory,
  tenant: 'me', // one user; a server takes it from its own authentication
  secretKey: keptSecret(path.join(state, 'secret')),
  ddrBytes: 256 * 2 ** 20,
  nvme: { dir: blocks, bytes: 2 ** 30, allocation: 'extents' },
  report: (each) => {
    turn = each;
  },
  notice: console.error,
});

try {
  const messages = [{ role: 'system', content: instructions }];
  for (const content of asked) {
    messages.push({ role: 'user', content });
    const inputs = tokenizer.apply_chat_template(messages, {
      add_generation_prompt: true,
      return_dict: true,
    }) as {
      input_ids: { dims: number[] };
    };
    console.log(`you: ${content}`);
    const beganMs = performance.now();
    let firstMs: number | undefined;
    let answer = '';
    const streamer = new TextStreamer(tokenizer, {
      skip_prompt: true,
      token_callback_function: () => {
        firstMs ??= performance.now() - beganMs;
      },
      callback_function: (text: string) => {
        answer += text;
      },
    });
    await chat.generate({ ...inputs, max_new_tokens: Number(values.tokens), streamer });
    console.log(`model: ${JSON.stringify(answer)}`);
    console.log(
      `  ${turn?.cachedTokens} of ${turn?.promptTokens} prompt tokens ${turn?.from}, first token after ${firstMs?.toFixed(0)} ms`,
    );
    messages.push({ role: 'assistant', content: answer });
  }
} finally {
  await chat.prefixCache.close(); // what is in memory goes to the files
  await model.dispose();
}
