/**
 * A KVRuntime over HBM and a real file whose calls can be held, and what must be so once everything has
 * ended.
 */

import { getEventListeners } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect } from 'vitest';
import type { KVRuntime } from '../../../src/index.ts';
import { FaultPlan, FaultStore } from '../../../src/testing/faults.ts';
import { blocks, layout, openRuntime, tenant } from '../liveRuntime.ts';

export const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Blocks that HBM holds beside the room for landing ones. */
export const HBM_BLOCKS = 19;

/** A runtime over HBM, with DDR where it has bytes, and a file; from `hold` on the file's calls end only when `letGo` is called. */
export async function openHeld({ ddrBytes }: { ddrBytes?: number } = {}): Promise<{
  kv: KVRuntime;
  hold: () => void;
  letGo: () => void;
  held: () => number;
}> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-abort-'));
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  const plan = new FaultPlan({ seed: 1, rates: { stalled: 1 }, stalledMax: 1000 });
  plan.pause();
  let disk: FaultStore | undefined;
  const kv = await openRuntime({
    ...(ddrBytes === undefined ? {} : { ddrBytes }),
    nvme: { dir, bytes: blocks(60) },
    wrapStores: ({ nvme, ...stores }) => {
      disk ??= new FaultStore(nvme!, { plan, wait: () => Promise.resolve() }); // called again for another device
      return { ...stores, nvme: disk };
    },
  });
  const letGo = (): void => {
    plan.pause();
    disk!.releaseStalled();
  };
  cleanups.push(async () => {
    letGo();
    await kv[Symbol.asyncDispose]();
  });
  return { kv, hold: () => plan.resume(), letGo, held: () => disk!.stalledCalls };
}

export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
export const listeners = (signal: AbortSignal): number => getEventListeners(signal, 'abort').length;
export const longPrompt = (from: number): Uint32Array =>
  Uint32Array.from({ length: HBM_BLOCKS * layout.blockTokens }, (_, i) => from * 1000 + i);

/** Nothing is held, nothing is on its way, and every block of HBM can be had. */
export async function nothingLeaked(kv: KVRuntime): Promise<void> {
  await kv.idle();
  kv.manager.checkIntegrity();
  expect(kv.manager.inspect.usage(0)).toMatchObject({
    heldBytes: 0,
    slots: { filling: 0, draining: 0, open: 0 },
  });
  const all = await kv.begin(longPrompt(900), { tenant });
  expect(kv.openBlocks(all)).toHaveLength(HBM_BLOCKS);
  kv.release(all);
  kv.manager.checkIntegrity();
}

/** Until the reads of a `begin` or `recover` are held by the file. */
export async function untilHeld(held: () => number): Promise<void> {
  while (held() === 0) await turn();
}
