/**
 * The chat pages in Chromium on its software WebGPU and on wasm, over the example's own engine and over transformers.js: a prompt is
 * computed, the page is reloaded, and the same prompt is found in the origin's files: the same tokens, and a first token that waited
 * for a few tokens instead of all.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import type { Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildPages, servePages } from '../../tools/browserPages.ts';
import { hasExtra } from '../extras.ts';
import { isFull } from '../sized.ts';
import { chromiumProblem, keepPicture, openProfile } from './browser.ts';

const problem = await chromiumProblem();
if (problem !== undefined) process.stderr.write(`SKIPPED: the chat in a browser: ${problem}\n`);

declare const document: { readonly body: { readonly dataset: Record<string, string | undefined> } };

async function ready(page: Page): Promise<void> {
  await page.waitForFunction(() => document.body.dataset.ready === 'yes', undefined, { timeout: 240_000 });
}

interface Answered {
  readonly tokens: string;
  readonly foundTokens: number;
  readonly blocksFromFiles: number;
}

/** Asks the nth time since the page was loaded. */
async function ask(page: Page, nth = 1): Promise<Answered> {
  await page.getByRole('button', { name: 'Ask' }).click();
  await page.waitForFunction((wanted) => document.body.dataset.answered === wanted, String(nth), {
    timeout: 240_000,
  });
  const row = page.locator('#runs tr').first();
  return {
    tokens: (await row.getAttribute('data-tokens'))!,
    blocksFromFiles: Number(await row.getAttribute('data-files')),
    foundTokens: Number.parseInt((await row.locator('.found').textContent())!, 10),
  };
}

const hasTransformers = hasExtra('@huggingface/transformers', 'the chat page over transformers.js');

/**
 * On the software device transformers.js is long about its kernels. transformers-keeps-prefixes-in-a-page.test.ts has it on
 * WebGPU; here its page is on wasm, but for `npm run campaign -- full`.
 */
const pagesOf: readonly (readonly [
  page: string,
  query: string,
  tiers: string,
  programs: readonly string[],
])[] = [
  ['chat', '', 'hbm, ddr', ['chat', 'chatWorker']],
  ...(hasTransformers
    ? ([['transformers', '?device=wasm', 'ddr', ['chat', 'transformersWorker']]] as const)
    : []),
  ...(isFull && hasTransformers
    ? ([['transformers', '', 'hbm, ddr', ['chat', 'transformersWorker']]] as const)
    : []),
];

describe.skipIf(problem !== undefined).each(pagesOf)('the page %s%s', (name, query, tiers, programs) => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-chat-'));
  let profile: Awaited<ReturnType<typeof openProfile>>;
  let server: Server;
  let url: string;
  let page: Page;
  let first: Answered;

  beforeAll(async () => {
    await buildPages(dir, programs);
    ({ server, url } = await servePages(dir, 0));
    profile = await openProfile({ webgpu: true });
    page = await profile.context.newPage();
    await page.goto(`${url}/${name}.html${query}`);
    await page.locator('#document').waitFor();
  });
  afterAll(async () => {
    await profile?.close();
    server?.close();
    rmSync(dir, { recursive: true });
  });

  it('computes a prompt that it does not know', async () => {
    await ready(page);
    await page.locator('#document').fill('Keys and values depend on the words before them alone. '.repeat(8));
    first = await ask(page);
    expect(first).toMatchObject({ foundTokens: 0, blocksFromFiles: 0 });
    expect(first.tokens.split(',').length).toBe(24);
  });

  it('after a reload finds it in the files, with the same tokens', async () => {
    await page.reload();
    await ready(page);
    await page.locator('#document').fill('Keys and values depend on the words before them alone. '.repeat(8));
    const again = await ask(page);
    expect(again.tokens).toBe(first.tokens);
    expect(again.foundTokens).toBeGreaterThan(100);
    expect(again.blocksFromFiles).toBe(again.foundTokens / 16);
    await keepPicture(page, name);
  });

  it('control: another document finds nothing of it', async () => {
    await page.locator('#document').fill('Other words have other keys. '.repeat(8));
    expect(await ask(page, 2)).toMatchObject({ foundTokens: 0 });
  });

  it('a second tab goes on without the files, and says why', async () => {
    const second = await profile.context.newPage();
    await second.goto(`${url}/${name}.html${query}`);
    await ready(second);
    const where = await second.locator('#where').textContent();
    expect(where).toContain(`tiers ${tiers};`);
    expect(where).toMatch(/[Ww]ithout files.*another tab/);
    await second.close();
  });
});
