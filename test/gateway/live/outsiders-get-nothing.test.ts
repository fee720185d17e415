/** What someone without good intentions sends to a gateway, or answers it: each costs its sender alone. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { Gateway } from '../../../src/serve/gateway/gateway.ts';
import {
  answer,
  ask,
  echo,
  gatewayOf,
  rawServer,
  TestBackend,
  textOf,
  until,
  wellMetrics,
} from './backends.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-outside-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Sends bytes as they are. @returns all that came back until the end, or until `isEnough` says so */
async function raw(
  gateway: Gateway,
  bytes: string,
  { ends = false, isEnough = (_: string): boolean => false } = {},
): Promise<string> {
  const { hostname, port } = new URL(gateway.url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  let said = '';
  await new Promise<void>((resolve) => {
    socket.on('data', (data) => {
      said += data.toString('latin1');
      if (isEnough(said)) resolve();
    });
    socket.on('close', () => resolve());
    socket.on('end', () => resolve());
    socket.on('error', () => resolve());
    if (ends) socket.end(bytes, 'latin1');
    else socket.write(bytes, 'latin1');
  });
  socket.destroy();
  return said;
}

const inner = '{"model":"m","prompt":"smuggled"}';
const second = [
  'POST /v1/completions HTTP/1.1',
  'host: x',
  'content-type: application/json',
  `content-length: ${inner.length}`,
  '',
  inner,
].join('\r\n');
const outer = '{"model":"m","prompt":"first"}';
const head = 'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n';

describe('a request with two lengths', () => {
  it.each<[string, string]>([
    [
      'a length and chunks',
      `${head}content-length: ${outer.length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n${second}`,
    ],
    [
      'chunks and a length',
      `${head}transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n1e\r\n${outer}\r\n0\r\n\r\n${second}`,
    ],
    ['two lengths', `${head}content-length: ${outer.length}\r\ncontent-length: 0\r\n\r\n${outer}${second}`],
    ['a length with a sign', `${head}content-length: +${outer.length}\r\n\r\n${outer}${second}`],
    ['a length in two', `${head}content-length: ${outer.length}, 0\r\n\r\n${outer}${second}`],
    ['an encoding that is not known', `${head}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n${second}`],
    ['chunks that are not last', `${head}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n${second}`],
    ['a space before the colon', `${head}transfer-encoding : chunked\r\n\r\n0\r\n\r\n${second}`],
    [
      'a folded header',
      `${head}x-a: b\r\n transfer-encoding: chunked\r\ncontent-length: ${outer.length}\r\n\r\n${outer}`,
    ],
    [
      'a chunk of a size beyond all',
      `${head}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n${outer}`,
    ],
    [
      'a header that ends with a bare line feed',
      `${head}x-a: b\ncontent-length: ${outer.length}\r\n\r\n${outer}`,
    ],
  ])('%s: nothing is read as a second one', async (_what, bytes) => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    const said = await raw(gateway, bytes, {
      isEnough: (text) => /\r\n\r\n.*\}\s*$/s.test(text) || / 400 /.test(text),
    });
    expect(said).toMatch(/^HTTP\/1\.1 (400|200)/);
    const prompts = backend.seen.map(({ body }) => (JSON.parse(body) as { prompt: string }).prompt);
    expect(prompts.filter((prompt) => prompt === 'smuggled')).toEqual([]);
    expect(prompts.length).toBeLessThanOrEqual(1);
    expect(await textOf(await ask(gateway, 'next'))).toBe('echo next');
  });

  it('two whole ones behind each other are two, each with its answer', async () => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    const bytes = `${head}content-length: ${outer.length}\r\n\r\n${outer}${second}`;
    const said = await raw(gateway, bytes, { isEnough: (text) => text.includes('echo smuggled') });
    expect(said.indexOf('echo first')).toBeGreaterThan(0);
    expect(said.indexOf('echo smuggled')).toBeGreaterThan(said.indexOf('echo first'));
  });
});

