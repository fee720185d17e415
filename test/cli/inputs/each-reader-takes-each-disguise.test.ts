/**
 * Every reader of a trace, a measured run or a log, over files as tools leave them: a byte-order mark, CRLF, empty lines at the
 * end and between rows, spaces at an end, quoted cells, rows out of order, a file of nothing, of spaces, of a head alone, one
 * cut in the middle of a row. What is read is what the clean file says, or an error of one line names the file.
 */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TierKVError } from '../../../src/runtime/errors.ts';
import { readText } from '../../../src/sim/build/dataFiles.ts';
import { openWorkload } from '../../../src/sim/build/openWorkload.ts';
import { parseLinkCalibration } from '../../../src/sim/latency/capacity.ts';
import { parseGemmTable } from '../../../src/sim/latency/fit/kernelFit.ts';
import { readMeasuredRun } from '../../../src/sim/latency/fit/measuredRuns.ts';
import {
  parseEngineLog,
  parseRunSummaries,
  parseStepRecords,
} from '../../../src/sim/latency/fit/stepRecords.ts';
import { parseColumnMapping } from '../../../src/sim/workload/tables.ts';
import { parseEngineStart } from '../../../tools/accuracyPage.ts';

const rows = new URL('../../sim/workload/fixtures/rows/', import.meta.url).pathname;
let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-disguise-'));
});
afterAll(() => fs.rmSync(folder, { recursive: true }));

interface Kind {
  readonly name: string;
  readonly file: string;
  readonly text: () => string;
  /** What was read, for comparison. */
  read(file: string): unknown;
  /** Whether the order of rows is a statement: time goes on in it, or it numbers them. */
  readonly ordered: boolean;
  /** Whether rows are cells parted by commas, which may be quoted. */
  readonly cells: boolean;
  /** Whether a file without rows is a whole one. */
  readonly mayBeEmpty?: boolean;
}

const workload =
  (more: object = {}) =>
  (file: string): unknown => {
    const requests = [...openWorkload(file, { dropEmpty: true, ...more }).requests()];
    return requests.map(({ arrivalUs, inputTokens, outputTokens, sessionId, round }) => {
      return { arrivalUs, inputTokens, outputTokens, sessionId, round };
    });
  };
const shipped = (name: string) => (): string => fs.readFileSync(`${rows}${name}`, 'utf8');
const lines =
  (...all: readonly string[]) =>
  (): string =>
    `${all.join('\n')}\n`;
const json = (...all: readonly object[]) => lines(...all.map((one) => JSON.stringify(one)));
const measured = (file: string): unknown => readMeasuredRun(readText(file), file).requests;

