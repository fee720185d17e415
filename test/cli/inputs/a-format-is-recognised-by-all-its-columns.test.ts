/**
 * Each format of recorded traces, written in the ways in which files come: what a reader takes is told, what
 * it leaves over is told, and nothing that is missing, renamed or in another unit becomes a default.
 */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { takenText } from '../../../src/cli/workload/describe.ts';
import { type OpenOptions, openWorkload } from '../../../src/sim/build/openWorkload.ts';
import type { WorkloadRequest } from '../../../src/sim/workload/request.ts';
import { WorkloadDigest } from '../../../src/sim/workload/summary.ts';

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-formats-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
});

const write = (name: string, text: string | Buffer): string => {
  const file = join(folder, name);
  fs.writeFileSync(file, text);
  return file;
};

interface Read {
  readonly format: string;
  readonly digest: string;
  readonly arrivalsUs: readonly number[];
  readonly said: string;
}

function read(file: string, options: OpenOptions = {}): Read {
  const opened = openWorkload(file, options);
  const digest = new WorkloadDigest();
  const arrivalsUs: number[] = [];
  for (const request of opened.requests() as Iterable<WorkloadRequest>) {
    arrivalsUs.push(request.arrivalUs);
    digest.add(request);
  }
  return { format: opened.format, digest: digest.toString(), arrivalsUs, said: takenText(file, opened) };
}

type Row = Readonly<Record<string, unknown>>;
interface Format {
  readonly name: string;
  readonly end: '.csv' | '.jsonl';
  readonly rows: readonly Row[];
  /** Columns without which the file is not of this format, each with what may be said of its absence. */
  readonly needed: readonly string[];
  readonly time: string;
  readonly prompt: string;
  readonly arrivalsUs: readonly number[];
}

const traceRow = (i: number): Row => ({
  request_id: i,
  client_id: 'c',
  tenant_id: 't',
  slo_class: 'batch',
  session_id: '',
  round_index: 0,
  prefix_group: '',
  streaming: 'false',
  input_tokens: 20 + i,
  output_tokens: 3,
  arrival_time_us: i * 500_000,
  status: 'ok',
});

const formats: readonly Format[] = [
  {
    name: 'azure',
    end: '.csv',
    rows: [0, 1, 2].map((i) => ({
      TIMESTAMP: `2023-11-16 18:17:0${i}.5000000`,
      ContextTokens: 100 + i,
      GeneratedTokens: 7,
    })),
    needed: ['TIMESTAMP', 'ContextTokens', 'GeneratedTokens'],
    time: 'TIMESTAMP',
    prompt: 'ContextTokens',
    arrivalsUs: [0, 1e6, 2e6],
  },
  {
    name: 'lengths',
    end: '.csv',
    rows: [0, 1, 2].map((i) => ({ arrived_at: 0.25 * i, num_prefill_tokens: 100 + i, num_decode_tokens: 7 })),
    needed: ['num_prefill_tokens', 'num_decode_tokens', 'arrived_at'],
    time: 'arrived_at',
    prompt: 'num_prefill_tokens',
    arrivalsUs: [0, 250_000, 500_000],
  },
  {
    name: 'tracev2',
    end: '.csv',
    rows: [0, 1, 2].map(traceRow),
    needed: Object.keys(traceRow(0)),
    time: 'arrival_time_us',
    prompt: 'input_tokens',
    arrivalsUs: [0, 500_000, 1_000_000],
  },
  {
    name: 'mooncake',
    end: '.jsonl',
    rows: [0, 1, 2].map((i) => ({
      timestamp: 3000 * i,
      input_length: 600,
      output_length: 4,
      hash_ids: [0, i + 1],
    })),
    needed: ['timestamp', 'input_length', 'output_length', 'hash_ids'],
    time: 'timestamp',
    prompt: 'input_length',
    arrivalsUs: [0, 3e6, 6e6],
  },
  {
    name: 'weka',
    end: '.jsonl',
    rows: [0, 1, 2].map((i) => ({ s: 'a', a: 0, t: 2 * i, in: 64 + i, out: 3, think: 0, h: [[5, 1]] })),
    needed: ['s', 't', 'in', 'out', 'h'],
    time: 't',
    prompt: 'in',
    arrivalsUs: [0, 2e6, 4e6],
  },
  {
    name: 'token-ids',
    end: '.jsonl',
    rows: [0, 1, 2].map((i) => ({
      input_tok_ids: [1, 2, 3 + i],
      output_tok_ids: [4],
      arrival_time_ns: 2e9 * i,
    })),
    needed: ['input_tok_ids', 'output_tok_ids', 'arrival_time_ns'],
    time: 'arrival_time_ns',
    prompt: 'input_tok_ids',
    arrivalsUs: [0, 2e6, 4e6],
  },
  {
    name: 'miniswe',
    end: '.jsonl',
    rows: [0, 1, 2].map((i) => ({
      timestamp: 5e6 + 1e6 * i,
      session_id: 's',
      input: `what ${i}`,
      output: 'so',
    })),
    needed: ['timestamp', 'session_id', 'input', 'output'],
    time: 'timestamp',
    prompt: 'input',
    arrivalsUs: [0, 1e6, 2e6],
  },
];

