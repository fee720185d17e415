/** Why a prompt was missed: told in the contract of Anthropic's API, in a header, and in metrics, in each of the four cases. */

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { KVEvent } from '../../../src/serve/gateway/events/wire.ts';
import type { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { loadTokenizer } from '../../../src/serve/gateway/prompts.ts';
import { hasExtra } from '../../extras.ts';
import { gatewayOf, type Handler, operatorPage, TestBackend } from './backends.ts';
import { messageEvents, messagesServer, type SaidMessage, wholeMessage } from './messagesServer.ts';

type Body = Readonly<Record<string, unknown>>;
type Diagnosed = { readonly cache_miss_reason: Body; readonly tierkv: Body } | null;

const prose = (seed: string, lines: number): string =>
  Array.from({ length: lines }, (_, i) => `${seed} line ${i}: of ${seed} the part ${i * 13} is kept.\n`).join(
    '',
  );

const tools = ['read', 'write'].map((name) => ({
  name,
  description: `Runs ${name} in the workspace.`,
  input_schema: { type: 'object' },
}));
const system = `You are an agent.\n${prose('rules', 60)}`;
const user = (text: string): object => ({ role: 'user', content: text });
const said = (text: string): object => ({ role: 'assistant', content: text });
const first = [user(`one ${prose('first', 50)}`)];
const second = [...first, said('yes'), user('two')];
const plain: Body = { model: 'm', max_tokens: 9, system, tools };

/** Tokens of a body as the stand-in counts them. */
const tokensOf = (body: Body): number =>
  Math.round(JSON.stringify([body.system, body.tools, body.messages]).length / 4);

/** Answers of all servers here, each with an id of its own. */
let ids = 0;

/** A server whose cache the test says: the share of a prompt that it finds. */
class Caching {
  share = 1;
  readonly handler: Handler = (request, response, text) => {
    const body = JSON.parse(text) as Body;
    const tokens = tokensOf(body);
    const read = Math.round(this.share * tokens);
    const id = `msg_${ids++}`;
    const counts = { input: tokens - read, read, written: 0 };
    const answer: SaidMessage = { id, text: 'a b', counts };
    if (request.url === '/v1/messages') return messagesServer(() => answer)(request, response, text);
    const usage = {
      prompt_tokens: tokens,
      completion_tokens: 2,
      prompt_tokens_details: { cached_tokens: read },
    };
    const choice = { index: 0, finish_reason: 'stop' };
    if (body.stream !== true) {
      response.setHeader('content-type', 'application/json');
      const message = { role: 'assistant', content: 'a b' };
      return void response.end(
        JSON.stringify({ id, object: 'chat.completion', choices: [{ ...choice, message }], usage }),
      );
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const event = (more: object): string =>
      `data: ${JSON.stringify({ id, object: 'chat.completion.chunk', ...more })}\n\n`;
    response.write(event({ choices: [{ index: 0, delta: { role: 'assistant', content: 'ä' } }] }));
    response.write(event({ choices: [{ ...choice, delta: {} }] }));
    response.write(event({ choices: [], usage }));
    return void response.end('data: [DONE]\n\n');
  };
}

async function post(gateway: Gateway, path: string, body: Body, headers = {}): Promise<Response> {
  return fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
}

/** The first answer's body, or what its events say: its id and diagnostics. */
async function answered(
  response: Response,
): Promise<{ id: string; diagnostics: Diagnosed | undefined; text: string }> {
  const text = await response.text();
  const events = text.startsWith('{')
    ? [text]
    : text.split('\n').flatMap((line) => (/^data: \{/.test(line) ? [line.slice(5)] : []));
  let [id, diagnostics]: [string, Diagnosed | undefined] = ['', undefined];
  for (const event of events) {
    const body = JSON.parse(event) as {
      id?: string;
      diagnostics?: Diagnosed;
      message?: { id?: string; diagnostics?: Diagnosed };
    };
    id ||= body.id ?? body.message?.id ?? '';
    for (const said of [body, body.message ?? {}]) if ('diagnostics' in said) ({ diagnostics } = said);
  }
  return { id, diagnostics, text };
}

const apis = [
  ['/v1/messages', false],
  ['/v1/messages', true],
  ['/v1/chat/completions', false],
  ['/v1/chat/completions', true],
] as const;

/** A body as either API has it. */
const bodyAt = (path: string, messages: readonly object[], more: Body = {}): Body => {
  const { system: text, tools: list, ...rest } = { ...plain, ...more };
  if (path === '/v1/messages') return { ...rest, system: text, tools: list, messages };
  const named = (list as typeof tools).map((tool) => ({ type: 'function', function: tool }));
  return { ...rest, tools: named, messages: [{ role: 'system', content: text }, ...messages] };
};

const moved: readonly (readonly [string, readonly object[], Body])[] = [
  ['model_changed', second, { model: 'other' }],
  ['system_changed', second, { system: `x-billing: 7\n${system}` }],
  ['tools_changed', second, { tools: tools.toReversed() }],
  ['messages_changed', [user(`ONE ${prose('first', 50)}`), ...second.slice(1)], {}],
];

describe.each(apis)('at %s, streamed %s', (path, stream) => {
  it('a client is told what it changed, and null where nothing was missed', async () => {
    const server = new Caching();
    await using backend = await TestBackend.open(server.handler);
    backend.models = { data: [{ id: 'm' }, { id: 'other' }] };
    await using gateway = await gatewayOf([backend], { diagnostics: true });
    const turn = async (messages: readonly object[], previous: string | null, more: Body = {}) =>
      answered(
        await post(gateway, path, {
          ...bodyAt(path, messages, more),
          stream,
          diagnostics: { previous_message_id: previous },
        }),
      );
    const begun = await turn(first, null);
    expect([begun.diagnostics, begun.id === '']).toEqual([null, false]);
    expect((await turn(second, begun.id)).diagnostics).toBeNull();
    server.share = 0.01;
    for (const [type, messages, more] of moved) {
      const { diagnostics } = await turn(messages, begun.id, more);
      expect(diagnostics?.cache_miss_reason).toEqual({ type, cache_missed_input_tokens: expect.any(Number) });
      const { cache_missed_input_tokens: missed } = diagnostics?.cache_miss_reason ?? {};
      expect(missed).toBeGreaterThan(type === 'messages_changed' ? 100 : 400);
      expect(diagnostics?.tierkv).toMatchObject({
        why: type,
        path: expect.stringMatching(/model|system|tools|messages/),
      });
    }
    expect((await turn(second, 'msg_never')).diagnostics).toMatchObject({
      cache_miss_reason: { type: 'previous_message_not_found' },
      tierkv: { why: 'never_seen' },
    });
    // the server is asked as if the gateway were not asked
    expect(backend.seen.some(({ body }) => body.includes('diagnostics'))).toBe(false);
  });

  it('and what its server evicted, and what went to another server', async () => {
    const server = new Caching();
    await using a = await TestBackend.open(server.handler);
    await using b = await TestBackend.open(server.handler);
    await using gateway = await gatewayOf([a, b], { diagnostics: true });
    const turn = async (messages: readonly object[], previous: string | null) =>
      answered(
        await post(gateway, path, {
          ...bodyAt(path, messages),
          stream,
          diagnostics: { previous_message_id: previous },
        }),
      );
    server.share = 0;
    const begun = await turn(first, null); // to a: round robin
    const elsewhere = await turn(second, begun.id); // to b
    expect(elsewhere.diagnostics).toMatchObject({
      cache_miss_reason: { type: 'unavailable' },
      tierkv: { why: 'elsewhere', server: 'b0', tokens: expect.any(Number) },
    });
    await turn(first, null); // to a
    const evicted = await turn([...second, said('x'), user('three')], elsewhere.id); // to b
    expect(evicted.diagnostics).toMatchObject({ tierkv: { why: 'evicted' } });
    expect([a.seen.length, b.seen.length]).toEqual([2, 2]);
  });

  it('the bytes of an answer are those of its server unless its body asked, and a header tells who asked by one', async () => {
    const server = new Caching();
    let sent = '';
    await using backend = await TestBackend.open((request, response, body) => {
      const [write, end] = [response.write.bind(response), response.end.bind(response)];
      sent = '';
      const noted = (text: string): string => {
        sent += text;
        return text;
      };
      Object.assign(response, {
        write: (text: string) => write(noted(text)),
        end: (text = '') => end(noted(text)),
      });
      server.handler(request, response, body);
    });
    await using gateway = await gatewayOf([backend], { diagnostics: true });
    const asks = { 'x-tierkv-diagnostics': '1' };
    const turn = async (messages: readonly object[], headers: object, more: Body = {}) => {
      const response = await post(gateway, path, { ...bodyAt(path, messages, more), stream }, headers);
      expect(await response.text()).toBe(sent);
      return response.headers.get('x-tierkv-cache-miss');
    };
    expect(await turn(first, {})).toBeNull();
    expect(await turn(second, asks)).toBe('none');
    expect(await turn([user('another task'), said('yes'), user('go on')], asks)).toBe('never_seen; tokens=0');
    server.share = 0.01;
    const third = [...second, said('x'), user('three')];
    const line = await turn(third, asks, { system: `x-billing: 7\n${system}` });
    expect(line).toMatch(
      /^system_changed; tokens=\d+; cause=edited; path=(system|messages\[0\]\.content); byte=\d+$/,
    );
    const { misses } = gateway.measures;
    expect([misses.get('system_changed')?.misses, misses.get('never_seen')?.misses]).toEqual([1, 2]);
    expect(misses.get('system_changed')?.tokens).toBeGreaterThan(400);
    const page = await (await operatorPage(gateway, '/metrics')).text();
    expect(page).toContain('tierkv_gateway_cache_misses_total{why="system_changed"} 1\n');
    const status = (await (await operatorPage(gateway, '/gateway/status')).json()) as { cacheMisses: Body[] };
    expect(status.cacheMisses).toContainEqual(expect.objectContaining({ why: 'never_seen', misses: 2 }));
  });
});

it('without the option a body goes on as it is, and small prompts cost nothing with it', async () => {
  await using backend = await TestBackend.open(messagesServer());
  await using off = await gatewayOf([backend]);
  const body = { ...plain, messages: first, diagnostics: { previous_message_id: null } };
  expect(await (await post(off, '/v1/messages', body, { 'x-tierkv-diagnostics': '1' })).text()).toBe(
    wholeMessage(),
  );
  expect(JSON.parse(backend.seen[0].body)).toEqual(body);
  await using on = await gatewayOf([backend], { diagnostics: true });
  await post(on, '/v1/messages', { model: 'm', max_tokens: 1, messages: [user('small')] });
  expect([on.prompts?.bytes, on.measures.misses.size]).toEqual([0, 0]);
});

it('tenants, and clients of two keys, do not see each other', async () => {
  await using backend = await TestBackend.open(new Caching().handler);
  for (const tenants of [
    undefined,
    new Map([
      ['a', 'ta'],
      ['b', 'tb'],
    ]),
  ]) {
    await using gateway = await gatewayOf([backend], {
      diagnostics: true,
      ...(tenants === undefined ? {} : { tenants }),
    });
    const turn = async (key: string, previous: string | null) =>
      answered(
        await post(
          gateway,
          '/v1/messages',
          { ...plain, messages: first, diagnostics: { previous_message_id: previous } },
          { 'x-api-key': key },
        ),
      );
    const { id } = await turn('a', null);
    expect((await turn('b', id)).diagnostics?.cache_miss_reason).toEqual({
      type: 'previous_message_not_found',
    });
    expect((await turn('a', id)).diagnostics).toBeNull();
  }
});

it('a stream that comes byte by byte has its diagnostics all the same', async () => {
  const events = messageEvents({ text: 'ä ö', counts: { input: 1, read: 2000, written: 0 } }).join('');
  await using backend = await TestBackend.open((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const bytes = Buffer.from(events);
    let at = 0;
    const next = (): void => {
      if (at === bytes.length) return void response.end();
      response.write(bytes.subarray(at, ++at), () => setImmediate(next));
    };
    next();
  });
  await using gateway = await gatewayOf([backend], { diagnostics: true });
  const body = { ...plain, messages: first, stream: true, diagnostics: { previous_message_id: null } };
  const { text, diagnostics } = await answered(await post(gateway, '/v1/messages', body));
  expect(diagnostics).toBeNull();
  expect(text.replace(',"diagnostics":null', '')).toBe(events);
});

it('KV events tell what a server has dropped, and what another one still has, where no server counts it', async () => {
  const tokenizer = join(import.meta.dirname, '../../../examples/server/tinyModel/files/tokenizer.json');
  const handler: Handler = (_, response) => {
    response.end(JSON.stringify({ id: 'a', choices: [{ index: 0, text: 'a', finish_reason: 'stop' }] }));
  };
  await using a = await TestBackend.open(handler);
  await using b = await TestBackend.open(handler);
  // keys are made since there is a trace
  const trace = join(mkdtempSync(join(tmpdir(), 'tierkv-miss-')), 'trace.jsonl');
  await using gateway = await gatewayOf([a, b], { diagnostics: true, tokenizer, trace });
  const prompt = prose('document', 60);
  const tokenIds = loadTokenizer(tokenizer).encode(prompt, { add_special_tokens: true }).ids;
  const blocks = Math.floor(tokenIds.length / 16);
  const hashes = Array.from({ length: blocks }, (_, i) => `h${i}`);
  const [first, other] = gateway.pool.backends;
  const of = { medium: null, group: null } as const;
  const stored: KVEvent = {
    ...{
      type: 'stored',
      hashes,
      parent: null,
      tokenIds: tokenIds.slice(0, 16 * blocks),
      blockTokens: 16,
      ...of,
    },
    ...{ layers: null, loraName: null, salt: null, extraKeys: null },
  };
  let asks = 0;
  const miss = async (): Promise<string | null> => {
    const body = { model: 'm', prompt: `${prompt}question ${asks++}` };
    const response = await post(gateway, '/v1/completions', body, { 'x-tierkv-diagnostics': '1' });
    await response.text();
    return response.headers.get('x-tierkv-cache-miss');
  };
  expect(await miss()).toBe('never_seen; tokens=0'); // at a: round robin
  gateway.pool.news(first, [stored]);
  gateway.pool.news(other, [{ ...stored, hashes: hashes.slice(0, 1), tokenIds: tokenIds.slice(0, 16) }]);
  expect(await miss()).toMatch(/^elsewhere; tokens=\d+; server=b0$/); // at b
  gateway.pool.news(first, [{ type: 'removed', hashes: hashes.slice(1), ...of }]);
  gateway.pool.news(other, [stored]);
  expect(await miss()).toMatch(/^elsewhere; tokens=\d+; server=b1$/); // at a
  expect(await miss()).toBe('none'); // at b
  gateway.pool.news(other, [{ type: 'removed', hashes: hashes.slice(1), ...of }]);
  expect(await miss()).toMatch(/^evicted; tokens=\d+$/); // at a, and b has dropped it too
});

const sdk = '@anthropic-ai/sdk';
it.skipIf(!hasExtra(sdk, "the official Anthropic client's diagnostics"))(
  'the official client reads them',
  async () => {
    interface Client {
      readonly messages: {
        create(params: object): Promise<{ id: string; diagnostics: Diagnosed }>;
        stream(params: object): { finalMessage(): Promise<{ id: string; diagnostics: Diagnosed }> };
      };
    }
    const { default: Anthropic } = (await import(sdk)) as { default: new (options: object) => Client };
    const server = new Caching();
    await using backend = await TestBackend.open(server.handler);
    await using gateway = await gatewayOf([backend], { diagnostics: true });
    const client = new Anthropic({ baseURL: gateway.url, apiKey: 'key', maxRetries: 0 });
    const begun = await client.messages.create({
      ...plain,
      messages: first,
      diagnostics: { previous_message_id: null },
    });
    server.share = 0;
    const changed = {
      ...plain,
      system: `moved\n${system}`,
      messages: second,
      diagnostics: { previous_message_id: begun.id },
    };
    for (const { diagnostics } of [
      await client.messages.create(changed),
      await client.messages.stream(changed).finalMessage(),
    ]) {
      expect(diagnostics?.cache_miss_reason.type).toBe('system_changed');
    }
  },
);
