/**
 * transformers.js in a worker of Chromium, on its software WebGPU with KV in buffers of the GPU, and on wasm: the same
 * tokens with the prefix cache as without, also after a reload, out of the origin's files.
 */

import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeDecoder } from '../../examples/tinyDecoder/make.ts';
import { copyOnnxRuntime } from '../../tools/browserPages.ts';
import { isFull } from '../sized.ts';
import { chromiumProblem, openProfile } from './browser.ts';
import type { Asked, Loaded, LoadOptions, RestoredBits } from './inPage/transformersLook.ts';
import { type WorkerPages, type WorkerTab, workerPages } from './workerPage.ts';

const problem = await chromiumProblem();
if (problem !== undefined) process.stderr.write(`SKIPPED: transformers.js in a browser: ${problem}\n`);

/** Token ids that a seed determines. */
const prompt = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => 3 + ((i * 7919 + seed * 104_729 + ((i * i) % 251)) % 500));

const ways: readonly [name: string, options: Omit<LoadOptions, 'model'>, tiers: string[]][] = [
  [
    'WebGPU, blocks on the same device',
    { device: 'webgpu', hbm: true, files: 'webgpu' },
    ['hbm', 'ddr', 'nvme'],
  ],
  ['wasm', { device: 'wasm', hbm: false, files: 'wasm' }, ['ddr', 'nvme']],
];

describe.skipIf(problem !== undefined)('transformers.js in a page', () => {
  let profile: Awaited<ReturnType<typeof openProfile>>;
  let pages: WorkerPages;

  beforeAll(async () => {
    pages = await workerPages('transformersWorker', {
      addFiles(dir) {
        makeDecoder(join(dir, 'tiny'));
        makeDecoder(join(dir, 'other'), { seed: 5 });
        copyOnnxRuntime(dir);
      },
    });
    profile = await openProfile({ webgpu: true });
  });
  afterAll(async () => {
    await profile?.close();
    await pages?.[Symbol.asyncDispose]();
  });

  const opened = async (options: LoadOptions): Promise<{ tab: WorkerTab; loaded: Loaded }> => {
    const tab = await pages.open(profile.context);
    return { tab, loaded: await tab.call<Loaded>('load', options) };
  };

  /** The same tokens with the cache as without, and the KV that it restores has the bits that the model computes. */
  const holds = async (tab: WorkerTab, ids: readonly number[], saved: number, isShared: boolean) => {
    const computed = await tab.call<Asked>('ask', ids);
    expect(computed.turn).toMatchObject({ from: 'computed', cachedTokens: 0, savedBlocks: 3 });
    expect(computed.turn.uncached).toBeUndefined();
    expect(computed.tokens).toEqual(computed.plain);
    const bits = await tab.call<RestoredBits>('restoredBits', ids);
    expect(bits).toMatchObject({ cachedTokens: 48, locations: [isShared ? 'gpu-buffer' : 'cpu'] });
    expect(bits.different).toBe(0);
    expect(await tab.call('close')).toMatchObject({ saved, notices: [] });
    return computed;
  };

  it.each(ways)(
    'answers with the same tokens, and with files again after a reload (%s)',
    async (_, options, tiers) => {
      const isShared = options.hbm;
      const ids = prompt(52, 1);
      const first = await opened({ ...options, model: 'tiny' });
      expect(first.loaded).toMatchObject({ isShared, tiers });
      const computed = await holds(first.tab, ids, 3, isShared);
      if (isShared) {
        // in the same page, whose kernels are compiled: on WebGPU with blocks in host memory, and no files
        const onHost = { device: 'webgpu', hbm: false, model: 'tiny' } as const;
        const loaded = await first.tab.call<Loaded>('load', onHost);
        expect(loaded).toMatchObject({ isShared: false, tiers: ['ddr'] });
        expect((await holds(first.tab, ids, 0, false)).tokens).toEqual(computed.tokens);
      }
      await first.tab.page.close();

      const next = await opened({ ...options, model: 'tiny' });
      const again = await next.tab.call<Asked>('ask', ids, 'ann', false);
      expect(again.turn).toMatchObject({ from: 'restored', cachedTokens: 48, byTier: expect.anything() });
      expect(again.turn.byTier.at(-1), 'blocks from files').toBe(3);
      expect(again.tokens).toEqual(computed.tokens);
      // control: another tenant and other tokens find nothing; to compute them takes long on the software device
      if (!isShared || isFull) {
        expect((await next.tab.call<Asked>('ask', ids, 'eve', false)).turn.cachedTokens).toBe(0);
        expect((await next.tab.call<Asked>('ask', prompt(52, 3), 'ann', false)).turn.cachedTokens).toBe(0);
      }
      if (isShared) expect(await next.tab.call('spoiled', ids)).not.toEqual(computed.tokens);
      await next.tab.page.close();
    },
  );

  it('another model and another revision find nothing, and addresses without weights are refused', async () => {
    const files = { device: 'wasm', hbm: false, files: 'identity' } as const;
    const ids = prompt(60, 1);
    const first = await opened({ ...files, model: 'tiny' });
    await first.tab.call('ask', ids);
    await first.tab.call('close');
    const { identity } = first.loaded;
    expect(await first.tab.call('refused', 'nothing')).toMatch(/TKV_CONFIG weights .*has none of/);
    for (const other of [{ model: 'other' }, { model: 'tiny', revision: '2' }]) {
      const loaded = await first.tab.call<Loaded>('load', { ...files, files: undefined, ...other });
      expect(loaded.identity).not.toBe(identity);
      const asked = await first.tab.call<Asked>('ask', ids);
      expect(asked.turn.cachedTokens).toBe(0);
      expect(asked.tokens).toEqual(asked.plain);
      await first.tab.call('close');
    }
    await first.tab.page.close();
  });
});
