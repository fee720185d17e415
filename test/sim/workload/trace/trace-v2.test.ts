import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { GoRandom } from '../../../../src/sim/random/goRand.ts';
import { distributionSpec } from '../../../../src/sim/workload/presets.ts';
import { requestsOf } from '../../../../src/sim/workload/request.ts';
import { TokenReader } from '../../../../src/sim/workload/tokens.ts';
import { csvCell, splitCsv } from '../../../../src/sim/workload/traceLines.ts';
import {
  readTraceHeader,
  recordedRequests,
  traceColumns,
  traceHeader,
  traceRecords,
  traceRow,
} from '../../../../src/sim/workload/traceV2.ts';
import { generateWorkload } from '../../../../src/sim/workload/workload.ts';
import { sharedFile } from './trace-fixtures.ts';

const COLUMNS = { sloTarget: false, adapter: false, thinkTime: false };

describe('cells', () => {
  it('survive writing and reading', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.string().filter((text) => !/[\r\n]/.test(text)),
          { minLength: 1, maxLength: 6 },
        ),
        (cells) => {
          expect(splitCsv(cells.map(csvCell).join(','))).toEqual(cells);
        },
      ),
    );
    expect(splitCsv('a,"b')).toBeUndefined();
    expect(splitCsv('"a"b')).toBeUndefined();
    expect(splitCsv('a,')).toEqual(['a', '']);
  });
});

describe('TraceV2', () => {
  const workload = generateWorkload(distributionSpec({ rate: 10, numRequests: 40, prefixTokens: 64 }));
  const rows = [
    traceColumns(COLUMNS),
    ...[...requestsOf(workload.stream())].map((request, i) => traceRow(i, request, COLUMNS)),
  ];

  it('is read back as it was written', () => {
    const records = [...traceRecords(rows, 't.csv')];
    expect(records).toHaveLength(40);
    const replayed = [...recordedRequests(() => traceRecords(rows, 't.csv'), 42n)];
    expect(replayed.map((request, i) => traceRow(i, request, COLUMNS))).toEqual(rows.slice(1));
  });

  it('draws prefixes first, then input and output of each record from one stream', () => {
    const random = new GoRandom(7n);
    const draw = (count: number): number[] => Array.from({ length: count }, () => random.intn(128000));
    const prefix = draw(64);
    const reader = new TokenReader();
    for (const request of recordedRequests(() => traceRecords(rows, 't.csv'), 7n)) {
      const input = draw(request.inputTokens - 64);
      expect([...reader.prompt(request)]).toEqual([...prefix, ...input]);
      expect([...reader.output(request)]).toEqual(draw(request.outputTokens));
    }
  });

  it('writes optional columns only if a request uses them', () => {
    const columns = { sloTarget: true, adapter: true, thinkTime: true };
    const [first] = [...requestsOf(workload.stream())];
    const origin = { ...first.origin, sloTargetUs: 9, adapter: 'lora, "x"' };
    const lines = [traceColumns(columns), traceRow(0, { ...first, origin, thinkTimeUs: 5 }, columns)];
    expect(lines[0]).toMatch(
      /deadline_us,slo_target_us,server_input_tokens.*finish_reason,adapter,think_time_us$/,
    );
    const [record] = [...traceRecords(lines, 't.csv')];
    expect([record.sloTargetUs, record.adapter, record.thinkTimeUs]).toEqual([9, 'lora, "x"', 5]);
  });

  const edit = (row: number, cell: number, value: string): string[] =>
    rows.map((line, i) =>
      i === row
        ? line
            .split(',')
            .map((old, c) => (c === cell ? value : old))
            .join(',')
        : line,
    );
  it.each([
    [
      'a mistyped column',
      edit(0, 9, 'input_token'),
      /^t\.csv:1: input_token is not a column of TraceV2\. Did you mean "input_tokens"\?/,
    ],
    ['time going back', edit(3, 19, '5'), /^t\.csv:4: arrival_time_us goes back in time/],
    ['a negative length', edit(2, 9, '-4'), /^t\.csv:3: input_tokens is "-4"/],
    ['a deadline before arrival', edit(2, 17, '5'), /^t\.csv:3: deadline_us is 5, before the arrival/],
    ['a missing cell', [...rows.slice(0, 5), '1,2,3'], /^t\.csv:6: has 3 cells, not 27/],
    ['a prefix without a group', edit(2, 6, ''), /^t\.csv:3: prefix_length is 64 without a prefix_group/],
    ['no truth value', edit(2, 8, 'yes'), /^t\.csv:3: streaming is "yes"/],
  ])('refuses %s', (_name, lines, message) => {
    expect(() => [...traceRecords(lines, 't.csv')]).toThrow(message);
  });

  it.each([
    'chatbot-r5',
    'concurrency8',
    'contentgen-r5',
    'default-r8',
    'ex-multiturn-chat-demo',
    'ex-regression_workload_load_spikes',
    'ex-servegen-language',
    'mixed-slo',
    'prefix-churn',
    'summarization-r5',
  ])('writes the header of %s as upstream does, and reads it', (name) => {
    const golden = readFileSync(new URL(`../fixtures/traces/${name}.yaml`, import.meta.url), 'utf8');
    const workloadSeed = name === 'mixed-slo' ? 7n : 42n;
    expect(traceHeader({ mode: 'generated', workloadSeed })).toBe(golden);
    expect(readTraceHeader(golden, name)).toMatchObject({ mode: 'generated', workloadSeed });
  });

  it('reads its own headers, and no others', () => {
    const text = traceHeader({
      mode: 'generated',
      workloadSeed: -5n,
      sessionContextGrowth: 'accumulate',
      goodputSloTargets: { batch: { e2eMs: 5 } },
    });
    expect(readTraceHeader(text, 'h')).toEqual({
      version: 3,
      mode: 'generated',
      warmUpRequests: 0,
      workloadSeed: -5n,
      accumulate: true,
    });
    expect(() => readTraceHeader(text.replace('mode: generated', 'mode: made'), 'h')).toThrow(
      /^h:3: mode is "made"/,
    );
    expect(() => readTraceHeader(`${text}work_load: 1\n`, 'h')).toThrow(/work_load is not a key here/);
    expect(() => readTraceHeader('mode: real\n', 'h')).toThrow(/trace_version is missing/);
  });
});

