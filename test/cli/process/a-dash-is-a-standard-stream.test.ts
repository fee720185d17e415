/** `-` in place of a file: one result alone on standard output, or what is read from standard input. */

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { afterAll, expect, it } from 'vitest';
import { main } from '../../command.ts';
import { resultProblems } from '../../resultSchema.ts';
import { smallWorkload } from '../evaluate/smallWorkload.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-dash-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

fs.writeFileSync(path.join(folder, 'small.yaml'), smallWorkload);
const suites = { train: { seeds: [1] }, validation: { seeds: [2] }, hidden: { seeds: [3] } };
const plan = JSON.stringify({ workloads: ['small.yaml'], latencyModels: ['roofline'], suites });
fs.writeFileSync(path.join(folder, 'plan.json'), plan);
const mooncake = Array.from({ length: 5 }, (_, i) =>
  JSON.stringify({ timestamp: i * 100, input_length: 1024, output_length: 4, hash_ids: [1, 2 + i] }),
).join('\n');
fs.writeFileSync(path.join(folder, 'trace.jsonl'), mooncake);

const lor = JSON.stringify({ routing: { type: 'parameterized', template: 'lor', parameters: {} } });

function call(args: readonly string[], input: string | Buffer = ''): ReturnType<typeof spawnSync> {
  return spawnSync(process.execPath, [main, ...args], { cwd: folder, input, encoding: 'utf8' });
}

const machine = [
  '--model',
  'qwen2.5-7b-instruct',
  '--hardware',
  'H100',
  '--tp',
  '1',
  '--latency-model',
  'roofline',
];
/** A run that was measured. */
const run = fileURLToPath(new URL('../../../data/latency/rtx-pro-6000-run.csv', import.meta.url));
const few = [...machine, '--workload-spec', 'small.yaml'];

it.each([
  [['workload', 'describe', 'small.yaml', '--json', '-']],
  [['replay', 'trace.jsonl', '--driver', 'modeled', '--json', '-']],
  [['simulate', ...few, '--json']],
  [['compare', run, '--gpu', 'RTX-PRO-6000', '--model', 'llama-3.1-8b-instruct', '--json']],
  [['bench', 'manager', '--quick', '--json']],
  [['simulate', ...few, '--metrics-path', '-']],
  [['simulate', ...few, '--results-path', '-']],
  [
    [
      'sweep',
      '--grid',
      'rate=5',
      '--json',
      '-',
      '--',
      ...machine,
      '--workload',
      'chatbot',
      '--num-requests',
      '5',
    ],
  ],
  [['evaluate', 'routing/lor', '--plan', 'plan.json', '--regrets', '0', '--json', '-']],
  [['latency', 'predict', '--model', 'qwen2.5-7b-instruct', '--gpu', 'H100', '--json', '-']],
])('its JSON is all of standard output, and what people read is on stderr: %j', (args) => {
  const { status, stdout, stderr } = call(args);
  expect(stderr).not.toContain('[TKV');
  expect(status).toBe(0);
  if (args.includes('--json')) expect(resultProblems(String(stdout))).toEqual([]);
  else expect(() => JSON.parse(String(stdout))).not.toThrow();
  expect(String(stderr).length).toBeGreaterThan(100);
  expect(fs.existsSync(path.join(folder, '-'))).toBe(false);
});

it.each([
  ['a trace', ['workload', 'describe', '-'], mooncake],
  ['a compressed trace', ['workload', 'describe', '-'], gzipSync(mooncake)],
  ['a specification', ['workload', 'describe', '-'], smallWorkload],
  ['a trace to replay', ['replay', '-', '--driver', 'modeled'], mooncake],
  ['an option', ['simulate', ...machine, '--workload-spec', '-'], smallWorkload],
  ['a bundle', ['evaluate', '-', '--plan', 'plan.json', '--regrets', '0'], lor],
  [
    'a program',
    ['evaluate', '-', '--plan', 'plan.json', '--regrets', '0'],
    'def score(request, cluster, instances):\n    return [0.0 - i.inFlight for i in instances]\n',
  ],
])('reads %s from standard input', (_, args, input) => {
  const { status, stderr } = call(args, input);
  expect(stderr).not.toContain('[TKV');
  expect(status).toBe(0);
});

it.each([
  [['workload', 'describe', '-'], 'clients: [\n', /^tierkv: standard input:\d+: not valid YAML/],
  [
    ['simulate', ...few, '--metrics-path', '-', '--requests', '-'],
    '',
    /--requests is standard output, as --metrics-path is/,
  ],
  [
    ['simulate', ...machine, '--workload-spec', '-', '--policy-config', '-'],
    '',
    /is standard input, as another one is/,
  ],
  [['simulate', ...few, '--trace-output', '-'], '', /--trace-output is -, and cannot be a stream/],
])('a mistake is one line: %j', (args, input, message) => {
  const { status, stderr } = call(args, input);
  expect(String(stderr).trim().split('\n')).toHaveLength(1);
  expect(stderr).toMatch(message);
  expect(status).toBe(2);
});
