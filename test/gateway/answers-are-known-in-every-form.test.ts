/** What an answer is, in the forms in which servers say it: one reader for the gateway and for `tierkv observe`. */

import { describe, expect, it } from 'vitest';
import { AnswerMeter } from '../../src/serve/gateway/answerMeter.ts';

const event = (text: string, reason: unknown = null, more: object = {}, index = 0): string =>
  `data: ${JSON.stringify({ choices: [{ index, text, finish_reason: reason }], ...more })}\n\n`;
const done = 'data: [DONE]\n\n';

/** Reads a stream in pieces of some size. */
function read(stream: string, choices = 1, piece = stream.length): { meter: AnswerMeter; tokens: number } {
  let tokens = 0;
  const meter = new AnswerMeter(true, choices, () => tokens++);
  const bytes = Buffer.from(stream);
  for (let at = 0; at < bytes.length; at += piece) meter.see(bytes.subarray(at, at + piece));
  meter.end();
  return { meter, tokens };
}

function readWhole(body: unknown): AnswerMeter {
  const meter = new AnswerMeter(false);
  meter.see(Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)));
  meter.end();
  return meter;
}

const failedStreams: readonly (readonly [string, string, number])[] = [
  ['vLLM and SGLang', `${event('a')}data: {"error": {"message": "m", "code": 400}}\n\n${done}`, 400],
  ['vLLM before 0.11', `data: {"object":"error","message":"m","code":400}\n\n${done}`, 400],
  ['TGI', `${event('a')}data: {"error":"Request failed","error_type":"generation"}\n\n`, 500],
  ['llama.cpp before the end of 2025', `error: {"code":400,"message":"too long"}\n\n${done}`, 400],
  ['llama.cpp', `data: {"error":{"code":500,"message":"m","type":"server_error"}}\n\n`, 500],
  ['Ollama', `${event('a')}data: {"error":{"message":"m","type":"api_error"}}\n\n`, 500],
  ['FastChat', `data: {"text":"busy","error_code":50001}\n\n${done}`, 500],
  [
    "Anthropic's API",
    'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"m"}}\n\n',
    529,
  ],
  ['OpenRouter', `${event('', 'error', { error: { code: 502, message: 'm' } })}${done}`, 502],
  ['the Responses API', 'data: {"type":"response.failed","response":{"status":"failed"}}\n\n', 500],
  ...['abort', 'aborted', 'error', 'cancelled', 'timeout', 'insufficient_system_resource'].map(
    (reason) => [`the reason ${reason}`, `${event('a')}${event('', reason)}${done}`, 500] as const,
  ),
  ["SGLang's own reason", `${event('a')}${event('', { type: 'abort', message: 'm' })}${done}`, 500],
];

describe('a failure in a stream', () => {
  it.each(failedStreams)('as %s says it', (_who, stream, status) => {
    for (const piece of [stream.length, 1, 7]) {
      const { meter } = read(stream, 1, piece);
      expect(meter.failure).toMatchObject({ status });
      expect(read(stream.replaceAll('\n', '\r\n'), 1, piece).meter.failure).toMatchObject({ status });
    }
  });
});

describe('a failure in an answer without a stream, with the status 200', () => {
  it.each<[string, unknown, number]>([
    ['an error', { error: { message: 'm', code: 429 } }, 429],
    ['the object error', { object: 'error', message: 'm', type: 'BadRequestError', code: 400 }, 400],
    ['an error as a text', { error: 'm', error_type: 'overloaded' }, 500],
    ['a reason', { choices: [{ text: 'a', finish_reason: 'abort' }] }, 500],
    ['a reason of one of several', { choices: [{ finish_reason: 'stop' }, { finish_reason: 'error' }] }, 500],
    ['a status', { object: 'response', status: 'failed', error: null }, 500],
  ])('%s', (_what, body, status) => {
    expect(readWhole(body).failure).toMatchObject({ status });
  });

  it.each<[string, unknown]>([
    ['no choice', { choices: [], usage: { prompt_tokens: 3, completion_tokens: 0 } }],
    ['nothing', {}],
    ['a list', []],
    ['no JSON', '<html>'],
  ])('%s does not count as an answer', (_what, body) => {
    expect([readWhole(body).isWhole, readWhole(body).failure]).toEqual([false, undefined]);
  });
});