const textOf = (end: Format['end'], rows: readonly Row[]): string => {
  if (end === '.jsonl') return rows.map((row) => `${JSON.stringify(row)}\n`).join('');
  const lines = rows.map((row) => Object.values(row).join(','));
  return `${[Object.keys(rows[0]).join(','), ...lines].join('\n')}\n`;
};
const quoted = (text: string): string => text.replace(/[^,\n]+/g, '"$&"');
const renamed = (row: Row, from: string, to: string): Row =>
  Object.fromEntries(Object.entries(row).map(([key, value]) => [key === from ? to : key, value]));
const without = (row: Row, name: string): Row =>
  Object.fromEntries(Object.entries(row).filter(([key]) => key !== name));

describe.each(formats)('$name', ({ name, end, rows, needed, time, prompt, arrivalsUs }) => {
  const good = textOf(end, rows);

  it('is read the same with a mark, CRLF, empty lines, quotes and packed, and says what was taken', () => {
    const plain = read(write(`good${end}`, good));
    expect(plain.format).toBe(name);
    expect(plain.arrivalsUs).toEqual(arrivalsUs);
    expect(plain.said).toContain(`as ${name}: 3 requests over`);
    for (const column of needed.filter((one) => one !== 'status')) expect(plain.said).toContain(column);
    const ways: Record<string, string | Buffer> = {
      mark: `\u{feff}${good}`,
      crlf: good.replaceAll('\n', '\r\n'),
      empty: `\n\n${good.replaceAll('\n', '\n\n \n')}`,
      'mark and empty': `\u{feff}\r\n${good}`,
      cut: good.trimEnd(),
      ...(end === '.csv' ? { quotes: quoted(good), 'mark and quotes': `\u{feff}${quoted(good)}` } : {}),
    };
    for (const [way, text] of Object.entries(ways)) {
      // the same name, since a namespace of blocks may be the file's
      const again = read(write(`good${end}`, text));
      expect([way, again.format, again.arrivalsUs]).toEqual([way, name, arrivalsUs]);
      expect([way, again.digest]).toEqual([way, plain.digest]);
    }
    const packed = read(write(`good${end}.gz`, gzipSync(`\u{feff}${good}`)));
    expect([packed.format, packed.arrivalsUs]).toEqual([name, arrivalsUs]);
  });

  it.each(needed)('is not read without %s, nor with another name for it', (column) => {
    const refuses = (file: string): void => {
      expect(() => read(file)).toThrow(/^(--rate is missing|.*good\.(csv|jsonl)(:\d+)?:? )/);
    };
    refuses(
      write(
        `good${end}`,
        textOf(
          end,
          rows.map((row) => without(row, column)),
        ),
      ),
    );
    refuses(
      write(
        `good${end}`,
        textOf(
          end,
          rows.map((row) => renamed(row, column, `my_${column}_x`)),
        ),
      ),
    );
  });

  it('tells a column more, or refuses it', () => {
    const file = write(
      `good${end}`,
      textOf(
        end,
        rows.map((row) => ({ ...row, weight: 1 })),
      ),
    );
    if (name === 'tracev2') expect(() => read(file)).toThrow(/weight is not a column of TraceV2/);
    else expect(read(file).said).toMatch(/left over: weight$/);
  });

  it('refuses a prompt without tokens with file and line', () => {
    const none = name === 'token-ids' ? [] : name === 'miniswe' ? '' : 0;
    const more = name === 'mooncake' ? { hash_ids: [] } : name === 'weka' ? { h: [] } : {};
    const broken = rows.map((row, i) => (i === 2 ? { ...row, [prompt]: none, ...more } : row));
    const line = end === '.csv' ? 4 : 3;
    expect(() => read(write(`good${end}`, textOf(end, broken)))).toThrow(
      new RegExp(`good\\${end}:${line}: ${prompt} makes a prompt of 0 tokens`),
    );
  });

  it('refuses times before the beginning, and dates as numbers', () => {
    const bad = (value: unknown): void => {
      const broken = rows.map((row, i) => (i === 2 ? { ...row, [time]: value } : row));
      expect(() => read(write(`good${end}`, textOf(end, broken)))).toThrow(
        new RegExp(`good\\${end}:\\d: ${time} `),
      );
    };
    bad(-1);
    bad(end === '.csv' ? 'soon' : 'soon');
    if (name !== 'miniswe' && name !== 'weka') bad(name === 'azure' ? rows[0].ContextTokens : -0.5);
  });

  it('refuses rows that go back in time, where rows are in the order of time', () => {
    const file = write(`good${end}`, textOf(end, [rows[0], rows[2], rows[1]]));
    if (name === 'weka' || name === 'miniswe') expect(read(file).arrivalsUs).toEqual(arrivalsUs);
    else expect(() => read(file)).toThrow(new RegExp(`${time} goes back in time`));
  });
});

