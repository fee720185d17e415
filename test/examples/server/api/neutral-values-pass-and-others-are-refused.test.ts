/**
 * Fields that this server has not: values that ask for nothing pass, since clients send them always, and
 * values that would act are refused by the field's name, at the top, in options, in messages and in parts of
 * content.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockBytes, LiveServer, model } from '../liveServer.ts';

let server: LiveServer;
beforeAll(async () => {
  server = await LiveServer.start({ hbmBytes: 64 * blockBytes, ddrBytes: 0 });
});
afterAll(() => server[Symbol.asyncDispose]());

interface Reply {
  readonly status: number;
  readonly param: string | null;
  readonly code: string | null;
  readonly text: string;
}

async function ask(path: string, body: object): Promise<Reply> {
  const response = await server.post(path, typeof body === 'string' ? body : JSON.stringify(body));
  const answer = (await response.json()) as {
    error?: { param: string | null; code: string | null; message: string };
    choices?: { text?: string; message?: { content: string } }[];
  };
  const text = answer.choices?.[0].text ?? answer.choices?.[0].message?.content ?? '';
  return {
    status: response.status,
    param: answer.error?.param ?? null,
    code: answer.error?.code ?? null,
    text,
  };
}

const base = { model, max_tokens: 1, temperature: 0, seed: 1 };
const completion = (more: object): Promise<Reply> =>
  ask('/v1/completions', { ...base, prompt: 'Hello', ...more });
const chat = (more: object): Promise<Reply> =>
  ask('/v1/chat/completions', { ...base, messages: [{ role: 'user', content: 'Hi' }], ...more });
const message = (more: object): Promise<Reply> =>
  chat({
    messages: [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'Yes', ...more },
    ],
  });
const part = (more: object): Promise<Reply> =>
  chat({ messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi', ...more }] }] });

/** Field, values that pass, values that are refused. null passes everywhere. */
type Row = readonly [field: string, neutral: readonly unknown[], acting: readonly unknown[]];

