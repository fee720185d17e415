/**
 * A page in the Chromium that comes through npm, driven by the protocol of its developer tools: go somewhere,
 * evaluate an expression there.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { unpackedChromium } from '../../../browser/unpackedChromium.ts';

export class BrowserPage implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #profile: string;
  readonly #socket: WebSocket;
  readonly #calls: Map<number, PromiseWithResolvers<unknown>> = new Map();
  #session: string | undefined;
  #id = 0;

  private constructor(process: ChildProcess, profile: string, socket: WebSocket) {
    this.#process = process;
    this.#profile = profile;
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => {
      const { id, result, error } = JSON.parse(String(data));
      const call = this.#calls.get(id);
      this.#calls.delete(id);
      if (error === undefined) call?.resolve(result);
      else call?.reject(new Error(error.message));
    });
  }

  /** @throws when Chromium does not start */
  static async open(url: string): Promise<BrowserPage> {
    const { path, libraries } = await unpackedChromium();
    const profile = mkdtempSync(join(tmpdir(), 'tierkv-browser-'));
    const args = ['--headless=shell', '--no-sandbox', '--no-zygote', '--disable-gpu', '--single-process'];
    const child = spawn(path, [...args, '--remote-debugging-port=0', `--user-data-dir=${profile}`], {
      env: { ...process.env, ...(existsSync(libraries) ? { LD_LIBRARY_PATH: libraries } : {}) },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const socket = new WebSocket(await debuggingUrl(child));
    await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }));
    const page = new BrowserPage(child, profile, socket);
    const { targetId } = (await page.#call('Target.createTarget', { url })) as { targetId: string };
    const attach = await page.#call('Target.attachToTarget', { targetId, flatten: true });
    page.#session = (attach as { sessionId: string }).sessionId;
    return page;
  }

  /** The value of an expression in the page; of what a promise comes to. @throws what it throws */
  async evaluate<T>(expression: string): Promise<T> {
    const options = { expression, awaitPromise: true, returnByValue: true };
    const answer = (await this.#call('Runtime.evaluate', options)) as {
      result: { value: T };
      exceptionDetails?: { text: string };
    };
    if (answer.exceptionDetails !== undefined) throw new Error(answer.exceptionDetails.text);
    return answer.result.value;
  }

  /** Fulfilled when the expression is true. */
  async until(expression: string): Promise<void> {
    for (let i = 0; i < 12_000; i++) {
      if (await this.evaluate<boolean>(expression)) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`${expression} never became true`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
    const ended = new Promise((resolve) => this.#process.once('close', resolve));
    this.#process.kill('SIGKILL');
    await ended;
    rmSync(this.#profile, { recursive: true, force: true });
  }

  #call(method: string, params: object): Promise<unknown> {
    const id = ++this.#id;
    const call = Promise.withResolvers<unknown>();
    this.#calls.set(id, call);
    const session = this.#session === undefined ? {} : { sessionId: this.#session };
    this.#socket.send(JSON.stringify({ id, method, params, ...session }));
    return call.promise;
  }
}

/** What Chromium says on stderr once it listens. */
function debuggingUrl(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = '';
    child.stderr?.on('data', (part: Buffer) => {
      said += part;
      const [, url] = /DevTools listening on (ws:\S+)/.exec(said) ?? [];
      if (url !== undefined) resolve(url);
    });
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`Chromium ended with ${code}: ${said}`)));
  });
}
