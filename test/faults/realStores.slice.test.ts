/**
 * A small fault campaign: the faults of `npm run campaign -- faults`, in real time, around the real stores of a KVRuntime on
 * the software device.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { FiredFault } from '../../src/testing/faults.ts';
import {
  FaultDevice,
  FaultHost,
  type FaultKind,
  FaultPlan,
  FaultStore,
  SeededRandom,
  testSeed,
} from '../../src/testing/index.ts';
import { ask, blocks, openRuntime } from '../embed/liveRuntime.ts';

const seed = testSeed(4711);
const REQUESTS = 120;
const rates: Partial<Record<FaultKind, number>> = {
  EIO: 0.05,
  ENOSPC: 0.05,
  EMFILE: 0.05,
  short: 0.05,
  torn: 0.05,
  flipped: 0.05,
  lateAfterCancel: 0.02,
  outOfMemory: 0.02,
};

it(`${REQUESTS} requests over a GPU's memory, host memory and files that fail: every answer is right (seed ${seed})`, async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-faults-'));
  const fired: FiredFault[] = [];
  const plan = new FaultPlan({ seed, rates, lateUs: [250_000, 300_000] });
  const random = new SeededRandom(seed);
  const surroundings = {
    plan,
    wait: (delayUs: number) => new Promise<void>((resolve) => setTimeout(resolve, delayUs / 1000)),
    onFault: (fault: FiredFault) => fired.push(fault),
  };
  const kv = await openRuntime({
    hbmBytes: blocks(8),
    ddrBytes: blocks(8),
    nvme: { dir, bytes: blocks(24) },
    transferDeadlineMs: 200,
    wrapStores: ({ hbm, ddr, nvme }) => ({
      hbm: new FaultDevice(hbm!, surroundings),
      ddr: new FaultHost(ddr!, surroundings),
      nvme: new FaultStore(nvme!, surroundings),
    }),
  });
  let losses = 0;
  let cachedTokens = 0;
  try {
    for (let request = 0; request < REQUESTS; request++) {
      if (request % 40 === 39) {
        kv.device.destroy();
        losses++;
        while (kv.devicesLost < losses || kv.describe().runtime.devicePresent !== true) {
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
      }
      const answer = await ask(kv, 10 + 10 * random.below(8));
      expect(answer.right, `request ${request}`).toBe(true);
      cachedTokens += answer.cachedTokens;
      kv.manager.evict(random.below(3), 1 + random.below(4), kv.nowUs());
    }
    plan.pause();
    await kv.idle();
    while (kv.manager.inspect.jobsOverdue > 0) await new Promise((resolve) => setTimeout(resolve, 10));
    await kv.idle();
    kv.manager.checkIntegrity();
    for (const tier of [0, 1, 2]) {
      const { slots, heldBytes } = kv.manager.inspect.usage(tier);
      expect([slots.reserved, slots.filling, slots.open, slots.draining, heldBytes]).toEqual([0, 0, 0, 0, 0]);
    }
  } finally {
    plan.pause();
    await kv[Symbol.asyncDispose]();
    rmSync(dir, { recursive: true, force: true });
  }
  const kinds = new Set(fired.map(({ kind }) => kind));
  console.log(
    `${fired.length} faults of ${kinds.size} kinds, ${losses} devices lost, ${cachedTokens} tokens from the cache, seed ${seed}`,
  );
  for (const kind of Object.keys(rates)) expect(kinds, `${kind} never fired`).toContain(kind);
  expect(cachedTokens).toBeGreaterThan(0);
});