const everywhere: readonly Row[] = [
  ['repetition_penalty', [1, 1.0], [1.1, 0.9, 0, true]],
  ['repeat_penalty', [1], [1.2]],
  ['length_penalty', [1], [2]],
  ['frequency_penalty', [0, -0], [0.5, -2, '0']],
  ['presence_penalty', [0], [1]],
  ['min_p', [0], [0.05, 1]],
  ['top_a', [0], [0.2]],
  ['typical_p', [1], [0.9]],
  ['tfs_z', [1], [0.9]],
  ['mirostat', [0], [1, 2]],
  ['dynatemp_range', [0], [0.5]],
  ['xtc_probability', [0], [0.5]],
  ['dry_multiplier', [0], [0.8]],
  ['no_repeat_ngram_size', [0], [3]],
  ['min_tokens', [0], [5]],
  ['best_of', [1], [2]],
  ['n', [1], [0, 129]],
  ['use_beam_search', [false], [true]],
  ['bad_words', [[]], [['a']]],
  ['allowed_token_ids', [[]], [[1]]],
  ['logits_processors', [[]], [['x']]],
  ['logit_bias', [{}, { 5: 0 }], [{ 5: 1 }, { 5: 0, 6: -100 }]],
  ['stop_token_ids', [[]], [[7]]],
  ['include_stop_str_in_output', [false], [true]],
  ['skip_special_tokens', [true], [false]],
  ['spaces_between_special_tokens', [true], [false]],
  [
    'response_format',
    [{ type: 'text' }],
    [{ type: 'json_object' }, { type: 'text', json_schema: {} }, 'text'],
  ],
  ['structured_outputs', [{}], [{ regex: 'a' }]],
  ['guided_json', [{}], [{ type: 'object' }]],
  ['guided_regex', [''], ['a+']],
  ['guided_choice', [[]], [['a', 'b']]],
  ['guided_grammar', [''], ['root ::= "a"']],
  ['grammar', [''], ['root ::= "a"']],
  ['json_schema', [''], ['{}', { type: 'object' }]],
  ['regex', [''], ['a']],
  ['ebnf', [''], ['a']],
  ['prompt_logprobs', [], [0, 3]],
  ['n_probs', [0], [2]],
  ['echo', [false], [true]],
  ['return_tokens_as_token_ids', [false], [true]],
  ['return_token_ids', [false], [true]],
  ['priority', [0], [1, -1]],
  ['service_tier', ['auto', 'default'], ['flex', 'priority']],
  ['store', [false], [true]],
  ['cache_salt', [''], ['x']],
  ['cache_prompt', [true], [false]],
  ['kv_transfer_params', [{}], [{ do_remote_decode: true }]],
  ['truncate_prompt_tokens', [], [-1, 100]],
  ['lora_path', [''], ['x']],
  ['top_k', [-1, 0, 1, 100_000], [-2, 1.5, '1']],
  ['seed', [0, -1, 42, 2 ** 53 - 1], [1.5, '1', 1e40, [1]]],
  ['stop', [[], 'zzz', ['zzz']], ['', [''], [1], 'x'.repeat(5000)]],
  ['user', ['me'], []],
  ['metadata', [{ a: 'b' }], []],
  ['parallel_tool_calls', [true, false], []],
];
const ofCompletions: readonly Row[] = [
  ['suffix', [''], ['end']],
  ['logprobs', [false], [21, -1, true]],
  ['add_special_tokens', [true], [false]],
];
const ofChats: readonly Row[] = [
  ['tools', [[]], [[{ type: 'function', function: { name: 'f' } }]]],
  ['tool_choice', ['none', 'auto'], ['required', { type: 'function', function: { name: 'f' } }]],
  ['functions', [[]], [[{ name: 'f' }]]],
  ['function_call', ['none', 'auto'], [{ name: 'f' }]],
  ['logprobs', [false], [1]],
  ['top_logprobs', [0], [3]],
  ['modalities', [['text'], []], [['text', 'audio'], ['audio'], 'text']],
  ['audio', [], [{ voice: 'x' }]],
  ['prediction', [], [{ type: 'content', content: 'x' }]],
  ['web_search_options', [{}], [{ search_context_size: 'low' }]],
  ['reasoning_effort', ['none'], ['low', 'high']],
  ['verbosity', ['medium'], ['low']],
  ['chat_template', [''], ['{{ 1 }}']],
  ['chat_template_kwargs', [{}], [{ enable_thinking: false }]],
  ['documents', [[]], [[{ text: 'x' }]]],
  ['add_generation_prompt', [true], [false]],
  ['continue_final_message', [false], [true]],
  ['add_special_tokens', [false], [true]],
];
const ofMessages: readonly Row[] = [
  ['name', [''], ['Ann']],
  ['refusal', [''], ['I will not.']],
  ['audio', [], [{ id: 'a' }]],
  ['annotations', [[]], [[{ type: 'url_citation' }]]],
  ['function_call', [], [{ name: 'f', arguments: '{}' }]],
  ['tool_calls', [[]], [[{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }]]],
  ['tool_call_id', [''], ['c']],
  ['reasoning_content', [''], ['I think']],
  ['prefix', [false], [true]],
  ['weight', [], [0, 1]],
];
const ofParts: readonly Row[] = [
  ['cache_control', [], [{ type: 'ephemeral' }]],
  ['annotations', [[]], [[{ a: 1 }]]],
  ['image_url', [], [{ url: 'x' }]],
];

const places = [
  ['completions', [...everywhere, ...ofCompletions], completion, ''],
  ['chats', [...everywhere, ...ofChats], chat, ''],
  ['messages', ofMessages, message, 'messages[1].'],
  ['parts of content', ofParts, part, 'messages[0].content[0].'],
] as const;

describe.each(places)('in %s', (_place, rows, send, path) => {
  let plain: Promise<Reply> | undefined;

  it.each(rows)('%s: what asks for nothing passes, and changes nothing', async (field, neutral) => {
    const { status, text } = await (plain ??= send({}));
    expect(status).toBe(200);
    const isKnown = field !== 'weight' && field !== 'image_url';
    const values = [...neutral, ...(isKnown ? [null] : [])];
    const replies = await Promise.all(values.map((value) => send({ [field]: value })));
    for (const [i, reply] of replies.entries()) {
      expect(reply, JSON.stringify(values[i])).toMatchObject({ status: 200, text });
    }
  });

  it.each(rows)('%s: what would act is refused by its name', async (field, _neutral, acting) => {
    const replies = await Promise.all(acting.map((value) => send({ [field]: value })));
    for (const [i, reply] of replies.entries()) {
      expect(reply, JSON.stringify(acting[i])).toMatchObject({ status: 400, param: path + field });
    }
  });
});

describe('streaming options', () => {
  const streamed = (options: object): Promise<Reply> =>
    completion({ stream: true, stream_options: options, prompt: [] });
  it('are refused where they would act', async () => {
    const { param } = await streamed({ continuous_usage_stats: true });
    expect(param).toBe('prompt'); // what is missing comes first
    const other = await completion({ stream: true, stream_options: { continuous_usage_stats: true } });
    expect(other).toMatchObject({ status: 400, param: 'stream_options.continuous_usage_stats' });
  });
});

