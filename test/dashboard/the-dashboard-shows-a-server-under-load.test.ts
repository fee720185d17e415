/**
 * The page in Chromium: live beside a runtime that serves through three tiers, and over the decision log that it wrote. What
 * the page shows is what the runtime counted; every button and the slider do what they say.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KVRuntime } from '../../src/index.ts';
import {
  type Dashboard,
  dashboard,
  logDashboard,
  serveDashboard,
} from '../../src/observe/dashboard/dashboard.ts';
import { framesOfLog } from '../../src/observe/dashboard/logFrames.ts';
import { watchRuntime } from '../../src/observe/metrics/watch.ts';
import { chromiumProblem, keepPicture, openBrowser, openPage } from '../browser/browser.ts';
import { blocks, openRuntime } from '../embed/liveRuntime.ts';

const absent = await chromiumProblem();
if (absent !== undefined) console.log(`SKIPPED: the dashboard in a browser: ${absent}`);

const folder = mkdtempSync(join(tmpdir(), 'tierkv-dashboard-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const log = join(folder, 'decisions.log');
const blockTokens = 16;

/** Serves requests until it is stopped: prompts of five tenants, some of them again and again. */
function load(kv: KVRuntime): { readonly stop: () => Promise<void> } {
  const scheduler = kv.scheduler({ maxBatchedTokens: 512 });
  let isRunning = true;
  let made = 0;
  const add = (): void => {
    const n = made++;
    const prompt = n % 3 === 0 ? n : (n * 7) % 11;
    const tokens = Uint32Array.from({ length: 5 * blockTokens + 3 + (n % 20) }, (_, i) => prompt * 1000 + i);
    scheduler.add({
      id: `request ${n}`,
      tokens,
      tenant: `team ${'abcde'[prompt % 5]}`,
      maxTokens: 3 + (n % 6),
    });
  };
  const serve = async (): Promise<void> => {
    while (isRunning || scheduler.size > 0) {
      while (isRunning && scheduler.size < 12) add();
      const plan = scheduler.step();
      if (plan.requests.length === 0) {
        if (scheduler.size > 0) await scheduler.next();
        continue;
      }
      await new Promise((resolve) => setTimeout(resolve, 10)); // as kernels would take
      const sampled = plan.requests.filter(({ samples }) => samples);
      scheduler.stepEnded(sampled.map(({ id }) => ({ id, token: 3 })));
    }
  };
  const done = serve();
  return {
    stop: async () => {
      isRunning = false;
      await done;
    },
  };
}

