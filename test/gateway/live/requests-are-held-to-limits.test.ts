import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { withField } from '../../../src/serve/gateway/twoLegs.ts';
import { answer, ask, echo, gatewayOf, TestBackend, textOf, until } from './backends.ts';

const tenants = new Map([
  ['key-a', 'a'],
  ['key-b', 'b'],
]);

describe('tenants', () => {
  it('a key that is not known gets 401, and a known one goes no further than the gateway', async () => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend], { tenants });
    for (const headers of [{}, { authorization: 'Bearer other' }, { authorization: 'Basic key-a' }]) {
      expect((await ask(gateway, 'p', {}, headers)).status).toBe(401);
    }
    expect(backend.seen).toEqual([]);
    const response = await ask(gateway, 'p', {}, { authorization: 'Bearer key-a', 'x-tenant-id': 'b' });
    expect(await textOf(response)).toBe('echo p');
    expect(backend.seen[0].headers.authorization).toBe(undefined);
  });

  it('without tenants the key of the client goes on, and with a key of the backend that one goes', async () => {
    await using backend = await TestBackend.open(echo);
    {
      await using gateway = await gatewayOf([backend]);
      await ask(gateway, 'p', {}, { authorization: 'Bearer client' });
    }
    await using gateway = await gatewayOf([], { backends: [{ url: backend.url, apiKey: 'own' }], tenants });
    await ask(gateway, 'p', {}, { authorization: 'Bearer key-b' });
    expect(backend.seen.map(({ headers }) => headers.authorization)).toEqual(['Bearer client', 'Bearer own']);
  });

  it('a tenant over its budget is turned away with 429 and a time, and the other is not', async () => {
    const waiting: (() => void)[] = [];
    await using backend = await TestBackend.open((_, response) =>
      waiting.push(() => response.end(answer('done'))),
    );
    await using gateway = await gatewayOf([backend], {
      tenants,
      maxSequences: 1,
      control: { admission: { policy: 'always-admit', tenantBudgets: { a: 1 } } },
    });
    const batch = { 'x-slo-class': 'batch' };
    const first = [1, 2].map(() => ask(gateway, 'p', {}, { authorization: 'Bearer key-a', ...batch }));
    await until(() => waiting.length === 2, 'two are under way');
    const over = await ask(gateway, 'p', {}, { authorization: 'Bearer key-a', ...batch });
    expect(over.status).toBe(429);
    expect(Number(over.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await over.json()).toMatchObject({ error: { code: 'rejected', type: 'rate_limit_error' } });
    const other = ask(gateway, 'p', {}, { authorization: 'Bearer key-b', ...batch });
    await until(() => waiting.length === 3, 'the other tenant is served');
    for (const finish of waiting) finish();
    for (const response of [...first, other]) expect((await response).status).toBe(200);
  });
});

describe('back-pressure', () => {
  it('a queue holds what the backends have no room for, sheds what is beyond it, and lets go in order', async () => {
    const waiting: (() => void)[] = [];
    await using backend = await TestBackend.open((_, response, body) => {
      waiting.push(() => response.end(answer(`echo ${(JSON.parse(body) as { prompt: string }).prompt}`)));
    });
    await using gateway = await gatewayOf([backend], {
      control: { gateway: { policy: 'banded', detector: 'concurrency', maxConcurrency: 1, maxDepth: 2 } },
    });
    const first = ask(gateway, 'p0');
    await until(() => waiting.length === 1, 'one is under way');
    const second = ask(gateway, 'p1');
    await until(() => gateway.openRequests === 2, 'one waits');
    const third = ask(gateway, 'p2');
    await until(() => gateway.openRequests === 3, 'two wait');
    const beyond = await ask(gateway, 'p3');
    expect(beyond.status).toBe(429);
    expect(await beyond.json()).toMatchObject({ error: { code: 'queue_full' } });
    for (const [i, response] of [first, second, third].entries()) {
      await until(() => waiting.length === i + 1, `request ${i} is let go`);
      waiting[i]();
      expect(await textOf(await response)).toBe(`echo p${i}`);
    }
    expect(backend.seen.map(({ body }) => (JSON.parse(body) as { prompt: string }).prompt)).toEqual([
      'p0',
      'p1',
      'p2',
    ]);
  });

  it('a client that leaves the queue leaves it', async () => {
    const waiting: (() => void)[] = [];
    await using backend = await TestBackend.open((_, response) =>
      waiting.push(() => response.end(answer('x'))),
    );
    await using gateway = await gatewayOf([backend], {
      control: { gateway: { policy: 'banded', detector: 'concurrency', maxConcurrency: 1 } },
    });
    const first = ask(gateway, 'p0');
    await until(() => waiting.length === 1, 'one is under way');
    const leaving = new AbortController();
    const second = ask(gateway, 'p1', {}, {}, leaving.signal);
    await until(() => gateway.openRequests === 2, 'one waits');
    leaving.abort();
    await expect(second).rejects.toThrow();
    await until(() => gateway.openRequests === 1, 'it has left');
    waiting[0]();
    expect((await first).status).toBe(200);
    expect(backend.seen.length).toBe(1);
  });

  it('more requests than may be open get 429', async () => {
    const waiting: (() => void)[] = [];
    await using backend = await TestBackend.open((_, response) =>
      waiting.push(() => response.end(answer('x'))),
    );
    await using gateway = await gatewayOf([backend], { limits: { requests: 2 } });
    const open = [ask(gateway, 'p'), ask(gateway, 'p')];
    await until(() => waiting.length === 2, 'two are under way');
    const beyond = await ask(gateway, 'p');
    expect([beyond.status, (await beyond.json()) as object]).toMatchObject([
      429,
      { error: { code: 'overloaded' } },
    ]);
    for (const finish of waiting) finish();
    for (const response of open) expect((await response).status).toBe(200);
  });
});

