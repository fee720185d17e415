/**
 * The edges of a server's life: options that it cannot keep, a stop with answers under way, pages of other
 * origins, and metrics that every reader of the text format reads.
 */

import { execFile } from 'node:child_process';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import OpenAI from 'openai';
import { afterAll, describe, expect, it } from 'vitest';
import { serverOptions } from '../../../examples/server/api/index.ts';
import { asOptionError } from '../../../examples/server/api/options.ts';
import { TierKVError } from '../../../src/index.ts';
import { blockBytes, LiveServer, model, removeStateDirectories } from './liveServer.ts';

afterAll(removeStateDirectories);

const small = { hbmBytes: 64 * blockBytes, ddrBytes: 0 };
const long = { model, prompt: 'Hello', max_tokens: 900, ignore_eos: true, temperature: 0 };

describe('a stop while answers are under way', () => {
  it('ends each as an error of the API: whole, streamed, and one that had not begun', async () => {
    const server = await LiveServer.start({ ...small, graceMs: 0, maxSequences: 2 });
    const whole = server.post('/v1/completions', JSON.stringify(long));
    const streamed = server.post('/v1/completions', JSON.stringify({ ...long, stream: true }));
    const chat = { ...long, prompt: undefined, messages: [{ role: 'user', content: 'Hi' }], stream: true };
    const waiting = server.post('/v1/chat/completions', JSON.stringify(chat));
    const idle = await server.post('/v1/completions', JSON.stringify({ ...long, max_tokens: 0 }));
    expect(idle.status).toBe(400);
    const { engine } = server.serving;
    const isUnderWay = (): boolean => engine.size === 3 && engine.counters.generationTokens >= 6;
    while (!isUnderWay()) await new Promise((go) => setTimeout(go, 2));
    await server.serving.stop();
    const answer = await whole;
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ error: { type: 'server_error', code: 'server_stopping' } });
    for (const response of [await streamed, await waiting]) {
      const text = await response.text();
      const last = text.trim().split('\n\n').at(-1) ?? '';
      expect(JSON.parse(last.slice('data: '.length))).toMatchObject({ error: { code: 'server_stopping' } });
      expect(text).not.toMatch(/\[DONE\]|"finish_reason":"|cancelled/);
    }
  });

  it('throws in the official client', async () => {
    const server = await LiveServer.start({ ...small, graceMs: 0 });
    const client = server.client();
    const whole = client.completions.create(long).catch((error: unknown) => error);
    const streaming = (async () => {
      let text = '';
      for await (const { choices } of await client.completions.create({ ...long, stream: true })) {
        text += choices[0].text;
      }
      return text;
    })().catch((error: unknown) => error);
    const { engine } = server.serving;
    const isUnderWay = (): boolean => engine.size === 2 && engine.counters.generationTokens >= 6;
    while (!isUnderWay()) await new Promise((go) => setTimeout(go, 2));
    await server.serving.stop();
    expect(await whole).toBeInstanceOf(OpenAI.InternalServerError);
    expect(await streaming).toBeInstanceOf(OpenAI.APIError);
  });
});

describe('pages of other origins', () => {
  const preflight = (server: LiveServer, origin: string): Promise<Response> =>
    fetch(`${server.url}/v1/chat/completions`, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type,x-stainless-os',
      },
    });
  const allowed = ({ headers }: Response): string | null => headers.get('access-control-allow-origin');
  const request = JSON.stringify({ ...long, max_tokens: 1 });

  it('may not call the API unless they are named, and then may read errors and streams too', async () => {
    {
      await using closed = await LiveServer.start(small);
      expect(allowed(await preflight(closed, 'https://a.example'))).toBeNull();
      const answer = await closed.post('/v1/completions', request, { origin: 'https://a.example' });
      expect(allowed(answer)).toBeNull();
    }
    const { allowedOrigins } = serverOptions(
      ['--allowed-origins', 'https://a.example, http://b.example:8080'],
      {},
    );
    await using server = await LiveServer.start({ ...small, allowedOrigins });
    for (const origin of ['https://a.example', 'http://b.example:8080']) {
      const before = await preflight(server, origin);
      expect(before.status).toBe(204);
      expect(before.headers.get('access-control-allow-headers')).toContain('x-stainless-os');
      const bodies = [request, '{', JSON.stringify({ ...long, max_tokens: 1, stream: true })];
      for (const body of bodies) {
        const answer = await server.post('/v1/completions', body, { origin });
        expect(allowed(answer)).toBe(origin);
        await answer.text();
      }
    }
    expect(allowed(await preflight(server, 'https://c.example'))).toBeNull();
  });

  it.each(['a.example', 'https://a.example/path', 'https://', 'null'])('are no origins: %s', (origin) => {
    expect(() => serverOptions(['--allowed-origins', origin], {})).toThrow(/--allowed-origins has /);
  });
});

