/**
 * Our pair behind a proxy that is not ours in its language or its code: `vllmProxy.py`, which speaks as the proxy of vLLM's
 * NIXL connector does. With TIERKV_VLLM_PROXY=FILE the file is run instead, with TIERKV_PYTHON (default python3): vLLM's
 * own is tests/v1/kv_connector/nixl_integration/toy_proxy_server.py of its repository, and needs fastapi, httpx, uvicorn.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { serverOptions } from '../../examples/server/api/index.ts';
import { LiveServer, model } from '../examples/server/liveServer.ts';
import { portOfOurOwn } from '../ports.ts';

const python = process.env.TIERKV_PYTHON ?? 'python3';
const proxyFile = process.env.TIERKV_VLLM_PROXY ?? join(import.meta.dirname, 'vllmProxy.py');
const hasPython = spawnSync(python, ['--version']).status === 0;

const scratch = mkdtempSync(join(tmpdir(), 'tierkv-proxy-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
const secretFile = join(scratch, 'secret.key');
writeFileSync(secretFile, new Uint8Array(32).fill(5));

const start = (...args: string[]): Promise<LiveServer> =>
  LiveServer.start({
    ...serverOptions(
      ['--operator-port', '0', '--secret-file', secretFile, '--hbm-mib', '16', '--ddr-mib', '16', ...args],
      {},
    ),
    port: 0,
  });
const portOf = ({ url }: LiveServer): string => new URL(url).port;
const prompt =
  'What passes through a proxy that knows nothing of us has to be what it passes for others. '.repeat(4);

if (!hasPython) {
  console.log('SKIPPED: the proxy of another server: no python3 here. Install it: apt-get install python3');
}
describe.skipIf(!hasPython)('a pair behind a proxy of vLLM', () => {
  let single: LiveServer;
  let prefill: LiveServer;
  let decode: LiveServer;
  let proxy: ChildProcess;
  let url: string;
  beforeAll(async () => {
    single = await LiveServer.start({ hbmBytes: 2 ** 24, ddrBytes: 2 ** 24 });
    prefill = await start('--role', 'prefill', '--handoff-port', '0');
    decode = await start('--role', 'decode');
    const port = await portOfOurOwn();
    url = `http://127.0.0.1:${port}`;
    const sides = ['--prefiller-port', portOf(prefill), '--decoder-port', portOf(decode)];
    const hosts = ['--prefiller-host', '127.0.0.1', '--decoder-host', '127.0.0.1'];
    proxy = spawn(python, [proxyFile, '--port', String(port), ...sides, ...hosts], { stdio: 'ignore' });
    for (;;) {
      if (proxy.exitCode !== null) throw new Error(`${proxyFile} ended with ${proxy.exitCode}`);
      if (
        await fetch(`${url}/healthcheck`).then(
          () => true,
          () => false,
        )
      )
        break;
      await sleep(50);
    }
  }, 600_000);
  afterAll(async () => {
    proxy?.kill();
    for (const server of [single, prefill, decode]) await server?.[Symbol.asyncDispose]();
  });

  const taken = async (): Promise<number> => {
    const said = (await (await fetch(`${decode.serving.operatorsUrl}/handoffs`)).json()) as {
      received: { taken: number };
    };
    return said.received.taken;
  };
  const client = (base: string): OpenAI =>
    new OpenAI({ baseURL: `${base}/v1`, apiKey: 'none', maxRetries: 0 });

  it('answers a completion as one server does', async () => {
    const asked = { model, prompt, max_tokens: 6, temperature: 0, min_tokens: 0 };
    const [alone, together] = await Promise.all(
      [single.url, url].map((base) => client(base).completions.create(asked)),
    );
    expect(together.choices).toEqual(alone.choices);
    expect(await taken()).toBe(1);
  });

  it('streams a chat, with the fields that clients of today send', async () => {
    const asked = {
      model,
      messages: [{ role: 'user' as const, content: prompt }],
      temperature: 0,
      max_completion_tokens: 5,
      stream: true as const,
      stream_options: { include_usage: true },
    };
    const said: string[] = [];
    for (const base of [single.url, url]) {
      let text = '';
      let usage = 0;
      for await (const part of await client(base).chat.completions.create(asked)) {
        text += part.choices[0]?.delta.content ?? '';
        usage += part.usage?.completion_tokens ?? 0;
      }
      said.push(`${text} ${usage}`);
    }
    expect(said[1]).toBe(said[0]);
    expect(await taken()).toBe(2);
  });

  it('answers a prompt that is too short for a block', async () => {
    const asked = { model, prompt: 'Hi', max_tokens: 3, temperature: 0 };
    const [alone, together] = await Promise.all(
      [single.url, url].map((base) => client(base).completions.create(asked)),
    );
    expect(together.choices).toEqual(alone.choices);
  });
});
