/** llama.cpp on a tiny model of random weights, and answers of it without any cache. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeGguf } from '../../examples/tinyDecoder/gguf.ts';
import { LlamaPrefixes, type LlamaPrefixOptions, type LlamaTurn } from '../../src/adapters/llama/index.ts';

export const scratch: string = mkdtempSync(join(tmpdir(), 'tierkv-llama-'));
export const removeScratch = (): void => rmSync(scratch, { recursive: true });
export const modelFile: string = join(scratch, 'tiny.gguf');
makeGguf(modelFile);

export const contextSize = 512;
export const blockTokens = 16;

interface LlamaPackage {
  getLlama(options: object): Promise<LlamaPrefixOptions['llama'] & { dispose(): Promise<void> }>;
}
const name: string = 'node-llama-cpp';
const { getLlama } = (await import(name)) as LlamaPackage;
export const llama: Awaited<ReturnType<LlamaPackage['getLlama']>> = await getLlama({
  gpu: false,
  build: 'never',
  maxThreads: 1,
  logLevel: 'disabled',
});

export const openPrefixes = (options: Partial<LlamaPrefixOptions> = {}): Promise<LlamaPrefixes> =>
  LlamaPrefixes.open({
    llama,
    model: modelFile,
    contextSize,
    sequences: 2,
    threads: 1,
    blockTokens,
    tenant: 'me',
    secretKey: new Uint8Array(32).fill(7),
    ddrBytes: 2 ** 22,
    ...options,
  });

export interface Said {
  readonly tokens: number[];
  readonly cachedTokens: number;
  readonly from: LlamaTurn['from'];
  readonly stored: number;
}

/** The most likely tokens behind a prompt. */
export async function answer(
  prefixes: LlamaPrefixes,
  prompt: readonly number[],
  { count = 6, tenant, keeps = true }: { count?: number; tenant?: string; keeps?: boolean } = {},
): Promise<Said> {
  const turn = await prefixes.begin(prompt, tenant === undefined ? {} : { tenant });
  const tokens: number[] = [];
  for await (const token of turn.sequence.evaluate(turn.rest, { temperature: 0, yieldEogToken: true })) {
    tokens.push(token);
    if (tokens.length === count) break;
  }
  return { tokens, cachedTokens: turn.cachedTokens, from: turn.from, stored: await turn.end({ keeps }) };
}

/** The same without anything that was known before. */
export async function plainAnswer(prompt: readonly number[], count = 6): Promise<number[]> {
  const model = await llama.loadModel({ modelPath: modelFile });
  const context = await model.createContext({ contextSize, sequences: 1, threads: 1, flashAttention: false });
  const tokens: number[] = [];
  for await (const token of context
    .getSequence()
    .evaluate([...prompt], { temperature: 0, yieldEogToken: true })) {
    tokens.push(token);
    if (tokens.length === count) break;
  }
  await context.dispose();
  await model.dispose();
  return tokens;
}
