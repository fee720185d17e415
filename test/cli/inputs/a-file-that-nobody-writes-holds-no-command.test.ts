/**
 * Pipes without a writer, sockets, directories and devices where a file is expected: each reader refuses them
 * at once, in one line. So do files that nest, list or repeat more than any file of their kind.
 */

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { fileLines, firstLine, readBytes, readText } from '../../../src/io/files/inputs.ts';
import { parseBundle } from '../../../src/policy/evolve/bundle/readBundle.ts';
import { maxJsonDepth, maxJsonValues, parseJson } from '../../../src/runtime/boundedJson.ts';
import { TierKVError } from '../../../src/runtime/index.ts';
import { parseWorkloadSpec } from '../../../src/sim/description/readWorkload.ts';
import { generateWorkload } from '../../../src/sim/workload/workload.ts';
import { runCommand, wrongWith } from '../../fuzz-inputs/judge.ts';

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-unwritten-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
});

const readers: Record<string, (file: string) => unknown> = {
  readText: (file) => readText(file),
  readBytes: (file) => readBytes(file, file),
  fileLines: (file) => [...fileLines(file)],
  firstLine: (file) => firstLine(file),
};

describe.each(Object.keys(readers))('%s', (name) => {
  const refusal = (file: string): string => {
    try {
      readers[name](file);
    } catch (error) {
      expect(error).toBeInstanceOf(TierKVError);
      return (error as Error).message;
    }
    throw new Error('it was read');
  };

  it.skipIf(process.platform === 'win32')('refuses a pipe without a writer, plain and packed', () => {
    for (const end of ['jsonl', 'yaml', 'jsonl.gz', 'csv.zst']) {
      const pipe = join(folder, `pipe.${end}`);
      execFileSync('mkfifo', [pipe]);
      expect(refusal(pipe)).toBe(
        `${pipe} is a pipe or a device, not a file. Write it to a file and name that file.`,
      );
    }
  });

  it('refuses a socket, a directory and a device', async () => {
    const socket = join(folder, 's');
    const server = net.createServer().listen(socket);
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    expect(refusal(socket)).toContain('is a socket, not a file');
    expect(refusal(folder)).toContain('is a directory');
    if (fs.existsSync('/dev/zero')) expect(refusal('/dev/zero')).toContain('is a pipe or a device');
    expect(refusal(join(folder, 'none'))).toMatch(/does not exist/);
  });
});

it.skipIf(process.platform === 'win32').each([
  ['workload', 'describe', 'FILE'],
  ['workload', 'describe', 'FILE', '--from', 'spec'],
  ['simulate', '--deployment', 'FILE'],
  ['simulate', '--model', 'qwen3-14b', 'FILE'],
  ['simulate', '--model', 'qwen3-14b', '--policy-config', 'FILE'],
  ['latency', 'fit', '--steps', 'FILE', '--out', 'out.json'],
  ['evaluate', 'FILE'],
  ['evaluate', 'baseline', '--plan', 'FILE'],
])('%s %s %s %s ends in one line', async (...args) => {
  const pipe = join(folder, 'pipe.json');
  execFileSync('mkfifo', [pipe]);
  const ended = await runCommand(
    args.map((arg) => (arg === 'FILE' ? pipe : arg)),
    folder,
    100,
  );
  expect(wrongWith(ended)).toBeUndefined();
  expect(ended.status).toBe(2);
  expect(ended.stderr).toContain('is a pipe or a device');
});

const simulated = ['simulate', '--model', 'qwen3-14b', '--rate', '40', '--num-requests', '5'];
it.skipIf(process.platform === 'win32').each([
  [...simulated, '--metrics-path', 'PIPE'],
  [...simulated, '--requests', 'PIPE'],
  [...simulated, '--decisions', 'PIPE'],
  ['replay', 'data/mooncake-conversation-excerpt.jsonl.gz', '--log', 'PIPE'],
  ['sweep', '--grid', 'rate=10,20', '--json', 'PIPE', '--', ...simulated.slice(1)],
])('%s writing to a pipe that no program reads ends in one line', async (...args) => {
  const pipe = join(folder, 'pipe.json');
  execFileSync('mkfifo', [pipe]);
  const given = args.map((arg) => (arg === 'PIPE' ? pipe : arg));
  const ended = await runCommand(given, folder, 100);
  expect(wrongWith(ended)).toBeUndefined();
  expect(ended.status, ended.stderr).toBe(2);
  expect(ended.stderr).toContain('is a pipe, and no program reads it');
  if (args[0] !== 'simulate') return;
  // the control: with a reader the same command writes the same file through the pipe
  const reader = spawn('cat', [pipe], { stdio: ['ignore', 'pipe', 'inherit'] });
  const closed = once(reader, 'close');
  let read = 0;
  reader.stdout.on('data', (chunk: Buffer) => {
    read += chunk.length;
  });
  expect((await runCommand(given, folder, 100)).status).toBe(0);
  await closed;
  expect(read).toBeGreaterThan(100);
});

