/** The `openai` package from npm against the server, as its users call it. */

import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockBytes, keys, LiveServer, model } from '../liveServer.ts';

let server: LiveServer;
let client: OpenAI;

beforeAll(async () => {
  server = await LiveServer.start({
    apiKeys: keys,
    hbmBytes: 64 * blockBytes,
    ddrBytes: 256 * blockBytes,
    maxSequences: 16,
  });
  client = server.client();
});
afterAll(() => server[Symbol.asyncDispose]());

const ask = (n: number) => ({
  model,
  prompt: `Question ${n}: what does the block table say about block ${n * 7}?`,
  max_tokens: 12,
  temperature: 0.8,
  seed: n,
});

describe('the official client', () => {
  it('lists the model', async () => {
    const models = [];
    for await (const each of client.models.list()) models.push(each.id);
    expect(models).toEqual([model]);
    expect(await client.models.retrieve(model)).toMatchObject({ id: model, object: 'model' });
    await expect(client.models.retrieve('other')).rejects.toMatchObject({ status: 404, param: 'model' });
  });

  it('gets a completion, with usage', async () => {
    const answer = await client.completions.create({ ...ask(1), ...{ ignore_eos: true } });
    expect(answer.choices[0].finish_reason).toBe('length');
    expect(answer.choices[0].text.length).toBeGreaterThan(0);
    expect(answer.usage?.completion_tokens).toBe(12);
    const { prompt_tokens: prompt, total_tokens: total } = answer.usage ?? {
      prompt_tokens: 0,
      total_tokens: 0,
    };
    expect(total).toBe(prompt + 12);
  });

  it('gets the same text for the same seed, and cached tokens the second time', async () => {
    const [first, second] = [
      await client.completions.create(ask(2)),
      await client.completions.create(ask(2)),
    ];
    expect(second.choices[0].text).toBe(first.choices[0].text);
    expect(first.usage?.prompt_tokens_details?.cached_tokens).toBe(0);
    const cached = second.usage?.prompt_tokens_details?.cached_tokens ?? 0;
    const prompt = second.usage?.prompt_tokens ?? 0;
    expect(cached).toBe(Math.floor((prompt - 1) / 16) * 16);
    const other = await client.completions.create({ ...ask(2), seed: 3 });
    expect(other.choices[0].text).not.toBe(first.choices[0].text);
  });

  it('finds nothing that another tenant computed', async () => {
    await client.completions.create(ask(4));
    const other = await server.client('key-b').completions.create(ask(4));
    expect(other.usage?.prompt_tokens_details?.cached_tokens).toBe(0);
  });

  it('gets a chat, whole and as a stream with the same text', async () => {
    const request = {
      model,
      messages: [
        { role: 'system', content: 'You are brief.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Hello, ' },
            { type: 'text', text: 'wörld 😀' },
          ],
        },
      ] satisfies OpenAI.ChatCompletionMessageParam[],
      max_completion_tokens: 20,
      seed: 5,
    };
    const whole = await client.chat.completions.create(request);
    expect(whole.object).toBe('chat.completion');
    let text = '';
    let usage: OpenAI.CompletionUsage | null | undefined;
    let finish: string | null = null;
    const ids = new Set<string>();
    const stream = { stream: true, stream_options: { include_usage: true } } as const;
    for await (const chunk of await client.chat.completions.create({ ...request, ...stream })) {
      ids.add(`${chunk.id} ${chunk.created}`);
      text += chunk.choices[0]?.delta.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      if (chunk.choices.length > 0) expect(chunk.usage).toBeNull();
      else usage = chunk.usage;
    }
    expect(text).toBe(whole.choices[0].message.content);
    expect(finish).toBe(whole.choices[0].finish_reason);
    expect(usage?.completion_tokens).toBe(whole.usage?.completion_tokens);
    expect(ids.size).toBe(1);
    const lines = [
      request.messages[0],
      { role: 'user', content: 'Hello, \nwörld 😀' },
    ] satisfies OpenAI.ChatCompletionMessageParam[];
    const oneText = await client.chat.completions.create({ ...request, messages: lines });
    expect(oneText.usage?.prompt_tokens).toBe(whole.usage?.prompt_tokens);
    expect(oneText.choices[0].message.content).toBe(whole.choices[0].message.content);
  });

  it('never sees a stop string, nor a part of it', async () => {
    const whole = await client.completions.create({ ...ask(6), max_tokens: 40 });
    const { text } = whole.choices[0];
    const stop = text.slice(7, 12);
    let seen = '';
    const request = { ...ask(6), max_tokens: 40, stop, stream: true } as const;
    let finish: string | null = null;
    for await (const chunk of await client.completions.create(request)) {
      seen += chunk.choices[0].text;
      finish = chunk.choices[0].finish_reason ?? finish;
    }
    expect(seen).toBe(text.slice(0, text.indexOf(stop)));
    expect(finish).toBe('stop');
  });

  it('64 at once get what each gets alone', async () => {
    const numbers = Array.from({ length: 64 }, (_, i) => 100 + i);
    const together = await Promise.all(numbers.map((n) => client.completions.create(ask(n))));
    for (const n of [0, 17, 63]) {
      const alone = await client.completions.create(ask(numbers[n]));
      expect(alone.choices[0].text).toBe(together[n].choices[0].text);
    }
    expect(new Set(together.map(({ id }) => id)).size).toBe(64);
  });

  it('gets the errors of its own classes', async () => {
    await expect(server.client('unknown').models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
    const wrongModel = client.completions.create({ ...ask(1), model: 'gpt-x' });
    await expect(wrongModel).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    const wrong = client.completions.create({ ...ask(1), temperature: 9 });
    const error = await wrong.catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(OpenAI.BadRequestError);
    const { param, requestID } = error as InstanceType<typeof OpenAI.APIError>;
    expect(param).toBe('temperature');
    expect(requestID).toMatch(/^req_/);
  });
});

