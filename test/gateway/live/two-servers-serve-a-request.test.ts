/** Servers that compute prompts for others: the two legs, what goes between them, and what happens where one fails. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { GatewayConfig } from '../../../src/serve/gateway/config.ts';
import { decideAgain } from '../../../src/serve/gateway/decisionLog.ts';
import { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { prefixBundle } from '../recordedRun.ts';
import { answer, ask, type Handler, TestBackend, textOf, until } from './backends.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-legs-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** As a server wrote them: an id that JavaScript would round, and a field that no one here knows. */
const handed =
  '{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":"p","remote_block_ids":[1,2],"remote_host":"10.0.0.1","remote_port":5600,"ticket":12345678901234567890}';

const prefills: Handler = (_request, response) => {
  const whole = JSON.stringify({
    choices: [{ text: '' }],
    usage: { prompt_tokens: 20, completion_tokens: 1 },
  });
  response.setHeader('content-type', 'application/json');
  response.end(whole.replace(/}$/, `,"kv_transfer_params":${handed}}`));
};

async function split(
  handlers: readonly [prefill: Handler, decode: Handler],
  more: Partial<GatewayConfig> = {},
  work: (all: { gateway: Gateway; prefill: TestBackend; decode: TestBackend }) => Promise<void>,
): Promise<void> {
  await using prefill = await TestBackend.open(handlers[0]);
  await using decode = await TestBackend.open(handlers[1]);
  await using gateway = await Gateway.open({
    backends: [
      { url: prefill.url, id: 'p', role: 'prefill' },
      { url: decode.url, id: 'd', role: 'decode' },
    ],
    port: 0,
    pollMs: 20,
    adminKey: 'admin',
    ...more,
    limits: { graceMs: 2000, ...more.limits },
  });
  await work({ gateway, prefill, decode });
}

const says: Handler = (_request, response, body) => {
  response.setHeader('content-type', 'application/json');
  response.end(answer(`said ${(JSON.parse(body) as { prompt: string }).prompt}`));
};

