/** A suspend, a stopped container, a long call: answers that came meanwhile are taken before anything counts as late. */

import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { ask, gatewayOf, textOf, wellMetrics } from './backends.ts';

/** A backend on a thread of its own, which goes on while this one stands still. It answers once it is told to. */
const backend = `
const { parentPort, workerData } = require('node:worker_threads');
const state = new Int32Array(workerData.shared);
const head = (response, type) => response.writeHead(200, { 'content-type': type });
const server = require('node:http').createServer((request, response) => {
  if (request.url === '/metrics') return void response.end(workerData.metrics);
  if (request.method === 'GET') return void response.end('{"data":[{"id":"m"}]}');
  let body = '';
  request.on('data', (part) => (body += part)).on('end', async () => {
    const streams = JSON.parse(body).stream === true;
    if (streams) head(response, 'text/event-stream').write('data: {"choices":[{"text":"first "}]}\\n\\n');
    Atomics.store(state, 0, 1);
    while (Atomics.load(state, 1) === 0) await new Promise((done) => setTimeout(done, 1));
    if (streams) response.end('data: {"choices":[{"text":"late","finish_reason":"stop"}]}\\n\\ndata: [DONE]\\n\\n');
    else head(response, 'application/json').end('{"choices":[{"text":"late"}]}');
    Atomics.store(state, 0, 0);
    Atomics.store(state, 1, 0);
  });
});
server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
`;

/** Milliseconds of the gateway's limits, and for which it then stands. */
const limitMs = 2000;
const standsMs = 2500;

it('after a long call, heads and streams that came in time are answers', async () => {
  const shared = new SharedArrayBuffer(12);
  const state = new Int32Array(shared);
  const worker = new Worker(backend, { eval: true, workerData: { shared, metrics: wellMetrics } });
  try {
    const port = await new Promise<number>((resolve) => worker.once('message', resolve));
    const limits = { headMs: limitMs, idleMs: limitMs, totalMs: limitMs, retries: 0 };
    await using gateway = await gatewayOf([{ url: `http://127.0.0.1:${port}` }], { limits });
    for (const stream of [false, true]) {
      const asked = ask(gateway, 'p', { stream });
      while (Atomics.load(state, 0) === 0) await new Promise((done) => setTimeout(done, 1));
      Atomics.store(state, 1, 1);
      Atomics.wait(state, 2, 0, standsMs); // nothing of this thread runs
      const response = await asked;
      expect(response.status).toBe(200);
      if (stream) expect(await response.text()).toContain('late');
      else expect(await textOf(response)).toBe('late');
    }
    expect(gateway.counts).toMatchObject({ completed: 2, failed: 0, brokenAnswers: 0 });
    expect(gateway.pool.backends[0].isUp).toBe(true);
  } finally {
    await worker.terminate();
  }
});
