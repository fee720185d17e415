/**
 * A workload against a server of the OpenAI API over a real socket: requests go at their times with their lengths and shared
 * prefixes, lines hold what the server said, failures are told, and the lines are a run that a comparison takes.
 */

import fs from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { type Observation, type ObserveOptions, observe } from '../../../src/serve/observe.ts';
import { compareTimes } from '../../../src/sim/fitting/comparison.ts';
import { readMeasuredRun } from '../../../src/sim/latency/fit/measuredRuns.ts';
import { mooncakeRequests } from '../../../src/sim/workload/importers.ts';

interface Asked {
  readonly prompt: number[];
  readonly max_tokens: number;
  readonly ignore_eos: boolean;
  readonly model: string;
}

/** A server that streams a token every two milliseconds, and refuses prompts of the lengths that it is given. */
async function server(
  refused: readonly number[] = [],
  ends: Readonly<Record<number, string>> = {},
): Promise<{ url: string; asked: Asked[] }> {
  const asked: Asked[] = [];
  const serving = http.createServer(async (request, response) => {
    if (request.url === '/v1/models') return response.end(JSON.stringify({ data: [{ id: 'm' }] }));
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const one = JSON.parse(body) as Asked;
    asked.push(one);
    if (refused.includes(one.prompt.length)) {
      response.statusCode = 400;
      return response.end('{"error":{"message":"too long"}}');
    }
    for (let i = 0; i < one.max_tokens; i++) {
      await pause(2);
      response.write(`data: {"choices":[{"text":"x"}]}\n\n`);
    }
    const usage = {
      prompt_tokens: one.prompt.length,
      completion_tokens: one.max_tokens,
      prompt_tokens_details: { cached_tokens: 5 },
    };
    const whole = `data: ${JSON.stringify({ choices: [], usage })}\r\n\r\ndata: [DONE]\n\n`;
    return response.end(ends[one.prompt.length] ?? whole);
  });
  await new Promise<void>((resolve) => serving.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void serving.close());
  return { url: `http://127.0.0.1:${(serving.address() as AddressInfo).port}`, asked };
}

const rows = [600, 700, 40].map((input, i) =>
  JSON.stringify({
    timestamp: 5 * i,
    input_length: input,
    output_length: 3 + i,
    hash_ids: input > 512 ? [0, i + 1] : [9],
  }),
);
const run = (target: string, more: Partial<ObserveOptions> = {}): Promise<Observation> =>
  observe(mooncakeRequests(rows, 'm'), { target, vocabulary: 500, speedup: 1, timeoutMs: 60_000, ...more });

it('sends the lengths and prefixes of the workload, and records what came', async () => {
  const { url, asked } = await server();
  const { model, lines } = await run(`${url}/v1/`);
  // requests have a socket each, and the server reads sockets in any order
  asked.sort((a, b) => a.max_tokens - b.max_tokens);
  expect(model).toBe('m');
  expect(asked.map(({ prompt, max_tokens, ignore_eos }) => [prompt.length, max_tokens, ignore_eos])).toEqual([
    [600, 3, true],
    [700, 4, true],
    [40, 5, true],
  ]);
  expect(asked[0].prompt.slice(0, 512)).toEqual(asked[1].prompt.slice(0, 512));
  expect(asked[0].prompt.slice(512)).not.toEqual(asked[1].prompt.slice(512, 600));
  expect(Math.max(...asked.flatMap(({ prompt }) => prompt))).toBeLessThan(500);
  expect(
    lines.map(({ prompt_tokens, output_tokens, cached_tokens, outcome }) => [
      prompt_tokens,
      output_tokens,
      cached_tokens,
      outcome,
    ]),
  ).toEqual([
    [600, 3, 5, 'completed'],
    [700, 4, 5, 'completed'],
    [40, 5, 5, 'completed'],
  ]);
  for (const line of lines) expect(line.e2e_us).toBeGreaterThan(line.ttft_us);
  const read = readMeasuredRun(lines.map((line) => JSON.stringify(line)).join('\n'), 'run');
  expect(read.format).toBe('observed');
  const same = compareTimes(read.requests, read.requests, 1);
  expect(same).toHaveLength(12);
  for (const { errorPercent } of same) expect(errorPercent).toBe(0);
  const late = read.requests.map((request) => ({
    ...request,
    firstTokenUs: 2 * request.firstTokenUs - request.arrivalUs,
  }));
  expect(compareTimes(read.requests, late, 0)[0]).toMatchObject({ what: 'TTFT', point: 'mean' });
  expect(compareTimes(read.requests, late, 0)[0].errorPercent).toBeCloseTo(100);
});

it('warms a server up without a record of it', async () => {
  const { url, asked } = await server();
  const { lines } = await run(url, { warmUp: 2 });
  expect([asked.length, lines.length]).toEqual([5, 3]);
});

it('keeps what failed with its error, and refuses a run of failures alone', async () => {
  const { url } = await server([700]);
  const { lines } = await run(url);
  expect(lines.map(({ outcome, error }) => [outcome, error.slice(0, 4)])).toEqual([
    ['completed', ''],
    ['failed', '400 '],
    ['completed', ''],
  ]);
  expect(readMeasuredRun(lines.map((line) => JSON.stringify(line)).join('\n'), 'run').requests).toHaveLength(
    2,
  );
  const none = await server([600, 700, 40]);
  await expect(run(none.url)).rejects.toThrow(
    /all 3 requests failed, the first with: 400 .*vocabulary holds ids/s,
  );
});

