/**
 * What a kept result, and the state of a search, are known by: the bytes of all that decides them. Every file
 * that a case leads to is touched, renamed and changed in one byte, its size and time kept.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { filesReadBy, hashOfFolders, readText } from '../../../src/io/files/inputs.ts';
import { CaseCache } from '../../../src/policy/evaluate/caseCache.ts';
import { SimulationEvaluator } from '../../../src/policy/evaluate/evaluator.ts';
import { loadPlan } from '../../../src/policy/evaluate/plans.ts';
import { baseline } from '../../../src/policy/evolve/bundle/presets.ts';
import { readState, type SearchPlan } from '../../../src/policy/evolve/search/breeding.ts';
import { argumentCase } from './argumentCase.ts';
import { smallWorkload } from './smallWorkload.ts';

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-content-'));
afterAll(() => fs.rmSync(root, { recursive: true }));
const data = path.join(import.meta.dirname, '..', '..', '..', 'data');

let folder = '';
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(root, 'files-'));
  const write = (name: string, text: string): void => fs.writeFileSync(path.join(folder, name), text);
  write('spec.yaml', smallWorkload);
  write(
    'nested.yaml',
    smallWorkload.replace(
      /input_distribution: .*/,
      'input_distribution: { type: empirical, file: lengths.json }',
    ),
  );
  write('lengths.json', '{"100": 0.5, "200": 0.5}\n');
  write('policies.yaml', 'routing:\n  policy: round-robin\n');
  write('trace.yaml', 'trace_version: 2\ntime_unit: us\nmode: generated\n');
  write('rows.csv', rows);
  write('trace.csv', rows);
  write(
    'mooncake.jsonl',
    `${JSON.stringify({ timestamp: 0, input_length: 32, output_length: 4, hash_ids: [1] })}\n`,
  );
  write(
    'deployment.yaml',
    `version: 1
models:
  - { name: qwen2.5-7b-instruct, hardware: H100, tp: 1, latency_model: roofline }
pools:
  - { name: a, replicas: 1, engine: { total_kv_blocks: 6000 } }
workload: { file: spec.yaml }
`,
  );
  fs.mkdirSync(path.join(folder, 'model'));
  fs.copyFileSync(
    path.join(data, 'models', 'qwen2.5-7b-instruct.json'),
    path.join(folder, 'model', 'config.json'),
  );
  fs.copyFileSync(path.join(data, 'hardware', 'h100.json'), path.join(folder, 'gpu.json'));
});

const rows = `request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason
0,c,t,standard,,0,,0,false,64,8,64,0,0,0,0,,0,0,0,0,0,0,0,ok,,
1,c,t,standard,,0,,0,false,64,8,64,0,0,0,0,,0,0,1000,0,0,0,0,ok,,
`;

const machine = ['--model', 'qwen/qwen2.5-7b-instruct', '--hardware', 'H100', '--tp', '1'];
const roofline = ['--latency-model', 'roofline'];

/** Arguments of a case, and the file of which a byte is changed; paths are seen from the folder. */
const kinds: readonly [name: string, args: (at: (name: string) => string) => string[], file: string][] = [
  ['a specification', (at) => [...machine, ...roofline, '--workload-spec', at('spec.yaml')], 'spec.yaml'],
  ['an option with =', (at) => [...machine, ...roofline, `--workload-spec=${at('spec.yaml')}`], 'spec.yaml'],
  ['a positional trace', (at) => [...machine, ...roofline, at('mooncake.jsonl')], 'mooncake.jsonl'],
  [
    'lengths that a specification names',
    (at) => [...machine, '--workload-spec', at('nested.yaml')],
    'lengths.json',
  ],
  ['rows beside a header', (at) => [...machine, '--workload-spec', at('trace.yaml')], 'trace.csv'],
  ['recorded rows', (at) => [...machine, '--trace-data', at('rows.csv')], 'rows.csv'],
  [
    'policies',
    (at) => [...machine, '--policy-config', at('policies.yaml'), '--workload-spec', at('spec.yaml')],
    'policies.yaml',
  ],
  ['a deployment', (at) => ['--deployment', at('deployment.yaml')], 'deployment.yaml'],
  ['the workload of a deployment', (at) => ['--deployment', at('deployment.yaml')], 'spec.yaml'],
  [
    'a folder of a model',
    (at) => [...machine, '--model-config-folder', at('model'), '--workload-spec', at('spec.yaml')],
    'model/config.json',
  ],
  [
    'a GPU',
    (at) => [
      '--model',
      'qwen2.5-7b-instruct',
      '--hardware',
      at('gpu.json'),
      '--workload-spec',
      at('spec.yaml'),
    ],
    'gpu.json',
  ],
];

/** Another byte, the size and the time as before: a digit becomes the next one, or a space a tab. */
function changeOneByte(file: string): void {
  const { atime, mtime } = fs.statSync(file);
  const bytes = fs.readFileSync(file);
  const at = bytes.findLastIndex((byte) => byte >= 0x31 && byte <= 0x38);
  const place = at < 0 ? bytes.indexOf(0x20) : at;
  bytes[place] = at < 0 ? 0x09 : bytes[place] + 1;
  fs.writeFileSync(file, bytes);
  fs.utimesSync(file, atime, mtime);
}

