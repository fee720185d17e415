/**
 * A restart keeps the cache warm, through the runtime that embedders open, after a close and after kill -9.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { nvmeTier } from '../../../src/backends/file/fileTier.ts';
import { KVRuntime, type KVRuntimeConfig, type KVSequence } from '../../../src/index.ts';
import { kvLayout, TierKVError } from '../../../src/runtime/index.ts';
import { sharedDevice } from '../../sharedDevice.ts';

const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 });
const blocks = (count: number): number => count * layout.blockBytes;
const tokensOf = (prompt: number, blockCount: number): Uint32Array =>
  Uint32Array.from({ length: blockCount * 16 + 1 }, (_, i) => prompt * 1_000_000 + i);

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function directory(): string {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-restart-'));
  cleanups.push(() => rmSync(dir, { recursive: true }));
  return dir;
}

/** Bytes of files for this number of blocks. */
const files = (count: number): number =>
  nvmeTier.bytesOf?.(count, layout.blockBytes, [layout.blockBytes]) ?? 0;

const config = (dir: string, change: Partial<KVRuntimeConfig> = {}): KVRuntimeConfig => ({
  layout,
  model: 'test@1',
  leavingShare: 1, // every block has to reach the files
  secretKey: new Uint8Array(32).fill(7),
  hbmBytes: blocks(20),
  ddrBytes: blocks(20),
  nvme: { dir, bytes: files(80) },
  offloadThreshold: 1,
  device: sharedDevice,
  ...change,
});

/** Prefills whatever of the prompt is not cached: every block is filled with a byte of its own. */
async function serve(kv: KVRuntime, prompt: number, blockCount: number): Promise<{ prefilled: number }> {
  const sequence = await kv.begin(tokensOf(prompt, blockCount), { tenant: 'tenant' });
  let prefilled = 0;
  for (const { index } of kv.openBlocks(sequence)) {
    const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index);
    kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(prompt * 16 + index));
    if (index < blockCount) prefilled++;
  }
  await kv.seal(sequence);
  await expectBytes(kv, sequence, prompt, blockCount);
  kv.release(sequence);
  await kv.idle();
  return { prefilled };
}

async function expectBytes(
  kv: KVRuntime,
  sequence: KVSequence,
  prompt: number,
  count: number,
): Promise<void> {
  for (let i = 0; i < count; i++) {
    const { slot, generation } = kv.manager.loadedBlock(sequence.groups[0].table, i)!;
    const bytes = new Uint8Array(layout.blockBytes);
    const words = new Uint32Array(bytes.buffer);
    const item = {
      slot,
      generation,
      sizeClass: 0,
      key: sequence.groups[0].keys.words.slice(i * 4, i * 4 + 4),
      bytes,
    };
    const digest = (await kv.stores.hbm.seal([item]))[0].digest;
    await kv.stores.hbm.read([{ ...item, digest }]);
    const byte = prompt * 16 + i;
    expect(words.every((word) => word === byte * 0x01010101)).toBe(true);
  }
}

