/**
 * A slice of `npm run campaign -- tabs`, and what the files of an origin do when another tab has them, when they are taken
 * away, and where there is no room.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { testSeed } from '../../src/testing/index.ts';
import { chromiumProblem, openProfile } from './browser.ts';
import type { StoreLook } from './inPage/storeLook.ts';
import { crash, damagedFiles, killedTabs } from './killedTabs.ts';
import { type WorkerPages, workerPages } from './workerPage.ts';

const problem = await chromiumProblem();
if (problem !== undefined) process.stderr.write(`SKIPPED: files of an origin: ${problem}\n`);

describe.skipIf(problem !== undefined)('the files of an origin', () => {
  let profile: Awaited<ReturnType<typeof openProfile>>;
  let pages: WorkerPages;
  const seed = testSeed(1);

  beforeAll(async () => {
    pages = await workerPages('storeWorker');
    profile = await openProfile();
  });
  afterAll(async () => {
    await profile?.close();
    await pages?.[Symbol.asyncDispose]();
  });

  it(`are right after damage, or refused (seed ${seed})`, async () => {
    const tab = await pages.open(profile.context);
    const found = await damagedFiles(tab, { rounds: 6, seed });
    expect(found).toMatchObject({ wrong: 0, rounds: 6 });
    expect(found.right).toBeGreaterThan(0);
    await tab.page.close();
  });

  it('control: without verification damage is given back as right', async () => {
    const tab = await pages.open(profile.context);
    const found = await damagedFiles(tab, { rounds: 12, seed: 1, verifyReads: false });
    expect(found.wrong).toBeGreaterThan(0);
    await tab.page.close();
  });

  it(`have what was durable when their tab was killed (seed ${seed})`, async () => {
    const found = await killedTabs(pages, profile.context, { rounds: 3, seed });
    expect(found).toMatchObject({ wrong: 0, lost: 0, rounds: 3 });
    expect(found.right).toBeGreaterThan(0);
  });

  it('have one owner: a second tab is told so, and a tab that dies gives them up', async () => {
    const first = await pages.open(profile.context);
    const second = await pages.open(profile.context);
    expect(await first.call('hold', 'owned')).toBe('open');
    await expect(second.call('hold', 'owned')).rejects.toThrow(/TKV_LOCKED .*another tab/);
    await crash(first);
    const look = await second.call<StoreLook>('look', 'owned', true);
    expect(look.wrong).toBe(0);
    await second.page.close();
  });

  it('are told apart by what their bytes mean, and refused where there is no room', async () => {
    const tab = await pages.open(profile.context);
    await tab.call('fill', 'meaning', 1);
    await expect(tab.call('openAs', 'meaning', 'another model')).rejects.toThrow(/TKV_MISMATCH/);
    await expect(tab.call('openLarge', 'large')).rejects.toThrow(/TKV_IO .*(quota|bytes free)/);
    expect((await tab.call<StoreLook>('look', 'meaning', true)).right).toBe(24);
    await tab.page.close();
  });

  it('that the browser took away are an error when they are saved, and the next store begins anew', async () => {
    const tab = await pages.open(profile.context);
    await tab.call('hold', 'taken');
    await tab.call('save');
    const session = await profile.context.newCDPSession(tab.page);
    await session.send('Storage.clearDataForOrigin', { origin: pages.url, storageTypes: 'all' });
    await expect(tab.call('save')).rejects.toThrow(/TKV_IO .*(removed or replaced|cleared|took)/);
    await tab.page.close();
    const next = await pages.open(profile.context);
    expect(await next.call<StoreLook>('look', 'taken', true)).toMatchObject({ records: 0, wrong: 0 });
    await next.page.close();
  });
});
