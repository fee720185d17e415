/**
 * Each type of report in Chromium, from a file and without any network: the answer stands first, every chart draws, the
 * timeline zooms to one request and back, tables sort, dark and print are drawn anew, and nothing is asked of any host.
 */

import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Report } from '../../src/observe/report/model.ts';
import { reportBytesMost, requireReportTarget, writeReport } from '../../src/observe/report/writeReport.ts';
import { chromiumProblem, keepPicture, openBrowser, openPage } from '../browser/browser.ts';
import {
  benched,
  compared,
  evaluated,
  planned,
  replayed,
  searched,
  simulated,
  studied,
  swept,
} from './results.ts';

const absent = await chromiumProblem();
if (absent !== undefined) console.log(`SKIPPED: reports in a browser: ${absent}`);

const folder = mkdtempSync(join(tmpdir(), 'tierkv-report-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const makers: Readonly<Record<string, () => Report>> = {
  simulate: simulated,
  sweep: swept,
  plan: planned,
  evaluate: evaluated,
  evolve: searched,
  parity: compared,
  bench: benched,
  replay: replayed,
  study: studied,
};

async function written(name: string, report: Report): Promise<string> {
  const file = join(folder, `${name}.html`);
  await writeReport(report, file);
  return file;
}

describe.skipIf(absent !== undefined)('in Chromium', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterAll(() => browser?.close());

  async function open(
    file: string,
    options: Parameters<typeof openPage>[1] = {},
  ): Promise<{ page: Page; problems: string[]; asked: string[] }> {
    const { page, problems } = await openPage(browser, options);
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.goto(pathToFileURL(file).href);
    await page.locator('body[data-ready=yes]').waitFor();
    return { page, problems, asked };
  }

  for (const [name, make] of Object.entries(makers)) {
    it(`${name}: the answer, its figures, and every chart`, async () => {
      const report = make();
      const file = await written(name, report);
      const { page, problems, asked } = await open(file, { width: 1100 });
      expect(await page.title()).toBe(report.title);
      expect(await page.locator('.answer').textContent()).toBe(report.answer);
      expect(await page.locator('.figure').count()).toBe(report.figures.length);
      for (const { name: title } of report.figures)
        await page.locator('.figure', { hasText: title }).first().waitFor();
      const charts = page.locator('.chart');
      const count = await charts.count();
      expect(count).toBeGreaterThan(0);
      for (let i = 0; i < count; i++) {
        // a chart has marks, and each number on its axes is one
        await charts.nth(i).locator('svg path, svg rect').first().waitFor({ state: 'attached' });
        expect(await charts.nth(i).textContent()).not.toMatch(/NaN|undefined|Infinity/);
      }
      await keepPicture(page, `report-${name}`);
      await page.locator('#theme').click();
      expect(await page.locator('html').getAttribute('data-theme')).toBe('dark');
      await keepPicture(page, `report-${name}-dark`);
      for (const each of report.next) await page.locator('#next li', { hasText: each }).first().waitFor();
      expect(await page.locator('#origin code').textContent()).toBe(report.origin.command);
      expect(asked.filter((url) => !url.startsWith('file:') && !url.startsWith('data:'))).toEqual([]);
      expect(problems).toEqual([]);
      await page.context().close();
    });
  }

  it('the timeline: a click zooms to a request, a drag to a span, and back; a search finds by id', async () => {
    const report = simulated();
    const { page, problems } = await open(await written('timeline', report), { width: 1200 });
    const span = async (): Promise<number> => {
      const [from, to] = ((await page.locator('body').getAttribute('data-seconds')) ?? '')
        .split(' ')
        .map(Number);
      return to - from;
    };
    const whole = await span();
    await page.locator('#find').fill('request_17');
    await page.locator('#requests tbody tr', { hasText: 'request_17' }).first().click();
    await page.locator('#story', { hasText: 'request_17: came at' }).waitFor();
    await page.locator('#story', { hasText: 'first token after' }).waitFor();
    const near = await span();
    expect(near).toBeLessThan(whole);
    await keepPicture(page, 'report-one-request');
    await page.locator('#unchoose').click();
    expect(await span()).toBeCloseTo(whole, 6);
    await page.locator('#closer').click();
    expect(await span()).toBeCloseTo(whole / 2, 6);
    await page.locator('#whole').click();
    const chart = page.locator('.timeline .chart').first();
    await chart.scrollIntoViewIfNeeded();
    const box = await chart.boundingBox();
    if (box === null) throw new Error('the chart has no place');
    await page.mouse.move(box.x + 300, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + 500, box.y + 40, { steps: 4 });
    await page.mouse.up();
    expect(await span()).toBeLessThan(whole / 2);
    await page.locator('[data-request=request_0]').first().waitFor({ state: 'attached' });
    expect(problems).toEqual([]);
    await page.context().close();
  });

  it('a table sorts by a click, numbers as numbers', async () => {
    const { page } = await open(await written('sorted', swept()));
    const column = page.locator('table.sortable tbody tr td:nth-child(5)');
    await page.locator('th', { hasText: 'first token' }).click();
    const values = (await column.allTextContents()).filter((text) => text !== '-');
    expect(values).toEqual(['200 ms', '420 ms', '4.00 s']);
    await page.context().close();
  });

  it('print is light, whatever the screen, and without scripts all figures and tables are there', async () => {
    const file = await written('print', swept());
    const { page } = await open(file, { colorScheme: 'dark' });
    expect(await page.locator('html').getAttribute('data-theme')).toBe('dark');
    await page.evaluate("dispatchEvent(new Event('beforeprint'))");
    expect(await page.locator('html').getAttribute('data-theme')).toBe('light');
    await page.evaluate("dispatchEvent(new Event('afterprint'))");
    expect(await page.locator('html').getAttribute('data-theme')).toBe('dark');
    await page.context().close();
    const plain = await browser.newContext({ javaScriptEnabled: false });
    const bare = await plain.newPage();
    await bare.goto(pathToFileURL(file).href);
    expect(await bare.locator('.figure').count()).toBeGreaterThan(3);
    expect(await bare.locator('table tbody tr').count()).toBe(4);
    await plain.close();
  });

  it('texts of files and users are texts: no mark-up of theirs is run', async () => {
    const evil = '</script><script>document.title="taken"</script><img src=x onerror="document.title=1">';
    const report = swept();
    const file = await written('evil', {
      ...report,
      title: evil,
      limits: [evil],
      sections: [
        { kind: 'bars', title: evil, unit: 'count', bars: [{ name: evil, value: 1 }] },
        { kind: 'table', title: 'a', columns: [{ title: evil }], rows: [[evil]] },
      ],
    });
    const { page, problems } = await open(file);
    expect(await page.title()).toBe(evil);
    expect(await page.locator('img').count()).toBe(0);
    expect(problems).toEqual([]);
    await page.context().close();
  });
});