test.each(kinds)('%s counts by its bytes', (_, argsOf, file) => {
  const args = argsOf((name) => path.join(folder, name));
  const read = filesReadBy(() => void new CaseCache().key(baseline, argumentCase(args)));
  expect(read).toContain(path.join(folder, file));
  const cache = new CaseCache();
  const keyOf = (those: readonly string[] = args): string => cache.key(baseline, argumentCase(those));
  const before = keyOf();
  fs.utimesSync(path.join(folder, file), 1, 1);
  expect(keyOf()).toBe(before);
  const moved = path.join(root, `moved-${path.basename(folder)}`);
  fs.cpSync(folder, moved, { recursive: true });
  expect(keyOf(argsOf((name) => path.join(moved, name)))).toBe(before);
  changeOneByte(path.join(folder, file));
  expect(keyOf()).not.toBe(before);
  expect(new CaseCache().key(baseline, argumentCase(args))).toBe(keyOf());
});

test('a file that a specification names only now is found as well', () => {
  const cache = new CaseCache();
  const args = [...machine, '--workload-spec', path.join(folder, 'spec.yaml')];
  const keyOf = (): string => cache.key(baseline, argumentCase(args));
  keyOf();
  fs.copyFileSync(path.join(folder, 'nested.yaml'), path.join(folder, 'spec.yaml'));
  const named = keyOf();
  changeOneByte(path.join(folder, 'lengths.json'));
  expect(keyOf()).not.toBe(named);
});

test('results that are kept on disk are of the engine that computed them', () => {
  const args = [...machine, '--workload-spec', path.join(folder, 'spec.yaml')];
  const keyOf = (engine?: string): string =>
    new CaseCache(path.join(folder, 'results'), engine).key(baseline, argumentCase(args));
  expect(keyOf('v8-12.4')).not.toBe(keyOf('v8-13.6'));
  expect(keyOf('v8-12.4')).toBe(keyOf('v8-12.4'));
  expect(keyOf()).toBe(keyOf(`v8-${process.versions.v8.split('.').slice(0, 2).join('.')}`));
});

test('the program counts by its files, not by its version', () => {
  const tree = path.join(folder, 'program');
  fs.mkdirSync(path.join(tree, 'deep'), { recursive: true });
  fs.writeFileSync(path.join(tree, 'deep', 'a.js'), 'export const a = 1;\n');
  const before = hashOfFolders([tree]);
  fs.utimesSync(path.join(tree, 'deep', 'a.js'), 1, 1);
  expect(hashOfFolders([tree])).toBe(before);
  changeOneByte(path.join(tree, 'deep', 'a.js'));
  expect(hashOfFolders([tree])).not.toBe(before);
});

function plan(): string {
  const file = path.join(folder, 'plan.json');
  const suites = { train: { seeds: [1] }, validation: { seeds: [2] }, hidden: { seeds: [3] } };
  fs.writeFileSync(file, JSON.stringify({ workloads: ['nested.yaml'], latencyModels: ['roofline'], suites }));
  return file;
}

async function measured(): Promise<string> {
  const limits = { workers: 1, wallMs: 1000, heapMiB: 512 };
  const evaluator = new SimulationEvaluator({ plan: loadPlan(plan()), limits });
  try {
    return evaluator.identity();
  } finally {
    await evaluator.close();
  }
}

test('a search goes on only with the bytes that it began with', async () => {
  const search: SearchPlan = {
    ...{ seed: 1, population: 8, slots: ['routing'], islands: 1, migrateEvery: 1, features: [] },
    ...{ bins: 2, measured: await measured() },
  };
  const state = JSON.stringify({ version: 5, plan: search, individuals: [] });
  fs.utimesSync(path.join(folder, 'lengths.json'), 1, 1);
  expect(readState(state, { ...search, measured: await measured() }, 'state.json').version).toBe(5);
  changeOneByte(path.join(folder, 'lengths.json'));
  const now = { ...search, measured: await measured() };
  expect(() => readState(state, now, 'state.json')).toThrow(
    /^plan has other workloads.*than when the search began.*Give back the files/,
  );
});

test('an evaluation whose workload changes under it is refused, and nothing of it is kept', async () => {
  const cacheFolder = path.join(folder, 'kept');
  const evaluator = new SimulationEvaluator({
    plan: loadPlan(plan()),
    limits: { workers: 1, wallMs: 100_000, heapMiB: 1024 },
    cacheFolder,
  });
  try {
    const evaluation = evaluator.evaluate([baseline], 'train');
    await new Promise((resolve) => setImmediate(resolve)); // the keys are taken by then
    changeOneByte(path.join(folder, 'lengths.json'));
    await expect(evaluation).rejects.toThrow(
      /lengths\.json changed while it was evaluated on\. Run it again\./,
    );
    expect(fs.readdirSync(cacheFolder)).toEqual([]);
    const [again] = await evaluator.evaluate([baseline], 'train');
    expect(again.error).toBe(undefined);
  } finally {
    await evaluator.close();
  }
});

test('readers note what they read, and reading costs nothing where no caller asks', () => {
  expect(filesReadBy(() => {})).toEqual([]);
  const file = path.join(folder, 'spec.yaml');
  expect(filesReadBy(() => void readText(file))).toEqual([file]);
});
