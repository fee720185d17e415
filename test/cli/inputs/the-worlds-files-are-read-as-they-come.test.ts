/**
 * Traces as their publishers give them: real rows of each, or rows in its format. What was taken is told; units, orders,
 * zero lengths and repeated rows are read right, or refused with file, line and field.
 */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { takenText } from '../../../src/cli/workload/describe.ts';
import { formatOf, type OpenOptions, openWorkload } from '../../../src/sim/build/openWorkload.ts';
import type { WorkloadRequest } from '../../../src/sim/workload/request.ts';
import { parseColumnMapping } from '../../../src/sim/workload/tables.ts';

const rows = new URL('../../sim/workload/fixtures/rows/', import.meta.url).pathname;

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-worlds-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
});
const write = (name: string, text: string): string => {
  const file = join(folder, name);
  fs.writeFileSync(file, text);
  return file;
};

interface Read {
  readonly requests: readonly WorkloadRequest[];
  readonly format: string;
  readonly said: string;
}
function read(file: string, options: OpenOptions = {}): Read {
  const opened = openWorkload(file, options);
  const requests = [...opened.requests()];
  return { requests, format: opened.format, said: takenText(file, opened) };
}
const lengths = ({ requests }: Read): number[][] =>
  requests.map(({ arrivalUs, inputTokens, outputTokens }) => [arrivalUs, inputTokens, outputTokens]);

describe('real rows', () => {
  it('Azure 2023', () => {
    const got = read(`${rows}azure-2023-conv.csv`);
    expect([got.format, got.requests.length]).toEqual(['azure', 24]);
    expect(lengths(got).slice(0, 3)).toEqual([
      [0, 374, 44],
      [4_314_579, 396, 109],
      [4_541_877, 879, 55],
    ]);
  });

  it('BurstGPT: a failed request is an error, or counted and left out', () => {
    const file = `${rows}burstgpt.csv`;
    expect(() => read(file)).toThrow(/burstgpt\.csv:22: Request tokens makes a prompt of 0 tokens/);
    const got = read(file, { dropEmpty: true });
    expect([got.format, got.requests.length]).toEqual(['burstgpt', 29]);
    expect(lengths(got)[1]).toEqual([45_000_000, 1087, 230]);
    expect(new Set(got.requests.map(({ origin }) => origin.clientId))).toEqual(new Set(['ChatGPT', 'GPT-4']));
    expect(got.said).toContain(
      'columns Timestamp, Model, Request tokens, Response tokens; times: s; 1 rows without tokens left out; left over: Total tokens, Log Type',
    );
  });

  it('Mooncake, another of its traces', () => {
    const got = read(`${rows}mooncake-synthetic.jsonl`);
    expect([got.format, got.requests.length]).toEqual(['mooncake', 24]);
    expect(lengths(got)[2]).toEqual([40_000, 23_769, 3]);
    expect(got.requests[2].prompt).toMatchObject({ kind: 'blocks', runs: Int32Array.of(151, 47) });
  });

  it("vidur's own table", () => {
    const got = read(`${rows}vidur-splitwise-conv.csv`);
    expect([got.format, got.requests.length]).toEqual(['lengths', 24]);
    expect(lengths(got)[4]).toEqual([5_892_655, 91, 16]);
    expect(got.said).toContain('columns num_prefill_tokens, num_decode_tokens, arrived_at; times: s');
  });

  it("WEKA's sessions, compact, and as their publisher has them, in a file and in a folder", () => {
    const compact = read(`${rows}weka-compact.jsonl`);
    expect([compact.format, compact.requests.length]).toEqual(['weka', 24]);
    const got = read(`${rows}weka-trace_0085.json`);
    expect(got.format).toBe('weka');
    expect(lengths(got)).toEqual([
      [0, 48_175, 214],
      [46e6, 63_842, 1005],
      [546e6, 64_982, 685],
      [938e6, 65_941, 511],
    ]);
    expect(got.requests.map(({ thinkTimeUs }) => thinkTimeUs / 1e6)).toEqual([0, 40, 472, 374]);
    expect(got.requests[3].prompt).toMatchObject({ blockTokens: 64, runs: Int32Array.of(1, 1030) });
    expect(got.requests.map(({ round, sessionId }) => [sessionId, round])).toEqual(
      [0, 1, 2, 3].map((round) => ['trace_0085', round]),
    );
    fs.copyFileSync(`${rows}weka-trace_0085.json`, join(folder, 'trace_0085.json'));
    expect(formatOf(folder)).toBe('weka');
    expect(lengths(read(folder))).toEqual(lengths(got));
  });
});

