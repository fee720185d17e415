/**
 * One life of a runtime that is saved: it serves prompts, its disk goes bad in some way, it is saved, and then it is killed or
 * closed. It runs in a process of its own, writes one line about what it saw, and `begin` of the next life looks at the rest.
 */

import { writeSync } from 'node:fs';
import type { DataFile } from '../../../src/backends/file/dataFile.ts';
import { type NvmeOptions, nvmeTier, openFiles } from '../../../src/backends/file/fileTier.ts';
import { registerTier } from '../../../src/backends/tierRows.ts';
import {
  type KVLayout,
  KVRuntime,
  type KVRuntimeConfig,
  type KVSequence,
  kvLayout,
  TierKVError,
} from '../../../src/index.ts';
import { TOP } from '../../../src/runtime/index.ts';
import { VolatileFile } from '../../backends/file/volatileFile.ts';

export const layout: KVLayout = kvLayout({
  layers: 2,
  kvHeads: 2,
  headDim: 64,
  dtype: 'f16',
  blockTokens: 16,
});
export const tenant = 'tenant';
export const promptBlocks = 3;

/**
 * `lie`: half of the bytes are written, and the disk says that all were. `fsync`: syncs fail, and what was to be synced is never
 * written, though later syncs succeed; `fsyncForgets`: it is not read back any more, either.
 */
export const diskFaults = ['none', 'full', 'eio', 'torn', 'lie', 'fsync', 'fsyncForgets'] as const;
export type DiskFault = (typeof diskFaults)[number];

/** `moving`: blocks are evicted downwards, as a save once did. `trusting`: what was written is not read back. */
export type SaveControl = 'moving' | 'trusting';

export interface LifePlan {
  readonly seed: number;
  readonly dir: string;
  /** Blocks of each tier; 0 leaves HBM out. */
  readonly hbm: number;
  readonly ddr: number;
  readonly nvme: number;
  readonly prompts: number;
  /** Prompts that a sequence holds during the save. */
  readonly held: number;
  readonly allocation: 'whole' | 'extents';
  readonly migration: boolean;
  readonly fault: DiskFault;
  /** One of this many calls of the disk fails. */
  readonly oneOf: number;
  readonly whenFull: 'keep' | 'replace';
  readonly kill: boolean;
  readonly control?: SaveControl;
}

/** What a prompt finds: its blocks by tier. */
export type Found = readonly (readonly number[])[];

export interface LifeReport {
  readonly before: Found;
  readonly after: Found;
  /** Blocks that the save says are durable. */
  readonly durable: number;
  readonly error: string;
  /** Of a life that was not killed: after a second save, on a sound disk. */
  readonly again: { readonly durable: number; readonly error: string; readonly found: Found } | null;
}

/** Whether the disk fails now, and how it does. */
class BadDisk {
  #fault: DiskFault = 'none';
  #oneOf = 1;
  #isVolatile = false;
  #calls = 0;

  begins(fault: DiskFault, oneOf: number): void {
    this.#isVolatile = fault.startsWith('fsync');
    this.#fault = fault;
    this.#oneOf = oneOf;
  }

  ends(): void {
    this.#fault = 'none';
  }

