/**
 * Full, read-only, vanished: what a runtime does when its disk is in trouble. On real small file systems
 * where this user may mount one (said so where not), else by injection, and the test's name says which.
 */

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { KVRuntime } from '../../../src/index.ts';
import { Outcome } from '../../../src/runtime/index.ts';
import { type FaultKind, FaultPlan, FaultStore } from '../../../src/testing/faults.ts';
import { mountedDir } from '../../backends/file/scratch.ts';
import { ask, blocks, cacheBelow, openRuntime, prompt, tenant } from '../liveRuntime.ts';

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function open(config: Parameters<typeof openRuntime>[0]): Promise<KVRuntime> {
  const kv = await openRuntime(config);
  cleanups.push(() => kv[Symbol.asyncDispose]());
  return kv;
}

function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-disk-'));
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Serves three prompts twice and sees that each answer is right, whatever became of the copies below. */
async function serves(kv: KVRuntime): Promise<void> {
  for (const seed of [10, 60, 110, 10, 60, 110]) {
    expect((await ask(kv, seed)).right).toBe(true);
    kv.manager.evict(0, 20, kv.nowUs());
    await kv.idle();
  }
  kv.manager.checkIntegrity();
}

describe('a disk without room', () => {
  it('at open (tmpfs of 2 MiB): refused by name with what is missing, and nothing is left behind', async ({
    skip,
  }) => {
    const { dir, why } = mountedDir('tmpfs', 'size=2m');
    skip(why !== '', why);
    await expect(openRuntime({ nvme: { dir, bytes: 64 * 1024 * 1024 } })).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'nvme.bytes',
      message: expect.stringMatching(/on a disk of/),
    });
    expect(readdirSync(dir)).toEqual([]);
    const kv = await open({ nvme: { dir, bytes: blocks(10) } });
    await serves(kv);
  });

  it('later (tmpfs filled by others): blocks are dropped instead of kept below, and every answer is right', async ({
    skip,
  }) => {
    const { dir, why } = mountedDir('tmpfs', 'size=80m');
    skip(why !== '', why);
    const kv = await open({
      nvme: { dir, bytes: 70 * 1024 * 1024, allocation: 'extents' },
      hbmBytes: blocks(6),
    });
    const { bavail, bsize } = statfsSync(dir);
    writeFileSync(join(dir, 'others'), new Uint8Array(bavail * bsize));
    await serves(kv);
    expect(kv.manager.inspect.counters.demotionsFailed).toBeGreaterThan(0);
    expect(String(kv.describe().nvme.lastError)).toMatch(/ENOSPC/);

    rmSync(join(dir, 'others'));
    await cacheBelow(kv, 160, 1);
    kv.manager.evict(0, 6, kv.nowUs()); // what the disk had not taken stayed, and goes first
    await kv.idle();
    expect(kv.lookup(prompt(160), { tenant }).byTier[1]).toBe(4);
    expect(await ask(kv, 160)).toEqual({ cachedTokens: 64, right: true });
  });

  it.each(['ENOSPC', 'EMFILE', 'EIO'] as const)(
    '%s on every write (injected): as if there were no disk',
    async (kind) => {
      const kv = await withFaults({ [kind]: 1 });
      await serves(kv);
      expect(kv.manager.inspect.counters.demotionsFailed).toBeGreaterThan(0);
      expect(kv.manager.inspect.usage(1).slots).toMatchObject({ ready: 0, filling: 0, draining: 0 });
    },
  );
});

describe('a disk that refuses for longer', () => {
  it.each(['ENOSPC', 'EIO'] as const)(
    '%s (injected): is told once when it begins and once when it has ended',
    async (kind) => {
      const told: string[] = [];
      const rates: Partial<Record<FaultKind, number>> = { [kind]: 1 };
      const sick = new FaultPlan({ seed: 9, rates });
      const sound = new FaultPlan({ seed: 9, rates: {} });
      let isSick = true;
      const kv = await open({
        nvme: { dir: scratch(), bytes: blocks(40) },
        notice: (line) => told.push(line),
        wrapStores: ({ hbm, nvme }) => {
          const wait = (): Promise<void> => Promise.resolve();
          const [bad, good] = [sick, sound].map((plan) => new FaultStore(nvme!, { plan, wait }));
          const now = (): FaultStore => (isSick ? bad : good);
          const switched = Object.create(good) as FaultStore;
          switched.write = (items, ended) => now().write(items, ended);
          switched.read = (items, ended) => good.read(items, ended);
          return { hbm, nvme: switched };
        },
      });
      const spell = async (): Promise<void> => {
        for (const seed of [10, 60, 110, 160]) await cacheBelow(kv, seed, 1).catch(() => {});
      };
      told.length = 0;
      await spell();
      expect(told).toEqual([
        expect.stringMatching(new RegExp(`^NVMe: takes no blocks for now \\(.*${kind}.*\\)`)),
      ]);
      isSick = false;
      await spell();
      expect(told.slice(1)).toEqual(['NVMe: takes blocks again']);
    },
  );
});

describe('a directory that cannot be written', () => {
  it('at open (tmpfs mounted read-only): refused by name', async ({ skip }) => {
    const { dir, why } = mountedDir('tmpfs', 'size=2m,ro');
    skip(why !== '', why);
    await expect(openRuntime({ nvme: { dir, bytes: blocks(10) } })).rejects.toMatchObject({
      code: 'TKV_IO',
      message: expect.stringMatching(/EROFS.*read-only/),
    });
  });
});

describe('a directory that vanishes', () => {
  it('before open: refused by name', async () => {
    const dir = join(scratch(), 'no-parent', 'gone');
    await expect(openRuntime({ nvme: { dir, bytes: blocks(10) } })).rejects.toMatchObject({
      code: 'TKV_IO',
      message: expect.stringMatching(/ENOENT.*Create the directory that it lies in/),
    });
  });

  it('under a live runtime: it serves on from the open file, can be closed, and the next start begins empty', async () => {
    const dir = join(scratch(), 'tier');
    mkdirSync(dir);
    const kv = await openRuntime({ nvme: { dir, bytes: blocks(40) } });
    await cacheBelow(kv, 10, 1);
    rmSync(dir, { recursive: true });
    expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
    await serves(kv);
    await kv[Symbol.asyncDispose]();
    expect(existsSync(dir)).toBe(false);

    mkdirSync(dir);
    const next = await open({ nvme: { dir, bytes: blocks(40) } });
    expect(await ask(next, 10)).toEqual({ cachedTokens: 0, right: true });
  });

  it('with its bytes, the file cut to nothing: reads find that out, and the blocks are computed', async () => {
    const dir = scratch();
    const kv = await open({ nvme: { dir, bytes: blocks(40) } });
    await cacheBelow(kv, 10, 1);
    truncateSync(join(dir, 'tierkv.blocks'), 0);
    expect(await ask(kv, 10)).toEqual({ cachedTokens: 0, right: true });
    const { loadsFailed } = kv.manager.inspect.counters;
    expect(loadsFailed[Outcome.CORRUPT] + loadsFailed[Outcome.REFUSED]).toBe(4);
    await serves(kv);
  });
});

async function withFaults(rates: Partial<Record<FaultKind, number>>): Promise<KVRuntime> {
  const plan = new FaultPlan({ seed: 9, rates });
  return open({
    nvme: { dir: scratch(), bytes: blocks(40) },
    wrapStores: ({ hbm, nvme }) => ({
      hbm,
      nvme: new FaultStore(nvme!, { plan, wait: () => Promise.resolve() }),
    }),
  });
}