describe('rows in a format', () => {
  it('Azure 2024: dates with a zone and six digits', () => {
    const file = write(
      'azure2024.csv',
      'TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:00.017335+00:00,2399,6\n2024-05-10 00:00:00+00:00,7,6\n',
    );
    expect(() => read(file)).toThrow(/azure2024\.csv:4: TIMESTAMP goes back in time/);
    const got = read(file, { sort: true });
    expect(lengths(got)).toEqual([
      [0, 7, 6],
      [9_930, 2162, 5],
      [17_335, 2399, 6],
    ]);
    expect(got.requests.map(({ id }) => id)).toEqual(['request_0', 'request_1', 'request_2']);
  });

  it('dates of several zones count in one time, and mixed ones are refused', () => {
    const table = (...times: string[]): string =>
      write('z.csv', `TIMESTAMP,ContextTokens,GeneratedTokens\n${times.map((t) => `${t},5,1\n`).join('')}`);
    expect(lengths(read(table('2024-05-10T02:00:00+02:00', '2024-05-10 00:00:01Z')))[1][0]).toBe(1e6);
    expect(() => read(table('2024-05-10T02:00:00+02:00', '2024-05-10 02:00:01'))).toThrow(
      /z\.csv:3: TIMESTAMP is "2024-05-10 02:00:01", and the first row has a time zone/,
    );
  });

  it('BurstGPT with sessions', () => {
    const file = write(
      'b.csv',
      'Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n1.5,abc,3,ChatGPT,10,5,15,Conversation log\n2,,1,GPT-4,11,6,17,API log\n9,abc,1,ChatGPT,30,5,35,Conversation log\n',
    );
    const got = read(file);
    expect(got.requests.map(({ sessionId, round }) => [sessionId, round])).toEqual([
      ['abc', 0],
      ['', 0],
      ['abc', 1],
    ]);
    expect(got.said).toMatch(/left over: Elapsed time, Total tokens, Log Type$/);
  });

  const chat = (more: object): string =>
    `${JSON.stringify({ chat_id: 1, parent_chat_id: -1, timestamp: 0, input_length: 20, output_length: 4, type: 'text', turn: 1, hash_ids: [7, 8], ...more })}\n`;

  it('Qwen-Bailian: ids of contents become ids of prefixes, chats become sessions', () => {
    const file = write(
      'q.jsonl',
      chat({}) +
        chat({ chat_id: 2, timestamp: 61.114, hash_ids: [8, 7], type: 'search' }) +
        chat({ chat_id: 3, parent_chat_id: 1, timestamp: 62, turn: 2, input_length: 40, hash_ids: [7, 8] }) +
        chat({ chat_id: 4, parent_chat_id: 99, timestamp: 63, hash_ids: undefined }),
    );
    const got = read(file);
    expect(got.format).toBe('bailian');
    expect(lengths(got).map(([us]) => us)).toEqual([0, 61_114_000, 62e6, 63e6]);
    const runs = got.requests.map(({ prompt }) =>
      prompt.kind === 'blocks' ? [...prompt.runs] : prompt.kind,
    );
    expect(runs).toEqual([[1, 2], [3, 2], [1, 2], 'drawn']);
    expect(got.requests.map(({ sessionId, round }) => [sessionId, round])).toEqual([
      ['chat_1', 0],
      ['chat_2', 0],
      ['chat_1', 1],
      ['chat_99', 0],
    ]);
    expect(got.said).toContain('times: s; 1 rows without hash_ids, which share nothing');
    expect(() => read(write('q.jsonl', chat({}) + chat({})))).toThrow(
      /q\.jsonl:2: chat_id is 1, as in a line above/,
    );
    expect(() => read(write('q.jsonl', chat({ input_length: 60 })))).toThrow(
      /q\.jsonl:1: hash_ids holds 2 ids for 60 tokens, 3 full blocks of 16/,
    );
  });

  it('sub-agents of a WEKA session count from their marker where they must, else from the session', () => {
    const inner = (t: number): object => ({ t, in: 64, out: 2, hash_ids: [1] });
    const session = (...agents: object[]): string =>
      JSON.stringify({ id: 'x', block_size: 64, hash_id_scope: 'local', requests: [inner(0), ...agents] });
    const from = (text: string): number[] =>
      read(write('s.json', text)).requests.map(({ arrivalUs }) => arrivalUs / 1e6);
    expect(from(session({ t: 10, type: 'subagent', requests: [inner(1), inner(4)] }))).toEqual([0, 11, 14]);
    expect(from(session({ t: 10, type: 'subagent', requests: [inner(10), inner(14)] }))).toEqual([0, 10, 14]);
    const line = write('s.jsonl', `${session()}\n${session().replace('"x"', '"y"')}\n`);
    expect(read(line).requests.map(({ arrivalUs }) => arrivalUs / 1e6)).toEqual([0, 60]);
    const twice = write('s.jsonl', `${session()}\n${session()}\n`);
    expect(() => read(twice)).toThrow(/s\.jsonl:2: id is "x", as of a session before/);
  });

  it('vLLM bench serve: requests in the order in which they were sent, failed ones counted', () => {
    const result = {
      date: '20261120-120000',
      model_id: 'm',
      input_lens: [100, 200, 300],
      output_lens: [3, 2, 0],
      start_times: [1011.5, 1010, 1012],
      ttfts: [0.1, 0.2, 0],
      itls: [[0.05, 0.07], [0.1], []],
      generated_texts: ['a', 'b', ''],
      errors: ['', '', 'boom'],
    };
    const got = read(write('bench.json', JSON.stringify(result, null, 2)));
    expect(got.format).toBe('vllm-bench');
    expect(lengths(got)).toEqual([
      [0, 200, 2],
      [1_500_000, 100, 3],
    ]);
    expect(got.said).toMatch(/1 failed requests left out; left over: generated_texts$/);
    expect(() => read(write('bench.json', JSON.stringify({ ...result, start_times: undefined })))).toThrow(
      /bench\.json:1: start_times is missing, so when requests were sent is not known/,
    );
    expect(() => read(write('bench.json', JSON.stringify({ ...result, ttfts: [1] })))).toThrow(
      /bench\.json:1: ttfts has 1 values, and input_lens 3/,
    );
  });

  it('ServeGen: a folder of clients', () => {
    write('chunk-0-trace.csv', '0,0.5,1,Gamma,1,2\n600,0.25,1.1,,,\n');
    write(
      'chunk-0-dataset.json',
      JSON.stringify({ 0: { input_tokens: '{100: 0.5, 200: 0.5}', output_tokens: '{10: 1}' } }),
    );
    expect(formatOf(folder)).toBe('servegen');
  });
});