describe('seeds of 64 bits', () => {
  const drawn = async (seed: string): Promise<Reply> =>
    ask(
      '/v1/completions',
      `{"model":"${model}","prompt":"Hello","max_tokens":24,"ignore_eos":true,"temperature":1.5,"seed":${seed}}` as never,
    );
  it('pass, exactly, and are seeds of their own', async () => {
    const seeds = [
      '9223372036854775807',
      '9223372036854775806',
      '-9223372036854775808',
      '18446744073709551615',
    ];
    const first = await Promise.all(seeds.map(drawn));
    expect(first.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(new Set(first.map(({ text }) => text)).size).toBe(4);
    expect(await Promise.all(seeds.map(drawn))).toEqual(first);
  });

  it.each(['18446744073709551616', '-9223372036854775809', '1e30'])('%s is refused', async (seed) => {
    expect(await drawn(seed)).toMatchObject({ status: 400, param: 'seed' });
  });
});

describe('turns that the official client gives back', () => {
  it('pass as they came from this server', async () => {
    const client = server.client();
    const messages = [{ role: 'user' as const, content: 'Hi' }];
    const { choices } = await client.chat.completions.create({ ...base, messages });
    const returned = {
      ...choices[0].message,
      audio: null,
      function_call: undefined,
      annotations: [],
      tool_calls: [],
    };
    const turns = [...messages, returned, { role: 'user' as const, content: 'And?' }];
    const again = await client.chat.completions.create({ ...base, messages: turns as typeof messages });
    expect(again.choices[0].finish_reason).toMatch(/stop|length/);
  });

  it('are refused by name where they hold tool calls, whatever their content', async () => {
    const calls = [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }];
    for (const content of [null, '', 'text']) {
      expect(await message({ content, tool_calls: calls })).toMatchObject({
        param: 'messages[1].tool_calls',
      });
    }
    expect(await message({ content: null })).toMatchObject({ status: 400, param: 'messages[1].content' });
  });

  it('are objects', async () => {
    for (const wrong of [null, 'Hi', 3, [], [{}]]) {
      const { status, param } = await chat({ messages: [{ role: 'user', content: 'Hi' }, wrong] });
      expect([status, param]).toEqual([400, 'messages[1]']);
    }
    for (const wrong of [
      null,
      'Hi',
      3,
      [],
      {},
      { text: 'Hi' },
      { type: 'image_url', text: 'Hi' },
      { type: 'text' },
    ]) {
      const { status, param } = await chat({ messages: [{ role: 'user', content: [wrong] }] });
      expect([status, param], JSON.stringify(wrong)).toEqual([400, 'messages[0].content']);
    }
  });
});

describe('what is nested a million deep', () => {
  const depth = 200_000;
  const bombs = ['['.repeat(depth) + ']'.repeat(depth), `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`];
  const fields = [
    ...new Set([...everywhere, ...ofCompletions, ...ofChats].map(([field]) => field)),
    ...[
      'model',
      'prompt',
      'messages',
      'max_tokens',
      'max_completion_tokens',
      'temperature',
      'top_p',
      'stream',
    ],
    ...['stream_options', 'ignore_eos', 'anything'],
  ];
  it.each(['/v1/completions', '/v1/chat/completions'])(
    'is an error of the API in each field: %s',
    async (path) => {
      for (const field of fields) {
        for (const bomb of bombs) {
          const reply = await ask(path, `{"model":"${model}","${field}":${bomb}}` as never);
          expect(reply, field).toMatchObject({ status: 400, code: 'too_deep' });
        }
      }
      for (const bomb of [bombs[0], '[{"content":['.repeat(50_000), '['.repeat(500_000)]) {
        expect(await ask(path, bomb as never)).toMatchObject({ status: 400, code: 'too_deep' });
      }
    },
  );

  it('and what only looks so, in a text, is a text', async () => {
    const text = `${'[{'.repeat(200)}"\\${'['.repeat(200)}`;
    expect(await completion({ prompt: text })).toMatchObject({ status: 200 });
  });

  it.each<[string, object, string]>([
    ['values', { prompt: new Array(400_000).fill(1) }, 'too_many_values'],
    ['tokens of a text', { prompt: 'x '.repeat(400_000) }, 'context_length_exceeded'],
  ])('and too many %s are one too', async (_what, more, code) => {
    expect(await completion(more)).toMatchObject({ status: 400, code });
  });

  it('and too many messages', async () => {
    const messages = new Array(20_000).fill({ role: 'user', content: '' });
    expect(await chat({ messages })).toMatchObject({ status: 400, code: 'context_length_exceeded' });
  });
});
