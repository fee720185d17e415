/**
 * Chromium from npm for tests that click: pages, clicks, waits and pictures by playwright-core. WebGPU, shared memory and
 * the page's own files work in it (`webgpu: true`), on the software device. A test asks `chromiumProblem` first, and is
 * skipped with what it says where Chromium cannot start.
 */

import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type Browser,
  type BrowserContext,
  type LaunchOptions,
  chromium as launcher,
  type Page,
} from 'playwright-core';
import { unpackedChromium } from './unpackedChromium.ts';

export interface BrowserOptions {
  /** Start with a software device for WebGPU. Default false. */
  readonly webgpu?: boolean;
}

/** Milliseconds for which a test waits for what a page must come to: the machine may be busy with other things. */
const PATIENCE_MS = 240_000;

const plain = [
  '--headless=shell',
  '--no-sandbox',
  '--no-zygote',
  '--disable-gpu',
  '--force-color-profile=srgb',
];
const withWebGpu = [
  ...['--headless=shell', '--no-sandbox', '--no-zygote', '--in-process-gpu'],
  ...['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'],
];

async function launchOptions({ webgpu = false }: BrowserOptions): Promise<LaunchOptions> {
  const { path: executablePath, libraries } = await unpackedChromium();
  return {
    executablePath,
    args: [...(webgpu ? withWebGpu : plain)],
    env: { ...process.env, ...(existsSync(libraries) ? { LD_LIBRARY_PATH: libraries } : {}) } as Record<
      string,
      string
    >,
    timeout: PATIENCE_MS,
  };
}

/** Close it: the process and its profile go with it. @throws where Chromium does not start */
export async function openBrowser(options: BrowserOptions = {}): Promise<Browser> {
  return await launcher.launch(await launchOptions(options));
}

/** A browser with a profile on the disk, in which an origin's files are as in a user's browser; gone when closed. */
export async function openProfile(
  options: BrowserOptions = {},
): Promise<{ readonly context: BrowserContext; close(): Promise<void> }> {
  const profile = mkdtempSync(join(tmpdir(), 'tierkv-profile-'));
  const context = await launcher.launchPersistentContext(profile, await launchOptions(options));
  context.setDefaultTimeout(PATIENCE_MS);
  return {
    context,
    async close() {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

let problem: Promise<string | undefined> | undefined;

/** Why tests with a browser cannot run here, with what to do; undefined where they can. */
export function chromiumProblem(): Promise<string | undefined> {
  problem ??= openBrowser().then(
    async (browser) => {
      await browser.close();
      return undefined;
    },
    (error: unknown) => {
      const [why] = String(error instanceof Error ? error.message : error).split('\n');
      return `Chromium cannot start (${why}); run: npm ci, and apt-get install libnss3 where a library is missing`;
    },
  );
  return problem;
}

/** A page that notes what goes wrong in it: errors of scripts, messages of the console, answers that are errors. */
export async function openPage(
  browser: Browser,
  options: {
    readonly width?: number;
    readonly height?: number;
    readonly colorScheme?: 'light' | 'dark';
  } = {},
): Promise<{ readonly page: Page; readonly problems: string[] }> {
  const { width = 1400, height = 1000, colorScheme = 'light' } = options;
  const context = await browser.newContext({ viewport: { width, height }, colorScheme });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') problems.push(message.text());
  });
  page.on('response', (response) => {
    if (response.status() >= 400) problems.push(`${response.status()} ${response.url()}`);
  });
  return { page, problems };
}

/** Keeps a picture of the page where `TIERKV_PICTURES` names a folder. */
export async function keepPicture(page: Page, name: string): Promise<void> {
  const folder = process.env.TIERKV_PICTURES;
  if (folder === undefined) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
}