describe('JSON', () => {
  const error = (problem: string): TierKVError => new TierKVError('TKV_INPUT', problem);
  const nested = (depth: number, open: string, close: string): string =>
    open.repeat(depth) + (open === '[' ? '' : '1') + close.repeat(depth);

  it('is read up to its limits and refused above them, strings aside', () => {
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
    ]) {
      expect(parseJson(nested(maxJsonDepth, open, close), error)).toBeDefined();
      for (const depth of [maxJsonDepth + 1, 100_000, 1_000_000]) {
        expect(() => parseJson(nested(depth, open, close), error)).toThrow(
          /^nests lists and objects more than 100 deep$/,
        );
      }
    }
    expect(() => parseJson('['.repeat(1_000_000), error)).toThrow(/deep/);
    const list = (values: number): string => `[${'1,'.repeat(values - 1)}1]`;
    expect(parseJson(list(maxJsonValues - 1), error)).toHaveLength(maxJsonValues - 1);
    expect(() => parseJson(list(maxJsonValues), error)).toThrow(/^holds more than 262144 values$/);
    expect(() => parseJson(`[${'{},'.repeat(maxJsonValues)}{}]`, error)).toThrow(/values$/);
    const text = '[{,"\\'.repeat(200_000);
    expect(parseJson(JSON.stringify({ text }), error)).toEqual({ text });
    expect(parseJson('\u{feff}{"a": 1}', error)).toEqual({ a: 1 });
    expect(() => parseJson('{"a":\n\nx}', error)).toThrow(/^is not valid JSON: [^\n]*$/);
  });

  it('of a bundle is refused by its place', () => {
    const deep = nested(1_000_000, '{"a":', '}');
    expect(() => parseBundle(deep, 'b.json')).toThrow(/^b\.json nests lists and objects more than 100 deep/);
    expect(
      parseBundle('\u{feff}{"routing": {"type": "parameterized", "template": "round-robin"}}', 'b'),
    ).toBeDefined();
  });
});

it('a packed file of empty lines is refused before it is read to its end', async () => {
  const lines = gzipSync(Buffer.alloc(60 * 2 ** 20, '\n'));
  const file = (name: string): string => {
    fs.writeFileSync(join(folder, name), lines);
    return join(folder, name);
  };
  for (const args of [
    ['workload', 'describe', file('a.csv.gz')],
    ['workload', 'describe', file('a.jsonl.gz'), '--from', 'mooncake'],
    ['replay', file('b.jsonl.gz'), '--driver', 'modeled'],
    ['replay', file('b.jsonl.gz'), '--driver', 'modeled', '--skip-bad'],
    ['latency', 'fit', '--steps', file('c.csv.gz'), '--out', join(folder, 'o')],
    ['simulate', '--deployment', file('d.yaml.gz')],
  ]) {
    const ended = await runCommand(args, folder, 100);
    expect(wrongWith(ended)).toBeUndefined();
    expect(ended.status).toBe(2);
    expect(ended.stderr).toMatch(/more than (65536 empty lines|1048576 lines)/);
    expect(ended.peakMib).toBeLessThan(600);
  }
});

describe('a specification that asks for more than can be served', () => {
  const spec = (top: string, client = '', count = 1) =>
    parseWorkloadSpec(
      `version: "2"\n${top}\nclients:\n${Array.from(
        { length: count },
        (_, i) =>
          `  - {id: a${i}, ${client.includes('concurrency') ? '' : 'rate_fraction: 1, arrival: {process: poisson}, '}input_distribution: {type: constant, params: {value: 10}}, output_distribution: {type: constant, params: {value: 5}}${client}}\n`,
      ).join('')}`,
      'spec.yaml',
    );
  const mostExpected = 1_000_000;
  it.each([
    ['aggregate_rate: 10\nnum_requests: 1000000000000', ''],
    ['aggregate_rate: 10\nhorizon: 9000000000000000', ''],
    ['aggregate_rate: 0\nnum_requests: 1000000000000', ', concurrency: 5'],
    ['aggregate_rate: 0\nhorizon: 9000000000000000', ', concurrency: 5'],
    ['aggregate_rate: 0', ', lifecycle: {windows: [{start_us: 0, end_us: 1000000000000, trace_rate: 100}]}'],
    ['aggregate_rate: 1000', ', lifecycle: {windows: [{start_us: 0, end_us: 1000000000000}]}'],
  ])('is refused before the first request is drawn: %s%s', (top, client) => {
    expect(() => generateWorkload(spec(top, client), { mostExpected })).toThrow(
      /^the workload comes to some [\d.e+]+ requests, more than 1000000\. Lower num_requests/,
    );
  });

  it('is served where a horizon or a number keeps it small', () => {
    for (const top of [
      'aggregate_rate: 10\nnum_requests: 1000000000000\nhorizon: 1000000',
      'aggregate_rate: 1000000\nnum_requests: 10',
    ]) {
      expect(generateWorkload(spec(top), { mostExpected }).stream().next()).toBeDefined();
    }
  });

  it('may not draw prefixes without end', () => {
    const huge = spec('aggregate_rate: 1\nnum_requests: 1', ', prefix_group: g, prefix_length: 10000000');
    const clients = Array.from({ length: 60 }, (_, i) => ({
      ...huge.clients[0],
      id: `c${i}`,
      prefixGroup: `g${i}`,
    }));
    expect(() => generateWorkload({ ...huge, clients })).toThrow(
      /have more than 500000000 prefix tokens in all/,
    );
  });
});
