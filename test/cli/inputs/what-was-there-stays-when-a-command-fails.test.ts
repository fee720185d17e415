import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { workloadCommand } from '../../../src/cli/workload/command.ts';

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-keep-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
});
const at = (name: string, text?: string): string => {
  const file = join(folder, name);
  if (text !== undefined) fs.writeFileSync(file, text);
  return file;
};
const workload = (...args: string[]): Promise<unknown> =>
  workloadCommand().parseAsync(args, { from: 'user' });
const line = (t: number): string =>
  `{"timestamp": ${t}, "input_length": 600, "output_length": 5, "hash_ids": [0, ${t}]}\n`;

it('both files of a pair, when a later line of the trace is wrong', async () => {
  at('keep.yaml', 'old header');
  at('keep.csv', 'old rows');
  const bad = at('bad.jsonl', `${line(1)}${line(2)}{"timestamp": "x"}\n`);
  await expect(workload('convert', bad, '--to', 'tracev2', '-o', at('keep'))).rejects.toThrow(/bad\.jsonl:3/);
  expect(fs.readFileSync(at('keep.yaml'), 'utf8')).toBe('old header');
  expect(fs.readFileSync(at('keep.csv'), 'utf8')).toBe('old rows');
  expect(fs.readdirSync(folder).sort()).toEqual(['bad.jsonl', 'keep.csv', 'keep.yaml']);
});

it('both files of a pair, when a spec turns out to be impossible on the way', async () => {
  at('keep.csv', 'old rows');
  const spec = at(
    'spec.yaml',
    `version: "2"\naggregate_rate: 1\nnum_requests: 5000\nclients:\n  - {id: a, rate_fraction: 1, arrival: {process: poisson},
     input_distribution: {type: lognormal, params: {mu: 10, sigma: 8}},
     output_distribution: {type: constant, params: {value: 1}}}\n`,
  );
  await expect(workload('generate', spec, '-o', at('keep'))).rejects.toThrow(/a length distribution drew/);
  expect(fs.readFileSync(at('keep.csv'), 'utf8')).toBe('old rows');
  expect(fs.readdirSync(folder).sort()).toEqual(['keep.csv', 'spec.yaml']);
});

it('and is replaced, as a pair, when it succeeds, even where the trace is written over itself', async () => {
  at('keep.yaml', 'old header');
  const good = at('good.jsonl', line(1) + line(2));
  await workload('convert', good, '--to', 'tracev2', '-o', at('keep'));
  const rows = fs.readFileSync(at('keep.csv'), 'utf8');
  expect(rows.split('\n')).toHaveLength(4);
  expect(fs.readFileSync(at('keep.yaml'), 'utf8')).toContain('mode: real');
  await workload('convert', at('keep.csv'), '--to', 'tracev2', '-o', at('keep'));
  expect(fs.readFileSync(at('keep.csv'), 'utf8').split('\n')).toHaveLength(4);
});