describe('50,000 requests', () => {
  it('are at most 5 MB, and the page says of how many it has a sample', async () => {
    const report = simulated();
    const sections = report.sections.map((section) => {
      if (section.kind !== 'timeline') return section;
      const [first] = section.requests;
      const requests = Array.from({ length: 50_000 }, (_, i) => ({
        ...first,
        id: `request_${i}`,
        arrivalS: i / 60,
        joinedS: i / 60 + 0.01 * (i % 50),
        firstTokenS: i / 60 + 0.5 + 0.01 * (i % 50),
        endS: i === 31_234 ? 2000 : i / 60 + 9 + (i % 31),
      }));
      return { ...section, requests, requestsInAll: 50_000 };
    });
    const file = await written('large', { ...report, sections });
    expect(statSync(file).size).toBeLessThan(reportBytesMost);
    const { readFileSync } = await import('node:fs');
    const text = readFileSync(file, 'utf8');
    expect(text).toContain('Of 50,000 requests, 20,000 are in this page');
    expect(text).toContain('"request_31234"'); // the slowest one is not left out
  });
});

describe('before a long run', () => {
  it('a folder, a place that is not there and a file below a file are refused', async () => {
    await expect(requireReportTarget(folder)).rejects.toThrow(/it is a directory\. Name a file/);
    await expect(requireReportTarget(join(folder, 'no', 'where.html'))).rejects.toThrow(/cannot be written/);
    writeFileSync(join(folder, 'file'), '');
    await expect(requireReportTarget(join(folder, 'file', 'r.html'))).rejects.toThrow(/cannot be written/);
    await expect(requireReportTarget(join(folder, 'fine.html'))).resolves.toBeUndefined();
  });

  it('a full disk is an error about the file', async () => {
    await expect(writeReport(swept(), '/dev/full')).rejects.toMatchObject({
      code: 'TKV_IO',
      path: '/dev/full',
    });
  });
});
