/**
 * Files of a runtime in the page's own thread, and what happens to files anywhere: storage that is refused or full, a second
 * tab, a page that was frozen, a page without shared memory.
 */

import type { CDPSession } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nvmeTier } from '../../src/backends/file/fileTier.ts';
import { chromiumProblem, openProfile } from './browser.ts';
import { type WorkerPages, type WorkerTab, workerPages } from './workerPage.ts';

const problem = await chromiumProblem();
if (problem !== undefined) process.stderr.write(`SKIPPED: files of a page: ${problem}\n`);

const blockBytes = 16_384;
const whole = { cachedTokens: 64, right: 4, wrong: 0 };
/** Files for 64 blocks: a limit in bytes is the limit of the files. */
const files = (dir: string, more: object = {}) => ({
  nvme: { dir, bytes: nvmeTier.bytesOf?.(64, blockBytes, [blockBytes]), ...more },
});

describe.skipIf(problem !== undefined)('files of a page', () => {
  let profile: Awaited<ReturnType<typeof openProfile>>;
  let pages: WorkerPages;

  beforeAll(async () => {
    pages = await workerPages('runtimeWorker');
    profile = await openProfile();
  });
  afterAll(async () => {
    await profile?.close();
    await pages?.[Symbol.asyncDispose]();
  });

  const sessionOf = (tab: WorkerTab): Promise<CDPSession> => profile.context.newCDPSession(tab.page);

  it('are those of the next load, in the thread of the page', async () => {
    const first = await pages.open(profile.context, 'page');
    expect(await first.call('surroundings')).toMatchObject({ isPage: true, hasSharedMemory: true });
    expect(await first.call('inFiles', 3)).toMatchObject({ found: { cachedTokens: 0 }, saved: 4 });
    await first.page.close();
    const next = await pages.open(profile.context, 'page');
    expect(await next.call('inFiles', 3)).toMatchObject({ found: whole });
    // control: another prompt is not there
    expect(await next.call('inFiles', 4)).toMatchObject({ found: { cachedTokens: 0 } });
    await next.page.close();
    // a worker reads the same files
    const worker = await pages.open(profile.context);
    expect(await worker.call('inFiles', 3)).toMatchObject({ found: whole });
    await worker.page.close();
  });

  it('belong to one tab, page or worker, until it closes them or goes', async () => {
    const page = await pages.open(profile.context, 'page');
    const worker = await pages.open(profile.context);
    expect(await page.call('open', files('shared'))).toEqual(['ddr', 'nvme']);
    await expect(worker.call('open', files('shared'))).rejects.toThrow(/TKV_LOCKED nvme.dir: .*another tab/);
    expect(await page.call('closeHeld')).toBe('closed');
    expect(await worker.call('open', files('shared'))).toEqual(['ddr', 'nvme']);
    await expect(page.call('open', files('shared'))).rejects.toThrow(/TKV_LOCKED nvme.dir: .*another tab/);
    expect(await page.call('open', { ...files('shared'), filesElse: 'without' })).toEqual([
      'ddr',
      expect.stringMatching(/goes on without files.*another tab/),
    ]);
    await worker.page.close();
    const next = await pages.open(profile.context, 'page');
    expect(await next.call('open', files('shared'))).toEqual(['ddr', 'nvme']);
    await next.page.close();
    await page.page.close();
  });

  it('that the browser refuses are an error, or the runtime goes on without them', async () => {
    const tab = await pages.open(profile.context);
    await tab.call('refuseStorage');
    await expect(tab.call('open', files('refused'))).rejects.toThrow(/TKV_IO nvme.dir: .*private window/);
    expect(await tab.call('open', { ...files('refused'), filesElse: 'without' })).toEqual([
      'ddr',
      expect.stringMatching(/goes on without files.*private window/),
    ]);
    await tab.call('computeHeld', 1, 1);
    expect(await tab.call('findHeld', 1, 1)).toEqual(whole);
    await tab.page.close();
  });

  it('need a worker inside the page, and a page that may start none is told so', async () => {
    const page = await pages.open(profile.context, 'page');
    await page.call('forbidWorkers');
    await expect(page.call('open', files('forbidden'))).rejects.toThrow(/TKV_CONFIG nvme: .*worker-src/);
    await page.page.close();
  });

  it('that the browser took away are closed, and can be opened again', async () => {
    const tab = await pages.open(profile.context, 'page');
    const session = await sessionOf(tab);
    await tab.call('open', files('taken'));
    await tab.call('computeHeld', 1, 1);
    await session.send('Storage.clearDataForOrigin', { origin: pages.url, storageTypes: 'all' });
    await tab.call('computeHeld', 2, 1);
    expect(await tab.call('closeHeld')).toBe('closed');
    for (let turn = 0; turn < 2; turn++) {
      expect(await tab.call('open', files('taken'))).toEqual(['ddr', 'nvme']);
      await tab.call('computeHeld', 3, 1);
      expect(await tab.call('findHeld', 3, 1)).toEqual(whole);
      expect(await tab.call('closeHeld')).toBe('closed');
    }
    await tab.page.close();
  });

  it.each(['worker', 'page'] as const)('that become full cost blocks and no answer (%s)', async (thread) => {
    const tab = await pages.open(profile.context, thread);
    const session = await sessionOf(tab);
    // Of 56 blocks, memory holds 16 and files shall hold about 12 more. The browser counts what is stored behind the writes, so a limit
    // may come out too high: then the next folder is filled, whose files have to grow again.
    let found = whole;
    for (let folder = 0; ; folder++) {
      const opened = await tab.call('open', files(`full-${thread}-${folder}`, { allocation: 'extents' }));
      expect(opened).toEqual(['ddr', 'nvme']);
      const quotaSize = (await tab.call<number>('storedBytes')) + 12 * blockBytes;
      await session.send('Storage.overrideQuotaForOrigin', { origin: pages.url, quotaSize });
      await tab.call('computeHeld', 1, 14);
      found = await tab.call<typeof whole>('findHeld', 1, 14);
      await session.send('Storage.overrideQuotaForOrigin', { origin: pages.url });
      expect(found.wrong).toBe(0);
      if (found.right < 50) break;
      await tab.call('closeHeld');
    }
    // control: with room all of them stay, once writes that the limit refused have ended
    while (found.right < 56) {
      await tab.call('computeHeld', 1, 14);
      found = await tab.call<typeof whole>('findHeld', 1, 14);
      expect(found.wrong).toBe(0);
    }
    expect(await tab.call('saveHeld')).toBeGreaterThanOrEqual(40);
    await tab.page.close();
  });

  it('are as they were after the page was frozen', async () => {
    const page = await pages.open(profile.context, 'page');
    const session = await sessionOf(page);
    expect(await page.call('open', files('frozen'))).toEqual(['ddr', 'nvme']);
    await page.call('computeHeld', 1, 8);
    const during = page.call('computeHeld', 9, 4);
    await session.send('Page.setWebLifecycleState', { state: 'frozen' });
    await new Promise((resolve) => setTimeout(resolve, 300));
    await session.send('Page.setWebLifecycleState', { state: 'active' });
    await during;
    // blocks that memory had to give up before the files took them are computed once more; none of them is wrong
    let found = await page.call<typeof whole>('findHeld', 1, 12);
    for (; found.right < 48; found = await page.call<typeof whole>('findHeld', 1, 12)) {
      expect(found.wrong).toBe(0);
      await page.call('computeHeld', 1, 12);
    }
    expect(found).toEqual({ cachedTokens: 768, right: 48, wrong: 0 });
    expect(await page.call('saveHeld')).toBe(48);
    await page.page.close();
  });

  it('do not need shared memory', async () => {
    await using plain = await workerPages('runtimeWorker', { isIsolated: false });
    for (const thread of ['worker', 'page'] as const) {
      const tab = await pages.open(profile.context, thread);
      expect(await tab.call('surroundings')).toMatchObject({ isIsolated: true });
      await tab.page.close();
      const bare = await plain.open(profile.context, thread);
      expect(await bare.call('surroundings')).toMatchObject({ isIsolated: false, hasSharedMemory: false });
      expect(await bare.call('open', files(thread))).toEqual(['ddr', 'nvme']);
      await bare.call('computeHeld', 1, 8);
      expect(await bare.call('findHeld', 1, 8)).toEqual({ cachedTokens: 512, right: 32, wrong: 0 });
      await bare.page.close();
    }
  });
});