const kinds: readonly Kind[] = [
  {
    name: 'Azure',
    file: 'a.csv',
    text: shipped('azure-2023-conv.csv'),
    read: workload(),
    ordered: true,
    cells: true,
  },
  {
    name: 'BurstGPT',
    file: 'b.csv',
    text: shipped('burstgpt.csv'),
    read: workload(),
    ordered: true,
    cells: true,
  },
  {
    name: 'Mooncake',
    file: 'm.jsonl',
    text: shipped('mooncake-synthetic.jsonl'),
    read: workload(),
    ordered: true,
    cells: false,
  },
  {
    name: 'vidur',
    file: 'v.csv',
    text: shipped('vidur-splitwise-conv.csv'),
    read: workload(),
    ordered: true,
    cells: true,
  },
  {
    name: 'WEKA',
    file: 'w.jsonl',
    text: shipped('weka-compact.jsonl'),
    read: workload(),
    ordered: true,
    cells: false,
  },
  {
    name: 'Qwen-Bailian',
    file: 'q.jsonl',
    text: json(
      ...[0, 1, 2].map((i) => ({
        chat_id: i,
        parent_chat_id: -1,
        timestamp: i,
        input_length: 20,
        output_length: 4,
        type: 'text',
        turn: 1,
        hash_ids: [2 * i, 2 * i + 1],
      })),
    ),
    read: workload(),
    ordered: true,
    cells: false,
  },
  {
    name: 'miniswe',
    file: 's.jsonl',
    text: json(
      ...[0, 1, 2].map((i) => ({
        timestamp: 1000 * i,
        session_id: `s${i}`,
        input: 'some text',
        output: 'more',
      })),
    ),
    read: workload(),
    ordered: true,
    cells: false,
  },
  {
    name: 'a CSV by its mapping',
    file: 'c.csv',
    text: lines('ts,prompt,gen', '0,10,5', '1.5,11,6', '2,12,7'),
    read: workload({ columns: parseColumnMapping('arrival=ts:s,input=prompt,output=gen') }),
    ordered: true,
    cells: true,
  },
  {
    name: 'vLLM’s benchmark as a workload',
    file: 'bench.json',
    text: json({
      input_lens: [10, 20],
      output_lens: [2, 3],
      start_times: [1, 2],
      ttfts: [0.1, 0.1],
      itls: [[0.1], [0.1, 0.1]],
      errors: ['', ''],
    }),
    read: workload(),
    ordered: true,
    cells: false,
  },
  {
    name: 'a measured run as a table',
    file: 'r.csv',
    text: lines(
      'arrival_us,prompt_tokens,output_tokens,first_token_us,last_token_us',
      '0,10,5,100,500',
      '20,11,5,120,520',
      '30,12,5,140,540',
    ),
    read: measured,
    ordered: false,
    cells: true,
  },
  {
    name: 'observed requests',
    file: 'o.jsonl',
    text: json(
      ...[0, 1, 2].map((i) => ({
        arrival_us: 10 * i,
        prompt_tokens: 5 + i,
        output_tokens: 2,
        ttft_us: 5,
        e2e_us: 9,
      })),
    ),
    read: measured,
    ordered: false,
    cells: false,
  },
  {
    name: 'LLMServingSim’s requests',
    file: 'l.jsonl',
    text: json(
      ...[0, 1, 2].map((i) => ({
        input_toks: 5 + i,
        output_toks: 2,
        queued_ts: i,
        first_token_ts: i + 0.1,
        last_token_ts: i + 0.2,
      })),
    ),
    read: measured,
    ordered: false,
    cells: false,
  },
  {
    name: 'vLLM’s benchmark as a measured run',
    file: 'mb.json',
    text: json({
      input_lens: [10, 20],
      output_lens: [2, 3],
      start_times: [1, 2],
      ttfts: [0.1, 0.1],
      itls: [[0.1], [0.1, 0.1]],
      errors: ['', ''],
    }),
    read: measured,
    ordered: true,
    cells: false,
  },
  {
    name: 'steps',
    file: 'st.csv',
    text: lines(
      'experiment,model,tp,prefill_requests,prefill_tokens,decode_requests,context_tokens,measured_us',
      'e,qwen3-8b,1,0,0,4,100,9000',
      'e,qwen3-8b,1,1,64,4,100,9900',
    ),
    read: (file) => parseStepRecords(readText(file), file),
    ordered: true,
    cells: true,
  },
  {
    name: 'the step log of vLLM’s scheduler',
    file: 'log.csv',
    text: lines(
      'step.id,step.ts_start_ns,batch.num_prefill_reqs,batch.num_decode_reqs,batch.prefill_tokens,kv.blocks_total_gpu,kv.blocks_free_gpu,experiment_id,model,tp',
      '1,1000000,0,4,0,100,50,e,qwen3-8b,1',
      '2,10000000,0,4,0,100,50,e,qwen3-8b,1',
      '3,20000000,1,4,64,100,40,e,qwen3-8b,1',
    ),
    read: (file) => parseEngineLog(readText(file), file),
    ordered: true,
    cells: true,
  },
  {
    name: 'products',
    file: 'g.csv',
    text: () =>
      fs
        .readFileSync(new URL('../../../data/latency/h100-gemm.csv', import.meta.url), 'utf8')
        .split('\n')
        .slice(0, 8)
        .join('\n'),
    read: (file) => parseGemmTable(readText(file), file),
    ordered: true,
    cells: true,
  },
  {
    name: 'runs known by their totals',
    file: 'runs.csv',
    text: () => fs.readFileSync(new URL('../../../data/latency/h100-runs.csv', import.meta.url), 'utf8'),
    read: (file) => parseRunSummaries(readText(file), file),
    ordered: true,
    cells: true,
  },
  {
    name: 'vLLM’s log',
    file: 'vllm.log',
    text: lines(
      "INFO non-default args: {'model': 'm', 'max_num_seqs': 7}",
      'INFO GPU KV cache size: 1,024 tokens',
      'INFO # GPU blocks: 64',
    ),
    read: (file) => parseEngineStart(readText(file)),
    ordered: true,
    cells: false,
    mayBeEmpty: true,
  },
  {
    name: 'links',
    file: 'links.json',
    text: json({
      schema: 'tierkv.links/1',
      device: 'd',
      links: { hbmToDdr: { baseLatencyUs: 1, bandwidthBytesPerS: 1e9 } },
    }),
    read: (file) => parseLinkCalibration(readText(file), file),
    ordered: true,
    cells: false,
  },
];

