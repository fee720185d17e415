/** Clients that hold on to their connections, and clients whose key is not known: neither costs others anything. */

import { connect, type Socket } from 'node:net';
import { expect, it } from 'vitest';
import { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { ask, echo, gatewayOf, TestBackend, textOf, until } from './backends.ts';
import { stubbornClients, stubbornKinds } from './stubborn.ts';

it('connections of every stubborn kind are let go, and others are served beside', async () => {
  // the campaign says after how long; here a busy machine may take its time
  const kinds = Object.keys(stubbornKinds);
  expect(await stubbornClients(20 * kinds.length, 1000, 100)).toMatchObject({ held: 0, beside: 200 });
});

it('a body without a known key is not asked for, not read to its end, and never parsed', async () => {
  await using backend = await TestBackend.open(echo);
  await using gateway = await gatewayOf([backend], { tenants: new Map([['key', 'a']]) });
  const { hostname, port } = new URL(gateway.url);
  const open = (): Socket => {
    const socket = connect({ host: hostname, port: Number(port) });
    socket.on('error', () => {});
    return socket;
  };
  const head = `POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer wrong\r\ntransfer-encoding: chunked\r\n`;
  // one that waits to be told is told that it need not send
  const asking = open();
  let said = '';
  asking.on('data', (data) => (said += data.toString()));
  asking.write(`${head}expect: 100-continue\r\n\r\n`);
  await until(() => said.includes('\r\n\r\n'), 'it is answered');
  expect(said).toMatch(/^HTTP\/1\.1 401 /);
  expect(said.toLowerCase()).toContain('connection: close');
  // one that sends on and on is cut off
  const sending = open();
  let answered = '';
  let sent = 0;
  sending.on('data', (data) => (answered += data.toString()));
  sending.write(`${head}\r\n`);
  const chunk = `10000\r\n${'x'.repeat(2 ** 16)}\r\n`;
  const pour = (): void => {
    while (!sending.destroyed && sent < 2 ** 28) {
      sent += 2 ** 16;
      if (!sending.write(chunk)) return void sending.once('drain', pour);
    }
  };
  pour();
  await until(() => sending.destroyed, 'it is cut off');
  expect(answered).toMatch(/^HTTP\/1\.1 401 |^$/);
  expect(sent).toBeLessThan(2 ** 26);
  expect(backend.seen).toEqual([]);
  const known = await ask(gateway, 'p', {}, { authorization: 'Bearer key' });
  expect(await textOf(known)).toBe('echo p');
});

it('one with a known key that waits to be told is told, and served', async () => {
  await using backend = await TestBackend.open(echo);
  await using gateway = await gatewayOf([backend], { tenants: new Map([['key', 'a']]) });
  const { hostname, port } = new URL(gateway.url);
  const socket = connect({ host: hostname, port: Number(port) });
  let said = '';
  socket.on('data', (data) => (said += data.toString()));
  const body = '{"model":"m","prompt":"p"}';
  socket.write(
    `POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key\r\nexpect: 100-continue\r\ncontent-length: ${body.length}\r\n\r\n`,
  );
  await until(() => said.includes('100 Continue'), 'it is told');
  socket.write(body);
  await until(() => said.includes('echo p'), 'it is served');
  socket.destroy();
});

it('a client that leaves while a list is asked for does not take the server down with it', async () => {
  await using backend = await TestBackend.open((request, response, body) => {
    if (request.method === 'GET') response.end('{}');
    else echo(request, response, body);
  });
  await using gateway = await gatewayOf([backend]);
  const { hostname, port } = new URL(gateway.url);
  for (let i = 0; i < 50; i++) {
    const socket = connect({ host: hostname, port: Number(port) });
    socket.on('error', () => {});
    await new Promise((resolve) => socket.once('connect', resolve));
    socket.write('GET /v1/files HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(20), () => socket.resetAndDestroy());
    await new Promise((resolve) => socket.once('close', resolve));
  }
  expect(await textOf(await ask(gateway, 'p'))).toBe('echo p');
  expect(gateway.pool.backends[0].counts.failures).toBe(0);
});

it('a packed body is refused: what is in it could not be checked', async () => {
  await using backend = await TestBackend.open(echo);
  await using gateway = await gatewayOf([backend]);
  const headers = { 'content-encoding': 'gzip', 'content-type': 'text/plain' };
  const response = await fetch(`${gateway.url}/v1/rerank`, { method: 'POST', headers, body: 'x' });
  expect(response.status).toBe(415);
  expect(await response.json()).toMatchObject({ error: { code: 'unsupported_encoding' } });
  expect(backend.seen).toEqual([]);
});

it("operators' pages stand at a port of their own, for the holder of the key or for this machine", async () => {
  await using backend = await TestBackend.open(echo);
  const { url } = backend;
  await using open = await Gateway.open({ backends: [{ url }], port: 0 });
  expect((await fetch(`${open.operatorUrl}/metrics`)).status).toBe(200);
  expect((await fetch(`${open.operatorUrl}/gateway/status`)).status).toBe(200);
  const proxied = { 'x-forwarded-for': '10.0.0.9' };
  expect((await fetch(`${open.operatorUrl}/metrics`, { headers: proxied })).status).toBe(403);
  const site = { origin: 'http://evil.example' };
  const drain = `${open.operatorUrl}/gateway/backends/${new URL(backend.url).host}/drain`;
  expect((await fetch(drain, { method: 'POST' })).status).toBe(403);
  expect((await fetch(drain, { method: 'POST', headers: site })).status).toBe(403);
  await using shut = await gatewayOf([backend]);
  for (const path of ['/metrics', '/gateway/status']) {
    expect((await fetch(shut.operatorUrl + path)).status).toBe(401);
    const key = { authorization: 'Bearer admin', ...proxied };
    expect((await fetch(shut.operatorUrl + path, { headers: key })).status).toBe(200);
    expect((await fetch(shut.url + path, { headers: key })).status).toBe(404);
  }
  const opening = Gateway.open({ backends: [{ url }], port: 0, operatorHost: '0.0.0.0' });
  await expect(opening).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'operatorHost' });
});
