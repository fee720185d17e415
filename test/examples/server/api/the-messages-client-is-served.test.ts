/** The `@anthropic-ai/sdk` package from npm against the server, as its users call it. */

import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ToolCalls } from '../../../../examples/server/api/toolCalls.ts';
import { tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';
import {
  blockBytes,
  keys,
  LiveServer,
  model,
  removeStateDirectories,
  stateDirectory,
} from '../liveServer.ts';

let server: LiveServer;
let client: Anthropic;
const clientOf = ({ url }: LiveServer, apiKey = 'key-a') =>
  new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });

beforeAll(async () => {
  server = await LiveServer.start({ apiKeys: keys, hbmBytes: 64 * blockBytes, ddrBytes: 256 * blockBytes });
  client = clientOf(server);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  removeStateDirectories();
});

const long = 'Which blocks of the table does the page hold? '.repeat(3);
const ask = (text: string) => ({
  model,
  max_tokens: 12,
  temperature: 0,
  system: [{ type: 'text' as const, text: 'You are brief.', cache_control: { type: 'ephemeral' as const } }],
  messages: [{ role: 'user' as const, content: text }],
});
const promptOf = ({ usage }: Anthropic.Message): number =>
  usage.input_tokens + (usage.cache_creation_input_tokens ?? 0) + (usage.cache_read_input_tokens ?? 0);

