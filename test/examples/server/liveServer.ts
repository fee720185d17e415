/** A server on the tiny model and a free port, with small tiers, and the official client of the API for it. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { Serving, serverOptions } from '../../../examples/server/api/index.ts';
import type { ServerOptions } from '../../../examples/server/api/options.ts';
import type { CacheConfig, Engine } from '../../../examples/server/engine/index.ts';
import { sharedDevice } from '../../sharedDevice.ts';

export const model = 'tierkv-tiny';
export const blockBytes: number = 3 * 2 * 2 * 16 * 32 * 4;
/** Two tenants, and their keys. */
export const keys: ReadonlyMap<string, string> = new Map([
  ['key-a', 'tenant-a'],
  ['key-b', 'tenant-b'],
]);

export class LiveServer implements AsyncDisposable {
  readonly serving: Serving<Engine>;
  readonly lines: string[];

  private constructor(serving: Serving<Engine>, lines: string[]) {
    this.serving = serving;
    this.lines = lines;
  }

  /** @param device undefined: one of the server's own */
  static async start(
    options: Partial<ServerOptions> = {},
    device: CacheConfig['device'] = sharedDevice,
  ): Promise<LiveServer> {
    const lines: string[] = [];
    const all = { ...serverOptions(['--port', '0'], {}), ...options };
    const serving = await Serving.start(all, (line) => lines.push(line), device);
    return new LiveServer(serving as Serving<Engine>, lines);
  }

  get url(): string {
    return this.serving.url;
  }

  client(apiKey = 'key-a'): OpenAI {
    return new OpenAI({ baseURL: `${this.url}/v1`, apiKey, maxRetries: 0 });
  }

  /** A body to a path, as it is. */
  async post(
    path: string,
    body: string | Uint8Array<ArrayBuffer>,
    headers: Record<string, string> = {},
  ): Promise<Response> {
    return fetch(`${this.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer key-a', ...headers },
      body: body,
    });
  }

  /** All metrics by name and labels other than the model's. */
  async metrics(): Promise<Map<string, number>> {
    const text = await (await fetch(`${this.serving.operatorsUrl}/metrics`)).text();
    const found = new Map<string, number>();
    for (const line of text.split('\n')) {
      const [, name, labels, value] = /^([\w:]+)\{(.*)\} (\S+)$/.exec(line) ?? [];
      if (name === undefined) continue;
      const own = labels.replace(/model_name="[^"]*",engine="0",?/, '');
      found.set(own === '' ? name : `${name}{${own}}`, Number(value));
    }
    return found;
  }

  /** Fulfilled when the engine has nothing to do; throws when that takes for ever. */
  async idle(): Promise<void> {
    const { engine } = this.serving;
    for (let i = 0; engine.size > 0; i++) {
      if (i > 100_000) throw new Error(`${engine.size} requests never end`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await engine.cache.kv.idle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.serving.stop();
  }
}

const made: string[] = [];

export function stateDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'tierkv-server-'));
  made.push(directory);
  return directory;
}

export function removeStateDirectories(): void {
  for (const directory of made.splice(0)) rmSync(directory, { recursive: true });
}