describe('times of a table', () => {
  const table = (...header: string[]): string => write('t.csv', `${header.join(',')}\n1,10,2\n2,20,3\n`);
  it.each([
    ['arrived_at', 1e6],
    ['arrival_time_s', 1e6],
    ['Timestamp(s)', 1e6],
    ['timestamp_ms', 1e3],
    ['Arrival Time (us)', 1],
    ['arrival_time_ns', 1e-3],
  ])('%s counts by its unit', (name, us) => {
    expect(read(table(name, 'input_tokens', 'output_tokens')).arrivalsUs).toEqual([
      Math.round(us),
      Math.round(2 * us),
    ]);
  });

  it.each([
    'timestamp',
    'arrival_time',
    'Timestamp',
    'time',
    'arrival',
    'created_at',
    'start',
    'arrived_at_min',
    'timestamps',
    'arrival_times',
    'Arrivals',
    'start times',
  ])('%s has no unit and is refused', (name) => {
    expect(() => read(table(name, 'input_tokens', 'output_tokens'))).toThrow(
      /t\.csv:\d: .* may be a time, and its unit is not known\. Name the arrivals arrived_at \(seconds\)/,
    );
  });

  it('may be dates under any usual name', () => {
    const file = write(
      't.csv',
      'timestamp,input,output\n2024-05-10 00:00:00+00:00,5,1\n2024-05-10T00:00:01Z,6,1\n',
    );
    expect(read(file)).toMatchObject({ format: 'lengths', arrivalsUs: [0, 1e6] });
  });

  it('two of them, two prompts, two equal columns and rows of another width are refused', () => {
    const text = (header: string, row: string): string => write('t.csv', `${header}\n${row}\n`);
    expect(() => read(text('arrived_at,timestamp_ms,input,output', '1,1,1,1'))).toThrow(/are both times/);
    expect(() => read(text('arrived_at,input,input_tokens,output', '1,1,1,1'))).toThrow(/mean the same/);
    expect(() => read(text('arrived_at,input,output,output', '1,1,1,1'))).toThrow(/output is there twice/);
    expect(() => read(text('arrived_at,input,output', '1,1,1,1'))).toThrow(/has 4 cells for 3 columns/);
    expect(() => read(text('arrived_at,input,output', '1,0x10,1'))).toThrow(/input is "0x10"/);
    expect(() => read(text('arrived_at,input,output', '1700000000,1,1'))).toThrow(/subtract the first one/);
  });

  it('are drawn at a rate only where the file has no times, and the rate must be given', () => {
    const file = write('t.csv', 'input,output\n5,1\n6,1\n');
    expect(() => read(file)).toThrow(/^rate is missing, and .*t\.csv has no column of times/);
    expect(read(file, { rate: 4 }).said).toContain('times: none in the file, drawn at 4 a second');
    expect(() => read(table('arrived_at', 'input', 'output'), { rate: 4 })).toThrow(
      /^rate is given, and .* has times of its own \(arrived_at\)/,
    );
  });

  it('a file with a header alone, or of UTF-16, is refused', () => {
    expect(() => read(write('t.csv', 'arrived_at,input,output\n'))).toThrow(/t\.csv holds no request/);
    expect(() => read(write('t.csv', Buffer.from('\u{feff}a,b\n1,2\n', 'utf16le')))).toThrow(
      /is UTF-16 text/,
    );
  });
});

it('a spec beside a CSV of its stem is a spec, and the header of a trace is a trace', () => {
  const spec = write(
    'w.yaml',
    '\u{feff}version: "2"\naggregate_rate: 1\nnum_requests: 2\nclients:\n  - {id: a, rate_fraction: 1, arrival: {process: constant}, input_distribution: {type: constant, params: {value: 3}}, output_distribution: {type: constant, params: {value: 1}}}\n',
  );
  write('w.csv', textOf('.csv', [0, 1, 2].map(traceRow)));
  expect(openWorkload(spec).format).toBe('spec');
  fs.writeFileSync(spec, 'trace_version: 2\ntime_unit: microseconds\nmode: real\n');
  expect(read(spec)).toMatchObject({ format: 'tracev2', arrivalsUs: [0, 500_000, 1_000_000] });
  expect(read(spec).said).toMatch(/; left over: status$/);
  // what a header says of the rows and a replay cannot do
  fs.appendFileSync(spec, 'warm_up_requests: 2\nsession_context_growth: accumulate\n');
  expect(read(spec).said).toMatch(/; left over: session_context_growth, warm_up_requests, status$/);
});
