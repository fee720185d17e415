/**
 * The capacity planner in Chromium: a plan of 1,000 requests is simulated in a worker and shows its charts, controls change
 * them, and the figures are the ones that the simulator gives in Node for the deployment file that the page shows.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import type { Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { simulate } from '../../src/sim/build/simulate.ts';
import { buildPages, servePages } from '../../tools/browserPages.ts';
import { sized } from '../sized.ts';
import { chromiumProblem, keepPicture, openBrowser, openPage } from './browser.ts';

const problem = await chromiumProblem();
if (problem !== undefined) process.stderr.write(`SKIPPED: the planner in a browser: ${problem}\n`);

const charts = ['latency', 'hits', 'tiers', 'queue'];
/** What the page runs in: declared for `page.evaluate`, whose functions run there. */
declare const document: {
  readonly body: { readonly dataset: Record<string, string | undefined> };
  querySelector(at: string): unknown;
};

interface HTMLSlider {
  value: string;
  dispatchEvent(event: Event): void;
}
type Take = (event: { readonly data?: unknown }) => void;
interface InThePage {
  /** Runs that the page said had ended. */
  seen: string[];
  readonly Worker: { prototype: { addEventListener(kind: string, take: Take): void } };
  readonly MutationObserver: new (
    note: () => void,
  ) => { observe(place: object, wish: { attributeFilter: string[] }): void };
}

/** Waits until another run has ended and none is under way: of several changes each may have had one. */
async function ranAfter(page: Page, before: number): Promise<number> {
  const isOver = (least: number): boolean =>
    Number(document.body.dataset.run ?? 0) > least && document.querySelector('#state.busy') === null;
  await page.waitForFunction(isOver, before, { timeout: 240_000 });
  return await page.evaluate(() => Number(document.body.dataset.run));
}

const figuresOf = (page: Page): Promise<string[]> => page.locator('.figure b').allTextContents();
const pathsOf = (page: Page, chart: string): Promise<(string | null)[]> =>
  page
    .locator(`#${chart} svg .mark-line path, #${chart} svg .mark-area path`)
    .evaluateAll((all) =>
      (all as unknown as { getAttribute(name: string): string | null }[]).map((each) =>
        each.getAttribute('d'),
      ),
    );

/** The page simulates five times, and Node twice. */
const requests = sized(500, 1000);

describe.skipIf(problem !== undefined)('the planner', () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-planner-'));
  let browser: Browser;
  let server: Server;
  let page: Page;
  let problems: string[];
  let last = 0;

  beforeAll(async () => {
    await buildPages(dir, ['planner', 'plannerWorker']);
    const served = await servePages(dir, 0);
    server = served.server;
    browser = await openBrowser();
    ({ page, problems } = await openPage(browser, { height: 1100 }));
    await page.goto(`${served.url}/planner.html#requests=${requests}`);
  });
  afterAll(async () => {
    await browser?.close();
    server?.close();
    rmSync(dir, { recursive: true });
  });

  it(`a run of ${requests} requests shows its charts, with the figures of the simulator in Node`, async () => {
    last = await ranAfter(page, last);
    for (const chart of charts) expect((await pathsOf(page, chart)).length, chart).toBeGreaterThan(0);
    const file = (await page.locator('#file').textContent())!;
    const { metrics, detail } = simulate(
      { file: 'plan.yaml' },
      { files: { 'plan.yaml': file }, detail: true },
    );
    const figures = await figuresOf(page);
    expect(figures[6]).toBe(requests.toLocaleString('en'));
    expect(figures[4]).toBe(Math.round(metrics.tokens_per_sec).toLocaleString('en'));
    expect(figures[5]).toBe(`${(100 * detail!.cache.hitRate).toFixed(1)}%`);
    expect(
      Object.values(detail!.cache.hitsByTier).filter((hits) => hits > 0).length,
      'tiers that gave',
    ).toBeGreaterThan(1);
    await keepPicture(page, 'planner-light');
    // control: another seed gives other figures
    const other = simulate(
      { file: 'plan.yaml' },
      { files: { 'plan.yaml': file.replace('seed: 7', 'seed: 8') } },
    );
    expect(Math.round(other.metrics.tokens_per_sec)).not.toBe(Math.round(metrics.tokens_per_sec));
  });

  it('controls change the charts, a kept run stays behind them, and the address has the plan', async () => {
    const before = await figuresOf(page);
    await page.getByRole('button', { name: 'Keep to compare' }).click();
    await page.getByRole('button', { name: 'Dark' }).click();
    const curves = await pathsOf(page, 'latency');
    await page.locator('input[name=host]').fill('0');
    await page.locator('input[name=disk]').fill('0');
    await page.locator('input[name=host]').press('Home');
    last = await ranAfter(page, last);
    await page.getByText('to the kept run').first().waitFor();
    expect(await figuresOf(page)).not.toEqual(before);
    expect(await pathsOf(page, 'latency')).not.toEqual(curves);
    expect(await page.locator('#file').textContent()).toContain('cpu_bytes_to_use: 0');
    expect((await pathsOf(page, 'hits')).length, 'one tier is left').toBe(1);
    await keepPicture(page, 'planner-dark');
    expect(new URL(page.url()).hash).toContain('host=0');
    await page.reload();
    last = await ranAfter(page, 0);
    expect(await page.locator('input[name=host]').inputValue()).toBe('0');
  });

  it('a plan that cannot run says why, and the page goes on', async () => {
    await page.locator('select[name=model]').selectOption('llama-3.1-70b-instruct');
    last = await ranAfter(page, last);
    expect(await page.locator('#problem').textContent()).toMatch(/needs .* GiB .* L40S give/);
    await page.locator('select[name=model]').selectOption('llama-3.1-8b-instruct');
    await ranAfter(page, last);
    expect(await page.locator('#problem').isVisible()).toBe(false);
    expect(problems).toEqual([]);
  });

  it('a run whose charts are drawn after the next one began does not pass for it', async () => {
    const next = (await openPage(browser)).page;
    // a hand that moves a slider in the very turn in which the first outcome comes
    await next.addInitScript(() => {
      const here = globalThis as unknown as InThePage;
      const { Worker, MutationObserver } = here;
      here.seen = [];
      const listen = Worker.prototype.addEventListener;
      Worker.prototype.addEventListener = function (kind, take) {
        listen.call(this, kind, (event) => {
          take(event);
          if ((event.data as { id?: number } | undefined)?.id !== 1) return;
          const { body } = document;
          const note = (): number => here.seen.push(`${body.dataset.run}`);
          new MutationObserver(note).observe(body, { attributeFilter: ['data-run'] });
          const slider = document.querySelector('input[name=rate]') as HTMLSlider;
          slider.value = '0';
          slider.dispatchEvent(new Event('input'));
        });
      };
    });
    await next.goto(page.url().replace(/#.*/, '#requests=100'));
    await ranAfter(next, 1);
    expect(await next.evaluate(() => (globalThis as unknown as InThePage).seen)).toEqual(['2']);
    await next.context().close();
  });
});
