/**
 * A KVRuntime on the software device, or on host memory alone, and what tests do with it: compute a prompt, push it down, look at its
 * bytes.
 */

import { KVRuntime, type KVRuntimeConfig, type KVSequence } from '../../src/index.ts';
import { type KVLayout, kvLayout, TierKVError } from '../../src/runtime/index.ts';
import { sharedDevice } from '../sharedDevice.ts';

export const layout: KVLayout = kvLayout({
  layers: 2,
  kvHeads: 2,
  headDim: 64,
  dtype: 'f16',
  blockTokens: 16,
});
export const tenant = 'tenant-a';
/** Blocks of every prompt, and one token more. */
export const promptBlocks = 4;

/** Beyond the default of ten seconds a transfer is given up, and its block is gone: a busy machine was late by that much. */
const UNHURRIED_MS = 600_000;

export const blocks = (count: number): number => count * layout.blockBytes;
export const prompt = (from: number): Uint32Array =>
  Uint32Array.from({ length: promptBlocks * layout.blockTokens + 1 }, (_, i) => from * 1000 + i);

/** On the shared device, unless it is to have one of its own by `device: undefined`, or an adapter. */
export function openRuntime(config: Partial<KVRuntimeConfig>): Promise<KVRuntime> {
  return KVRuntime.open({
    layout,
    model: 'test@1',
    secretKey: new Uint8Array(32).fill(7),
    hbmBytes: blocks(20),
    offloadThreshold: 1,
    ...('adapter' in config || 'wait' in config || hostOnly(config) ? {} : { device: sharedDevice }),
    transferDeadlineMs: UNHURRIED_MS,
    ...config,
  });
}

const hostOnly = (config: Partial<KVRuntimeConfig>): boolean =>
  'hbmBytes' in config && config.hbmBytes === undefined;

/** Host memory as the top tier, and no device. */
export function openHostRuntime(config: Partial<KVRuntimeConfig> = {}): Promise<KVRuntime> {
  return openRuntime({ hbmBytes: undefined, ddrBytes: blocks(20), ...config });
}

/** Writes the sequence's open blocks. @returns their numbers */
export function write(kv: KVRuntime, sequence: KVSequence, seed: number): number[] {
  const written: number[] = [];
  for (const { index, group } of kv.openBlocks(sequence)) {
    kv.writeBlock(sequence, index, (block) => block.fill(seed + index), group);
    written.push(index);
  }
  return written;
}

/** The byte that fills block `index` in the top tier now; -1 where it holds several. */
export async function byteOf(kv: KVRuntime, sequence: KVSequence, index: number, group = 0): Promise<number> {
  const bytes = await kv.readBlock(sequence, index, group);
  return bytes.every((one) => one === bytes[0]) ? bytes[0] : -1;
}

/** `byteOf` of each block of the prompt. */
export async function contents(kv: KVRuntime, sequence: KVSequence): Promise<number[]> {
  const found: number[] = [];
  for (let i = 0; i < promptBlocks; i++) found.push(await byteOf(kv, sequence, i));
  return found;
}

export const rightContents = (seed: number): number[] =>
  Array.from({ length: promptBlocks }, (_, i) => seed + i);

/** Computes a prompt and pushes its blocks down `levels` tiers, as far as they take them. */
export async function cacheBelow(kv: KVRuntime, seed: number, levels: number): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant });
  write(kv, sequence, seed);
  await kv.seal(sequence);
  kv.release(sequence);
  for (let tier = 0; tier < levels; tier++) {
    kv.manager.evict(tier, promptBlocks, kv.nowUs());
    await kv.idle();
  }
}

/**
 * Waits while room is taken by transfers that are overdue: until they end the runtime says that it is full.
 * Tries again, too, where transfers failed or were late so often that the runtime gave up.
 */
async function whenRoom<T>(kv: KVRuntime, act: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof TierKVError)) throw error;
      const isFull = error.code === 'TKV_FULL' && kv.manager.inspect.jobsInFlight > 0;
      if (!isFull && error.code !== 'TKV_DEVICE') throw error;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

/**
 * Asks for the prompt as a server does: computes what is missing, also when it is interrupted, and compares
 * every byte. @returns tokens that were found
 */
export async function ask(kv: KVRuntime, seed: number): Promise<{ cachedTokens: number; right: boolean }> {
  const sequence = await whenRoom(kv, () => kv.begin(prompt(seed), { tenant }));
  const { cachedTokens } = sequence;
  write(kv, sequence, seed);
  while ((await kv.seal(sequence)) === 'interrupted') {
    await whenRoom(kv, () => kv.recover(sequence));
    write(kv, sequence, seed);
  }
  const found = await contents(kv, sequence);
  kv.release(sequence);
  await kv.idle();
  kv.manager.checkIntegrity();
  return { cachedTokens, right: rightContents(seed).every((byte, i) => byte === found[i]) };
}
