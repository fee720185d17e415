/** Pages that run a program of `test/browser/inPage` in a worker, or in their own thread: built once, served from this machine, called by messages. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { buildForBrowsers } from '../../tools/browserBuild.ts';
import { servePages } from '../../tools/browserPages.ts';

const page = `<!doctype html><title>worker</title><link rel="icon" href="data:,"><script>
  const waiting = new Map();
  globalThis.said = [];
  globalThis.startWorker = (name) => {
    globalThis.worker = new Worker(name, { type: 'module' });
    worker.onerror = (event) => {
      globalThis.failure = new Error('the worker failed: ' + event.message + ' at line ' + event.lineno);
      for (const { reject } of waiting.values()) reject(failure);
    };
    worker.onmessage = ({ data }) => hear(data);
  };
  const hear = (data) => {
    if (data.id === undefined) { said.push(data); return; }
    const { resolve, reject } = waiting.get(data.id);
    waiting.delete(data.id);
    if ('problem' in data) reject(new Error(data.problem)); else resolve(data.result);
  };
  globalThis.startHere = async (name) => {
    globalThis.worker = globalThis;
    addEventListener('message', ({ data }) => { if (!('call' in data)) hear(data); });
    await import('./' + name);
  };
  let ids = 0;
  globalThis.callWorker = (call, args) => new Promise((resolve, reject) => {
    if (globalThis.failure !== undefined) return reject(failure);
    waiting.set(++ids, { resolve, reject });
    worker.postMessage({ id: ids, call, args });
  });
</script>`;

export interface WorkerPages extends AsyncDisposable {
  readonly url: string;
  /** A new tab of the origin with a worker of its own. */
  open(context: BrowserContext | Browser, thread?: 'worker' | 'page'): Promise<WorkerTab>;
}

export interface WorkerTab {
  readonly page: Page;
  call<T>(name: string, ...args: readonly unknown[]): Promise<T>;
  /** What the worker said beside answers, so far. */
  said<T>(): Promise<readonly T[]>;
}

interface InPage {
  readonly said: unknown[];
  startWorker(name: string): void;
  startHere(name: string): Promise<void>;
  callWorker(call: string, args: readonly unknown[]): Promise<unknown>;
}

/**
 * @param program below `test/browser/inPage`, without extension
 * @param options.addFiles puts more files into the folder that is served
 * @param options.isIsolated false: without the headers that pages with shared memory need
 */
export async function workerPages(
  program: string,
  {
    addFiles = () => {},
    isIsolated = true,
  }: { readonly addFiles?: (dir: string) => void; readonly isIsolated?: boolean } = {},
): Promise<WorkerPages> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-in-page-'));
  const inPage = join(import.meta.dirname, 'inPage');
  await buildForBrowsers({
    input: { [program]: join(inPage, `${program}.ts`) },
    dir,
    minify: false,
    instead: { vitest: join(inPage, 'vitest.ts') },
  });
  writeFileSync(join(dir, 'index.html'), page);
  addFiles(dir);
  const { url, server } = await servePages(dir, 0, isIsolated);
  return {
    url,
    async open(context, thread = 'worker') {
      const tab = await context.newPage();
      await tab.goto(`${url}/`);
      await tab.evaluate(
        ([name, where]) => {
          const page = globalThis as unknown as InPage;
          return where === 'page' ? page.startHere(name) : page.startWorker(name);
        },
        [`${program}.js`, thread] as const,
      );
      return {
        page: tab,
        call: <T>(name: string, ...args: readonly unknown[]) =>
          tab.evaluate(([call, given]) => (globalThis as unknown as InPage).callWorker(call, given), [
            name,
            args,
          ] as const) as Promise<T>,
        said: <T>() => tab.evaluate(() => (globalThis as unknown as InPage).said as T[]),
      };
    },
    async [Symbol.asyncDispose]() {
      server.close();
      rmSync(dir, { recursive: true });
    },
  };
}
