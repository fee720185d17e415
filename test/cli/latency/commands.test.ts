/** The commands as a user calls them: what they print and write, and one line for each mistake. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PredictReport } from '../../../src/cli/latency/predict.ts';
import { endingOf } from '../../../src/cli/process.ts';
import { resultOf } from '../../resultSchema.ts';
import { printed } from './printed.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-latency-'));
});
afterAll(() => {
  fs.rmSync(folder, { recursive: true });
});

const at = (name: string, text?: string): string => {
  const file = path.join(folder, name);
  if (text !== undefined) fs.writeFileSync(file, text);
  return file;
};

async function failure(...args: string[]): Promise<{ exitCode: number; text: string }> {
  try {
    await printed(...args);
  } catch (error) {
    return endingOf(error, 'tierkv latency');
  }
  throw new Error(`${args.join(' ')} did not fail`);
}

describe('predict', () => {
  it('takes the GPU and parallelism of the model, and says what a step is made of', async () => {
    const json = at('predict.json');
    const out = await printed(
      'predict',
      '--model',
      'meta-llama/Llama-3.3-70B-Instruct'.replace('3.3', '3.1'),
      '--json',
      json,
    );
    expect(out).toContain('llama-3.1-70b-instruct on H100 x 4, calibrated');
    const report = resultOf<PredictReport>('latency predict', fs.readFileSync(json, 'utf8'));
    expect(report.batches).toHaveLength(6);
    for (const { stepUs, floorUs } of report.batches) expect(stepUs).toBeGreaterThanOrEqual(floorUs);
    expect(report.kvBlocks).toBeGreaterThan(1000);
  });

  it('reproduces upstream without the floor', async () => {
    const args = [
      '--model',
      'llama-3.1-8b-instruct',
      '--latency-model',
      'trained-physics',
      '--batch',
      'prefill=8192',
    ];
    expect(await printed('predict', ...args, '--no-floor')).toContain('32.529');
    expect(await printed('predict', ...args)).not.toContain('32.529');
  });

  it('reads batches of several kinds', async () => {
    const json = at('mixed.json');
    const batch = 'prefill=512@1024/4096, decode=3@100';
    await printed('predict', '--model', 'qwen3-14b', '--batch', batch, '--json', json);
    expect(JSON.parse(fs.readFileSync(json, 'utf8')).result.batches[0].stepUs).toBeGreaterThan(10_000);
  });

  it('takes a model and a GPU that are only files', async () => {
    const shipped = new URL('../../../data/', import.meta.url);
    const config = JSON.parse(fs.readFileSync(new URL('models/llama-3.1-8b-instruct.json', shipped), 'utf8'));
    const gpu = JSON.parse(fs.readFileSync(new URL('hardware/h100.json', shipped), 'utf8'));
    const model = at('my-model.json', JSON.stringify({ ...config, num_hidden_layers: 16 }));
    const hardware = at(
      'my-gpu.json',
      JSON.stringify({ ...gpu, name: 'Mine', aliases: '', memoryTbPerS: 6.7 }),
    );
    const out = await printed(
      'predict',
      '--model',
      model,
      '--gpu',
      hardware,
      '--latency-model',
      'roofline',
      '--batch',
      'decode=1@1',
    );
    expect(out).toContain('my-model on Mine x 1, roofline');
  });

  it('takes the coefficients of H100 where none of the GPU ship, and says so', async () => {
    const json = at('h200.json');
    const out = await printed('predict', '--model', 'qwen3-14b', '--gpu', 'H200', '--json', json);
    expect(out).toMatch(
      /^qwen3-14b on H200 x 1, calibrated on H100, since nothing measured on H200 is shipped/,
    );
    const report = resultOf<PredictReport>('latency predict', fs.readFileSync(json, 'utf8'));
    expect(report.measuredOn).toBe('H100');
    for (const { stepUs, floorUs } of report.batches) expect(stepUs).toBeGreaterThanOrEqual(floorUs);
    expect(await printed('predict', '--model', 'qwen3-14b', '--gpu', 'H100')).toMatch(/ calibrated\n/);
  });

  it.each([
    [['--model', 'qwen3-41b'], /unknown model "qwen3-41b"\. Did you mean qwen3-14b\?/],
    [['--model', 'qwen3-14b', '--gpu', 'H10O'], /unknown GPU "H10O"\. Did you mean H100\?/],
    [['--model', 'qwen3-14b', '--tp', '3'], /tp is 3, which does not divide the 40 attention heads/],
    [['--model', 'qwen3-14b', '--tp', '0'], /--tp is 0/],
    [['--model', 'qwen3-14b', '--dp', '2'], /qwen3-14b is dense/],
    [['--model', 'qwen3-14b', '--tp', 'two'], /must be a number/],
    [['--model', 'qwen3-14b', '--batch', 'decode=0@4'], /outside 1 to 1000000000/],
    [['--model', 'qwen3-14b', '--batch', 'prefill=9@1/5'], /more than its prompt of 5 tokens/],
    [['--model', 'qwen3-14b', '--batch', 'decod=1'], /"decod=1" that must be a prefill or a decode/],
    [['--model', 'nowhere.json'], /nowhere\.json does not exist/],
    [['--model', 'qwen3-14b', '--latency-model', 'magic'], /Allowed choices are trained-physics/],
    [[], /required option '--model/],
  ])('%j ends in one line', async (args, message) => {
    const { exitCode, text } = await failure('predict', ...args);
    expect(exitCode).toBe(2);
    expect(text).toMatch(message);
    expect(text).not.toContain('\n');
  });

  it('names file and line of a bad description', async () => {
    const gpu = at('bad-gpu.json', '{\n "name": "X",\n "peakTflop": 3\n}\n');
    const { text } = await failure('predict', '--model', 'qwen3-14b', '--gpu', gpu);
    expect(text).toContain(`${gpu}:3: peakTflop is not a key here. Did you mean "peakTflops"?`);
  });

  it('refuses coefficients of another backend', async () => {
    const file = new URL('../../../data/latency/trained-physics.json', import.meta.url).pathname;
    const { text } = await failure('predict', '--model', 'qwen3-14b', '--coefficients', file);
    expect(text).toMatch(/holds coefficients of trained-physics, not of calibrated/);
  });
});

describe('fit', () => {
  it('writes a file that predict takes, with the links of a profile', async () => {
    const links = { hbmToDdr: { baseLatencyUs: 10, bandwidthBytesPerS: 2e10 } };
    const profile = at('links.json', JSON.stringify({ schema: 'tierkv.links/1', device: 'x', links }));
    const out = at('fitted.json');
    const said = await printed(
      'fit',
      '--out',
      out,
      '--links',
      profile,
      '--hold-out',
      '20260218-150304-codellama-34b-tp2-general',
    );
    expect(said).toMatch(/held out: 716 steps, MAPE [0-5]\.\d\d%/);
    expect(JSON.parse(fs.readFileSync(out, 'utf8')).links).toEqual(links);
    expect(await printed('predict', '--model', 'qwen3-14b', '--coefficients', out)).toContain('calibrated');
  });

  it('fits the regression too', async () => {
    const out = at('linear.json');
    await printed('fit', '--latency-model', 'linear', '--out', out);
    const args = ['--latency-model', 'linear', '--coefficients', out, '--batch', 'decode=8@512'];
    expect(await printed('predict', '--model', 'llama-2-70b-hf', ...args)).toContain('linear');
  });

  it.each([
    [['--hold-out', 'nothing'], /--hold-out names "nothing"\. The records have: 2026/],
    [['--gpu', 'H1'], /unknown GPU "H1"/],
    [['--tp', '4'], /--tp is for a fit to requests\. Add --requests/],
    [['--requests', 'x.csv', '--steps', 'y.csv'], /--steps is for a fit to steps, and --requests is given/],
    [['--block-tokens', '32'], /--block-tokens is 32, and data.* counts tokens, not blocks/],
    [['--requests', 'x.csv', '--latency-model', 'linear'], /--latency-model is for a fit to steps/],
    [['--requests', 'x.csv'], /--model is missing\. With --requests/],
  ])('%j ends in one line', async (args, message) => {
    const { exitCode, text } = await failure('fit', '--out', at('never.json'), ...args);
    expect([exitCode, text]).toEqual([2, expect.stringMatching(message)]);
    expect(fs.existsSync(path.join(folder, 'never.json'))).toBe(false);
  });

  it('says which line of a table is wrong', async () => {
    const header =
      'experiment,model,tp,prefill_requests,prefill_tokens,decode_requests,context_tokens,measured_us';
    const bad = at('bad.csv', `${header}\na,qwen3-14b,1,0,0,1,9,100\na,qwen3-14b,1,0,0,1,9,0\n`);
    const { text } = await failure('fit', '--steps', bad, '--out', at('never.json'));
    expect(text).toContain(`${bad}:3: measured_us is "0". Write a number above 0`);
    const short = at('short.csv', `${header}\na,b\n`);
    expect((await failure('fit', '--steps', short, '--out', at('never.json'))).text).toContain(
      'has 2 cells, not 8',
    );
    const other = at('other.csv', 'x,y\n1,2\n');
    expect((await failure('check', '--steps', other)).text).toContain('the column experiment is missing');
  });
});

describe('check', () => {
  it('prints its tables, writes its report and draws its plot', async () => {
    const [json, plot] = [at('check.json'), at('check.svg')];
    const out = await printed('check', '--json', json, '--plot', plot);
    for (const word of [
      'decode',
      'small prefill',
      'large prefill',
      'trained-physics',
      'matrix products',
      'TTFT',
    ]) {
      expect(out).toContain(word);
    }
    expect(resultOf<{ steps: unknown }>('latency check', fs.readFileSync(json, 'utf8')).steps).toHaveLength(
      1967,
    );
    const svg = fs.readFileSync(plot, 'utf8');
    expect(svg).toMatch(/^<svg/);
    expect(svg).toContain('predicted ms');
  });

  it('finds out before the work that a plot cannot be written', async () => {
    const { text } = await failure('check', '--plot', path.join(folder, 'no', 'such.svg'));
    expect(text).toMatch(/cannot be written/);
  });
});
