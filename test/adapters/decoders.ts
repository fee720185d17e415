/** Decoders of random weights, made once for a test file and loaded by transformers.js itself. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { AutoModelForCausalLM, env, type PreTrainedModel, Tensor } from '@huggingface/transformers';
import { type DecoderShape, makeDecoder } from '../../examples/tinyDecoder/make.ts';
import { layoutOf } from '../../src/adapters/transformers/index.ts';
import { type KVLayout, KVRuntime, type KVRuntimeConfig } from '../../src/index.ts';
import { sharedDevice } from '../sharedDevice.ts';

env.allowRemoteModels = false;

const made: string[] = [];

/** A directory that `removeDirectories` removes. */
export function temporary(name: string): string {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), `tierkv-${name}-`));
  made.push(directory);
  return directory;
}

export function removeDirectories(): void {
  for (const directory of made.splice(0)) fs.rmSync(directory, { recursive: true, force: true });
}

export interface LoadedDecoder {
  readonly directory: string;
  readonly model: PreTrainedModel;
}

/** Makes a decoder and loads it. */
export async function loadDecoder(
  shape: Partial<DecoderShape> = {},
  directory: string = temporary('decoder'),
): Promise<LoadedDecoder> {
  makeDecoder(directory, shape);
  return { directory, model: await load(directory) };
}

/** A path with a slash in front is taken as one, since the place of local models is empty. */
export function load(directory: string): Promise<PreTrainedModel> {
  env.localModelPath = '';
  return AutoModelForCausalLM.from_pretrained(directory, { dtype: 'fp32', local_files_only: true });
}

export function idsTensor(ids: readonly number[]): Tensor {
  return new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]);
}

export function onesTensor(tokens: number): Tensor {
  return new Tensor('int64', new BigInt64Array(tokens).fill(1n), [1, tokens]);
}

/** Numbers from 0 to 2^32 - 1 of a seed. */
export function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
}

/** Token ids without the special ones. */
export function randomIds(next: () => number, count: number): number[] {
  return Array.from({ length: count }, () => 3 + (next() % 509));
}

/** All tokens after a call of `generate`. */
export async function generated(
  model: { generate(options: never): Promise<unknown> },
  ids: readonly number[],
  options: object = {},
): Promise<number[]> {
  const asked = { inputs: idsTensor(ids), max_new_tokens: 8, eos_token_id: null, ...options };
  const result = (await model.generate(asked as never)) as Tensor;
  return (result.tolist() as bigint[][])[0].map(Number);
}

/** A runtime for a model's KV, which is closed at the end of its block. */
export function openedRuntime(model: PreTrainedModel): Promise<KVRuntime> {
  return openRuntimeOf(layoutOf(model));
}

const secretKey = Uint8Array.from({ length: 32 }, (_, i) => i);

export function openRuntimeOf(
  layout: KVLayout,
  tiers: Partial<KVRuntimeConfig> = { ddrBytes: 256 * layout.blockBytes },
): Promise<KVRuntime> {
  return KVRuntime.open({
    layout,
    model: 'of the tests',
    secretKey,
    hbmBytes: 96 * layout.blockBytes,
    device: sharedDevice,
    ...tiers,
  });
}

/**
 * Runtimes one after the other, each over the files that the one before has left. Their memory is too small for what they
 * keep, so that blocks come back from all tiers.
 */
export function restartedRuntimes(layout: KVLayout, memoryBlocks = 48): () => Promise<KVRuntime> {
  const dir = temporary('blocks');
  const { blockBytes } = layout;
  return () =>
    openRuntimeOf(layout, {
      hbmBytes: memoryBlocks * blockBytes,
      ddrBytes: memoryBlocks * blockBytes,
      nvme: { dir, bytes: 256 * memoryBlocks * blockBytes, allocation: 'extents' },
    });
}
