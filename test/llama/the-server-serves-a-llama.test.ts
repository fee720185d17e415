/** The example server on llama.cpp, called by both official clients. */

import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Serving, serverOptions } from '../../examples/server/api/index.ts';
import { contextSize, llama, modelFile, removeScratch, scratch } from './llama.ts';

const state = join(scratch, 'state');
const asked = ['--engine', 'llama', '--model', modelFile, '--threads', '1', '--context', String(contextSize)];
const model = 'tiny';
const lines: string[] = [];

const start = (...more: string[]): Promise<Serving> =>
  Serving.start(serverOptions([...asked, '--port', '0', '--operator-port', '0', ...more], {}), (line) =>
    lines.push(line),
  );
const chats = (serving: Serving) =>
  new OpenAI({ baseURL: `${serving.url}/v1`, apiKey: 'none', maxRetries: 0 });
const messagesOf = (serving: Serving) =>
  new Anthropic({ baseURL: serving.url, apiKey: 'none', maxRetries: 0 });

const rules = 'What was read once is not read again, unless it is gone. '.repeat(2);
const system = `Rules: ${rules}`;
const question = (n: number) => ({ role: 'user' as const, content: `Question ${n}: why?` });
const request = (n: number) => ({ model, max_tokens: 8, temperature: 0, system, messages: [question(n)] });
const chat = (n: number) => ({
  model,
  max_completion_tokens: 8,
  temperature: 0,
  messages: [{ role: 'system' as const, content: system }, question(n)],
});
const textOf = ({ content }: Anthropic.Message): string =>
  content.map((block) => (block.type === 'text' ? block.text : '')).join('');

let serving: Serving;
beforeAll(async () => {
  serving = await start('--state', state, '--max-sequences', '2');
});
afterAll(async () => {
  await serving.stop();
  await llama.dispose();
  removeScratch();
});

describe('the server on llama.cpp', () => {
  it('says the same by both APIs, with and without the cache, whole and as a stream', async () => {
    const [client, openai] = [messagesOf(serving), chats(serving)];
    const first = await client.messages.create(request(1));
    expect(first.usage.cache_read_input_tokens).toBe(0);
    const { usage } = first;
    const prompt = usage.input_tokens + (usage.cache_creation_input_tokens ?? 0);
    expect(usage.cache_creation_input_tokens).toBe(Math.floor(prompt / 16) * 16);
    const again = await openai.chat.completions.create(chat(1));
    expect(again.choices[0].message.content).toBe(textOf(first));
    expect(again.usage?.prompt_tokens).toBe(prompt);
    expect(again.usage?.prompt_tokens_details?.cached_tokens).toBeGreaterThan(prompt - 17);
    const streamed = await client.messages.stream(request(1)).finalMessage();
    expect(textOf(streamed)).toBe(textOf(first));
    expect(streamed.usage.cache_read_input_tokens).toBeGreaterThan(prompt - 17);
    const { input_tokens: counted } = await client.messages.countTokens({
      model,
      system,
      messages: [question(1)],
    });
    expect(counted).toBe(prompt);
  });

  it('answers 16 at once as each alone', async () => {
    const [client, openai] = [messagesOf(serving), chats(serving)];
    const numbers = Array.from({ length: 16 }, (_, i) => 10 + i);
    const together = await Promise.all(
      numbers.map(async (n) =>
        n % 2 === 0
          ? textOf(await client.messages.create(request(n)))
          : (await openai.chat.completions.create(chat(n))).choices[0].message.content,
      ),
    );
    for (const [i, n] of numbers.entries())
      expect(textOf(await client.messages.create(request(n)))).toBe(together[i]);
    expect(serving.engine.size).toBe(0);
  });

  it('lets go of a request whose client leaves, while it is computed and while it waits', async () => {
    const client = messagesOf(serving);
    const streams = Array.from({ length: 5 }, (_, i) =>
      client.messages.stream({ ...request(50 + i), max_tokens: 300, ...{ temperature: 1 } }),
    );
    const ends = streams.map((stream) => stream.finalMessage().catch((error: unknown) => error));
    while (serving.engine.size < 5) await new Promise((resolve) => setImmediate(resolve));
    expect(serving.engine.running).toBe(2);
    for (const stream of streams) stream.abort();
    for (const error of await Promise.all(ends)) expect(error).toBeInstanceOf(Anthropic.APIUserAbortError);
    while (serving.engine.size > 0) await new Promise((resolve) => setTimeout(resolve, 2));
    expect(serving.engine.running).toBe(0);
    serving.engine.cache.kv.manager.checkIntegrity();
  });

  it('refuses what llama.cpp has not here, by its name', async () => {
    const wrong = chats(serving).chat.completions.create({ ...chat(1), logprobs: true });
    await expect(wrong).rejects.toMatchObject({ status: 400, param: 'logprobs' });
    const tooLong = messagesOf(serving).messages.create({
      ...request(1),
      messages: [{ role: 'user', content: 'word '.repeat(600) }],
    });
    await expect(tooLong).rejects.toMatchObject({ status: 400 });
  });

  it('goes on with its prefixes after a restart', async () => {
    const before = await messagesOf(serving).messages.create(request(1));
    expect(await serving.stop()).toBeGreaterThan(5);
    serving = await start('--state', state, '--max-sequences', '3');
    const after = await messagesOf(serving).messages.create(request(1));
    expect(textOf(after)).toBe(textOf(before));
    expect(after.usage.cache_read_input_tokens).toBeGreaterThan(64);
    const told = await chats(serving).chat.completions.create(chat(1));
    expect(told.usage?.prompt_tokens_details).toMatchObject({ cached_tokens: expect.any(Number) });
    expect(lines).toEqual([]);
  });
});

describe('options of the server on llama.cpp', () => {
  it.each<[string, string[], RegExp]>([
    ['no file', ['--engine', 'llama'], /--model must be a \.gguf file/],
    ['a directory', ['--engine', 'llama', '--model', 'models/x'], /--model must be a \.gguf file/],
    [
      'device memory',
      [...asked, '--hbm-mib', '4'],
      /--hbm-mib is given, and does nothing with --engine llama/,
    ],
    ['a role', [...asked, '--role', 'both', '--secret-file', 'x'], /--role is given, and does nothing/],
    ['another engine', ['--engine', 'other'], /--engine is other.*tierkv, llama/],
    [
      'threads of another engine',
      ['--threads', '2'],
      /--threads is given, and does nothing with --engine tierkv/,
    ],
  ])('refuse %s', (_what, args, problem) => {
    expect(() => serverOptions(args, {})).toThrow(problem);
  });
});
