/**
 * `n`, log probabilities and the access log by the official client: several answers compute their prompt once, what the model
 * thinks of tokens adds up, and each request leaves a line without keys and texts.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { wholeBody } from '../../../../examples/server/api/answerBodies.ts';
import { sampledLogprob } from '../../../../examples/server/engine/logprobs.ts';
import { blockBytes, keys, LiveServer, model } from '../liveServer.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-access-'));
const log = join(folder, 'access.jsonl');
let server: LiveServer;
let client: OpenAI;

beforeAll(async () => {
  const sizes = { hbmBytes: 64 * blockBytes, ddrBytes: 256 * blockBytes, maxSequences: 16 };
  server = await LiveServer.start({ apiKeys: keys, ...sizes, accessLog: log });
  client = server.client();
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

const prompt = 'Three answers to one question, whose prompt has some more blocks than one has.';
const ask = { model, prompt, max_tokens: 6, temperature: 1, seed: 5, ...{ ignore_eos: true } };
const chat = {
  model,
  messages: [{ role: 'user' as const, content: 'What lies in which tier?' }],
  max_tokens: 5,
  seed: 3,
  ...{ ignore_eos: true },
};

describe('several answers', () => {
  it('are those of their seeds, and compute the prompt once', async () => {
    const three = await client.completions.create({ ...ask, n: 3 });
    expect(three.choices.map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(three.usage?.completion_tokens).toBe(18);
    const texts = three.choices.map(({ text }) => text);
    expect(new Set(texts).size).toBeGreaterThan(1);
    for (const [i, text] of texts.entries()) {
      const alone = await client.completions.create({ ...ask, seed: 5 + i });
      expect(alone.choices[0].text).toBe(text);
    }
    await expect.poll(() => linesOf(log).length).toBeGreaterThan(0);
    expect(linesOf(log)[0]).toMatchObject({ completion_tokens: 18, cached_tokens: 0, status: 200 });
  });

  it('find the blocks that the first computed', async () => {
    const fresh = `This one is new. ${prompt}`;
    const { counters } = server.serving.engine;
    const cached = counters.cachedTokens;
    const three = await client.completions.create({ ...ask, prompt: fresh, n: 3 });
    const tokens = three.usage?.prompt_tokens ?? 0;
    // the first finds what the prompts have in common, the others all full blocks before the last token
    const own = three.usage?.prompt_tokens_details?.cached_tokens ?? 0;
    const full = Math.floor((tokens - 1) / 16) * 16;
    expect(own).toBeLessThan(full);
    expect(counters.cachedTokens - cached).toBe(own + 2 * full);
  });

  it('come in one stream, each under its index', async () => {
    const whole = await client.chat.completions.create({ ...chat, n: 2 });
    const texts = ['', ''];
    const ends = [];
    const stream = await client.chat.completions.create({ ...chat, n: 2, stream: true });
    for await (const chunk of stream) {
      for (const { index, delta, finish_reason: finish } of chunk.choices) {
        texts[index] += delta.content ?? '';
        if (finish !== null) ends.push([index, finish]);
      }
    }
    expect(texts).toEqual(whole.choices.map(({ message }) => message.content));
    expect(ends.sort()).toEqual([
      [0, 'length'],
      [1, 'length'],
    ]);
  });

  it('all end when their client leaves', async () => {
    const { engine } = server.serving;
    const leaving = new AbortController();
    const body = { ...ask, n: 4, max_tokens: 400, stream: true as const };
    const stream = await client.completions.create(body, { signal: leaving.signal });
    for await (const _chunk of stream) {
      leaving.abort();
      break;
    }
    await expect.poll(() => engine.size).toBe(0);
  });
});

describe('log probabilities', () => {
  it('are those of the logits', () => {
    const logits = Float32Array.from([1, 3, 2, 3]);
    const sum = Math.exp(1) + 2 * Math.exp(3) + Math.exp(2);
    const { logprob, top } = sampledLogprob(logits, 2, 3);
    expect(logprob).toBeCloseTo(2 - Math.log(sum), 6);
    expect(top.map(({ token }) => token)).toEqual([1, 3, 2]);
    const all = sampledLogprob(logits, 0, 4).top.reduce((total, each) => total + Math.exp(each.logprob), 0);
    expect(all).toBeCloseTo(1, 6);
  });

  it('stand beside the tokens of a completion', async () => {
    const { choices } = await client.completions.create({ ...ask, temperature: 0, logprobs: 2 });
    const [{ text, logprobs }] = choices;
    expect(logprobs?.tokens).toHaveLength(6);
    expect(logprobs?.tokens?.join('')).toBe(text);
    expect(logprobs?.text_offset?.[0]).toBe(0);
    for (const [i, top] of (logprobs?.top_logprobs ?? []).entries()) {
      // without temperature the token is the most likely
      expect(Math.max(...Object.values(top))).toBeCloseTo(logprobs?.token_logprobs?.[i] ?? Number.NaN, 5);
    }
    expect((await client.completions.create(ask)).choices[0].logprobs).toBeNull();
  });

  it('of tokens with one text are those of the likeliest, and the token itself is among them', () => {
    const words = { decode: ([token]: readonly number[]) => (token === 3 ? 'c' : '\ufffd') };
    const top = [
      { token: 1, logprob: -1 },
      { token: 2, logprob: -2 },
    ];
    const answer = { request: { logprobs: 2 }, logprobs: [{ token: 3, logprob: -9, top }], tokens: [3] };
    const name = { id: 'a', created: 0, model: 'm' };
    const { choices } = wholeBody('completion', name, [answer as never], ['c'], words as never) as {
      choices: [{ logprobs: { top_logprobs: object[] } }];
    };
    expect(choices[0].logprobs.top_logprobs).toEqual([{ '\ufffd': -1, c: -9 }]);
  });

  it('stand beside the tokens of a chat, whole and streamed', async () => {
    const asked = { ...chat, logprobs: true, top_logprobs: 3 };
    const { choices } = await client.chat.completions.create(asked);
    const content = choices[0].logprobs?.content ?? [];
    expect(content).toHaveLength(5);
    for (const { top_logprobs: top, token, bytes } of content) {
      expect(top).toHaveLength(3);
      expect(bytes === null || Buffer.from(bytes).toString() === token).toBe(true);
      expect(top[0].logprob).toBeGreaterThanOrEqual(top[2].logprob);
    }
    const streamed = [];
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
      streamed.push(...(chunk.choices[0]?.logprobs?.content ?? []));
    }
    expect(streamed).toEqual(content);
  });

  it('are refused where they make no sense', async () => {
    const bad = { ...chat, top_logprobs: 3 };
    await expect(client.chat.completions.create(bad)).rejects.toMatchObject({
      status: 400,
      param: 'top_logprobs',
    });
    const many = { ...ask, logprobs: 21 };
    await expect(client.completions.create(many)).rejects.toMatchObject({ status: 400, param: 'logprobs' });
  });
});

describe('the access log', () => {
  it('has a line a request, without keys and texts', async () => {
    // of a server of its own: the lines of requests before may still be on their way to the file
    const own = join(folder, 'own.jsonl');
    await using alone = await LiveServer.start({ apiKeys: keys, hbmBytes: 64 * blockBytes, accessLog: own });
    await alone.client().completions.create(ask);
    await fetch(`${alone.url}/nowhere?key=key-a`);
    await expect.poll(() => linesOf(own).length).toBe(2);
    const [served, lost] = linesOf(own);
    expect(served).toMatchObject({
      method: 'POST',
      path: '/v1/completions',
      status: 200,
      tenant: 'tenant-a',
      stream: false,
      completion_tokens: 6,
      finish: ['length'],
    });
    expect(served.ttft_ms).toBeLessThanOrEqual(served.ms as number);
    expect(lost).toMatchObject({ method: 'GET', path: '/nowhere', status: 404 });
    const text = readFileSync(own, 'utf8');
    expect(text).not.toContain('key-a');
    expect(text).not.toContain('Three answers');
  });

  it('is refused where it cannot be written', async () => {
    const options = { accessLog: join(folder, 'none', 'access.jsonl') };
    await expect(LiveServer.start(options)).rejects.toMatchObject({ field: '--access-log' });
  });
});

it('says from which tier a prompt came', async () => {
  const text = `${prompt} This one is asked twice.`;
  await client.completions.create({ ...ask, prompt: text });
  const again = await client.completions.create({ ...ask, prompt: text });
  const details = again.usage?.prompt_tokens_details as Record<string, unknown>;
  expect(details.cached_tokens_by_tier).toEqual({ hbm: details.cached_tokens });
});

function linesOf(file: string): Record<string, unknown>[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}
