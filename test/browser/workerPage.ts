/** Pages whose worker runs a program of `test/browser/inPage`: built once, served from this machine, called by messages. */

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
    worker.onmessage = ({ data }) => {
      if (data.id === undefined) { said.push(data); return; }
      const { resolve, reject } = waiting.get(data.id);
      waiting.delete(data.id);
      if ('problem' in data) reject(new Error(data.problem)); else resolve(data.result);
    };
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
  open(context: BrowserContext | Browser): Promise<WorkerTab>;
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
  callWorker(call: string, args: readonly unknown[]): Promise<unknown>;
}

/**
 * @param program below `test/browser/inPage`, without extension
 * @param addFiles puts more files into the folder that is served
 */
export async function workerPages(
  program: string,
  addFiles: (dir: string) => void = () => {},
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
  const { url, server } = await servePages(dir, 0);
  return {
    url,
    async open(context) {
      const tab = await context.newPage();
      await tab.goto(`${url}/`);
      await tab.evaluate((name) => (globalThis as unknown as InPage).startWorker(name), `${program}.js`);
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
