/** Anthropic's `/v1/messages` through a gateway: keys, errors, prompts, answers and counts as its clients and servers have them. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { findChatTemplate } from '../../../src/serve/gateway/chatPrompts.ts';
import { decideAgain } from '../../../src/serve/gateway/decisionLog.ts';
import type { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { readPrompt } from '../../../src/serve/gateway/prompts.ts';
import { hasExtra } from '../../extras.ts';
import { bundleOf } from '../recordedRun.ts';
import { gatewayOf, type Handler, TestBackend, until } from './backends.ts';
import { eventText, messageEvents, messagesServer, wholeMessage } from './messagesServer.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-messages-'));
afterAll(() => rmSync(folder, { recursive: true }));

type Body = Readonly<Record<string, unknown>>;
const asked: Body = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'hello' }] };

async function post(gateway: Gateway, body: Body, headers = {}, path = '/v1/messages'): Promise<Response> {
  return fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
}

const linesOf = (file: string): Body[] =>
  readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Body);

const tenants = new Map([
  ['key-a', 'tenant-a'],
  ['key-b', 'tenant-b'],
]);

describe('a key', () => {
  it.each<[string, Record<string, string>, number, string | undefined]>([
    ['as Anthropic clients send it', { 'x-api-key': 'key-a' }, 200, 'tenant-a'],
    ['as OpenAI clients send it', { authorization: 'Bearer key-b' }, 200, 'tenant-b'],
    ['sent in both ways', { authorization: 'Bearer key-b', 'x-api-key': 'key-a' }, 200, 'tenant-b'],
    ['that is not known', { 'x-api-key': 'key-c' }, 401, undefined],
    [
      'that is not known, beside one that is',
      { authorization: 'Bearer x', 'x-api-key': 'key-a' },
      401,
      undefined,
    ],
    ['that is missing', {}, 401, undefined],
  ])('%s', async (_what, keys, status, tenant) => {
    await using backend = await TestBackend.open(messagesServer());
    await using gateway = await gatewayOf([backend], { tenants });
    const headers = { ...keys, 'anthropic-version': '2023-06-01', 'anthropic-beta': 'x', cookie: 'c' };
    for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
      expect((await post(gateway, asked, headers, path)).status).toBe(status);
    }
    expect(backend.seen.length).toBe(status === 200 ? 2 : 0);
    for (const { headers: got } of backend.seen) {
      expect(got).toMatchObject({
        'x-tenant-id': tenant,
        'anthropic-version': '2023-06-01',
        'anthropic-beta': 'x',
      });
      expect([got['x-api-key'], got.authorization, got.cookie]).toEqual([undefined, undefined, undefined]);
    }
  });

  it('of the gateway is shown to servers where either API looks for it', async () => {
    await using backend = await TestBackend.open(messagesServer());
    await using gateway = await gatewayOf([], { backends: [{ url: backend.url, apiKey: 'own' }] });
    await post(gateway, asked, { 'x-api-key': 'mine' });
    expect(backend.seen[0].headers).toMatchObject({ authorization: 'Bearer own', 'x-api-key': 'own' });
  });
});

it('errors of the gateway have the shape of the API that was asked, each with its code', async () => {
  const rejects = bundleOf({ admission: { type: 'parameterized', template: 'reject-all', parameters: {} } });
  await using backend = await TestBackend.open((request) => request.socket.destroy());
  await using open = await gatewayOf([backend], { limits: { retries: 0, bodyBytes: 1000 } });
  await using closed = await gatewayOf([backend], { policy: rejects });
  await using keyed = await gatewayOf([backend], { tenants });
  const long = { ...asked, system: 'x'.repeat(2000) };
  const cases: readonly (readonly [Promise<Response>, number, string, string])[] = [
    [post(keyed, asked), 401, 'authentication_error', 'invalid_api_key'],
    [post(open, asked, {}, '/v1/messages/../x'), 404, 'not_found_error', 'not_found'],
    [post(open, long), 413, 'request_too_large', 'body_too_large'],
    [post(open, [] as unknown as Body), 400, 'invalid_request_error', 'invalid_body'],
    [
      post(open, [] as unknown as Body, {}, '/v1/messages/count_tokens'),
      400,
      'invalid_request_error',
      'invalid_body',
    ],
    [post(closed, asked), 429, 'rate_limit_error', 'rejected'],
    [post(open, asked, { 'content-encoding': 'gzip' }), 415, 'invalid_request_error', 'unsupported_encoding'],
  ];
  for (const [answer, status, type, code] of cases) {
    const response = await answer;
    const body = (await response.json()) as Body;
    if (code === 'not_found') continue; // fetch has resolved the path: it does not belong to this API
    expect([response.status, body]).toEqual([
      status,
      { type: 'error', error: { type, code, message: expect.any(String) } },
    ]);
  }
  // a path of both APIs is answered as the client's headers say
  for (const [headers, type] of [
    [{}, 'invalid_request_error'],
    [{ 'anthropic-version': '2023-06-01' }, 'authentication_error'],
  ] as const) {
    const response = await fetch(`${keyed.url}/v1/models`, { headers });
    expect(((await response.json()) as { error: Body }).error.type).toBe(type);
  }
  const failed = await post(open, asked);
  expect([failed.status, ((await failed.json()) as { error: Body }).error]).toEqual([
    502,
    { type: 'api_error', code: 'backend_failed', message: expect.any(String) },
  ]);
});

describe('an answer', () => {
  /** The line of the trace, and what the client got. */
  async function outcome(
    handler: Handler,
    body: Body,
  ): Promise<{ line: Body; got: string; gateway: Gateway }> {
    const trace = join(mkdtempSync(join(folder, 'run-')), 'trace.jsonl');

    await using backend = await TestBackend.open(handler);
    await using gateway = await gatewayOf([backend], { trace });
    const response = await post(gateway, body);
    const got = await response.text().catch(() => 'cut');
    await until(() => gateway.openRequests === 0, 'it is over');
    await gateway.close();
    return { line: linesOf(trace)[0], got, gateway };
  }

  const counted = { output_tokens: 3, counted_prompt_tokens: 25, cached_tokens: 16, max_tokens: 9 };
  const said = { text: 'a b c', counts: { input: 4, read: 16, written: 5 } };

  it('whole is passed on byte for byte, and counted as its server counts', async () => {
    const { line, got, gateway } = await outcome(
      messagesServer(() => said),
      asked,
    );
    expect(line).toMatchObject({ outcome: 'completed', streaming: false, ...counted });
    expect(got).toBe(wholeMessage(said));
    expect(gateway.counts).toMatchObject({ completed: 1, brokenAnswers: 0 });
  });

  it('in events too, with the time of its first token', async () => {
    const { line, got } = await outcome(
      messagesServer(() => said),
      { ...asked, stream: true },
    );
    expect(line).toMatchObject({ outcome: 'completed', streaming: true, ...counted });
    expect(line.ttft_us).toBeGreaterThan(0);
    expect(got).toBe(messageEvents(said).join(''));
  });

  const events =
    (...texts: string[]): Handler =>
    (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(texts.join(''));
    };
  const error = (type: string): string => eventText('error', { error: { type, message: 'm' } });
  const begun = messageEvents({ text: 'a b c' }).slice(0, 5);

  it.each<[string, Handler, number, boolean]>([
    ['that stops in the middle is cut', events(...begun), 2, true],
    ['that ends in an error is passed on, and is a failure', events(...begun, error('api_error')), 2, false],
    ["that is another API's does not count", (_, response) => void response.end('{"ok":true}'), 0, false],
  ])('%s', async (_what, handler, tokens, isCut) => {
    const { line, got, gateway } = await outcome(handler, { ...asked, stream: true });
    expect(line).toMatchObject({ outcome: 'broken', output_tokens: tokens });
    expect(got === 'cut').toBe(isCut);
    expect(gateway.counts.completed).toBe(0);
  });

  it.each<[string, Handler]>([
    ['an overloaded server', (_, response) => void response.writeHead(529).end('{"type":"error"}')],
    ['a server that says so in a stream', events(error('overloaded_error'))],
    [
      'a server that says so with 200',
      (_, response) => void response.end('{"type":"error","error":{"type":"overloaded_error"}}'),
    ],
  ])('of %s is asked for at another one', async (_what, full) => {
    await using a = await TestBackend.open(full);
    await using b = await TestBackend.open(messagesServer());
    await using gateway = await gatewayOf([a, b]);
    for (let i = 0; i < 2; i++) {
      expect(await (await post(gateway, { ...asked, stream: true })).text()).toBe(messageEvents().join(''));
    }
    expect(gateway.counts.completed).toBe(2);
    // round robin begins at the full one at least once
    expect([gateway.counts.retries, gateway.counts.retries > 0]).toEqual([a.seen.length, true]);
  });

  it('to a request that is wrong does not speak against its server', async () => {
    const { gateway } = await outcome(events(...begun, error('invalid_request_error')), {
      ...asked,
      stream: true,
    });
    expect(gateway.pool.backends[0].counts.failures).toBe(0);
  });
});