it('a stream that was cut, or holds something else than events, does not count as an answer', async () => {
  const { url } = await server([], { 600: '', 700: 'data: null\n\ndata: [DONE]\n\n' });
  const { lines } = await run(url);
  expect(lines.map(({ outcome, error }) => [outcome, error])).toEqual([
    ['failed', 'the stream broke off before [DONE]'],
    ['failed', 'each event of a stream must be an object'],
    ['completed', ''],
  ]);
});

it('says in one line what a target must be', async () => {
  await expect(run('localhost:1')).rejects.toThrow(/^target is "localhost:1"\. Write http:\/\/HOST:PORT\.$/);
  await expect(run('http://127.0.0.1:9')).rejects.toThrow(
    /^http:\/\/127\.0\.0\.1:9 cannot be reached: .*\. Start the server/,
  );
  expect(fs.existsSync('run.jsonl')).toBe(false);
});

it('an answer that ended for a reason that is not known says so in its line', async () => {
  const odd = 'data: {"choices":[{"text":"","finish_reason":"moderated"}]}\n\ndata: [DONE]\n\n';
  const { url } = await server([], { 700: odd });
  const { lines } = await run(url);
  expect(lines.map(({ outcome }) => outcome)).toEqual(['completed', 'completed', 'completed']);
  expect(lines.flatMap(({ unknown_end }) => unknown_end ?? [])).toEqual(['moderated']);
});

/** Answers of a server that writes its events in a way of its own. */
async function writing(
  write: (response: http.ServerResponse, tokens: number) => Promise<void> | void,
): Promise<string> {
  const serving = http.createServer(async (request, response) => {
    if (request.url === '/v1/models') return response.end(JSON.stringify({ data: [{ id: 'm' }] }));
    let body = '';
    for await (const chunk of request) body += String(chunk);
    await write(response, (JSON.parse(body) as Asked).max_tokens);
    return undefined;
  });
  await new Promise<void>((resolve) => serving.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void serving.close());
  return `http://127.0.0.1:${(serving.address() as AddressInfo).port}`;
}

const event = (text: string, more: object = {}): string =>
  `data: ${JSON.stringify({ choices: [{ index: 0, text, finish_reason: null }], ...more })}\n\n`;
const counted = (tokens: number): string =>
  `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 9, completion_tokens: tokens } })}\n\n`;

it('tokens that the server does not count are counted by the tokenizer, or said to be unknown and left out of a fit', async () => {
  const url = await writing((response) => {
    // two events of several tokens each, one cut within a letter of two bytes
    const bytes = Buffer.from(`${event('to be or')}${event(' not to bé')}data: [DONE]\n\n`);
    const cut = bytes.indexOf(Buffer.from('é')) + 1;
    response.write(bytes.subarray(0, cut));
    response.end(bytes.subarray(cut));
  });
  const unknown = await run(url);
  expect(unknown.uncounted).toBe(3);
  expect(unknown.lines.map(({ output_tokens, outcome }) => [output_tokens, outcome])).toEqual(
    Array.from({ length: 3 }, () => [-1, 'completed']),
  );
  const known = await server();
  const [whole] = (await run(known.url)).lines;
  const text = [...unknown.lines, whole].map((line) => JSON.stringify(line)).join('\n');
  const read = readMeasuredRun(text, 'run');
  expect(read.requests).toHaveLength(1);
  expect(read.taken.notes).toEqual(['3 requests whose tokens were not counted left out']);

  const folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-observe-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
  const tokenizer = join(folder, 'tokenizer.json');
  const words = ['[UNK]', 'to', 'be', 'or', 'not', 'bé'];
  const model = {
    type: 'WordLevel',
    vocab: Object.fromEntries(words.map((word, i) => [word, i])),
    unk_token: '[UNK]',
  };
  fs.writeFileSync(
    tokenizer,
    JSON.stringify({ version: '1.0', added_tokens: [], pre_tokenizer: { type: 'WhitespaceSplit' }, model }),
  );
  const { lines, uncounted } = await run(url, { tokenizer });
  expect(uncounted).toBe(0);
  expect(lines.map(({ output_tokens }) => output_tokens)).toEqual([6, 6, 6]);
});

it('an event without text does not count as a token, nor as the first one', async () => {
  let emptyMs = 0;
  const url = await writing(async (response, tokens) => {
    response.write(event(''));
    const beganMs = performance.now();
    await pause(60);
    emptyMs = performance.now() - beganMs;
    for (let i = 0; i < tokens; i++) response.write(event('x'));
    response.end(`${counted(tokens)}data: [DONE]\n\n`);
  });
  const { lines } = await run(url);
  for (const { ttft_us, outcome } of lines) {
    expect(outcome).toBe('completed');
    expect(ttft_us).toBeGreaterThan(0);
  }
  expect(1000 * emptyMs).toBeLessThanOrEqual(Math.max(...lines.map(({ ttft_us }) => ttft_us)));
});

it('an error of null does not fail an answer, and a last line needs no end', async () => {
  const url = await writing((response, tokens) => {
    for (let i = 0; i < tokens; i++) response.write(event('x', { error: null }));
    response.end(`${counted(tokens)}data: [DONE]`);
  });
  const { lines } = await run(url);
  expect(lines.map(({ outcome, output_tokens, error }) => [outcome, output_tokens, error])).toEqual([
    ['completed', 3, ''],
    ['completed', 4, ''],
    ['completed', 5, ''],
  ]);
});