describe('the same prompts after a restart', () => {
  it('need no prefill after save and close, whichever tier they were in', async () => {
    const dir = directory();
    const first = await KVRuntime.open(config(dir));
    for (let prompt = 0; prompt < 10; prompt++) expect((await serve(first, prompt, 6)).prefilled).toBe(6);
    expect(await first.save()).toBe(60);
    await first[Symbol.asyncDispose]();

    await using second = await KVRuntime.open(config(dir));
    expect(second.manager.inspect.counters.adopted).toBe(60);
    expect(second.manager.inspect.prefixesAreWhole).toBe(true);
    second.manager.checkIntegrity();
    expect(second.lookup(tokensOf(4, 6), { tenant: 'tenant' }).byTier).toEqual([0, 0, 6]);
    for (let prompt = 0; prompt < 10; prompt++) expect((await serve(second, prompt, 6)).prefilled).toBe(0);
    expect(second.lookup(tokensOf(4, 6), { tenant: 'another' }).blocks).toBe(0);
    second.manager.checkIntegrity();
    expect(second.describe().nvme).toMatchObject({ recoveredFrom: 'checkpoint', recoveryReadBytes: 0 });
  });

  it('are found as far as they reached the files, when the process is killed', async () => {
    const dir = directory();
    const script = `
      const { KVRuntime } = await import('./src/index.ts');
      const { kvLayout } = await import('./src/runtime/index.ts');
      const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 });
      const kv = await KVRuntime.open({ layout, model: 'test@1', secretKey: new Uint8Array(32).fill(7),
        leavingShare: 1, hbmBytes: 20 * layout.blockBytes,
        nvme: { dir: ${JSON.stringify(dir)}, bytes: ${files(80)} } });
      for (let prompt = 0; prompt < 8; prompt++) {
        const tokens = Uint32Array.from({ length: 97 }, (_, i) => prompt * 1_000_000 + i);
        const sequence = await kv.begin(tokens, { tenant: 'tenant' });
        for (const { index } of kv.openBlocks(sequence)) {
          const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index);
          kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(prompt * 16 + index));
        }
        await kv.seal(sequence);
        kv.release(sequence);
        await kv.idle();
      }
      console.log(kv.manager.inspect.usage(1).slots.ready);
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = (await once(child.stdout, 'data')) as [Buffer];
    const held = Number(line.toString());
    expect(held).toBeGreaterThan(20);
    child.kill('SIGKILL');
    await once(child, 'close');

    await using kv = await KVRuntime.open(config(dir));
    expect(kv.manager.inspect.counters.adopted).toBe(held);
    expect(kv.describe().nvme).toMatchObject({ recoveredClosed: false, recoveryLeftovers: 0 });
    const found = Array.from(
      { length: 8 },
      (_, prompt) => kv.lookup(tokensOf(prompt, 6), { tenant: 'tenant' }).blocks,
    );
    expect(found.reduce((a, b) => a + b)).toBeGreaterThan(20);
    expect(found[0]).toBe(6);
    for (let prompt = 0; prompt < 8; prompt++) {
      expect((await serve(kv, prompt, 6)).prefilled).toBe(6 - found[prompt]);
    }
    kv.manager.checkIntegrity();
  });

  it('are forgotten where a restart is to be empty, or the epoch was raised', async () => {
    const dir = directory();
    for (const [change, found] of [
      [{}, 0],
      [{}, 6],
      [{ epoch: 1 }, 0],
      [{ epoch: 1 }, 6],
      [{ epoch: 1, nvme: { dir, bytes: files(80), restart: 'empty' } }, 0],
    ] as const) {
      const kv = await KVRuntime.open(config(dir, change));
      expect((await serve(kv, 1, 6)).prefilled).toBe(6 - found);
      await kv.save();
      await kv[Symbol.asyncDispose]();
    }
  });

  it('are kept by last use where the tier has become smaller', async () => {
    const dir = directory();
    const first = await KVRuntime.open(config(dir));
    for (let prompt = 0; prompt < 10; prompt++) await serve(first, prompt, 6);
    await first.save();
    await first[Symbol.asyncDispose]();
    await using second = await KVRuntime.open(config(dir, { nvme: { dir, bytes: files(62) } }));
    expect(second.manager.inspect.counters.adopted).toBe(59);
    const found = Array.from(
      { length: 10 },
      (_, p) => second.lookup(tokensOf(p, 6), { tenant: 'tenant' }).blocks,
    );
    expect(found).toEqual([5, 6, 6, 6, 6, 6, 6, 6, 6, 6]);
    for (let prompt = 0; prompt < 10; prompt++) await serve(second, prompt, 6);
    second.manager.checkIntegrity();
  });
});

it.each([
  ['model', { model: 'test@2' }],
  ['secretKey', { secretKey: new Uint8Array(32).fill(8) }],
  ['extras', { extras: { adapter: 'lora-1' } }],
  ['layout', { layout: kvLayout({ layers: 2, kvHeads: 2, headDim: 64, dtype: 'bf16', blockTokens: 16 }) }],
] as const)('another %s than the files were written with is refused by name', async (field, change) => {
  const dir = directory();
  const first = await KVRuntime.open(config(dir));
  await serve(first, 1, 4);
  await first.save();
  await first[Symbol.asyncDispose]();
  const error = await KVRuntime.open(config(dir, change)).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(TierKVError);
  expect(error).toMatchObject({ code: 'TKV_MISMATCH', field });
  await using again = await KVRuntime.open(config(dir));
  expect((await serve(again, 1, 4)).prefilled).toBe(0);
});
