/**
 * A prompt on node-llama-cpp whose second start goes on from disk, by `tierkv/node-llama-cpp`.
 *
 *     npm install --no-save node-llama-cpp
 *     node examples/node-llama-cpp.ts             # makes a tiny model, asks, and prints what came from where
 *     node examples/node-llama-cpp.ts             # once more: the document is loaded
 *     node examples/node-llama-cpp.ts --model model.gguf --ask 'What is in the manual?'
 *
 * Blocks and the key lie in `--state` (.tierkv/node-llama-cpp), in a folder for each model. The tiny model has random weights: its
 * words have no meaning. `--package DIRECTORY` takes the package from the `node_modules` of that directory.
 */

import { createHash, randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { LlamaPrefixes, type LlamaPrefixOptions } from '../src/adapters/llama/index.ts'; // in your project: 'tierkv/node-llama-cpp'
import { makeGguf } from './tinyDecoder/gguf.ts';

const { values } = parseArgs({
  options: {
    state: { type: 'string', default: '.tierkv/node-llama-cpp' },
    model: { type: 'string' },
    package: { type: 'string', default: '.' },
    ask: { type: 'string', default: 'What does the document say about tiers?' },
    tokens: { type: 'string', default: '16' },
    threads: { type: 'string' },
  },
});
const packageFolder = path.resolve(values.package, 'node_modules', 'node-llama-cpp');
if (!fs.existsSync(packageFolder)) {
  console.error('This example needs a package that is not installed: npm install --no-save node-llama-cpp');
  process.exit(2);
}
// in your project: import { getLlama } from 'node-llama-cpp'
const entry = pathToFileURL(path.join(packageFolder, 'dist', 'index.js')).href;
const { getLlama } = (await import(entry)) as {
  getLlama(options: object): Promise<LlamaPrefixOptions['llama'] & { dispose(): Promise<void> }>;
};

const state = path.resolve(values.state);
const model = path.resolve(values.model ?? path.join(state, 'tiny.gguf'));
const dir = path.join(state, createHash('sha256').update(model).digest('hex').slice(0, 16));
fs.mkdirSync(dir, { recursive: true });
if (!fs.existsSync(model)) makeGguf(model);
const keyFile = path.join(state, 'key');
if (!fs.existsSync(keyFile)) fs.writeFileSync(keyFile, randomBytes(32), { mode: 0o600 });

const threads = values.threads === undefined ? {} : { threads: Number(values.threads) };
const llama = await getLlama({ gpu: values.model === undefined ? false : 'auto', build: 'never' });
const prefixes = await LlamaPrefixes.open({
  llama,
  model,
  contextSize: 2048,
  ...threads,
  tenant: 'me', // from your own authentication, where there are several
  secretKey: new Uint8Array(fs.readFileSync(keyFile)),
  ddrBytes: 64 * 2 ** 20,
  nvme: { dir, bytes: 2 ** 30, allocation: 'extents' },
  notice: console.warn,
});

const document = Array.from(
  { length: 30 },
  (_, i) => `Rule ${i + 1}: what was read once is not read again.`,
).join(' ');
const prompt = prefixes.model.tokenize(`${document}\n${values.ask}\n`);

const began = performance.now();
const turn = await prefixes.begin(prompt);
const answer: number[] = [];
let firstMs = 0;
for await (const token of turn.sequence.evaluate(turn.rest, { temperature: 0 })) {
  if (answer.length === 0) firstMs = performance.now() - began;
  answer.push(token);
  if (answer.length === Number(values.tokens)) break;
}
await turn.end();
await prefixes.close();
await llama.dispose();
console.log(
  `${turn.cachedTokens} of ${prompt.length} tokens were loaded; first token after ${firstMs.toFixed(0)} ms`,
);
console.log(`answer: ${answer.join(' ')}`);
