/** A trace of times and lengths alone shares nothing in any simulation: every command that simulates tiers says why. */

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FORMATS, prefixNotice } from '../../src/sim/build/openWorkload.ts';
import { simulate } from '../../src/sim/build/simulate.ts';
import { plan } from '../../src/studies/plan/plan.ts';
import { main } from '../command.ts';

let folder: string;
let azure: string;
let hashed: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-lengths-'));
  azure = path.join(folder, 'azure.csv');
  const rows = Array.from(
    { length: 40 },
    (_, i) => `2023-11-16 18:17:${String(10 + i)}.0000000,${600 + i},${20 + i}`,
  );
  fs.writeFileSync(azure, `TIMESTAMP,ContextTokens,GeneratedTokens\n${rows.join('\n')}\n`);
  hashed = path.join(folder, 'hashed.jsonl');
  const lines = Array.from({ length: 40 }, (_, i) =>
    JSON.stringify({ timestamp: 1000 * i, input_length: 1000, output_length: 20, hash_ids: [1, 2 + i] }),
  );
  fs.writeFileSync(hashed, `${lines.join('\n')}\n`);
});
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

const said = (words: string[]): string =>
  spawnSync(process.execPath, [main, ...words], { encoding: 'utf8' }).stderr;
const silent = /say nothing of shared prefixes/;

it('every format of lengths has the line, and no other', () => {
  const told = FORMATS.filter((format) => prefixNotice(format) !== undefined);
  expect(told).toEqual(['azure', 'burstgpt', 'lengths', 'columns', 'vllm-bench']);
});

describe('the line is told', () => {
  it('by simulate, as a command and as a library', async () => {
    const model = 'llama-3.1-8b';
    const told = await simulate({ model, workload: { file: azure } });
    expect(told.warnings.join()).toMatch(silent);
    expect((await simulate({ model, workload: { file: hashed } })).warnings.join()).not.toMatch(silent);
    const words = ['simulate', azure, '--model', model, '--ddr', '1GiB'];
    expect(said(words)).toMatch(silent);
  });

  it('by sweep, once for all points', () => {
    const grid = ['sweep', azure, '--grid', 'ddr=0,1GiB', '--', '--model', 'llama-3.1-8b'];
    expect(said(grid).match(new RegExp(silent, 'g'))).toHaveLength(1);
  });

  it('by plan', async () => {
    const question = {
      model: 'llama-3.1-8b',
      targets: { ttft_p99: 60_000 },
      seeds: 0,
      budgetS: 60,
      maxGpus: 1,
    };
    const answer = await plan({ ...question, workload: { file: azure } });
    expect(answer.notes.join()).toMatch(silent);
    expect((await plan({ ...question, workload: { file: hashed } })).notes.join()).not.toMatch(silent);
  });
});