it('tokens are counted by a server that has the model, beside the workload', async () => {
  const [trace, log] = [join(folder, 'count.jsonl'), join(folder, 'count.log')];
  await using a = await TestBackend.open(messagesServer());
  await using b = await TestBackend.open(messagesServer());
  b.models = { data: [{ id: 'other' }] };
  {
    await using gateway = await gatewayOf([a, b], { trace, log });
    const body = { ...asked, model: 'other', kv_transfer_params: { remote_host: 'x' } };
    const response = await post(gateway, body, {}, '/v1/messages/count_tokens');
    expect(await response.json()).toEqual({ input_tokens: 20 });
    expect([a.seen.length, b.seen.length]).toEqual([0, 1]);
    expect(JSON.parse(b.seen[0].body)).toEqual({ ...body, kv_transfer_params: null });
    expect(gateway.counts.requests).toBe(0);
    await post(gateway, asked);
  }
  expect(linesOf(trace).length).toBe(1);
  expect((await decideAgain(log)).differences).toEqual([]);
});

describe('a prompt', () => {
  const text = (body: Body): string | readonly number[] =>
    readPrompt('/v1/messages', JSON.stringify(body)).prompt;
  const cached = { cache_control: { type: 'ephemeral' } };
  const turns = [
    { role: 'user', content: [{ type: 'text', text: 'Where is it?' }] },
    {
      role: 'assistant',
      content: [
        { type: 'text', text: 'I look.' },
        { type: 'tool_use', id: 't1', name: 'find', input: { of: 'it' } },
      ],
    },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'here' }] },
  ];
  const tools = [{ name: 'find', description: 'Finds.', input_schema: { type: 'object' } }];
  const body = { ...asked, system: [{ type: 'text', text: 'Be brief.' }], tools, messages: turns };

  it('goes on where its conversation does, whatever marks of caches move', () => {
    const marked = {
      ...body,
      system: [{ ...body.system[0], ...cached }],
      tools: [{ ...tools[0], ...cached }],
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'Where is it?', ...cached }] },
        ...turns.slice(1, 2),
        { role: 'user', content: [{ ...(turns[2].content as object[])[0], ...cached }] },
        { role: 'assistant', content: 'Here.' },
      ],
    };
    expect(String(text(marked)).startsWith(String(text(body)))).toBe(true);
    expect(text({ ...body, system: 'Be long.' })).not.toBe(text(body));
    expect(text({ ...body, tools: [] })).not.toBe(text(body));
    expect(text({ ...body, messages: turns.slice(0, 2) })).not.toBe(text(body));
  });

  it('is what the template makes of the chat that it is', () => {
    const tokenizer = join(import.meta.dirname, '../../../examples/server/tinyModel/files/tokenizer.json');
    const { template } = findChatTemplate(tokenizer);
    const plain = { ...asked, system: 'Be brief.', messages: turns.slice(0, 1) };
    const chat = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Where is it?' },
    ];
    const message = readPrompt('/v1/messages', JSON.stringify(plain), template);
    const same = readPrompt('/v1/chat/completions', JSON.stringify({ model: 'm', messages: chat }), template);
    expect(message).toMatchObject({ prompt: same.prompt, isExact: true, isWhole: true, maxTokens: 9 });
    const image = [{ role: 'user', content: [{ type: 'image', source: {} }] }];
    expect(readPrompt('/v1/messages', JSON.stringify({ ...asked, messages: image }), template).isExact).toBe(
      false,
    );
  });

  it('of a session that its client names goes on under one name', async () => {
    const trace = join(folder, 'sessions.jsonl');
    await using backend = await TestBackend.open(messagesServer());
    {
      await using gateway = await gatewayOf([backend], { trace });
      for (const user of ['a', 'a', 'b']) await post(gateway, { ...asked, metadata: { user_id: user } });
    }
    const names = linesOf(trace).map(({ session }) => session);
    expect([names[0] === names[1], names[0] === names[2]]).toEqual([true, false]);
  });
});

