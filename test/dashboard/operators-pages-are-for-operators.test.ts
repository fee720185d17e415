/** Operators' pages through a reverse proxy on the same machine: its clients have a loopback address, and are from elsewhere. */

import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isForeign, OperatorAccess } from '../../src/observe/dashboard/operatorAccess.ts';

const servers: Server[] = [];

async function listening(server: Server): Promise<number> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const open = new OperatorAccess({ what: 'The page', hosts: ['board.example'] });
const shut = new OperatorAccess({ what: 'The page', token: 'a-token-of-some-length' });
let seen: IncomingMessage | undefined;
let port = 0;

beforeAll(async () => {
  port = await listening(
    createServer((request, response) => {
      seen = request;
      const access = request.url === '/shut' ? shut : open;
      const refusal = access.refusal(request);
      response.writeHead(refusal?.status ?? 200).end(refusal?.message ?? 'shown');
    }),
  );
});

afterAll(() => {
  for (const server of servers) server.close();
});

interface Answer {
  readonly status: number;
  readonly text: string;
}

function ask(to: number, path: string, headers: Record<string, string> = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const asked = httpRequest({ host: '127.0.0.1', port: to, path, headers, agent: false }, (response) => {
      let text = '';
      response.on('data', (part) => (text += part));
      response.once('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    asked.once('error', reject);
    asked.end();
  });
}

/** What each of several proxies adds to a request, with the Host that it passes on. */
const proxies: readonly (readonly [string, (host: string) => Record<string, string>])[] = [
  [
    'nginx with its usual lines',
    (host) => ({ host, 'x-real-ip': '10.0.0.9', 'x-forwarded-for': '10.0.0.9' }),
  ],
  ['a proxy of RFC 7239', (host) => ({ host, forwarded: 'for=10.0.0.9;proto=https' })],
  ['one that names itself alone', (host) => ({ host, via: '1.1 proxy' })],
  ['one that tells the scheme alone', (host) => ({ host, 'x-forwarded-proto': 'https' })],
  ['one that tells the host alone', (host) => ({ host, 'x-forwarded-host': 'tenants.example' })],
  ['envoy', (host) => ({ host, 'x-envoy-external-address': '10.0.0.9' })],
  ['a service of CDNs', (host) => ({ host, 'cf-connecting-ip': '10.0.0.9' })],
];

describe('behind a proxy on the same machine', () => {
  it.each(proxies)('%s: no page without the token, whatever Host it passes on', async (_what, added) => {
    for (const host of ['127.0.0.1', 'localhost:80', 'board.example']) {
      expect(await ask(port, '/open', added(host))).toEqual({
        status: 403,
        text: 'The page answers this machine alone, and no proxy on it. Give it a token to open it to others.',
      });
      expect((await ask(port, '/shut', added(host))).status).toBe(401);
      const bearer = { authorization: 'Bearer a-token-of-some-length' };
      expect((await ask(port, '/shut', { ...added(host), ...bearer })).status).toBe(200);
    }
  });

  it('one that adds nothing asks in HTTP/1.0, as nginx does by default', async () => {
    const said = await new Promise<string>((resolve, reject) => {
      const socket = connect(port, '127.0.0.1');
      let text = '';
      socket.on('data', (data) => (text += data.toString()));
      socket.on('error', reject);
      socket.on('close', () => resolve(text));
      socket.end(`GET /open HTTP/1.0\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`);
    });
    expect(said).toMatch(/^HTTP\/1\.\d 403 /);
  });
});

it('a client on this machine sees the page, and does not count as foreign', async () => {
  expect(await ask(port, '/open')).toEqual({ status: 200, text: 'shown' });
  expect(seen && isForeign(seen)).toBe(false);
  expect((await ask(port, '/open', { host: 'board.example' })).status).toBe(200);
  expect((await ask(port, '/open', { host: 'evil.example' })).status).toBe(403);
});

it('a token is asked of this machine too, and a wrong one does not help', async () => {
  expect((await ask(port, '/shut')).status).toBe(401);
  for (const wrong of ['Bearer a-token-of-some-lengtH', 'Bearer ', 'Basic a-token-of-some-length']) {
    expect((await ask(port, '/shut', { authorization: wrong })).status).toBe(401);
  }
});

it('a page of another site reads nothing, with a token or without', async () => {
  const site = { origin: 'http://evil.example', authorization: 'Bearer a-token-of-some-length' };
  expect((await ask(port, '/open', site)).status).toBe(403);
  expect((await ask(port, '/shut', site)).status).toBe(403);
});
