/**
 * A prompt on node-llama-cpp whose second start goes on from disk. llama.cpp gives the state of a whole sequence as one
 * opaque file; `putState` keeps it for the tokens that it is the state of, and `getState` finds the longest prefix that has one.
 *
 *     npm install --no-save node-llama-cpp
 *     node examples/node-llama-cpp.ts             # makes a tiny model, asks, and prints what came from where
 *     node examples/node-llama-cpp.ts             # once more: the document is loaded
 *     node examples/node-llama-cpp.ts --model model.gguf --ask 'What is in the manual?'
 *
 * Blocks and the key lie in `--state` (.tierkv/node-llama-cpp). The tiny model has random weights: what it says has no
 * meaning. `--package DIRECTORY` takes the package from the `node_modules` of that directory.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { KVRuntime, kvLayout } from '../src/index.ts'; // in your project: 'tierkv'
import { makeGguf } from './tinyDecoder/gguf.ts';

/** What is used of the package, so that this file compiles without it. */
interface LlamaSequence {
  readonly contextTokens: readonly number[];
  evaluate(tokens: readonly number[], options: { temperature: number }): AsyncIterable<number>;
  evaluateWithoutGeneratingNewTokens(tokens: readonly number[]): Promise<void>;
  saveStateToFile(file: string): Promise<unknown>;
  loadStateFromFile(file: string, options: { acceptRisk: true }): Promise<void>;
}
interface LlamaModel {
  tokenize(text: string): readonly number[];
  detokenize(tokens: readonly number[]): string;
  createContext(options: { contextSize: number }): Promise<{ getSequence(): LlamaSequence }>;
}
interface LlamaPackage {
  getLlama(options: object): Promise<{
    readonly gpu: string | false;
    loadModel(options: { modelPath: string }): Promise<LlamaModel>;
    dispose(): Promise<void>;
  }>;
}

const { values } = parseArgs({
  options: {
    state: { type: 'string', default: '.tierkv/node-llama-cpp' },
    model: { type: 'string' },
    package: { type: 'string', default: '.' },
    ask: { type: 'string', default: 'What does the document say about tiers?' },
    tokens: { type: 'string', default: '16' },
  },
});
const packageFolder = path.resolve(values.package, 'node_modules', 'node-llama-cpp');
if (!fs.existsSync(packageFolder)) {
  console.error('This example needs a package that is not installed: npm install --no-save node-llama-cpp');
  process.exit(2);
}
const { version } = JSON.parse(fs.readFileSync(path.join(packageFolder, 'package.json'), 'utf8'));
const entry = pathToFileURL(path.join(packageFolder, 'dist', 'index.js')).href;
const { getLlama } = (await import(entry)) as LlamaPackage;

const directory = path.resolve(values.state);
const blocks = path.join(directory, 'blocks');
fs.mkdirSync(blocks, { recursive: true });
const modelFile = path.resolve(values.model ?? path.join(directory, 'tiny.gguf'));
if (!fs.existsSync(modelFile)) makeGguf(modelFile);
const keyFile = path.join(directory, 'key');
if (!fs.existsSync(keyFile))
  fs.writeFileSync(keyFile, crypto.getRandomValues(new Uint8Array(32)), { mode: 0o600 });

const CONTEXT_TOKENS = 2048;
const llama = await getLlama({ gpu: values.model === undefined ? false : 'auto', build: 'never' });
const model = await llama.loadModel({ modelPath: modelFile });
const context = await model.createContext({ contextSize: CONTEXT_TOKENS });
const sequence = context.getSequence();

// a state of another model may end the process, so all that it depends on is in the key
const sha256 = createHash('sha256').update(fs.readFileSync(modelFile)).digest('hex');
const scope = {
  tenant: 'me',
  extras: {
    weights: sha256,
    program: `node-llama-cpp ${version}`,
    device: String(llama.gpu),
    context: `${CONTEXT_TOKENS}`,
  },
};
await using kv = await KVRuntime.open({
  // states are opaque: the layout only says how large the blocks are in which they lie
  layout: kvLayout({ layers: 1, kvHeads: 1, headDim: 1024, dtype: 'f16', blockTokens: 16 }),
  // one directory for all models: extras tell them apart
  model: 'states of llama.cpp',
  secretKey: new Uint8Array(fs.readFileSync(keyFile)),
  ddrBytes: 64 * 2 ** 20,
  nvme: { dir: blocks, bytes: 2 ** 30, allocation: 'extents' },
});
const stateFile = path.join(directory, `state-${process.pid}.bin`);

const document = Array.from(
  { length: 30 },
  (_, i) => `Rule ${i + 1}: what was read once is not read again.`,
).join(' ');
const prompt = model.tokenize(`${document}\n${values.ask}\n`);
// a token may span the end of the document
const ends = model.tokenize(document).findIndex((token, i) => token !== prompt[i]);
const shared = prompt.slice(0, ends === -1 ? model.tokenize(document).length : ends);

const began = performance.now();
// one token must be left to evaluate
const found = await kv.getState(prompt.slice(0, -1), scope);
if (found !== undefined) {
  fs.writeFileSync(stateFile, found.state);
  await sequence.loadStateFromFile(stateFile, { acceptRisk: true });
}
const known = found?.tokens ?? 0;
if (found === undefined) {
  // the part that other questions share has a state of its own
  await sequence.evaluateWithoutGeneratingNewTokens(shared);
  await sequence.saveStateToFile(stateFile);
  await kv.putState(shared, new Uint8Array(fs.readFileSync(stateFile)), scope);
}
const answer: number[] = [];
let firstMs = 0;
for await (const token of sequence.evaluate(prompt.slice(sequence.contextTokens.length), {
  temperature: 0,
})) {
  if (answer.length === 0) firstMs = performance.now() - began;
  answer.push(token);
  if (answer.length === Number(values.tokens)) break;
}
await kv.save({ whenFull: 'replace' });
fs.rmSync(stateFile, { force: true });
console.log(`${known} of ${prompt.length} tokens were loaded; first token after ${firstMs.toFixed(0)} ms`);
console.log(`answer: ${answer.join(' ')}`);
await llama.dispose();