describe('a request of an odd kind', () => {
  it.each<[string, string, RegExp]>([
    [
      'for another host',
      'GET http://evil.test/v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n',
      / 404 /,
    ],
    ['for a tunnel', 'CONNECT evil.test:443 HTTP/1.1\r\nhost: evil.test:443\r\n\r\n', /^$| 400 | 404 /],
    [
      'for another protocol',
      'GET /v1/models HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade, close\r\n\r\n',
      / 200 /,
    ],
    [
      'for a path of two beginnings',
      'GET //v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n',
      / 404 /,
    ],
    ['of an old version', 'GET /v1/models HTTP/1.0\r\n\r\n', / 200 /],
    ['of no version', 'GET /v1/models\r\n\r\n', /^$| 400 | 200 /],
    ['of no protocol', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', /^$| 400 /],
  ])('%s', async (_what, bytes, status) => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    expect(await raw(gateway, bytes)).toMatch(status);
    expect(await textOf(await ask(gateway, 'next'))).toBe('echo next');
  });

  it('whose client ends its side and waits is answered or left, and leaves nothing', async () => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    await raw(gateway, `${head}content-length: ${outer.length}\r\n\r\n${outer}`, { ends: true });
    await raw(gateway, `${head}content-length: 1000\r\n\r\n${outer}`, { ends: true });
    await until(() => gateway.openRequests === 0, 'all have ended');
    expect(await textOf(await ask(gateway, 'next'))).toBe('echo next');
  });

  it.each<[string, string, number]>([
    ['nested too deep', `{"prompt":"p","x":${'['.repeat(200)}${']'.repeat(200)}}`, 400],
    ['of too many values', `{"prompt":"p","x":[${'0,'.repeat(2 ** 20)}0]}`, 400],
    ['that is a list', '[]', 400],
    ['that is nothing', '', 400],
  ])('with a body %s gets an error', async (_what, body, status) => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    const url = `${gateway.url}/v1/completions`;
    for (const type of ['application/json', 'text/plain']) {
      const response = await fetch(url, { method: 'POST', body, headers: { 'content-type': type } });
      expect(response.status).toBe(status);
    }
    expect(backend.seen).toEqual([]);
  });

  it('that hides its type does not say its own rank', async () => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend], { sendPriority: true });
    const body = JSON.stringify({ model: 'm', prompt: 'p', priority: -1000 });
    const headers = { 'content-type': 'text/plain' };
    await (await fetch(`${gateway.url}/v1/completions`, { method: 'POST', body, headers })).text();
    expect((JSON.parse(backend.seen[0].body) as { priority: number }).priority).toBeGreaterThan(-1000);
  });
});

