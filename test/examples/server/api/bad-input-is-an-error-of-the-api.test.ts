/** Whatever a client sends, it gets an error in the API's shape, and the server lives on. */

import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockBytes, keys, LiveServer, model } from '../liveServer.ts';

let server: LiveServer;
beforeAll(async () => {
  server = await LiveServer.start({
    apiKeys: keys,
    hbmBytes: 32 * blockBytes,
    ddrBytes: 0,
    maxSequences: 2,
    maxWaiting: 3,
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const completion = (more: object): string => JSON.stringify({ model, prompt: 'Hello', ...more });
const chat = (more: object): string =>
  JSON.stringify({ model, messages: [{ role: 'user', content: 'Hi' }], ...more });
const completions = '/v1/completions';
const chats = '/v1/chat/completions';

/** What is sent, where to, and the status, field and words that come back. */
const refused: readonly (readonly [
  string,
  string,
  string | Uint8Array<ArrayBuffer>,
  number,
  string | null,
  RegExp,
])[] = [
  ['wrong JSON', completions, '{"model": ', 400, null, /not JSON/],
  ['an empty body', completions, '', 400, null, /JSON/],
  ['a list', completions, '[]', 400, null, /must be a JSON object/],
  ['broken UTF-8', completions, Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), 400, null, /not UTF-8/],
  ['an unknown field', completions, completion({ temprature: 1 }), 400, 'temprature', /not a field/],
  [
    'an unknown field of an option',
    completions,
    completion({ stream: true, stream_options: { x: 1 } }),
    400,
    'stream_options.x',
    /not a field/,
  ],
  ['no model', completions, '{"prompt":"x"}', 400, 'model', /missing/],
  ['another model', completions, completion({ model: 'other' }), 404, 'model', /not here/],
  ['no prompt', completions, JSON.stringify({ model }), 400, 'prompt', /must be one prompt/],
  ['two prompts', completions, completion({ prompt: ['a', 'b'] }), 400, 'prompt', /must be one prompt/],
  ['an empty prompt', completions, completion({ prompt: '' }), 400, 'prompt', /empty/],
  [
    'a token that the model has not',
    completions,
    completion({ prompt: [1, 512] }),
    400,
    'prompt',
    /0 to 511/,
  ],
  [
    'a prompt over the context',
    completions,
    completion({ prompt: Array(600).fill(5) }),
    400,
    'prompt',
    /context has 512/,
  ],
  [
    'an answer over the context',
    completions,
    completion({ max_tokens: 512 }),
    400,
    'prompt',
    /context has 512/,
  ],
  ['no tokens', completions, completion({ max_tokens: 0 }), 400, 'max_tokens', /from 1/],
  ['half a token', completions, completion({ max_tokens: 1.5 }), 400, 'max_tokens', /integer/],
  ['n above 128', completions, completion({ n: 129 }), 400, 'n', /from 1 to 128/],
  [
    'a temperature that is a text',
    completions,
    completion({ temperature: '1' }),
    400,
    'temperature',
    /number/,
  ],
  ['a top_p above 1', completions, completion({ top_p: 1.5 }), 400, 'top_p', /0 to 1/],
  [
    'five stop strings',
    completions,
    completion({ stop: ['a', 'b', 'c', 'd', 'e'] }),
    400,
    'stop',
    /one to four/,
  ],
  [
    'log probabilities of too many',
    completions,
    completion({ logprobs: 21 }),
    400,
    'logprobs',
    /from 0 to 20/,
  ],
  [
    'stream options without a stream',
    completions,
    completion({ stream_options: {} }),
    400,
    'stream_options',
    /stream: true/,
  ],
  ['no messages', chats, chat({ messages: [] }), 400, 'messages', /one message/],
  [
    'a message without a role',
    chats,
    chat({ messages: [{ content: 'x' }] }),
    400,
    'messages[0].role',
    /role/,
  ],
  [
    'an image',
    chats,
    chat({ messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }),
    400,
    'messages[0].content',
    /text only/,
  ],
  [
    'an unknown role',
    chats,
    chat({ messages: [{ role: 'usr', content: 'x' }] }),
    400,
    'messages[0].role',
    /role usr/,
  ],
  ['reasoning', chats, chat({ reasoning_effort: 'low' }), 400, 'reasoning_effort', /not supported/],
  ['an answer that is spoken', chats, chat({ modalities: ['text', 'audio'] }), 400, 'modalities', /not supp/],
  ['tools', chats, chat({ tools: [{ type: 'function' }] }), 400, 'tools', /not supported/],
  [
    'a JSON answer',
    chats,
    chat({ response_format: { type: 'json_object' } }),
    400,
    'response_format',
    /not supported/,
  ],
];

describe('a request that is wrong', () => {
  it.each(refused)('%s', async (_name, path, body, status, param, words) => {
    const response = await server.post(path, body);
    const { error } = (await response.json()) as { error: Record<string, unknown> };
    expect(error.message).toMatch(words);
    expect(Object.keys(error).sort()).toEqual(['code', 'message', 'param', 'type']);
    expect(error.param).toBe(param);
    expect(response.status).toBe(status);
    expect(server.serving.engine.size).toBe(0);
  });

  it('has a body that is too large, or not JSON, or comes to a path that is not there', async () => {
    const tooLarge = await server.post(completions, completion({ prompt: 'x'.repeat(2 ** 20) }));
    const noJson = await server.post(completions, 'hello', { 'content-type': 'text/plain' });
    const nowhere = await server.post('/v1/embeddings', '{}');
    const longPath = await server.post(`/${'x'.repeat(20_000)}`, '{}');
    const found = [tooLarge, noJson, nowhere, longPath];
    expect(found.map(({ status }) => status)).toEqual([413, 415, 404, 431]);
    const words = [/Send a shorter prompt/, /Send content-type: application\/json/, /embeddings/, /too long/];
    for (const [i, response] of found.entries()) {
      const { error } = (await response.json()) as { error: { message: string } };
      expect(error.message).toMatch(words[i]);
    }
  });

  it('is not HTTP', async () => {
    const { hostname, port } = new URL(server.url);
    const socket = connect(Number(port), hostname);
    socket.end('hello\r\n\r\n');
    let text = '';
    for await (const piece of socket) text += piece;
    const [head, body] = text.split('\r\n\r\n');
    expect(head).toMatch(/^HTTP\/1.1 400 Bad Request\r\n/);
    expect(JSON.parse(body)).toMatchObject({ error: { type: 'invalid_request_error', param: null } });
  });

  it('has no key, or a wrong one', async () => {
    for (const authorization of ['', 'Bearer unknown', 'Basic a2V5LWE=']) {
      for (const path of [completions, chats]) {
        const response = await server.post(path, completion({}), { authorization });
        expect(response.status).toBe(401);
      }
    }
  });
});

it('a path that must be text and is not is an error of the API, and the scheme of a key is written as one likes', async () => {
  const response = await fetch(`${server.url}/v1/models/%ff`, {
    headers: { authorization: 'bearer  key-a' },
  });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { type: 'invalid_request_error' } });
  const models = await fetch(`${server.url}/v1/models`, { headers: { authorization: 'bearer  key-a' } });
  expect(models.status).toBe(200);
});

it('a prompt that nearly fills the context has the room that is left, where no length is asked for', async () => {
  const response = await server.post(
    completions,
    completion({ prompt: Array(507).fill(5), ignore_eos: true }),
  );
  expect(await response.json()).toMatchObject({ usage: { prompt_tokens: 507, completion_tokens: 5 } });
});

it('an answer has all the tokens that were asked for, as many as the context holds with its prompt', async () => {
  const { contextTokens } = server.serving.engine;
  const prompt = contextTokens - 30;
  const body = completion({ prompt: Array(prompt).fill(5), max_tokens: 30, ignore_eos: true });
  const response = await server.post(completions, body);
  expect(await response.json()).toMatchObject({ usage: { prompt_tokens: prompt, completion_tokens: 30 } });
});

describe('more requests than the queue holds', () => {
  it('are refused with 429, and the requests that were taken are answered', async () => {
    const body = completion({ max_tokens: 60, ignore_eos: true, temperature: 0 });
    const responses = await Promise.all(Array.from({ length: 16 }, () => server.post(completions, body)));
    const statuses = responses.map(({ status }) => status);
    const answered = statuses.filter((status) => status === 200).length;
    expect(statuses.filter((status) => status === 429).length).toBe(16 - answered);
    expect(answered).toBeGreaterThanOrEqual(3);
    expect(answered).toBeLessThan(16);
    const [refusal] = responses.filter(({ status }) => status === 429);
    expect(refusal.headers.get('retry-after')).toBe('1');
    const { error } = (await refusal.json()) as { error: { type: string; code: string } };
    expect(error).toMatchObject({ type: 'rate_limit_error', code: 'rate_limit_exceeded' });
  });
});

describe('a key that floods the queue', () => {
  it('takes a share of its places, and the requests of another key are taken', async () => {
    await using flooded = await LiveServer.start({
      apiKeys: keys,
      hbmBytes: 32 * blockBytes,
      ddrBytes: 0,
      maxSequences: 1,
      maxWaiting: 16,
    });
    const { engine } = flooded.serving;
    const headers = { authorization: 'Bearer key-b', 'content-type': 'application/json' };
    const body = completion({ max_tokens: 60, ignore_eos: true, temperature: 0 });
    const post = (): Promise<Response> =>
      fetch(new URL(completions, flooded.url), { method: 'POST', headers, body });
    const flood = Array.from({ length: 60 }, () => flooded.post(completions, body));
    const answers = flood.map((each) => each.then(({ status }) => status));
    // at least one was refused: its share is full
    expect(
      await Promise.any(answers.map((each) => each.then((s) => (s === 429 ? s : Promise.reject())))),
    ).toBe(429);
    expect(engine.size - engine.running, 'its share').toBeLessThanOrEqual(8);
    const others = await Promise.all([post(), post(), post()]);
    expect(others.map(({ status }) => status)).toEqual([200, 200, 200]);
    const statuses = await Promise.all(answers);
    expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(8);
  });
});

describe('clients that behave badly', () => {
  it('break off in the middle of a body, or never read their stream', async () => {
    await server.idle();
    const { hostname, port } = new URL(server.url);
    const open = (): ReturnType<typeof connect> => connect(Number(port), hostname);
    const half = open();
    half.write('POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{"model":');
    const silent = open();
    const body = completion({ stream: true, max_tokens: 300, ignore_eos: true });
    silent.write(
      `POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-a\r\n` +
        `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    silent.pause();
    while (server.serving.engine.size === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    half.destroy();
    const answer = await server.post(completions, completion({ max_tokens: 3, temperature: 0 }));
    expect(answer.status).toBe(200);
    silent.destroy();
    await server.idle();
    expect(server.serving.engine.cache.kv.manager.inspect.openSequences).toBe(0);
  });
});