describe('bad requests', () => {
  it('a body beyond the limit gets 413, said or found', async () => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend], { limits: { bodyBytes: 1000 } });
    expect((await ask(gateway, 'x'.repeat(2000))).status).toBe(413);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let i = 0; i < 40; i++) controller.enqueue(new Uint8Array(100));
        controller.close();
      },
    });
    const chunked = await fetch(`${gateway.url}/v1/completions`, {
      method: 'POST',
      body,
      duplex: 'half',
    } as RequestInit & { duplex: 'half' });
    expect(chunked.status).toBe(413);
    expect(backend.seen).toEqual([]);
    expect(await textOf(await ask(gateway, 'short'))).toBe('echo short');
  });

  it.each([
    ['not JSON', 400],
    ['[1, 2]', 400],
    ['"text"', 400],
    [`${'['.repeat(2000)}${']'.repeat(2000)}`, 400],
  ])('%.20s gets %i', async (body, status) => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${gateway.url}/v1/completions`, { method: 'POST', body, headers });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code: 'invalid_body' } });
    expect(backend.seen).toEqual([]);
  });

  it.each([
    [
      'a head beyond the limit',
      `GET /v1/models HTTP/1.1\r\nhost: a\r\nx-long: ${'x'.repeat(40_000)}\r\n\r\n`,
      '431',
    ],
    ['bytes that are no HTTP', 'hello\r\n\r\n', '400'],
  ])('%s gets %s', async (_what, bytes, status) => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    const said = await new Promise<string>((resolve) => {
      const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1', () => socket.write(bytes));
      let text = '';
      socket.on('data', (data) => (text += data.toString()));
      socket.on('error', () => {});
      socket.on('close', () => resolve(text));
    });
    expect(said.split(' ')[1]).toBe(status);
    expect(await textOf(await ask(gateway, 'p'))).toBe('echo p');
  });

  it('a path that is not served gets 404', async () => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend]);
    expect((await fetch(`${gateway.url}/other`)).status).toBe(404);
    for (const path of ['/gateway/status', '/metrics', '/gateway/backends/b0/drain', '/dashboard']) {
      for (const headers of [{}, { authorization: 'Bearer admin' }]) {
        expect((await fetch(gateway.url + path, { headers })).status, path).toBe(404);
      }
    }
  });

  it.each([
    [
      'body',
      'POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{',
      { upload_broken: 1 },
    ],
    ['head', 'POST /v1/completions HTTP/1.1\r\nhost: a\r\n', {}],
  ])('a client that never sends the end of its %s gets 408, and is left', async (_, start, refused) => {
    await using backend = await TestBackend.open(echo);
    await using gateway = await gatewayOf([backend], { limits: { uploadMs: 200 } });
    const said = await new Promise<string>((resolve) => {
      const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1', () => socket.write(start));
      let text = '';
      socket.on('error', () => {});
      socket.on('data', (data) => (text += data.toString()));
      socket.on('close', () => resolve(text));
    });
    expect(said).toMatch(/^HTTP\/1\.1 408 /);
    await until(() => gateway.openRequests === 0, 'nothing is open');
    const { counts } = gateway;
    await until(
      () => counts.refused.size === Object.keys(refused).length,
      'a body that broke off is counted',
    );
    expect(Object.fromEntries(counts.refused)).toEqual(refused);
    expect([counts.requests, backend.seen]).toEqual([0, []]);
  });
});

describe('what is beside completions', () => {
  const get = async (url: string, path: string): Promise<string> =>
    new Promise((resolve) => {
      // as it stands: fetch would make the path plain before it sends it
      const socket = connect(Number(new URL(url).port), '127.0.0.1', () => {
        socket.write(`GET ${path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
      });
      let text = '';
      socket.on('data', (data) => (text += data.toString()));
      socket.on('close', () => resolve(text));
    });

  it('lists of models come from any backend that is up, and are no part of the workload', async () => {
    await using gone = await TestBackend.open(echo);
    await using a = await TestBackend.open(echo);
    await using gateway = await gatewayOf([gone, a]);
    await gone.kill();
    const response = await fetch(`${gateway.url}/v1/models`);
    expect(await response.json()).toEqual({ data: [{ id: 'm' }] });
    expect(gateway.counts.requests).toBe(0);
  });

  it.each(['/v1/../metrics', '/v1/%2e%2e/metrics', '/v1/./../health', '/v1/..%2fmetrics', '/v1/a\\..\\b'])(
    'a path that leads out of /v1/ is not passed on: %s',
    async (path) => {
      await using a = await TestBackend.open(echo);
      await using gateway = await gatewayOf([a]);
      const said = await get(gateway.url, path);
      expect(said.split(' ')[1]).toMatch(/^40[04]$/);
      expect(said).not.toContain('vllm:');
    },
  );

  it('backends are asked for plain answers, and a packed one goes on as it is', async () => {
    const packed = gzipSync(answer('packed'));
    await using a = await TestBackend.open((_, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
      response.end(packed);
    });
    await using gateway = await gatewayOf([a]);
    expect(await textOf(await ask(gateway, 'p', {}, { 'accept-encoding': 'gzip' }))).toBe('packed');
    expect(a.seen[0].headers['accept-encoding']).toBe('identity');
    expect(gateway.counts).toMatchObject({ completed: 1, retries: 0 });
  });

  it('an error that must not be JSON goes on as it is', async () => {
    await using a = await TestBackend.open((_, response) => {
      response.writeHead(404, { 'content-type': 'text/plain' });
      response.end('not here');
    });
    await using gateway = await gatewayOf([a]);
    const response = await ask(gateway, 'p');
    expect([response.status, await response.text()]).toEqual([404, 'not here']);
    expect(gateway.counts).toMatchObject({ backendErrors: 1, retries: 0 });
  });
});

