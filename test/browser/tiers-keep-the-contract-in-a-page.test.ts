/**
 * The contract of tiers in a worker of Chromium: GPU memory on the browser's software device, host memory, and the private
 * files of an origin. The suite is the one that every store passes in Node.
 */

import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chromiumProblem, openBrowser } from './browser.ts';
import type { TestEnd } from './inPage/vitest.ts';
import { type WorkerPages, workerPages } from './workerPage.ts';

const problem = await chromiumProblem();
if (problem !== undefined) process.stderr.write(`SKIPPED: tiers in a page: ${problem}\n`);

describe.skipIf(problem !== undefined)('in a worker of a page', () => {
  let browser: Browser;
  let pages: WorkerPages;

  beforeAll(async () => {
    pages = await workerPages('storeWorker');
    browser = await openBrowser({ webgpu: true });
  });
  afterAll(async () => {
    await browser?.close();
    await pages?.[Symbol.asyncDispose]();
  });

  it('all three tiers keep the contract', async () => {
    const tab = await pages.open(browser);
    const ends = await tab.call<readonly TestEnd[]>('contract');
    expect(ends.filter((end) => end.problem !== '')).toEqual([]);
    for (const kind of ['webgpu', 'memory', 'private files']) {
      const own = ends.filter(({ name, isSkipped }) => name.includes(`: ${kind}`) && !isSkipped);
      expect(own.length, kind).toBeGreaterThan(50);
    }
    await tab.page.close();
  });

  it('control: a store that gives other bytes fails it', async () => {
    const tab = await pages.open(browser);
    const ends = await tab.call<readonly TestEnd[]>('brokenContract');
    expect(ends.filter((end) => end.problem !== '').length).toBeGreaterThan(3);
    await tab.page.close();
  });
});