/** How a file may come that says the same. */
const disguises: Readonly<Record<string, (text: string) => string>> = {
  'a byte-order mark': (text) => `\u{feff}${text}`,
  CRLF: (text) => text.replaceAll('\n', '\r\n'),
  'a mark and CRLF': (text) => `\u{feff}${text.replaceAll('\n', '\r\n')}`,
  'empty lines at the end': (text) => `${text}\n\n  \n`,
  'an empty line after the first': (text) => text.replace('\n', '\n\n'),
  'no line break at the end': (text) => text.trimEnd(),
};
const quoted = (text: string): string =>
  text
    .split('\n')
    .map((line) =>
      line === '' || line.includes('"')
        ? line
        : line
            .split(',')
            .map((cell) => `"${cell}"`)
            .join(','),
    )
    .join('\n');

const attempt = (
  kind: Kind,
  name: string,
  text: string,
): { readonly value?: unknown; readonly error?: unknown } => {
  const file = join(folder, `${name}-${kind.file}`);
  fs.writeFileSync(file, text);
  try {
    return { value: kind.read(file) };
  } catch (error) {
    return { error };
  }
};

/** An error that a person can act on: a code, one line, and the file in it. */
function expectToName(error: unknown, kind: Kind): void {
  expect(error).toBeInstanceOf(TierKVError);
  const { message } = error as TierKVError;
  expect(message).toContain(kind.file);
  expect(message).not.toContain('\n');
}

describe.each(kinds)('$name', (kind) => {
  it.each(Object.keys(disguises))('with %s', (name) => {
    const clean = attempt(kind, 'clean', kind.text());
    expect(clean.error).toBeUndefined();
    const { value, error } = attempt(kind, 'other', disguises[name](kind.text()));
    expect([error instanceof Error ? error.message : error, value]).toEqual([undefined, clean.value]);
  });

  it.runIf(kind.cells)('with each cell in quotes', () => {
    const { value, error } = attempt(kind, 'quoted', quoted(kind.text()));
    if (error === undefined) expect(value).toEqual(attempt(kind, 'clean', kind.text()).value);
    else expectToName(error, kind);
  });

  it('with rows the other way round', () => {
    const [head, ...rest] = kind.text().trimEnd().split('\n');
    const turned = kind.cells ? [head, ...rest.reverse()] : [head, ...rest].reverse();
    const { value, error } = attempt(kind, 'turned', `${turned.join('\n')}\n`);
    if (error !== undefined) expectToName(error, kind);
    else if (!kind.ordered) expect(value).toEqual(attempt(kind, 'clean', kind.text()).value);
  });

  it.each([
    ['nothing', ''],
    ['spaces', '  \n\t\n'],
    ['a mark', '\u{feff}'],
  ])('of %s', (_, text) => {
    const { value, error } = attempt(kind, 'empty', text);
    if (kind.mayBeEmpty) expect(value).toEqual({ args: {} });
    else expectToName(error, kind);
  });

  it('of a head alone, and one that was cut', () => {
    if (kind.mayBeEmpty) return;
    const text = kind.text();
    if (kind.cells) expectToName(attempt(kind, 'head', `${text.split('\n')[0]}\n`).error, kind);
    const cut = text.trimEnd();
    const end = kind.cells ? cut.lastIndexOf(',') : cut.length - 2;
    expectToName(attempt(kind, 'cut', cut.slice(0, end)).error, kind);
  });
});