describe.skipIf(absent !== undefined)('in Chromium', () => {
  let browser: Browser;
  let kv: KVRuntime;
  let board: Dashboard;
  let server: Server;
  let url = '';
  let work: ReturnType<typeof load>;

  beforeAll(async () => {
    browser = await openBrowser();
    kv = await openRuntime({
      hbmBytes: blocks(90),
      ddrBytes: blocks(60),
      nvme: { dir: folder, bytes: blocks(120) },
      eviction: { policy: 'lru' },
      log,
    });
    board = await dashboard(kv, { title: 'a server under load', base: '/dashboard', everyMs: 200 });
    server = createServer((request, response) =>
      board.handle(request, response, () => response.end('the server itself')),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    work = load(kv);
  });

  afterAll(async () => {
    await browser?.close();
    board?.close();
    server?.closeAllConnections();
    server?.close();
  });

  it('live: figures move, tiers fill, a request tells its story, dark and light, paused and going on', async () => {
    const { page, problems } = await openPage(browser, { height: 1300 });
    await page.goto(`${url}/dashboard`);
    await page.getByText('live', { exact: true }).waitFor();
    expect(await page.title()).toBe('a server under load - tierkv');
    for (const tier of ['hbm', 'ddr', 'nvme']) await page.locator(`[data-tier=${tier}]`).waitFor();
    await page.locator('[data-link=hbmToDdr]').waitFor();
    await page.locator('#requests tbody tr').nth(20).waitFor();
    for (const chart of ['hits', 'flows', 'gaps', 'evictions', 'queue']) {
      await page.locator(`#${chart} svg path`).first().waitFor({ state: 'attached' });
    }
    await page.waitForFunction(
      () =>
        Number(
          (globalThis as { document?: { body: { dataset: { frame: string } } } }).document?.body.dataset
            .frame,
        ) > 15,
    );
    await keepPicture(page, 'dashboard-live-light');
    await page.getByRole('button', { name: 'Dark' }).click();
    expect(await page.locator('html').getAttribute('data-theme')).toBe('dark');
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.locator('#requests tbody tr').nth(3).click();
    await page.getByText(/It asked for \d+ full blocks for a prompt of \d+ tokens/).waitFor();
    await page.getByText(/^prefill: /).waitFor();
    await page.getByText(/it ended: length/).waitFor();
    await keepPicture(page, 'dashboard-live-dark');
    const stood = await page.locator('#figures').textContent();
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect(await page.locator('#figures').textContent()).toBe(stood);
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.waitForFunction((before) => {
      const { document } = globalThis as unknown as {
        document: { querySelector(at: string): { textContent: string } };
      };
      return document.querySelector('#figures').textContent !== before;
    }, stood);
    expect(problems).toEqual([]);
    expect(await (await fetch(`${url}/elsewhere`)).text()).toBe('the server itself');
  });

  it('what it shows is what the runtime counted, and a page that goes leaves nothing behind', async () => {
    // the load goes on until each tier gave something
    while (!kv.manager.inspect.counters.hits.every((hits) => hits > 0)) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await work.stop();
    await kv.idle();
    const told = async (): Promise<ReturnType<typeof framesOfLog>> =>
      (await (await fetch(`${url}/dashboard/frames.json`)).json()) as ReturnType<typeof framesOfLog>;
    // room is still made now and then: the frames follow, until both stand
    let { head, frames } = await told();
    let last = frames[frames.length - 1];
    const shown = (): object => [last.tiers.map(({ hits, evicted }) => [hits, evicted]), last.misses];
    const counted = (): object => {
      const { hits, evictions, misses } = kv.manager.inspect.counters;
      return [[...hits].map((count, tier) => [count, evictions[tier]]), misses];
    };
    for (let isSame = false; !isSame; ) {
      const before = JSON.stringify(counted());
      await new Promise((resolve) => setTimeout(resolve, 450)); // a frame behind the last change
      ({ head, frames } = await told());
      last = frames[frames.length - 1];
      isSame = JSON.stringify(counted()) === before;
    }
    expect(head.tiers).toEqual(['hbm', 'ddr', 'nvme']);
    expect(shown()).toEqual(counted());
    expect(last.tiers.reduce((sum, { returned }) => sum + returned, 0)).toBe(
      watchRuntime(kv).cache.tiers.reduce((sum, { returnedBlocks }) => sum + returnedBlocks, 0),
    );
    for (const { blocks: ready, temperatures } of last.tiers) {
      expect(temperatures.reduce((sum, each) => sum + each, 0)).toBeCloseTo(ready > 0 ? 1 : 0);
    }
    await kv.close();
  });

  it('a decision log is replayed by a slider, and ends where the run ended', async () => {
    const lines = readFileSync(log, 'utf8').trimEnd().split('\n');
    const replayed = framesOfLog(lines, log);
    const last = replayed.frames[replayed.frames.length - 1];
    expect(last.tiers.map(({ hits }) => hits)).toEqual([...kv.manager.inspect.counters.hits]);
    expect(last.tiers.map(({ evicted }) => evicted)).toEqual([...kv.manager.inspect.counters.evictions]);
    const own = await serveDashboard(
      (access) => logDashboard(replayed, { ...access, title: 'decisions.log' }),
      {
        host: '127.0.0.1',
        port: 0,
      },
    );
    try {
      const { page, problems } = await openPage(browser, { height: 1300 });
      await page.goto(own.url);
      await page.getByText('decision log', { exact: true }).waitFor();
      const slider = page.locator('#slider');
      await page.locator('#hits svg path').first().waitFor({ state: 'attached' });
      const end = await page.locator('#figures').textContent();
      await keepPicture(page, 'dashboard-log-end');
      await slider.fill('3');
      expect(await page.locator('#figures').textContent()).not.toBe(end);
      await slider.fill(String(Math.floor(replayed.frames.length / 2)));
      await keepPicture(page, 'dashboard-log-middle');
      await slider.press('End');
      expect(await page.locator('#figures').textContent()).toBe(end);
      await slider.fill(String(replayed.frames.length - 6));
      await page.getByRole('button', { name: 'play' }).click();
      await page.waitForFunction((most) => {
        const { document } = globalThis as unknown as { document: { body: { dataset: { frame: string } } } };
        return Number(document.body.dataset.frame) === most;
      }, replayed.frames.length - 1);
      // on a screen of any width each panel has a place of its own, wide enough to be read
      for (const width of [375, 701, 900, 1051, 1440]) {
        await page.setViewportSize({ width, height: 900 });
        const places = await Promise.all(
          (await page.locator('.panel').all()).map((panel) => panel.boundingBox()),
        );
        const boxes = places.map((place) => place ?? expect.fail('a panel has no place'));
        for (const [i, a] of boxes.entries()) {
          expect(a.width, `panel ${i} at ${width}`).toBeGreaterThan(Math.min(250, width * 0.8));
          for (const b of boxes.slice(i + 1)) {
            const isApart =
              a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
            expect(isApart, `panel ${i} at ${width}`).toBe(true);
          }
        }
        expect(boxes.length).toBeGreaterThan(7);
      }
      expect(problems).toEqual([]);
    } finally {
      await own.close();
    }
  });
});

it('control: a log that was cut, edited, or is of another version is refused with its line', () => {
  const head = '# tierkv decision log 2 {} 00000000';
  expect(() => framesOfLog([head], 'old.log')).toThrow(/old\.log:1 .*version/);
  expect(() => framesOfLog([], 'empty.log')).toThrow(/empty\.log:1 is empty/);
  expect(() => framesOfLog(['something else'], 'x.log')).toThrow(/x\.log:1 is not the head/);
});