describe('a CSV by its mapping', () => {
  const table = (time: string, ...times: string[]): string =>
    write(
      'm.csv',
      `${time},prompt_len,gen_len,conv,who\n${times.map((t, i) => `${t},${10 + i},5,c,w\n`).join('')}`,
    );
  const by = (mapping: string): OpenOptions => ({ columns: parseColumnMapping(mapping) });

  it.each([
    ['s', ['1', '2.5'], [1e6, 2.5e6]],
    ['ms', ['1', '2.5'], [1e3, 2.5e3]],
    ['us', ['1', '2'], [1, 2]],
    ['ns', ['1000', '2500'], [1, 3]],
    ['epoch-s', ['1717171717', '1717171718.25'], [0, 1_250_000]],
    ['epoch-ms', ['1717171717000', '1717171718250.5'], [0, 1_250_500]],
    ['epoch-us', ['1717171717000000', '1717171717000007'], [0, 7]],
    ['epoch-ns', ['1717171717123456789', '1717171717123459789'], [0, 3]],
    ['iso', ['2026-01-01 00:00:00', '2026-01-01T00:00:01.5'], [0, 1_500_000]],
  ])('times in %s', (unit, times, us) => {
    const got = read(table('ts', ...times), by(`arrival=ts:${unit},input=prompt_len,output=gen_len`));
    expect(got.format).toBe('columns');
    expect(lengths(got)).toEqual(us.map((at, i) => [at, 10 + i, 5]));
    expect(got.said).toContain('columns ts (arrival), prompt_len (input), gen_len (output)');
    expect(got.said).toMatch(/left over: conv, who$/);
  });

  it('sessions and senders, CRLF, a mark and quotes', () => {
    const file = write('m.csv', '\u{feff}"ts:x","in",out,conv,who\r\n0,"5",1,a,bob\r\n1,6,1,a,eve\r\n');
    const got = read(file, by('arrival=ts:x:s,input=in,output=out,session=conv,client=who'));
    expect(got.requests.map(({ round, sessionId, origin }) => [sessionId, round, origin.clientId])).toEqual([
      ['a', 0, 'bob'],
      ['a', 1, 'eve'],
    ]);
  });

  it.each([
    [
      'arrival=ts,input=a,output=b',
      /^columns gives the arrivals "ts" no known unit\. Write arrival=COLUMN:UNIT with one of s, ms/,
    ],
    ['arrival=ts:min,input=a,output=b', /no known unit/],
    ['input=a', /^columns has no output/],
    ['inptu=a,output=b', /^columns maps "inptu"\. Did you mean "input"\?/],
    ['input=a,input=b,output=c', /maps input twice/],
    ['input=,output=c', /names no column for input/],
  ])('refuses %s', (mapping, says) => {
    expect(() => parseColumnMapping(mapping)).toThrow(says);
  });

  it('refuses what does not fit the file, with file, line and field', () => {
    const mapping = by('arrival=ts:s,input=prompt_len,output=gen_len');
    expect(() => read(table('time', '0'), mapping)).toThrow(
      /m\.csv:1: ts is not a column\. .*The columns are time, prompt_len, gen_len, conv, who/,
    );
    expect(() => read(table('ts', '5', '4'), mapping)).toThrow(/m\.csv:3: ts goes back in time/);
    expect(lengths(read(table('ts', '5', '4'), { ...mapping, sort: true }))).toEqual([
      [4e6, 11, 5],
      [5e6, 10, 5],
    ]);
    expect(() => read(table('ts', '2026-01-01'), mapping)).toThrow(
      /m\.csv:2: ts is "2026-01-01"\. Write a time/,
    );
    expect(() => read(table('ts', '1717171717'), mapping)).toThrow(
      /m\.csv:2: ts is 1717171717 s\. Times count from/,
    );
    expect(() => read(table('ts', '0'), { format: 'columns' })).toThrow(/^columns is missing/);
    expect(() => read(table('ts', '0'), { ...mapping, format: 'azure' })).toThrow(
      /^columns is given, and format is azure/,
    );
    expect(() => read(table('ts', '0'), { ...mapping, rate: 3 })).toThrow(
      /^rate is given, and .* has times of its own/,
    );
  });

  it('draws arrivals at a rate where no column of them is mapped', () => {
    const got = read(table('ts', '0', '0'), { ...by('input=prompt_len,output=gen_len'), rate: 2 });
    expect(got.said).toContain('times: none in the file, drawn at 2 a second');
  });
});

it('two equal rows are two requests', () => {
  const got = read(write('d.csv', 'arrived_at,input,output\n1,5,1\n1,5,1\n'));
  expect(lengths(got)).toEqual([
    [1e6, 5, 1],
    [1e6, 5, 1],
  ]);
});

it('lines of JSON in a file that ends in .json are lines, be there one or several', () => {
  const line = JSON.stringify({ timestamp: 1, input_length: 600, output_length: 4, hash_ids: [0, 1] });
  for (const count of [1, 2]) {
    const got = read(write('m.json', `${line}\n`.repeat(count)));
    expect([got.format, got.requests.length]).toEqual(['mooncake', count]);
  }
});