describe('the official client of messages', () => {
  it('gets a message; its prompt is the sum of three counts, and of what count_tokens says', async () => {
    const first = await client.messages.create(ask(`1 ${long}`));
    expect(first).toMatchObject({ type: 'message', role: 'assistant', model });
    expect(first.content.every(({ type }) => type === 'text')).toBe(true);
    const { system, messages } = ask(`1 ${long}`);
    const { input_tokens: prompt } = await client.messages.countTokens({ model, system, messages });
    expect(promptOf(first)).toBe(prompt);
    const whole = Math.floor(prompt / 16) * 16;
    expect(first.usage).toMatchObject({
      cache_read_input_tokens: 0,
      cache_creation_input_tokens: whole,
      input_tokens: prompt - whole,
    });
    const again = await client.messages.create(ask(`1 ${long}`));
    expect(again.content).toEqual(first.content);
    expect(again.usage.output_tokens).toBe(first.usage.output_tokens);
    expect(promptOf(again)).toBe(prompt);
    expect(again.usage.cache_read_input_tokens).toBe(Math.floor((prompt - 1) / 16) * 16);
  });

  it('gets a stream of events in their order, each by its name, that come to the same message', async () => {
    const whole = await client.messages.create(ask(`2 ${long}`));
    const response = await server.post('/v1/messages', JSON.stringify({ ...ask(`2 ${long}`), stream: true }));
    const lines = (await response.text()).split('\n\n').filter((each) => each.startsWith('event: '));
    const events = lines.map((each) => {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(each)!;
      expect(JSON.parse(data).type).toBe(name);
      return name;
    });
    expect(events.filter((name, i) => name !== events[i - 1])).toEqual([
      'message_start',
      'content_block_start',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);
    const stream = client.messages.stream(ask(`2 ${long}`));
    let started: Anthropic.Usage | undefined;
    stream.on('streamEvent', (event) => {
      if (event.type === 'message_start') started = event.message.usage;
    });
    const final = await stream.finalMessage();
    expect(final.content).toEqual(whole.content);
    expect(final.stop_reason).toBe(whole.stop_reason);
    expect(final.usage.output_tokens).toBe(whole.usage.output_tokens);
    // what was found is known in the first event
    expect(started?.cache_read_input_tokens).toBeGreaterThan(0);
    expect(started?.cache_read_input_tokens).toBe(final.usage.cache_read_input_tokens);
    expect(promptOf(final)).toBe(promptOf(whole));
  });

  it('shares its prefix with chats of the other API', async () => {
    const { system, messages } = ask(`3 ${long}`);
    const chat = await server.client().chat.completions.create({
      model,
      max_completion_tokens: 12,
      temperature: 0,
      messages: [{ role: 'system', content: system[0].text }, ...messages],
    });
    const message = await client.messages.create(ask(`3 ${long}`));
    expect(message.content).toMatchObject([{ type: 'text', text: chat.choices[0].message.content }]);
    expect(promptOf(message)).toBe(chat.usage?.prompt_tokens);
    expect(message.usage.cache_read_input_tokens).toBeGreaterThan(0);
    const other = await clientOf(server, 'key-b').messages.create(ask(`3 ${long}`));
    expect(other.usage.cache_read_input_tokens).toBe(0);
  });

  it('is told why an answer ended', async () => {
    const { content, stop_reason: length } = await client.messages.create(ask(`4 ${long}`));
    expect(length).toBe('max_tokens');
    const { text } = content[0] as Anthropic.TextBlock;
    const stop = text.slice(3, 6);
    const stopped = await client.messages.create({ ...ask(`4 ${long}`), stop_sequences: ['never', stop] });
    expect(stopped).toMatchObject({ stop_reason: 'stop_sequence', stop_sequence: stop });
    expect(stopped.content).toMatchObject(
      text.indexOf(stop) === 0 ? [] : [{ text: text.slice(0, text.indexOf(stop)) }],
    );
    const contextTokens = promptOf(stopped) + 4;
    await using small = await LiveServer.start({ contextTokens, apiKeys: keys, hbmBytes: 64 * blockBytes });
    const cut = await clientOf(small)
      .messages.stream({ ...ask(`4 ${long}`), max_tokens: 100_000 })
      .finalMessage();
    expect(cut.stop_reason).toBe('model_context_window_exceeded');
    expect(promptOf(cut) + cut.usage.output_tokens).toBe(contextTokens);
  });

  it('leaves, and its request ends with it', async () => {
    await server.idle();
    const { counters } = server.serving.engine;
    const before = counters.finished.cancelled;
    const stream = client.messages.stream({ ...ask(`5 ${long}`), max_tokens: 200, ...{ temperature: 1 } });
    stream.on('text', () => stream.abort());
    await expect(stream.finalMessage()).rejects.toBeInstanceOf(Anthropic.APIUserAbortError);
    while (counters.finished.cancelled === before && server.serving.engine.size > 0)
      await new Promise((resolve) => setImmediate(resolve));
    await server.idle();
    expect(server.serving.engine.cache.kv.manager.inspect.openSequences).toBe(0);
  });

  it('gets errors of its own classes, in their shape', async () => {
    const unknown = clientOf(server, 'unknown').messages.create(ask('a'));
    await expect(unknown).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
    const missing = client.messages.create({ ...ask('a'), model: 'claude-x' });
    await expect(missing).rejects.toBeInstanceOf(Anthropic.NotFoundError);
    const wrong = await client.messages
      .create({ ...ask('a'), ...{ temperature: 9 } })
      .catch((error: unknown) => error);
    expect(wrong).toBeInstanceOf(Anthropic.BadRequestError);
    const { error, requestID } = wrong as InstanceType<typeof Anthropic.APIError>;
    expect(requestID).toMatch(/^req_/);
    expect(error).toMatchObject({
      type: 'error',
      error: { type: 'invalid_request_error', message: expect.stringMatching(/^temperature is 9/) },
    });
  });

  it.each<[string, object, RegExp]>([
    [
      'an image',
      { messages: [{ role: 'user', content: [{ type: 'image', source: {} }] }] },
      /content\[0\] is of the type .*image/,
    ],
    ['tools', { tools: [{ name: 'read', input_schema: { type: 'object' } }] }, /chat template has none/],
    ['a tool that runs elsewhere', { tools: [{ type: 'bash_20250124', name: 'bash' }] }, /template has none/],
    ['a forced call', { tool_choice: { type: 'any' } }, /forces no call/],
    [
      'a result of no call',
      { messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x' }] }] },
      /no tool_use/,
    ],
    ['a foreign field', { frequency_penalty: 1 }, /not a field of this request/],
    ['no limit', { max_tokens: undefined }, /max_tokens is missing/],
    ['a foreign role', { messages: [{ role: 'tool', content: 'a' }] }, /messages\[0\]\.role/],
    ['a server of tools', { mcp_servers: [{ url: 'x' }] }, /mcp_servers/],
    [
      'a prompt that fits no context',
      { messages: [{ role: 'user', content: 'word '.repeat(20_000) }] },
      /Shorten it/,
    ],
  ])('refuses %s by its name', async (_what, change, message) => {
    const wrong = client.messages.create({ ...ask('a'), ...change } as never);
    await expect(wrong).rejects.toThrow(message);
    await expect(wrong).rejects.toMatchObject({ status: 400 });
  });

  it('takes what asks for nothing here', async () => {
    const { content } = await client.messages.create(ask('6'));
    const same = await client.messages.create({
      ...ask('6'),
      ...{ metadata: { user_id: 'u' }, service_tier: 'auto', thinking: { type: 'disabled' }, tools: [] },
      ...{ tool_choice: { type: 'auto' }, cache_control: { type: 'ephemeral', ttl: '1h' } },
      ...{ diagnostics: { previous_message_id: null } },
    } as never);
    expect((same as Anthropic.Message).content).toEqual(content);
    expect(same).toMatchObject({ diagnostics: { cache_miss_reason: { type: 'unavailable' } } });
  });
});

describe('a model whose template has tools', () => {
  it('is told of them, of calls and of results, as its template has them', async () => {
    const directory = stateDirectory();
    cpSync(tinyModelDirectory, directory, { recursive: true });
    const { templates, cases, chats } = JSON.parse(
      readFileSync(new URL('../text/fixtures/chatTemplates.json', import.meta.url), 'utf8'),
    );
    writeFileSync(join(directory, 'chat_template.jinja'), templates['hermes tools']);
    await using withTools = await LiveServer.start({
      directory,
      name: 'tools',
      hbmBytes: 128 * blockBytes,
      apiKeys: keys,
    });
    const [call] = chats.calls.messages[1].tool_calls;
    const [tool] = chats.calls.tools;
    const { input_tokens: count } = await clientOf(withTools).messages.countTokens({
      model: 'tools',
      tools: [
        {
          name: tool.function.name,
          description: tool.function.description,
          input_schema: tool.function.parameters,
          cache_control: { type: 'ephemeral' },
        },
      ],
      messages: [
        { role: 'user', content: 'Read it.' },
        {
          role: 'assistant',
          content: [
            { type: 'text', text: 'I will.' },
            { type: 'tool_use', id: 'toolu_1', name: call.function.name, input: call.function.arguments },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'toolu_1',
              content: [{ type: 'text', text: 'line 1\nline 2' }],
            },
            { type: 'text', text: 'So?' },
          ],
        },
      ],
    });
    const reference = cases.find(
      (each: Record<string, string>) => each.template === 'hermes tools' && each.chat === 'calls',
    );
    expect(count).toBe(withTools.serving.engine.tokenizer.encode(reference.text, false).length);
  });

  const text =
    'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>\n<tool_call>{"name": "read"}</tool_call>' +
    '<tool_call>{"name": "write"}</tool_call> <tool_call>{oops}</tool_call> <b> <tool_call>half';
  const saidIn = (sizes: () => number): unknown[] => {
    const calls = new ToolCalls(['read']);
    const said: (string | object)[] = [];
    const take = (each: ReturnType<ToolCalls['push']>[number]): void => {
      if ('call' in each) said.push({ name: each.call.name, input: each.call.input });
      else if (typeof said.at(-1) === 'string') said.push(`${said.pop()}${each.text}`);
      else said.push(each.text);
    };
    for (let at = 0; at < text.length; ) {
      const size = sizes();
      for (const each of calls.push(text.slice(at, at + size))) take(each);
      at += size;
    }
    for (const each of calls.end()) take(each);
    return said;
  };

  it('has its calls told apart from its text, however it comes in pieces; all else is text', () => {
    const whole = saidIn(() => text.length);
    expect(whole).toEqual([
      'I look.',
      { name: 'read', input: { path: 'a' } },
      { name: 'read', input: {} },
      '<tool_call>{"name": "write"}</tool_call> <tool_call>{oops}</tool_call> <b> <tool_call>half',
    ]);
    for (const size of [1, 2, 3, 5, 7, 11]) {
      expect(
        saidIn(() => size),
        `pieces of ${size}`,
      ).toEqual(whole);
    }
  });
});
