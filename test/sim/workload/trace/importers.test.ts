import { readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { ServeGenSpec } from '../../../../src/sim/description/workloadSpec.ts';
import { wekaRequests } from '../../../../src/sim/workload/agentSessions.ts';
import {
  mooncakeRequests,
  textTraceRequests,
  tokenIdRequests,
} from '../../../../src/sim/workload/importers.ts';
import type { WorkloadRequest } from '../../../../src/sim/workload/request.ts';
import {
  fitLognormal,
  servegenCohorts,
  servegenLengths,
  servegenWindows,
} from '../../../../src/sim/workload/servegen.ts';
import { WorkloadSummarizer } from '../../../../src/sim/workload/summary.ts';
import { azureRequests, lengthFileRequests } from '../../../../src/sim/workload/tables.ts';
import { TokenReader } from '../../../../src/sim/workload/tokens.ts';
import { sized } from '../../../sized.ts';
import { sharedFile } from './trace-fixtures.ts';

const all = (requests: Iterable<WorkloadRequest>): WorkloadRequest[] => [...requests];
const summarize = (requests: Iterable<WorkloadRequest>): ReturnType<WorkloadSummarizer['summary']> => {
  const summarizer = new WorkloadSummarizer();
  for (const request of requests) summarizer.add(request);
  return summarizer.summary();
};
const lines = (path: string): string[] => gunzipSync(readFileSync(path)).toString('utf8').split('\n');

const MOON = [
  '{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]}',
  '{"timestamp": 1.5, "input_length": 1024, "output_length": 6, "hash_ids": [0, 2]}',
];

describe('Mooncake', () => {
  it('reads times, lengths and runs', () => {
    const [first, second] = all(mooncakeRequests(MOON, 'm'));
    expect([first.arrivalUs, first.inputTokens, first.outputTokens]).toEqual([0, 1000, 5]);
    expect(first.prompt).toMatchObject({ kind: 'blocks', blockTokens: 512 });
    expect(second.arrivalUs).toBe(1500);
    expect([...(second.prompt as { runs: Int32Array }).runs]).toEqual([0, 1, 2, 1]);
    const reader = new TokenReader();
    const [a, b] = [reader.prompt(first), reader.prompt(second)];
    expect([a.length, b.length]).toEqual([1000, 1024]);
    expect([...a.slice(0, 512)]).toEqual([...b.slice(0, 512)]);
    expect([...a.slice(512, 600)]).not.toEqual([...b.slice(512, 600)]);
  });

  const bad: ReadonlyArray<readonly [string, string, RegExp]> = [
    ['no JSON', '{"timestamp": 1', /^m:3: is not valid JSON/],
    [
      'a missing field',
      '{"timestamp": 9, "input_length": 1, "hash_ids": [0]}',
      /^m:3: output_length is missing/,
    ],
    [
      'time going back',
      '{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [0]}',
      /^m:3: timestamp goes back in time, from 1500 µs to 1000 µs\. Sort the trace/,
    ],
    [
      'too few ids',
      '{"timestamp": 9, "input_length": 513, "output_length": 1, "hash_ids": [0]}',
      /^m:3: hash_ids holds 1 ids for 513 tokens, 2 blocks of 512/,
    ],
    [
      'a negative length',
      '{"timestamp": 9, "input_length": -1, "output_length": 1, "hash_ids": []}',
      /^m:3: input_length is -1/,
    ],
    [
      'an id behind another parent',
      '{"timestamp": 9, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}',
      /^m:3: hash_ids has block 1 behind the start, which was behind block 0 before/,
    ],
    [
      'a cycle',
      '{"timestamp": 9, "input_length": 1536, "output_length": 1, "hash_ids": [0, 7, 0]}',
      /^m:3: hash_ids names block 0 twice, so its prefix would contain itself/,
    ],
    [
      'ids that are not integers',
      '{"timestamp": 9, "input_length": 1, "output_length": 1, "hash_ids": ["x"]}',
      /^m:3: hash_ids\[0\] is "x"/,
    ],
  ];
  it.each(bad)('refuses %s', (_name, line, message) => {
    expect(() => all(mooncakeRequests([...MOON, line], 'm'))).toThrow(message);
  });

  it('says which of many lines is bad', () => {
    const count = sized(100_000, 1_000_000);
    const bad = Math.floor(0.876 * count);
    function* many(): Generator<string> {
      for (let i = 1; i <= count; i++) yield i === bad ? '{"timestamp": 1, "input_length": 1}' : MOON[0];
    }
    expect(() => {
      for (const _ of mooncakeRequests(many(), 'big.jsonl')) void _;
    }).toThrow(new RegExp(`^big\\.jsonl:${bad}: `));
  });

  const path = sharedFile('traces/mooncake-fast25/conversation_trace.jsonl.gz');
  it.skipIf(path === undefined)('conversation trace: the basic facts of the ground truth', () => {
    const summary = summarize(mooncakeRequests(lines(path!), 'conversation'));
    expect(summary).toMatchObject({
      requests: 12_031,
      inputTokens: 144_793_823,
      outputTokens: 4_122_048,
      blocks: 288_500,
      reusedBlocks: 105_710,
      reusedTokens: 54_098_411,
    });
    expect(summary.input).toMatchObject({ p50: 6909, p90: 27_367, p99: 85_401, max: 126_195 });
    expect(summary.output).toMatchObject({ p50: 350, p90: 597, p99: 1120, max: 2000 });
  });
});

const WEKA = [
  '{"s":"b","a":0,"t":0,"in":130,"out":3,"think":1.5,"h":[[1,2]]}',
  '{"s":"a","a":0,"t":70,"in":64,"out":4,"h":[[5,1]]}',
  '{"s":"a","a":1,"t":10,"in":200,"out":5,"h":[[5,1],[9,2]]}',
];

describe('agent sessions', () => {
  it('merges sessions 60 s apart by (start, session, line)', () => {
    const requests = all(wekaRequests(WEKA, 'w'));
    expect(requests.map((r) => [r.sessionId, r.arrivalUs / 1e6, r.round])).toEqual([
      ['a', 10, 0],
      ['b', 60, 0],
      ['a', 70, 1],
    ]);
    expect(requests[1].thinkTimeUs).toBe(1_500_000);
  });

  it('refuses runs that do not fit the length', () => {
    expect(() => all(wekaRequests(['{"s":"a","a":0,"t":0,"in":64,"out":1,"h":[[1,2]]}'], 'w'))).toThrow(
      /^w:1: h holds 2 ids, not one for each of 1 full blocks of 64/,
    );
    expect(() => all(wekaRequests(['{"s":"a","a":0,"t":-1,"in":0,"out":1,"h":[]}'], 'w'))).toThrow(
      /^w:1: t is -1/,
    );
    expect(() => all(wekaRequests(['{"a":0,"t":1,"in":0,"out":1,"h":[]}'], 'w'))).toThrow(
      /^w:1: s is missing/,
    );
  });

  const path = sharedFile('traces/weka-kv-cache-tester/dev/requests.jsonl.gz');
  it.skipIf(path === undefined)('WEKA: the basic facts of the ground truth', () => {
    const summary = summarize(wekaRequests(lines(path!), 'weka'));
    expect(summary).toMatchObject({
      requests: 21_041,
      sessions: 361,
      inputTokens: 2_602_979_913,
      outputTokens: 9_235_447,
      blocks: 40_661_159,
      reusedBlocks: 38_901_922,
      reusedTokens: 2_489_723_008,
    });
    expect(summary.input).toMatchObject({ p50: 106_217, p90: 198_079, p99: 596_810, max: 894_371 });
    expect(Math.round(summary.lastArrivalUs / 1e6)).toBe(440_564);
  });

  it('reads text by bytes until a tokenizer is given, ordered by time over files', () => {
    const file = (id: string, times: number[]): { file: string; lines: string[] } => ({
      file: id,
      lines: times.map((t) =>
        JSON.stringify({ timestamp: t, session_id: id, input: `héllo ${t}`, output: 'ok' }),
      ),
    });
    const requests = all(textTraceRequests([file('x', [900, 300]), file('y', [600])]));
    expect(requests.map((r) => [r.arrivalUs, r.sessionId, r.round])).toEqual([
      [0, 'x', 0],
      [300, 'y', 0],
      [600, 'x', 1],
    ]);
    expect(requests[0].inputTokens).toBe(10);
    const words = all(
      textTraceRequests([file('x', [300])], {
        tokenize: (text) => Int32Array.from(text.split(' '), (word) => word.length),
      }),
    );
    expect([...new TokenReader().prompt(words[0])]).toEqual([5, 3]);
  });
});

describe('lengths and arrivals without prefixes', () => {
  const AZURE = [
    'TIMESTAMP,ContextTokens,GeneratedTokens',
    '2023-11-30 23:59:59.9999999,10,1',
    '2023-12-01 00:00:00.0000019,20,2',
  ];

  it('counts Azure times from the first row, over the end of a month', () => {
    expect(all(azureRequests(AZURE, 'z')).map((r) => [r.arrivalUs, r.inputTokens, r.outputTokens])).toEqual([
      [0, 10, 1],
      [2, 20, 2],
    ]);
    const leap = [AZURE[0], '2024-02-28 00:00:00,1,1', '2024-03-01 00:00:00,1,1'];
    expect(all(azureRequests(leap, 'z'))[1].arrivalUs).toBe(2 * 86_400_000_000);
  });

  it.each([
    ['2023-13-01 00:00:00,1,1', /^z:4: TIMESTAMP is "2023-13-01 00:00:00", no date/],
    ['2024-02-30 00:00:00,1,1', /^z:4: TIMESTAMP is "2024-02-30 00:00:00", no date/],
    ['yesterday,1,1', /^z:4: TIMESTAMP is "yesterday"/],
    ['2023-11-01 00:00:00,1,1', /^z:4: TIMESTAMP goes back in time/],
    ['2023-12-02 00:00:00,1', /^z:4: GeneratedTokens is missing/],
    ['2023-12-02 00:00:00,1.5,2', /^z:4: ContextTokens is "1\.5"/],
  ])('refuses %s', (line, message) => {
    expect(() => all(azureRequests([...AZURE, line], 'z'))).toThrow(message);
  });

  it('draws arrivals for files of lengths, the same for the same seed', () => {
    const rows = [
      'num_prefill_tokens,num_decode_tokens,num_total_tokens',
      ...Array.from({ length: 2000 }, (_, i) => `${i + 1},2,3`),
    ];
    const read = (seed: bigint): number[] =>
      all(lengthFileRequests(rows, 'l', { rate: 10, seed })).map((r) => r.arrivalUs);
    const first = read(1n);
    expect(read(1n)).toEqual(first);
    expect(read(2n)).not.toEqual(first);
    expect(2000 / (first[1999] / 1e6)).toBeGreaterThan(9);
    expect(2000 / (first[1999] / 1e6)).toBeLessThan(11);
    expect(() => all(lengthFileRequests(['a,b', '1,2'], 'l', { rate: 1 }))).toThrow(
      /^l:1: no column of lengths among a, b/,
    );
    expect(() => all(lengthFileRequests(rows, 'l', { rate: 0 }))).toThrow(/^rate is 0/);
  });

  it('keeps token ids as they are', () => {
    const row = '{"input_tok_ids": [3, 1, 4], "output_tok_ids": [1], "arrival_time_ns": 46926808}';
    const [request] = all(tokenIdRequests([row], 't'));
    expect([request.arrivalUs, ...new TokenReader().prompt(request)]).toEqual([46926, 3, 1, 4]);
    expect(() =>
      all(tokenIdRequests(['{"input_tok_ids": [1.5], "output_tok_ids": [], "arrival_time_ns": 1}'], 't')),
    ).toThrow(/^t:1: input_tok_ids/);
  });

  const facts: ReadonlyArray<
    readonly [string, (text: string[]) => Iterable<WorkloadRequest>, number, number, number]
  > = [
    [
      'traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz',
      (text) => azureRequests(text, 'conv'),
      19_366,
      22_361_870,
      4_088_665,
    ],
    [
      'traces/azure-llm-2023/AzureLLMInferenceTrace_code.csv.gz',
      (text) => azureRequests(text, 'code'),
      8_819,
      18_059_974,
      245_896,
    ],
    [
      'traces/vidur-lengths/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz',
      (text) => lengthFileRequests(text, 'arxiv', { rate: 1 }),
      28_257,
      73_131_321,
      8_234_948,
    ],
    [
      'traces/llmservingsim-vllm/requests/sharegpt-llama-3.1-8b-300-sps10.jsonl.gz',
      (text) => tokenIdRequests(text, 'sharegpt'),
      300,
      257_239,
      195_753,
    ],
  ];
  for (const [name, read, requests, inputTokens, outputTokens] of facts) {
    const path = sharedFile(name);
    it.skipIf(path === undefined)(`${name.split('/').pop()}: the basic facts of the ground truth`, () => {
      expect(summarize(read(lines(path!)))).toMatchObject({ requests, inputTokens, outputTokens });
    });
  }
});

const SERVEGEN: ServeGenSpec = {
  path: 'p',
  windowDurationS: 600,
  drainTimeoutS: 180,
  timeWindow: '',
  spanStartS: 0,
  spanEndS: 0,
};
const chunk = (
  id: string,
  rows: string[],
  dataset: object,
): Parameters<typeof servegenCohorts>[0][number] => ({
  id,
  windows: servegenWindows(rows, `${id}.csv`),
  ...servegenLengths(JSON.stringify(dataset), `${id}.json`),
});
const allDay = (rate: number): string[] =>
  Array.from({ length: 144 }, (_, i) => `${i * 600},${rate},2.0,Gamma,0.5,0.25`);

describe('ServeGen profiles', () => {
  it('fits the logarithm by its moments', () => {
    expect(
      fitLognormal([
        [0, 5],
        [8, 1],
        [8, 1],
      ]),
    ).toEqual({ mu: Math.log(8), sigma: 0 });
    expect(fitLognormal([[0, 5]])).toBeUndefined();
  });

  it('makes cohorts of three periods and five classes whose rates add up', () => {
    const lengths = {
      0: { input_tokens: '{10: 0.5, 1000: 0.5}', output_tokens: "{'5.0': 1e0,}" },
      21600: { input_tokens: '{}', output_tokens: '{}' },
    };
    const chunks = Array.from({ length: 7 }, (_, i) => chunk(String(i), allDay(i + 1), lengths));
    const cohorts = servegenCohorts(chunks, SERVEGEN, 42n);
    expect(cohorts).toHaveLength(15);
    for (const period of ['midnight', 'morning', 'afternoon']) {
      const own = cohorts.filter((cohort) => cohort.id.startsWith(period));
      expect(own.reduce((sum, cohort) => sum + cohort.spike!.traceRate!, 0)).toBeCloseTo(28, 9);
      expect(own.reduce((sum, cohort) => sum + cohort.population, 0)).toBe(7);
    }
    expect(cohorts[0].arrival).toEqual({ process: 'gamma', cv: 2, shape: 0.5, scale: 250_000 });
    expect(cohorts.map((cohort) => cohort.spike!.startUs / 1e6)).toEqual([
      0, 0, 0, 0, 0, 780, 780, 780, 780, 780, 1560, 1560, 1560, 1560, 1560,
    ]);
    expect(servegenCohorts(chunks, SERVEGEN, 42n)).toEqual(cohorts);
  });

  it('makes open-loop reasoning cohorts with the averaged share', () => {
    const lengths = (share: string): object => ({
      0: { input_tokens: '{10: 1}', output_tokens: '{5: 1}', reason_ratio: `{${share}: 1}` },
    });
    const chunks = [
      chunk('0', allDay(1), lengths('0.25')),
      chunk('1', ['1200,3,1,Weibull,1,1'], lengths('0.75')),
    ];
    const cohorts = servegenCohorts(chunks, SERVEGEN, 1n);
    expect(cohorts).toHaveLength(2);
    expect(cohorts.reduce((sum, cohort) => sum + cohort.spike!.traceRate!, 0)).toBe(4); // 1,200 s is covered best
    expect(cohorts.every((cohort) => cohort.closedLoop === false)).toBe(true);
    expect(cohorts.map((cohort) => JSON.stringify(cohort.reasoning!.reasonRatio)).sort()).toEqual([
      '{"type":"empirical","bins":[[25,1]]}',
      '{"type":"empirical","bins":[[75,1]]}',
    ]);
  });

  it('refuses broken files', () => {
    expect(() => servegenWindows(['0,-1,1,Gamma,1,1'], 'c.csv')).toThrow(/^c\.csv:1: rate is "-1"/);
    expect(() =>
      servegenLengths('{"0": {"input_tokens": "{1: x}", "output_tokens": "{1: 1}"}}', 'd.json'),
    ).toThrow(/^d\.json:1: 0\.input_tokens holds "1: x"/);
    expect(() => servegenCohorts([chunk('0', ['0,0,0,,0,0'], {})], SERVEGEN, 1n)).toThrow(
      /no client is active/,
    );
  });
});

describe('the fixtures of this folder', () => {
  it('hold the ten golden pairs', () => {
    expect(
      readdirSync(new URL('../fixtures/traces/', import.meta.url)).filter((name) => name.endsWith('.csv.gz')),
    ).toHaveLength(10);
  });
});