it('one server computes its prompt for another', async () => {
  const params = { do_remote_prefill: true };
  await using prefill = await TestBackend.open((_, response) => {
    response.end(JSON.stringify({ ...JSON.parse(wholeMessage()), kv_transfer_params: params }));
  });
  await using decode = await TestBackend.open(messagesServer());
  const backends = [
    { url: prefill.url, role: 'prefill' as const },
    { url: decode.url, role: 'decode' as const },
  ];
  await using gateway = await gatewayOf([], { backends });
  expect(await (await post(gateway, { ...asked, stream: true })).text()).toBe(messageEvents().join(''));
  expect(gateway.counts).toMatchObject({ completed: 1, prefills: 1, prefillsFailed: 0 });
  expect(JSON.parse(prefill.seen[0].body)).not.toHaveProperty('n');
  expect(JSON.parse(decode.seen[0].body)).toMatchObject({ kv_transfer_params: params, stream: true });
});

interface Client {
  readonly messages: {
    create(params: object): Promise<Body & { readonly usage: Body; readonly content: readonly Body[] }>;
    stream(params: object): {
      finalMessage(): Promise<Body & { readonly usage: Body; readonly content: readonly Body[] }>;
    };
    countTokens(params: object): Promise<Body>;
  };
}

// a variable: types are checked without the package
const sdk = '@anthropic-ai/sdk';
it.skipIf(!hasExtra(sdk, 'the official Anthropic client before a gateway'))(
  'the official client sees one server',
  async () => {
    const { default: Anthropic } = (await import(sdk)) as {
      default: (new (options: object) => Client) & Record<string, new () => Error>;
    };
    await using a = await TestBackend.open(messagesServer());
    await using b = await TestBackend.open(messagesServer());
    await using gateway = await gatewayOf([a, b], { tenants });
    const client = new Anthropic({ baseURL: gateway.url, apiKey: 'key-a', maxRetries: 0 });
    const usage = { input_tokens: 4, cache_read_input_tokens: 16, output_tokens: 3 };
    expect(await client.messages.create(asked)).toMatchObject({ usage, content: [{ text: 'hello' }] });
    expect(await client.messages.stream(asked).finalMessage()).toMatchObject({
      usage,
      content: [{ text: 'hello' }],
    });
    expect(await client.messages.countTokens({ model: 'm', messages: asked.messages })).toEqual({
      input_tokens: 20,
    });
    expect(gateway.counts).toMatchObject({ requests: 2, completed: 2 });
    const other = new Anthropic({ baseURL: gateway.url, apiKey: 'key-c', maxRetries: 0 });
    await expect(other.messages.create(asked)).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
    a.handler = b.handler = (_, response) =>
      void response.writeHead(400).end('{"type":"error","error":{"type":"invalid_request_error"}}');
    await expect(client.messages.create(asked)).rejects.toMatchObject({ status: 400 });
    a.handler = b.handler = (_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(
        `${messageEvents()[0]}${eventText('error', { error: { type: 'api_error', message: 'm' } })}`,
      );
    };
    await expect(client.messages.stream(asked).finalMessage()).rejects.toThrow();
  },
);
