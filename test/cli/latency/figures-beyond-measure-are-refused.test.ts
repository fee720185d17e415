/**
 * Data files whose numbers cannot have been measured: refused where they stand, and no NaN or Infinity in any result.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { endingOf } from '../../../src/cli/process.ts';
import { configError, renamed, requireInteger, TierKVError } from '../../../src/runtime/errors.ts';
import { printed } from './printed.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-figures-'));
});
afterAll(() => fs.rmSync(folder, { recursive: true }));
const at = (name: string, text: string): string => {
  const file = path.join(folder, name);
  fs.writeFileSync(file, text);
  return file;
};
const data = (name: string): Record<string, unknown> =>
  JSON.parse(fs.readFileSync(new URL(`../../../data/${name}`, import.meta.url), 'utf8'));

async function refusal(...args: string[]): Promise<string> {
  const error = await printed(...args).then(
    (out) => `it passed: ${out}`,
    (reason: unknown) => reason,
  );
  const { exitCode, text } = endingOf(error, 'tierkv latency');
  expect(exitCode).toBe(2);
  expect(text).not.toContain('\n');
  return text;
}

describe('a description', () => {
  it.each([
    ['memoryGib', 1e308],
    ['memoryGib', 1e-300],
    ['peakTflops', 1e300],
    ['memoryTbPerS', 1e-9],
    ['mfuDecode', 1e-9],
    ['interconnectGbPerS', 1e300],
  ])('of a GPU with %s %d is refused with its line', async (key, value) => {
    const gpu = at('gpu.json', JSON.stringify({ ...data('hardware/h100.json'), [key]: value }, undefined, 1));
    expect(await refusal('predict', '--model', 'qwen3-14b', '--gpu', gpu)).toMatch(
      new RegExp(`gpu\\.json:\\d+: ${key} is .*Set it to a finite number of at least`),
    );
  });

  it.each([
    ['num_hidden_layers', 1e15],
    ['hidden_size', 1e15],
    ['num_local_experts', 1e8],
    ['vocab_size', 1e300],
    ['quantization_config', { bits: 1e300 }],
    ['torch_dtype', 'toString'],
  ])('of a model with %s %j is refused with its line', async (key, value) => {
    const config = { ...data('models/llama-3.1-8b-instruct.json'), [key]: value, num_experts_per_tok: 2 };
    const model = at('model.json', JSON.stringify(config, undefined, 1));
    expect(await refusal('predict', '--model', model)).toMatch(/model\.json:\d+: /);
  });

  it.each([
    [{ attention: { decode: 1e-300 } }, /attention\.decode is 1e-300/],
    [{ engine: { perStepUs: 1e308 } }, /engine\.perStepUs is 1e\+308/],
    [{ gemm16: { memory: 1e-300 } }, /gemm16\.memory is 1e-300/],
  ])('of coefficients with %j is refused', async (change, message) => {
    const file = data('latency/calibrated-h100.json') as Record<string, object>;
    const changed = { ...file };
    for (const [key, value] of Object.entries(change)) changed[key] = { ...file[key], ...value };
    const coefficients = at('c.json', JSON.stringify(changed));
    expect(await refusal('predict', '--model', 'qwen3-14b', '--coefficients', coefficients)).toMatch(message);
  });
});

describe('measurements', () => {
  const header =
    'experiment,model,tp,prefill_requests,prefill_tokens,decode_requests,context_tokens,measured_us';
  const step = (change: Record<string, unknown>): string =>
    Object.values({ e: 'a', m: 'qwen3-14b', tp: 1, pr: 0, pt: 0, dr: 8, c: 500, us: 9000, ...change }).join(
      ',',
    );
  it.each([
    [{ tp: 0 }, /:2: tp is "0"\. Write an integer from 1 to 1024/],
    [{ tp: 1.5 }, /tp is "1\.5"/],
    [{ pr: 1e12 }, /prefill_requests is "1000000000000"\. Write an integer from 0 to 65536/],
    [{ pt: -1 }, /prefill_tokens is "-1"/],
    [{ dr: '1e300' }, /decode_requests is "1e300"/],
    [{ c: 'NaN' }, /context_tokens is "NaN"/],
    [{ us: '1e-300' }, /measured_us is "1e-300"\. Write a number above 0/],
    [{ us: '1e300' }, /measured_us is "1e300"/],
    [{ us: 'x'.repeat(100_000) }, /measured_us is "x{39}\.\.\.\. Write|has 1 cells/],
  ])('of a step with %j are refused with their line', async (change, message) => {
    const steps = at('steps.csv', `${header}\n${step(change)}\n`);
    expect(
      await refusal('fit', '--latency-model', 'linear', '--steps', steps, '--out', `${folder}/o`),
    ).toMatch(message);
  });

  it('without a step are nothing to fit to, and of one experiment nothing to check', async () => {
    const none = at('none.csv', `${header}\n`);
    expect(
      await refusal('fit', '--latency-model', 'linear', '--steps', none, '--out', `${folder}/o`),
    ).toMatch(/none\.csv:1: no row follows the header/);
    const one = at('one.csv', `${header}\n${step({})}\n`);
    expect(await refusal('check', '--steps', one)).toMatch(/--steps has steps of 1 experiments/);
    expect(fs.existsSync(path.join(folder, 'o'))).toBe(false);
  });

  it("in a log of vLLM's scheduler keep all digits of their times, and nothing but digits", async () => {
    const log = (ns: string): string =>
      at(
        'log.csv',
        'step.id,step.ts_start_ns,batch.num_prefill_reqs,batch.num_decode_reqs,batch.prefill_tokens,' +
          `kv.blocks_total_gpu,kv.blocks_free_gpu,experiment_id,model,tp\n1,${ns},0,4,0,900,800,e,qwen3-14b,1\n` +
          '2,1771300000012345678,0,4,0,900,800,e,qwen3-14b,1\n',
      );
    for (const ns of ['1e18', '1.5', '-3', '']) {
      expect(
        await refusal('fit', '--latency-model', 'linear', '--steps', log(ns), '--out', `${folder}/o`),
      ).toMatch(/log\.csv:2: step\.ts_start_ns is ".*"\. Write a whole number/);
    }
    const said = await printed(
      ...['fit', '--latency-model', 'linear', '--steps', log('1771300000002345678'), '--out', `${folder}/o`],
    );
    expect(said).toMatch(/fitted on: 1 steps, MAPE \d+\.\d\d%/);
  });

  const requests = (rows: readonly string[]): string =>
    at('r.csv', `arrival_us,prompt_tokens,output_tokens,first_token_us,last_token_us\n${rows.join('\n')}\n`);
  const fitRun = (file: string): string[] => [
    'fit',
    '--requests',
    file,
    '--model',
    'llama-3.1-8b-instruct',
    '--gpu',
    'RTX-PRO-6000',
    '--out',
    `${folder}/o`,
  ];

  it('of requests of one token are fitted, without a time between tokens', async () => {
    const said = await printed(
      ...fitRun(requests(['0,300,1,40000,40000', '9,300,1,50000,50000', '20,300,1,60000,60000'])),
    );
    expect(said).toMatch(/TTFT: measured/);
    expect(said).not.toMatch(/NaN|Infinity|TPOT/);
  });

  it.each([
    ['0,300,1e9,40000,90000', /output_tokens is "1e9"\. Write an integer from 1 to 10000000/],
    ['0,300,5,40000,30000', /arrival_us, first_token_us and last_token_us do not follow each other/],
    ['50000,300,5,40000,60000', /do not follow each other/],
    ['0,9000000,2000000,40000,60000', /more than 10000000 tokens/],
  ])('of a request %s are refused', async (row, message) => {
    expect(await refusal(...fitRun(requests([row])))).toMatch(message);
  });

  it('of a run that only prefills are refused', async () => {
    const runs = at(
      'runs.csv',
      'experiment,model,tp,prompt_tokens,output_tokens,requests_per_s,e2e_ms,ttft_ms\na,qwen3-14b,1,700,1,6,20,20\n',
    );
    expect(await refusal('fit', '--latency-model', 'linear', '--runs', runs, '--out', `${folder}/o`)).toMatch(
      /runs\.csv:2: output_tokens is 1\. /,
    );
  });
});

describe('an error about an option names the option', () => {
  it.each([
    [['--tp', '3'], /^tierkv: --tp is 3, which does not divide/],
    [['--block-tokens', '0'], /^tierkv: --block-tokens is 0.* Set --block-tokens to/],
    [['--gpu-memory-utilization', '1.5'], /^tierkv: --gpu-memory-utilization is 1\.5/],
  ])('%j', async (args, message) => {
    expect(await refusal('predict', '--model', 'qwen3-14b', ...args)).toMatch(message);
  });

  it('whatever the library calls it, and nothing else is renamed', () => {
    const names = { 'hbm.capacityBytes': '--hbm', tp: '--tp' };
    const inFlags = (act: () => unknown): unknown => {
      try {
        return act();
      } catch (error) {
        return renamed(names, error);
      }
    };
    expect(inFlags(() => requireInteger('hbm.capacityBytes', 0, 1))).toMatchObject({
      field: '--hbm',
      message: '--hbm is 0, not an integer of at least 1. Set --hbm to an integer of at least 1.',
    });
    const other = configError('dp', 'is 2, but tp is 1', 'Change it.');
    expect(renamed(names, other)).toBe(other);
    const mention = new TierKVError('TKV_INPUT', 'an unknown tp "x". Set tp', { field: 'tp' });
    expect(renamed(names, mention)).toMatchObject({
      message: 'an unknown tp "x". Set tp',
      field: '--tp',
    });
  });
});