describe('priority', () => {
  it('is told to servers where that is asked for, in the place of what a client says, and the rest stays', async () => {
    await using a = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a], { sendPriority: true });
    for (const sloClass of ['critical', 'batch']) {
      await ask(gateway, 'p', { priority: -1000, seed: 7 }, { 'x-slo-class': sloClass });
    }
    const [critical, batch] = a.seen.map(
      ({ body }) => JSON.parse(body) as { priority: number; seed: number },
    );
    expect(critical.priority).toBeLessThan(batch.priority);
    expect([critical.seed, batch.seed]).toEqual([7, 7]);
    // servers do not agree on which of two fields of a name counts: there is one
    expect(a.seen[0].body).toMatch(/^\{"model":"m","prompt":"p","seed":7,"priority":-?\d+\}$/);
  });

  it('an empty body gets it too', () => {
    for (const body of ['{}', ' { } ', '{"a":{}}', '{"a":"}"}\n']) {
      const before = JSON.parse(body) as object;
      expect(JSON.parse(withField(Buffer.from(body), 'priority', '3').toString())).toEqual({
        ...before,
        priority: 3,
      });
    }
  });
});

describe('headers', () => {
  it('those of one connection stay there, and of a client those go on that are its to say', async () => {
    await using backend = await TestBackend.open((_, response) => {
      response.writeHead(200, {
        'content-type': 'application/json',
        'x-mine': '1',
        'keep-alive': 'timeout=1',
      });
      response.end(answer('x'));
    });
    await using gateway = await gatewayOf([backend], { forwardHeaders: ['X-Own'] });
    const steering = {
      cookie: 'a=b',
      'x-prefiller-host-port': '169.254.169.254:80',
      'x-kv-cache-source-host-port': '10.0.0.1:22',
      'x-data-parallel-host-port': '10.0.0.1:22',
      'x-data-parallel-rank': '1',
      'x-gateway-destination-endpoint': '10.0.0.9:80',
      'x-tenant-id': 'bob',
      x_tenant_id: 'bob',
      'x-forwarded-for': '1.2.3.4',
      'x-not-known-yet': '1',
    };
    const own = { 'x-own': 'kept', 'x-request-id': 'abc', te: 'trailers', 'x-stainless-lang': 'js' };
    const response = await ask(gateway, 'p', {}, { ...steering, ...own });
    expect(response.headers.get('x-mine')).toBe('1');
    expect(response.headers.get('x-request-id')).toBe('abc');
    expect(response.headers.get('x-tierkv-backend')).toBe('b0');
    expect(backend.seen[0].headers).toMatchObject({ 'x-own': 'kept', 'x-request-id': 'abc' });
    const names = Object.keys(backend.seen[0].headers);
    expect(names.filter((name) => name in steering || name === 'te')).toEqual([]);
    expect(backend.seen[0].headers['x-stainless-lang']).toBe('js');
    await (await fetch(`${gateway.url}/v1/files`, { headers: { ...steering, ...own } })).text();
    expect(Object.keys(backend.seen[1].headers).filter((name) => name in steering)).toEqual([]);
    expect(backend.seen[0].headers.host).toBe(new URL(backend.url).host);
  });
});