describe('the metrics', () => {
  it('are lines of the text format whatever the model is called, each name once, of one meaning', async () => {
    const name = 'a "model"\nwith a line\\break\r\n} 1 # {x="y"}';
    await using server = await LiveServer.start({ ...small, ddrBytes: 64 * blockBytes, name });
    await server.client().completions.create({ ...long, model: name, max_tokens: 3 });
    const text = await (await fetch(`${server.url}/metrics`)).text();
    const types = new Map<string, string>();
    const samples = new Set<string>();
    const value = String.raw`"((?:[^"\\\n]|\\["\\n])*)"`;
    const sample = new RegExp(
      String.raw`^([a-zA-Z_:][\w:]*)\{((?:\w+=${value},?)+)\} (-?[\d.e+-]+|NaN|[+-]Inf)$`,
    );
    for (const line of text.trimEnd().split('\n')) {
      if (line === '' || line.startsWith('# HELP ')) continue;
      const [, declared, type] = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line) ?? [];
      if (declared !== undefined) {
        expect(types.has(declared), declared).toBe(false);
        types.set(declared, type);
        continue;
      }
      const [, family, labels] = sample.exec(line) ?? [];
      expect(family, line).toBeDefined();
      expect(samples.has(`${family} ${labels}`), line).toBe(false);
      samples.add(`${family} ${labels}`);
      const [, escaped] = /^model_name="((?:[^"\\]|\\.)*)"/.exec(labels) ?? [];
      const unescaped = escaped?.replaceAll(/\\(.)/g, (_, each: string) => (each === 'n' ? '\n' : each));
      expect(unescaped).toBe(name);
      expect(types.has(family.replace(/_(bucket|sum|count)$/, '')) || types.has(family), line).toBe(true);
    }
    for (const [family, type] of types) {
      expect(family.endsWith('_total'), family).toBe(type === 'counter');
      expect(family).not.toMatch(/total_total|total_.*_total|failed_loaded/);
    }
    expect(types.get('tierkv_load_failures_total')).toBe('counter');
    expect(types.get('tierkv_load_duration_seconds')).toBe('histogram');
  });
});

describe('options that cannot be kept', () => {
  const main = join(import.meta.dirname, '..', '..', '..', 'examples', 'server', 'main.ts');
  const run = promisify(execFile);
  const refusalOf = async (...args: string[]): Promise<string> => {
    const failed = await run(process.execPath, [main, ...args]).catch((error: unknown) => error);
    const { code, stderr } = failed as { code: number; stderr: string };
    expect(code).toBe(2);
    return stderr;
  };

  it('a port that is taken, and a host of another machine, before the device is opened', async () => {
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    const { port } = taken.address() as { port: number };
    const refusal = await refusalOf('--port', String(port));
    expect(refusal).toBe(
      `tierkv server: --port is ${port}, at which another program listens on 127.0.0.1. ` +
        'Stop that one, or give another port; 0 takes any that is free.\n',
    );
    taken.close();
    expect(await refusalOf('--port', '0', '--host', '192.0.2.7')).toMatch(
      /^tierkv server: --host is 192.0.2.7, .*\n$/,
    );
  });

  it('a context above the model, or above HBM, by what bounds it', async () => {
    await expect(LiveServer.start({ ...small, contextTokens: 5_000_000 })).rejects.toMatchObject({
      message: expect.stringMatching(/^--context is 5000000, and the model has 8192 .* Lower --context\.$/),
    });
    await expect(LiveServer.start({ ...small, contextTokens: 8000 })).rejects.toMatchObject({
      message: expect.stringMatching(
        /^--context is 8000, and HBM holds .* Lower --context, or raise --hbm-mib\.$/,
      ),
    });
    await using server = await LiveServer.start({ ...small, contextTokens: 100 });
    expect(server.serving.engine.contextTokens).toBe(100);
  });

  it.each([
    [['--nvme-mib', '5'], /^--nvme-mib is given, and --state is not\. Name the directory/],
    [['--grace-seconds=-1'], /^--grace-seconds is -1/],
    [['--context', '1'], /^--context is 1/],
  ])('%j', (args, words) => {
    expect(() => serverOptions(args, {})).toThrow(words);
  });

  it('more memory than there is, by the option and in its unit', async () => {
    const tooMuch = LiveServer.start({ ...small, ddrBytes: 2 ** 20 * 2 ** 20 });
    const error = (await tooMuch.catch((reason: unknown) => reason)) as TierKVError;
    expect(error.field).toBe('--ddr-mib');
    expect(error.message).toMatch(/^--ddr-mib .*\d MiB/);
    expect(error.message).not.toMatch(/ddrBytes|\d{8}/);
  });

  it('are told by their names, wherever an error names the field of a configuration', () => {
    const message =
      'nvme.bytes is 5242880, less than 10485760 bytes; see /data/nvme.bytes. Raise nvme.bytes or hbmBytes.';
    const error = asOptionError(
      new TierKVError('TKV_CONFIG', message, { field: 'nvme.bytes' }),
    ) as TierKVError;
    expect(error.message).toBe(
      '--nvme-mib is 5 MiB, less than 10 MiB; see /data/nvme.bytes. Raise --nvme-mib or --hbm-mib.',
    );
    const other = new TierKVError('TKV_IO', 'hbmBytes', { field: 'else' });
    expect(asOptionError(other)).toBe(other);
  });
});