describe('a request of two legs', () => {
  it('has its prompt computed by one server and its output by the other, with the parameters as they came', async () => {
    const log = join(folder, 'legs.log');
    const trace = join(folder, 'legs.trace');
    await split(
      [prefills, says],
      { log, trace, policy: prefixBundle },
      async ({ gateway, prefill, decode }) => {
        const sent = { max_tokens: 7, stream_options: { include_usage: true }, min_tokens: 3, seed: 5 };
        const response = await ask(gateway, 'hello', sent);
        expect(await textOf(response)).toBe('said hello');
        expect(response.headers.get('x-tierkv-backend')).toBe('d');
        expect(JSON.parse(prefill.seen[0].body)).toEqual({
          ...{ model: 'm', prompt: 'hello', seed: 5, stream: false, n: 1, max_tokens: 1 },
          kv_transfer_params: {
            do_remote_decode: true,
            do_remote_prefill: false,
            remote_engine_id: null,
            remote_block_ids: null,
            remote_host: null,
            remote_port: null,
          },
        });
        expect(decode.seen[0].body).toBe(
          JSON.stringify({ model: 'm', prompt: 'hello', ...sent }).replace(
            /}$/,
            `,"kv_transfer_params":${handed}}`,
          ),
        );
        expect(prefill.seen[0].headers['x-request-id']).toBe(decode.seen[0].headers['x-request-id']);
        expect(gateway.counts).toMatchObject({ completed: 1, prefills: 1, prefillsFailed: 0, failed: 0 });
        for (let i = 0; i < 6; i++) await (await ask(gateway, `more ${i}`)).text();
        expect(gateway.openRequests).toBe(0);
      },
    );
    expect(JSON.parse(readFileSync(trace, 'utf8').split('\n')[0])).toMatchObject({
      backend: 'd',
      prefill_backend: 'p',
      // not those of the decode server, to which they were handed: see `answer`
      cached_tokens: -1,
    });
    const again = await decideAgain(log);
    expect([again.differences, again.routes]).toEqual([[], 7]);
    expect(readFileSync(log, 'utf8')).toContain('"prefill":0');
  });

  it.each<[string, Handler]>([
    ['answers an error', (_request, response) => response.writeHead(500).end('{}')],
    ['answers without parameters', says],
    ['answers garbage', (_request, response) => response.end('garbage')],
    ['breaks the connection', (request) => request.socket.destroy()],
    [
      'answers more than a prompt can need',
      (_request, response) => {
        const pieces = setInterval(() => response.write(' '.repeat(2 ** 16)), 1);
        response.on('close', () => clearInterval(pieces));
      },
    ],
  ])('is served by the other one alone where the first %s', async (_what, broken) => {
    const log = join(folder, 'broken.log');
    await split([broken, says], { log }, async ({ gateway, decode }) => {
      expect(await textOf(await ask(gateway, 'hello'))).toBe('said hello');
      expect(decode.seen[0].body).not.toContain('kv_transfer_params');
      expect(gateway.counts).toMatchObject({ completed: 1, prefills: 0, prefillsFailed: 1, failed: 0 });
      expect(gateway.openRequests).toBe(0);
    });
    expect((await decideAgain(log)).differences).toEqual([]);
  });

  it('whose second server fails is begun anew at a third one, with a prompt computed for that', async () => {
    await using third = await TestBackend.open(says);
    const dies: Handler = (request) => void request.socket.destroy();
    await using prefill = await TestBackend.open(prefills);
    await using decode = await TestBackend.open(dies);
    await using gateway = await Gateway.open({
      backends: [
        { url: prefill.url, id: 'p', role: 'prefill' },
        { url: decode.url, id: 'd', role: 'decode' },
        { url: third.url, id: 'e', role: 'decode' },
      ],
      port: 0,
      pollMs: 20,
      limits: { graceMs: 2000 },
    });
    for (let i = 0; i < 4; i++) expect(await textOf(await ask(gateway, `p${i}`))).toBe(`said p${i}`);
    expect(third.seen.every(({ body }) => body.includes('"ticket":12345678901234567890'))).toBe(true);
    expect(gateway.counts.retries).toBeGreaterThan(0);
    expect(gateway.counts.prefills).toBe(4 + gateway.counts.retries);
  });

  it('does not take parameters of a client: a server would fetch from where the client says', async () => {
    const own = { kv_transfer_params: { do_remote_prefill: true, remote_host: 'evil', remote_port: 1 } };
    const none: Handler = (_request, response) => response.writeHead(503).end('{}');
    await split([none, says], {}, async ({ gateway, decode }) => {
      await (await ask(gateway, 'p', own)).text();
      const escaped = JSON.stringify({ model: 'm', prompt: 'q', ...own }).replace('kv_t', 'kv\\u005ft');
      const headers = { 'content-type': 'application/json' };
      await (await fetch(`${gateway.url}/v1/completions`, { method: 'POST', headers, body: escaped })).text();
      const taken = decode.seen.map(({ body }) => (JSON.parse(body) as typeof own).kv_transfer_params);
      expect(taken).toEqual([null, null]);
    });
  });

  it('whose client leaves while its prompt is computed stops there', async () => {
    await split([() => {}, says], {}, async ({ gateway, prefill, decode }) => {
      const leaving = new AbortController();
      const asked = ask(gateway, 'p', {}, {}, leaving.signal).catch(() => 'left');
      await until(() => prefill.seen.length === 1, 'the first leg is there');
      leaving.abort();
      expect(await asked).toBe('left');
      await until(() => prefill.aborted === 1, 'the first server is told');
      await until(() => gateway.openRequests === 0, 'the request has ended');
      expect(decode.seen).toEqual([]);
      expect(gateway.counts).toMatchObject({ clientsLeft: 1, failed: 0 });
    });
  });

  it('has one leg where the decider says so, as in the simulator', async () => {
    const control = { decider: { policy: 'never' } };
    await split([prefills, says], { control }, async ({ gateway, prefill }) => {
      expect(await textOf(await ask(gateway, 'p'))).toBe('said p');
      expect(prefill.seen).toEqual([]);
      expect(gateway.counts).toMatchObject({ prefills: 0, prefillsFailed: 0 });
    });
  });
});

it.each<[string, readonly string[], RegExp]>([
  ['prompts alone', ['prefill'], /none the outputs/],
  ['outputs alone', ['decode'], /none prefill/],
  ['what no server does', ['prefil'], /prefill/],
])('servers that compute %s are refused', async (_what, roles, problem) => {
  const backends = roles.map((role) => ({ url: 'http://127.0.0.1:9', role: role as 'prefill' }));
  await expect(Gateway.open({ backends, port: 0 })).rejects.toThrow(problem);
});
