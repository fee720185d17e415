/** What a gateway makes of answers as servers really write them: whole, cut, failed; in JSON with spaces or without. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { ask, echo, gatewayOf, type Handler, TestBackend, textOf, until, wellMetrics } from './backends.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-answers-'));
afterAll(() => rmSync(folder, { recursive: true }));

const streams =
  (...events: string[]): Handler =>
  (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(events.map((event) => `data: ${event}\n\n`).join(''));
  };

/** As a server that ends what it says by closing the connection. */
const untilClosed =
  (event: string): Handler =>
  ({ socket }) =>
    void socket.end(`HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ${event}\n\n`);

const whole: readonly (readonly [string, string[], { output: number; prompt: number; cached: number }])[] = [
  [
    'JSON with spaces, as Python writes it',
    [
      '{"choices": [{"index": 0, "text": "a", "finish_reason": null}]}',
      '{"choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]}',
      '{"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 32}}}',
      '[DONE]',
    ],
    { output: 7, prompt: 40, cached: 32 },
  ],
  [
    'the role in each event of a chat',
    [
      '{"choices":[{"delta":{"role":"assistant","content":""}}]}',
      '{"choices":[{"delta":{"role":"assistant","content":"a"}}]}',
      '{"choices":[{"delta":{"role":"assistant","content":"b"},"finish_reason":"stop"}]}',
      '[DONE]',
    ],
    { output: 2, prompt: -1, cached: -1 },
  ],
  [
    'an end without [DONE]',
    ['{"choices":[{"text":"a","finish_reason":"length"}]}'],
    { output: 1, prompt: -1, cached: -1 },
  ],
  [
    'words that look like fields',
    ['{"choices":[{"text":"\\"error\\": \\"role\\" \\"usage\\":{"}]}', '[DONE]'],
    { output: 1, prompt: -1, cached: -1 },
  ],
];

const token = '{"choices":[{"index":0,"text":"a"}]}';
const failure = '{"error": {"message": "the server is stopping", "type": "server_error"}}';

/** The outcome in the trace, and what the client got: its text, or that it was cut off. */
async function outcomeOf(handler: Handler): Promise<{ line: Record<string, unknown>; got: string }> {
  const trace = join(mkdtempSync(join(folder, 'run-')), 'trace.jsonl');
  let got: string;
  {
    await using backend = await TestBackend.open(handler);
    await using gateway = await gatewayOf([backend], { trace });
    const response = await ask(gateway, 'p', { stream: true });
    got = await response.text().catch(() => 'cut');
    await until(() => gateway.openRequests === 0, 'it is over');
    const { completed, brokenAnswers } = gateway.counts;
    expect(completed + brokenAnswers).toBe(1);
  }
  return { line: JSON.parse(readFileSync(trace, 'utf8').trim().split('\n').at(-1) ?? ''), got };
}

describe('a stream', () => {
  it.each(whole)('with %s is counted as the server counts', async (_what, events, counted) => {
    const { line, got } = await outcomeOf(streams(...events));
    expect(line).toMatchObject({
      outcome: 'completed',
      output_tokens: counted.output,
      counted_prompt_tokens: counted.prompt,
      cached_tokens: counted.cached,
    });
    expect(got).toBe(events.map((event) => `data: ${event}\n\n`).join(''));
  });

  it.each([
    ['whose bytes end well', streams(token)],
    ['whose reasons are empty', streams('{"choices":[{"text":"a","finish_reason":""}]}')],
    ['whose connection is closed', untilClosed(token)],
  ])('that stops in the middle, %s, is cut for the client too', async (_what, handler) => {
    const { line, got } = await outcomeOf(handler);
    expect(line).toMatchObject({ outcome: 'broken', output_tokens: 1 });
    expect(got).toBe('cut');
  });

  it('that ends with an error is passed on as it is, and does not count as an answer', async () => {
    const { line, got } = await outcomeOf(streams(token, failure));
    expect(line).toMatchObject({ outcome: 'broken', output_tokens: 1 });
    expect(got).toContain('the server is stopping');
  });
});

it('a stream whose last line has no end is whole', async () => {
  const { line } = await outcomeOf((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`data: ${token}\n\ndata: [DONE]`);
  });
  expect(line).toMatchObject({ outcome: 'completed', output_tokens: 1 });
});

it('a packed stream goes on as it is, and is not looked into', async () => {
  const packed = gzipSync('data: {"choices":[]}\n\ndata: [DONE]\n\n');
  const { line, got } = await outcomeOf((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' });
    response.end(packed);
  });
  expect(line).toMatchObject({ outcome: 'completed' });
  expect(got).toContain('[DONE]'); // fetch has unpacked it
});

it('an error with the status 200 does not count as an answer', async () => {
  const { line, got } = await outcomeOf((_, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(failure);
  });
  expect(line).toMatchObject({ outcome: 'broken', output_tokens: 0 });
  expect(got).toBe(failure);
});

it('a body that would be dropped is refused', async () => {
  await using backend = await TestBackend.open((_, response) => void response.end('{}'));
  await using gateway = await gatewayOf([backend]);
  for (const method of ['PUT', 'PATCH', 'DELETE']) {
    const refused = await fetch(`${gateway.url}/v1/files/1`, { method, body: '{"a":1}' });
    expect(refused.status).toBe(405);
    expect(await refused.json()).toMatchObject({ error: { code: 'method_not_allowed' } });
  }
  expect(backend.seen).toEqual([]);
  await fetch(`${gateway.url}/v1/files/1`, { method: 'DELETE' });
  expect(backend.seen).toHaveLength(1);
});

it.each(['server 1', '服务器', 'a\nb', '', 'x'.repeat(200)])(
  'a name that no header takes is refused: %j',
  async (id) => {
    const opening = Gateway.open({ backends: [{ url: 'http://127.0.0.1:9', id }], port: 0 });
    await expect(opening).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'backend' });
  },
);

it('an address of a backend that ends in /v1 is refused, since clients write it', async () => {
  const opening = gatewayOf([{ url: 'http://127.0.0.1:9/base/v1/' }]);
  await expect(opening).rejects.toMatchObject({
    code: 'TKV_CONFIG',
    message: expect.stringContaining('/v1'),
  });
});

it('a request whose server is gone when it is to be sent there is decided about again', async () => {
  await using decode = await TestBackend.open(echo);
  await using prefill = await TestBackend.open((_request, response) => {
    if (decode.metrics !== wellMetrics) return void response.end('{"kv_transfer_params":{}}');
    // while the prompt is computed, the decode server begins anew
    decode.metrics = wellMetrics.replace('} 160', '} 16').replace('} 80', '} 8');
    // it has the number -1 while its models are asked for, and no request goes there
    const isAnew = (): boolean => ![before, -1].includes(gateway.pool.find('d')?.instance);
    void until(isAnew, 'another instance').then(() => response.end('{"kv_transfer_params":{}}'));
  });
  await using gateway = await Gateway.open({
    backends: [
      { url: prefill.url, id: 'p', role: 'prefill' },
      { url: decode.url, id: 'd', role: 'decode' },
    ],
    port: 0,
    pollMs: 20,
  });
  const before = gateway.pool.find('d')?.instance;
  expect(await textOf(await ask(gateway, 'hello'))).toBe('echo hello');
  expect(gateway.counts).toMatchObject({ completed: 1, failed: 0, retries: 1 });
  expect(decode.seen).toHaveLength(1);
  expect(gateway.openRequests).toBe(0);
});