describe('a reason for which a choice ended', () => {
  const known = [
    'stop',
    'length',
    'tool_calls',
    'content_filter',
    'eos_token',
    'end_turn',
    'MAX_TOKENS',
    'stop_words',
  ];
  it.each(known)('%s is a known end, and no failure', (reason) => {
    const { meter } = read(event('a') + event('', reason) + done);
    expect([meter.unknownEnd, meter.failure, meter.isWhole]).toEqual(['', undefined, true]);
  });

  it.each(['moderated', 'stopped', 'load', 'x'.repeat(100)])('%s is neither, and told', (reason) => {
    const { meter } = read(event('a') + event('', reason) + event('', 'other') + done);
    expect([meter.unknownEnd, meter.failure, meter.isWhole]).toEqual([reason.slice(0, 40), undefined, true]);
    const whole = { choices: [{ text: 'a', finish_reason: reason }] };
    expect(readWhole(whole).unknownEnd).toBe(reason.slice(0, 40));
    const typed = { choices: [{ text: 'a', finish_reason: { type: reason } }] };
    expect(readWhole(typed).unknownEnd).toBe(reason.slice(0, 40));
  });

  it.each([null, '', undefined, 'abort'])('%s tells of no end that is not known', (reason) => {
    expect(read(event('a', reason) + done).meter.unknownEnd).toBe('');
  });
});

describe('an answer', () => {
  it.each<[string, string, number, number, boolean]>([
    [
      'with an empty error in each event',
      event('a', null, { error: null }) + event('b', 'stop') + done,
      1,
      2,
      true,
    ],
    ['that begins with an empty event', event('') + event('a') + event('', 'length') + done, 1, 1, true],
    ['whose last line has no end', event('a') + done.trimEnd(), 1, 1, true],
    ['that ends with a reason alone', event('a', 'eos_token'), 1, 1, true],
    ['that stops in the middle', event('a') + event('b'), 1, 2, false],
    [
      'of two choices, of which one ended twice',
      event('a') + event('b', null, {}, 1) + event('', 'stop') + event('', 'stop'),
      2,
      2,
      false,
    ],
    ['of two choices, both ended', event('a', 'stop') + event('b', 'length', {}, 1), 2, 2, true],
    ['with comments and empty data between', `: ping\n\ndata:\n\n${event('a', 'stop')}`, 1, 1, true],
    ['with an event that is not an object', `data: null\n\n${done}`, 1, 0, false],
  ])('%s', (_what, stream, choices, tokens, isWhole) => {
    for (const piece of [stream.length, 1, 5]) {
      const { meter, tokens: seen } = read(stream, choices, piece);
      expect([seen, meter.outputTokens, meter.isWhole, meter.failure]).toEqual([
        tokens,
        tokens,
        isWhole,
        undefined,
      ]);
    }
  });

  it("of Anthropic's API is whole at its message_stop, or where it says why it ended", () => {
    const delta = 'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}\n\n';
    const reason =
      'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}\n\n';
    const stop = 'data: {"type":"message_stop"}\n\n';
    const known = [delta, delta + stop, delta + reason].map((stream) => {
      const { meter, tokens } = read(stream);
      return [meter.isWhole, tokens, meter.outputTokens];
    });
    expect(known).toEqual([
      [false, 1, 1],
      [true, 1, 1],
      [true, 1, 7],
    ]);
  });

  it('has the tokens that the server counted, and says whether it did', () => {
    const usage = {
      usage: { prompt_tokens: 7, completion_tokens: 50, prompt_tokens_details: { cached_tokens: 4 } },
    };
    const { meter } = read(
      `${event('a b c', 'stop')}data: ${JSON.stringify({ choices: [], ...usage })}\n\n${done}`,
    );
    expect([meter.outputTokens, meter.promptTokens, meter.cachedTokens, meter.isCounted]).toEqual([
      50,
      7,
      4,
      true,
    ]);
    expect(read(event('a b c', 'stop')).meter.isCounted).toBe(false);
  });
});
