/** Metrics, hand-offs and the dashboard name tenants: a tenant's port has none of them, and the operators' port knows who asks. */

import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { serverOptions } from '../../../../examples/server/api/index.ts';
import { Gateway } from '../../../../src/serve/index.ts';
import { blockBytes, keys, LiveServer } from '../liveServer.ts';

const pages = ['/metrics', '/handoffs', '/dashboard', '/dashboard/', '/dashboard/frames.json'];
const small = { hbmBytes: 32 * blockBytes, ddrBytes: 0 };

/** The status of a GET with these headers, Host among them. */
function statusOf(url: string, path: string, headers: Record<string, string> = {}): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = request(new URL(path, url), { headers, agent: false }, (response) => {
      response.destroy();
      resolve(response.statusCode ?? 0);
    });
    asked.once('error', reject).end();
  });
}

describe('a server with keys', () => {
  let server: LiveServer;
  beforeAll(async () => {
    server = await LiveServer.start({ apiKeys: keys, ...small });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  it.each(pages)("has no %s at the tenants' port, with a key or without", async (path) => {
    for (const headers of [{}, { authorization: 'Bearer key-a' }]) {
      expect(await statusOf(server.url, path, headers)).toBe(404);
    }
  });

  it.each(pages)("answers %s at the operators' port to this machine, and to no proxy on it", async (path) => {
    const url = server.serving.operatorsUrl;
    expect([200, 308]).toContain(await statusOf(url, path));
    for (const headers of [
      { 'x-forwarded-for': '192.0.2.1' },
      { forwarded: 'for=192.0.2.1' },
      { 'x-real-ip': '192.0.2.1' },
      { via: '1.1 proxy' },
      { host: 'tenants.example' },
      { origin: 'https://other.example' },
    ]) {
      expect(await statusOf(url, path, headers), JSON.stringify(headers)).toBe(403);
    }
  });
});

describe('a server with a token for its operator', () => {
  const operatorToken = 'a-token-of-the-operator';

  it('asks for it', async () => {
    await using server = await LiveServer.start({ ...small, operatorToken });
    const url = server.serving.operatorsUrl;
    const authorization = `Bearer ${operatorToken}`;
    for (const path of ['/metrics', '/handoffs']) {
      expect(await statusOf(url, path), path).toBe(401);
      expect(await statusOf(url, path, { authorization: 'Bearer other' }), path).toBe(401);
      expect(await statusOf(url, path, { authorization }), path).toBe(200);
    }
    expect(await statusOf(url, '/dashboard/')).toBe(401);
    expect(await statusOf(url, `/dashboard/?token=${operatorToken}`)).toBe(303);
  });

  it('refuses one that is easily guessed', () => {
    expect(() => serverOptions([], { TIERKV_OPERATOR_TOKEN: 'short' })).toThrow(
      /^TIERKV_OPERATOR_TOKEN is not/,
    );
  });
});

it('a server without keys gives its metrics to the gateway before it, and to no client of a proxy', async () => {
  await using server = await LiveServer.start(small);
  expect(await statusOf(server.url, '/metrics')).toBe(200);
  expect(await statusOf(server.url, '/metrics', { 'x-forwarded-for': '192.0.2.1' })).toBe(403);
  for (const path of ['/handoffs', '/dashboard/']) expect(await statusOf(server.url, path)).toBe(404);
});

it('one whose tenants a gateway names has them for the operator alone, and the gateway is told where', async () => {
  const operatorToken = 'a-token-of-the-operator';
  await using server = await LiveServer.start({ ...small, operatorToken, tenantHeader: 'x-tenant-id' });
  expect(await statusOf(server.url, '/metrics')).toBe(404);
  const metrics = `${server.serving.operatorsUrl}/metrics`;
  const backend = { url: server.url, id: 'a', metrics };
  const config = { port: 0, pollMs: 20, tenants: new Map([['key', 'shop']]) };
  await using blind = await Gateway.open({
    ...config,
    backends: [{ ...backend, metricsKey: 'another-token' }],
  });
  expect(blind.pool.backends[0].metrics, 'it is judged by what the gateway sees').toBe(null);
  await using gateway = await Gateway.open({
    ...config,
    backends: [{ ...backend, metricsKey: operatorToken }],
  });
  const [seen] = gateway.pool.backends;
  expect(seen.metrics).not.toBe(null);
  const headers = { authorization: 'Bearer key', 'content-type': 'application/json' };
  const body = JSON.stringify({ model: seen.model, prompt: 'hello', max_tokens: 1 });
  const answer = await fetch(`${gateway.url}/v1/completions`, { method: 'POST', headers, body });
  expect(answer.status).toBe(200);
  const page = await fetch(metrics, { headers: { authorization: `Bearer ${operatorToken}` } });
  expect(await page.text(), 'they name tenants').toContain('tenant="shop"');
  for (const path of ['/metrics', '/v1/../metrics']) {
    expect(await statusOf(gateway.url, path, headers), path).toBe(404);
  }
});
