/**
 * The parts of node-llama-cpp that are used, so that the package need not be there to compile (its own types fit these), and the
 * files by which it takes and gives states.
 */

import { randomBytes } from 'node:crypto';
import fs from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** The result of `getLlama`. */
export interface LlamaEngine {
  readonly gpu: string | false;
  readonly llamaCppRelease: { readonly repo: string; readonly release: string };
  loadModel(options: { readonly modelPath: string }): Promise<LlamaModel>;
}

/** A model that llama.cpp has loaded. */
export interface LlamaModel {
  readonly trainContextSize: number;
  readonly fileInfo: { readonly metadata: object };
  tokenize(text: string, specialTokens?: boolean): readonly number[];
  detokenize(tokens: readonly number[], specialTokens?: boolean, lastTokens?: readonly number[]): string;
  isEogToken(token: number): boolean;
  createContext(options: LlamaContextSettings): Promise<LlamaContext>;
  dispose(): Promise<void>;
}

/** Settings of a context that determine nothing of its KV beside its size and how fast it is made. */
interface LlamaContextSettings {
  readonly contextSize: number;
  readonly sequences: number;
  readonly flashAttention: boolean;
  readonly threads?: number;
}

export interface LlamaContext {
  readonly kvCacheKeyType: number;
  readonly kvCacheValueType: number;
  getSequence(): LlamaSequence;
  dispose(): Promise<void>;
}

/** One of the sequences of a context. */
export interface LlamaSequence {
  /** Tokens whose KV the sequence holds. */
  readonly contextTokens: readonly number[];
  readonly contextSize: number;
  readonly needsCheckpoints: boolean;
  evaluate(
    tokens: number[],
    options?: {
      readonly temperature?: number;
      readonly topK?: number;
      readonly topP?: number;
      readonly seed?: number;
      readonly yieldEogToken?: boolean;
    },
  ): AsyncGenerator<number, void, void>;
  evaluateWithoutGeneratingNewTokens(tokens: number[]): Promise<void>;
  eraseContextTokenRanges(ranges: { start: number; end: number }[]): Promise<void>;
  clearHistory(): Promise<void>;
  saveStateToFile(path: string): Promise<unknown>;
  loadStateFromFile(path: string, options: { acceptRisk: true }): Promise<void>;
}

// Files: llama.cpp takes and gives states by them alone.

/** Memory where the system has files in it, so that a state touches no disk on its way. */
async function scratchFolder(): Promise<string> {
  const inMemory = '/dev/shm';
  try {
    await fs.access(inMemory, fs.constants.W_OK);
    return inMemory;
  } catch {
    return tmpdir();
  }
}

const scratchName = /^tierkv-llama-(\d+)-[0-9a-f]{16}$/;

async function scratchFile(): Promise<string> {
  return path.join(await scratchFolder(), `tierkv-llama-${process.pid}-${randomBytes(8).toString('hex')}`);
}

/** A process that was killed may leave a state in memory, where it would lie until the machine ends. */
export async function removeLeftFiles(): Promise<void> {
  const folder = await scratchFolder();
  for (const name of await fs.readdir(folder)) {
    const pid = Number(scratchName.exec(name)?.[1]);
    // another user's files stay: they cannot be removed
    if (pid > 0 && !isAlive(pid)) await fs.rm(path.join(folder, name), { force: true }).catch(() => {});
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

export async function withFile<Result>(
  bytes: Buffer,
  use: (file: string) => Promise<Result>,
): Promise<Result> {
  const file = await scratchFile();
  try {
    await fs.writeFile(file, bytes, { mode: 0o600, flag: 'wx' });
    return await use(file);
  } finally {
    await fs.rm(file, { force: true });
  }
}

export async function savedState(sequence: LlamaSequence): Promise<Buffer> {
  const file = await scratchFile();
  try {
    await fs.writeFile(file, '', { mode: 0o600, flag: 'wx' }); // llama.cpp would make one that all users read
    await sequence.saveStateToFile(file);
    return await fs.readFile(file);
  } finally {
    await fs.rm(file, { force: true });
  }
}