describe('a client that leaves in the middle', () => {
  it('frees its blocks within a step, and others do not notice', async () => {
    await server.idle();
    const { engine } = server.serving;
    const other = client.completions.create(ask(30));
    const stream = await client.completions.create({
      ...ask(31),
      max_tokens: 400,
      stream: true,
      ...{ ignore_eos: true },
    });
    let pieces = 0;
    for await (const _ of stream) if (++pieces === 3) break;
    const { counters } = engine;
    const leaving = engine.size;
    expect(leaving).toBeGreaterThan(0);
    // From the moment in which the server knows, a step may still run, and no second one for this request.
    while (counters.finished.cancelled === 0) await new Promise((resolve) => setImmediate(resolve));
    expect((await other).choices[0].text).toBe((await client.completions.create(ask(30))).choices[0].text);
    await server.idle();
    expect(engine.cache.kv.manager.inspect.openSequences).toBe(0);
    expect(engine.cache.kv.metrics().gauges['heldBytes.hbm']).toBe(0);
    engine.cache.scheduler.checkIntegrity();
  });

  it('is cancelled with the very step that runs', async () => {
    await server.idle();
    const { engine } = server.serving;
    const prompt = Array.from({ length: 40 }, (_, i) => 10 + i);
    const sampling = { temperature: 0, topK: 0, topP: 1, seed: 0 };
    const answer = engine.submit({
      prompt,
      tenant: 'x',
      maxTokens: 200,
      sampling,
      stop: [],
      ignoreEnd: true,
    });
    while (answer.tokens.length < 3) await new Promise((resolve) => setImmediate(resolve));
    const at = answer.tokens.length;
    engine.cancel(answer);
    await answer.text();
    expect(answer.finish).toBe('cancelled');
    expect(answer.tokens.length - at).toBeLessThanOrEqual(1);
    expect(engine.cache.kv.manager.inspect.openSequences).toBe(0);
  });
});