it('bodies that wait take no more memory than they may, and room that they had comes back', async () => {
  await using backend = await TestBackend.open(echo);
  await using gateway = await gatewayOf([backend], { limits: { heldBytes: 100_000 } });
  const { hostname, port } = new URL(gateway.url);
  const sockets: Socket[] = [];
  for (let i = 0; i < 3; i++) {
    const socket = connect({ host: hostname, port: Number(port) });
    socket.on('error', () => {});
    socket.write(`${head}content-length: 50000\r\n\r\n${' '.repeat(40_000)}`);
    sockets.push(socket);
  }
  const said = await new Promise<string>((resolve) => {
    for (const socket of sockets) socket.once('data', (data) => resolve(data.toString()));
  });
  expect(said).toContain('429');
  expect(said).toContain('overloaded');
  for (const socket of sockets) socket.destroy();
  const fits = async (): Promise<boolean> => (await ask(gateway, 'x'.repeat(90_000))).status === 200;
  for (let i = 0; !(await fits()); i++) {
    if (i > 500) throw new Error('the room never comes back');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
});

it('a client does not say whose cache it reads: the tenant is what its key says', async () => {
  await using backend = await TestBackend.open((_request, response) => response.end(answer('x')));
  await using gateway = await gatewayOf([backend], { tenants: new Map([['key-a', 'a']]) });
  await ask(gateway, 'p', {}, { authorization: 'Bearer key-a', 'x-tenant-id': 'b' });
  await fetch(`${gateway.url}/v1/files`, { headers: { authorization: 'Bearer key-a', 'x-tenant-id': 'b' } });
  expect(backend.seen.map(({ headers }) => headers['x-tenant-id'])).toEqual(['a', 'a']);
});

it('neither log nor trace has a key, a prompt, an answer or a name of a session', async () => {
  const [log, trace] = [join(folder, 'secret.log'), join(folder, 'secret.trace')];
  const secrets = [
    'key-of-a-client',
    'key-of-a-server',
    'admin-key',
    'a secret prompt',
    'session-name',
    'user-name',
  ];
  {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([], {
      ...{ backends: [{ url: backend.url, apiKey: 'key-of-a-server' }], adminKey: 'admin-key', log, trace },
      tenants: new Map([['key-of-a-client', 'shop']]),
    });
    const headers = {
      authorization: 'Bearer key-of-a-client',
      'x-session-id': 'session-name',
      cookie: 'key-of-a-client',
    };
    for (let i = 0; i < 3; i++) {
      const response = await ask(
        gateway,
        `a secret prompt ${'x'.repeat(200)}`,
        { user: 'user-name' },
        headers,
      );
      expect(response.status).toBe(200);
    }
    const chat = { model: 'm', messages: [{ role: 'user', content: 'a secret prompt' }] };
    const init = {
      method: 'POST',
      body: JSON.stringify(chat),
      headers: { ...headers, 'content-type': 'application/json' },
    };
    await (await fetch(`${gateway.url}/v1/chat/completions`, init)).text();
    await ask(gateway, 'p', {}, { authorization: 'Bearer key-of-a-stranger' });
    const all =
      JSON.stringify([gateway.counts, gateway.notes]) +
      (await (
        await fetch(`${gateway.operatorUrl}/metrics`, { headers: { authorization: 'Bearer admin-key' } })
      ).text());
    for (const secret of secrets) expect(all).not.toContain(secret);
  }
  for (const file of [log, trace]) {
    const text = readFileSync(file, 'utf8');
    expect(text).toContain('shop');
    for (const secret of [...secrets, 'key-of-a-stranger', 'echo'])
      expect([file, text.includes(secret)]).toEqual([file, false]);
  }
});

describe('a backend that', () => {
  const head101 = 'HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n';
  it.each<[string, (socket: Socket) => void]>([
    ['wants another protocol', (socket) => socket.write(head101)],
    [
      'has a head without end',
      (socket) => {
        socket.write('HTTP/1.1 200 OK\r\n');
        const more = setInterval(() => socket.write(`x-${'y'.repeat(1000)}: z\r\n`), 1);
        socket.on('close', () => clearInterval(more));
      },
    ],
    [
      'says that more is to come, for ever',
      (socket) => {
        const more = setInterval(() => socket.write('HTTP/1.1 100 Continue\r\n\r\n'), 1);
        socket.on('close', () => clearInterval(more));
      },
    ],
    [
      'has two lengths',
      (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 5\r\n\r\n{}abc'),
    ],
    [
      'has a status that cannot be',
      (socket) => socket.write('HTTP/1.1 999999 X\r\ncontent-length: 2\r\n\r\n{}'),
    ],
  ])('%s costs its own answer, and another one answers', async (_what, talk) => {
    await using bad = await rawServer((socket, said) => {
      const path = said.split(' ')[1];
      const well = (body: string): void =>
        void socket.end(
          `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
        );
      if (path === '/metrics') well(wellMetrics);
      else if (path === '/health') well('ok');
      else if (path === '/v1/models') well('{"data":[{"id":"m"}]}');
      else talk(socket);
    });
    await using good = await TestBackend.open(echo);
    const { port } = bad.address() as { port: number };
    await using gateway = await gatewayOf([{ url: `http://127.0.0.1:${port}` }, good], {
      limits: { headMs: 1000, totalMs: 30_000 },
    });
    expect(gateway.pool.backends.map(({ isUp }) => isUp)).toEqual([true, true]);
    const asked = [0, 1, 2, 3].map(async (i) => {
      const response = await ask(gateway, `p${i}`);
      return response.status === 200 ? textOf(response) : response.status;
    });
    const answers = await Promise.all(asked);
    for (const [i, text] of answers.entries()) expect([`echo p${i}`, 502, 504]).toContain(text);
    expect(answers.filter((text) => typeof text === 'string').length).toBeGreaterThanOrEqual(2);
    await until(() => gateway.openRequests === 0, 'nothing is open');
  });

  it('fills its metrics and models with names fills no log with them', async () => {
    const log = join(folder, 'bomb.log');
    {
      await using backend = await TestBackend.open((_request, response) => response.end(answer('x')));
      const long = 'n'.repeat(2 ** 20);
      backend.metrics = `${wellMetrics}vllm:lora_requests_info{running_lora_adapters="${long},short"} 1\n`;
      backend.models = { data: [{ id: 'm' }, { id: long }] };
      await using gateway = await gatewayOf([backend], { log });
      await ask(gateway, 'p', { model: long });
      await ask(gateway, 'p');
      const [{ models, report }] = gateway.pool.backends;
      expect([[...models.keys()], report?.adapters]).toEqual([['m'], ['short']]);
    }
    expect(readFileSync(log).length).toBeLessThan(2 ** 18);
  });

  it('says a time that cannot be is not believed', async () => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    const [seen] = gateway.pool.backends;
    backend.metrics = `${wellMetrics}vllm:time_to_first_token_seconds_sum 1e15\nvllm:time_to_first_token_seconds_count 1\n`;
    await until(() => seen.counts.lies > 0, 'it is refused');
    expect(seen.lastError).toContain('which cannot be');
    expect(await textOf(await ask(gateway, 'p'))).toBe('echo p');
  });
});