/** Generated workloads stand behind these cases too: their arrivals and lengths, row by row. */
const CASES: ReadonlyArray<readonly [string, Parameters<typeof distributionSpec>[0]]> = [
  ['01-default', {}],
  [
    '09-chunked-prefill',
    {
      rate: 20,
      numRequests: 200,
      prompt: { mean: 2048, stdDev: 800, min: 2, max: 7000 },
      output: { mean: 64, stdDev: 32, min: 2, max: 7000 },
    },
  ],
  ['11-cluster-leastloaded', { rate: 100, numRequests: 500 }],
  ['28-sjf', { rate: 30, numRequests: 300 }],
  ['30-moe-mixtral', { rate: 5, numRequests: 200 }],
  ['36-traceout', { rate: 10, numRequests: 50, prefixTokens: 64 }],
  [
    '39-debuglog',
    {
      rate: 50,
      numRequests: 5,
      prefixTokens: 32,
      prompt: { mean: 40, stdDev: 10, min: 2, max: 7000 },
      output: { mean: 6, stdDev: 2, min: 2, max: 7000 },
    },
  ],
];

describe('workloads of the end-to-end cases', () => {
  for (const [name, options] of CASES) {
    const plain = `goldens/blis/cases/${name}/metrics.json`;
    const path = sharedFile(name === '11-cluster-leastloaded' ? `${plain}.gz` : plain);
    it.skipIf(path === undefined)(name, () => {
      const bytes = readFileSync(path!);
      const text = (path!.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
      const golden = (
        JSON.parse(text) as {
          requests: Array<{
            requestID: string;
            arrived_at: number;
            num_prefill_tokens: number;
            num_decode_tokens: number;
          }>;
        }
      ).requests;
      const byId = new Map(
        golden.map((row) => [
          row.requestID,
          [Math.round(row.arrived_at * 1e6), row.num_prefill_tokens, row.num_decode_tokens],
        ]),
      );
      const requests = [...requestsOf(generateWorkload(distributionSpec(options)).stream())];
      expect(requests).toHaveLength(golden.length);
      for (const request of requests)
        expect([request.arrivalUs, request.inputTokens, request.outputTokens]).toEqual(byId.get(request.id));
    });
  }
});