  wrap(real: DataFile): DataFile {
    const file = new VolatileFile(real, {
      isOn: () => this.#isVolatile,
      forgets: () => this.#fault === 'fsyncForgets',
    });
    return {
      readv: (parts, at) => file.readv(parts, at),
      writev: async (parts, at) => {
        if (!this.#fails('full', 'eio', 'torn', 'lie')) return await file.writev(parts, at);
        if (this.#fault === 'full' || this.#fault === 'eio') throw this.#error();
        // Half of it, in whole blocks of the disk; all of it where it has one block alone.
        let left = parts.reduce((bytes, part) => bytes + part.byteLength, 0);
        left = Math.max(4096, Math.floor(left / 2 / 4096) * 4096);
        const first: Uint8Array[] = [];
        for (const part of parts) {
          if (left > 0) first.push(part.subarray(0, left));
          left -= Math.min(left, part.byteLength);
        }
        await file.writev(first, at);
        if (this.#fault === 'torn') throw this.#error();
      },
      allocate: async (at, bytes) => {
        if (this.#fails('full')) throw this.#error();
        await file.allocate(at, bytes);
      },
      sync: async () => {
        if (this.#fails('fsync', 'fsyncForgets')) {
          file.syncFails();
          throw this.#error();
        }
        await file.sync();
      },
      close: () => file.close(),
    };
  }

  #fails(...kinds: readonly DiskFault[]): boolean {
    return kinds.includes(this.#fault) && this.#calls++ % this.#oneOf === 0;
  }

  #error(): Error {
    return Object.assign(new Error('injected'), { code: this.#fault === 'full' ? 'ENOSPC' : 'EIO' });
  }
}

export const tokensOf = (prompt: number): number[] =>
  Array.from({ length: promptBlocks * 16 + 1 }, (_, i) => prompt * 1000 + i);
const byteOf = (prompt: number, block: number): number => ((prompt * 31 + block * 7) % 255) + 1;

export function configOf({ dir, hbm, ddr, nvme, allocation, migration }: LifePlan): KVRuntimeConfig {
  return {
    layout,
    model: 'test@1',
    secretKey: new Uint8Array(32).fill(7),
    ...(hbm === 0 ? {} : { hbmBytes: hbm * layout.blockBytes }),
    ddrBytes: ddr * layout.blockBytes,
    nvme: { dir, bytes: nvme * layout.blockBytes, allocation },
    ...(migration ? {} : { migration: false }),
    transferDeadlineMs: 600_000,
    notice: () => {},
  };
}

export function found(kv: KVRuntime, prompts: number): Found {
  return Array.from({ length: prompts }, (_, prompt) => kv.lookup(tokensOf(prompt), { tenant }).byTier);
}

/** Computes what the prompt does not find. @returns blocks found with wrong bytes */
export async function serve(kv: KVRuntime, prompt: number): Promise<{ sequence: KVSequence; wrong: number }> {
  const sequence = await kv.begin(tokensOf(prompt), { tenant, wait: true });
  const open = new Set(kv.openBlocks(sequence).map(({ index }) => index));
  let wrong = 0;
  for (let block = 0; block < promptBlocks; block++) {
    if (open.has(block)) continue;
    const bytes = await kv.readBlock(sequence, block);
    if (!bytes.every((byte) => byte === byteOf(prompt, block))) wrong++;
  }
  for (const block of open) kv.writeBlock(sequence, block, (bytes) => bytes.fill(byteOf(prompt, block)));
  await kv.seal(sequence);
  return { sequence, wrong };
}

async function savedAs(save: () => Promise<number>): Promise<{ durable: number; error: string }> {
  try {
    return { durable: await save(), error: '' };
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    const said = /holds (\d+) blocks? durably/.exec(error.message);
    return { durable: Number(said?.[1] ?? 0), error: `${error.code} ${error.message}` };
  }
}

/** As a save once did it: each tier above is emptied, and the files are told to be durable. */
async function moveDown(kv: KVRuntime): Promise<number> {
  const target = kv.manager.inspect.tiers.length - 1;
  for (let position = TOP; position < target; position++) {
    for (let round = 0; round < 8 && kv.manager.evict(position, 256, kv.nowUs()).evicted > 0; round++) {
      await kv.idle();
    }
  }
  await kv.stores.durable?.save();
  return kv.manager.inspect.usage(target).slots.ready;
}

async function live(plan: LifePlan): Promise<void> {
  const disk = new BadDisk();
  registerTier<NvmeOptions>({
    ...nvmeTier,
    open: (request) => openFiles(request, { wrapFile: (file) => disk.wrap(file) }),
  });
  const trusting: KVRuntimeConfig['wrapStores'] = (stores) => {
    const { nvme } = stores;
    if (nvme === undefined || plan.control !== 'trusting') return stores;
    const write: typeof nvme.write = (items, ended) =>
      nvme.write(
        items.map((item) => ({ ...item, readBack: false })),
        ended,
      );
    return { ...stores, nvme: Object.assign(Object.create(nvme) as typeof nvme, { write }) };
  };
  const kv = await KVRuntime.open({ ...configOf(plan), wrapStores: trusting });
  const { durable, nvme: files } = kv.stores;
  if (plan.control === 'trusting' && durable !== undefined) {
    const save = async (): Promise<never[]> => {
      await files?.sync();
      return [];
    };
    Object.assign(durable, { save });
  }
  for (let prompt = 0; prompt < plan.prompts; prompt++) {
    kv.release((await serve(kv, prompt)).sequence);
    await kv.idle();
  }
  const holding: KVSequence[] = [];
  for (let prompt = 0; prompt < plan.held; prompt++) holding.push((await serve(kv, prompt)).sequence);
  await kv.idle();
  const before = found(kv, plan.prompts);
  disk.begins(plan.fault, plan.oneOf);
  const save = (): Promise<number> =>
    plan.control === 'moving' ? moveDown(kv) : kv.save({ whenFull: plan.whenFull });
  const saved = await savedAs(save);
  const after = found(kv, plan.prompts);
  const tell = (again: LifeReport['again']): void => {
    const report: LifeReport = { before, after, ...saved, again };
    writeSync(1, `${JSON.stringify(report)}\n`);
  };
  if (plan.kill) {
    tell(null);
    process.kill(process.pid, 'SIGKILL');
  }
  disk.ends();
  const second = await savedAs(() => kv.save({ whenFull: plan.whenFull }));
  for (const sequence of holding) kv.release(sequence);
  kv.manager.checkIntegrity();
  tell({ ...second, found: found(kv, plan.prompts) });
  await kv.close();
}

if (import.meta.main) await live(JSON.parse(process.argv[2]) as LifePlan);
