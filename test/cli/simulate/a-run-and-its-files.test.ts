/** `tierkv simulate` as a user calls it: what it prints and writes, the same bytes each time. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { engineHardware } from '../../../src/sim/build/engineSettings.ts';
import { fromFields } from '../../../src/sim/description/readers.ts';
import { BatchSums } from '../../../src/sim/latency/latencyModel.ts';
import { resultOf } from '../../resultSchema.ts';
import { printed } from './printed.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-simulate-'));
});
afterAll(() => {
  fs.rmSync(folder, { recursive: true });
});

const at = (name: string): string => path.join(folder, name);
const read = (name: string): string => fs.readFileSync(at(name), 'utf8');
const small = ['--model', 'qwen/qwen3-14b', '--workload', 'chatbot', '--rate', '20', '--num-requests', '40'];

describe('tierkv simulate', () => {
  it('prints metrics, and writes them with where they come from', async () => {
    const out = await printed(...small, '--metrics-path', at('metrics.json'), '--json', at('result.json'));
    expect(out).toMatch(
      /^qwen3-14b on 1 x H100, 1 instance\nKV of an instance: hbm 17,\d+ blocks \([\d.]+ GiB\) of 16 tokens, no tier below\n/,
    );
    expect(out).toMatch(/\nworkload: chatbot, 20 a second, at most 40 requests, seed 42\n/);
    expect(out).toMatch(
      /\nsteps: calibrated on H100, no step shorter than the hardware needs\nleft out: time before/,
    );
    const metrics = JSON.parse(read('metrics.json'));
    const ttft = [metrics.ttft_mean_ms, metrics.ttft_p90_ms, metrics.ttft_p99_ms].map((ms) => ms.toFixed(1));
    expect(out).toMatch(new RegExp(`first token.*${ttft[0]} .*${ttft[1]} .*${ttft[2]}`));
    expect(out).toMatch(/\n40 of 40 requests completed in /);
    const { requests: _rows, tierkv, ...figures } = metrics;
    expect(resultOf('simulate', read('result.json'))).toEqual({ metrics: figures, instances: [], ...tierkv });
    expect(metrics.completed_requests).toBe(40);
    expect(metrics.requests).toHaveLength(40);
    expect(metrics.tierkv.provenance).toMatchObject({ model: 'qwen3-14b', latencyModel: 'calibrated' });
    expect(metrics.tierkv.conservation).toMatchObject({ injected: 40, completed: 40 });
  });

  it('prints as upstream under --as-upstream', async () => {
    expect(await printed(...small, '--as-upstream')).toMatch(
      /^=== Simulation Metrics ===\n\{\n {2}"instance_id": "cluster",/,
    );
  });

  it.each([
    [
      'H200',
      [],
      /\nsteps: calibrated on H100, no step shorter than the hardware needs, since nothing measured on H200/,
    ],
    ['H200', ['--no-floor'], /\nsteps: calibrated on H100, WITHOUT the physical floor, since nothing/],
    ['H100', ['--latency-model', 'roofline'], /\nsteps: roofline, no step shorter than the hardware needs\n/],
  ])('says what times of %s with %j stand on', async (gpu, more, says) => {
    expect(await printed(...small, '--gpu', gpu, ...more)).toMatch(says);
  });

  it('takes sizes of tiers in bytes, of all GPUs of an instance', async () => {
    const sized = ['--tp', '2', '--hbm', '4GiB', '--ddr', '8GiB', '--nvme', '0.5TiB'];
    const out = await printed(...small, ...sized, '--metrics-path', at('bytes.json'));
    // 40 layers of 8 heads of 128, keys and values in 2 bytes
    const blockBytes = 16 * 40 * 2 * 8 * 128 * 2;
    const counts = [2 ** 32, 2 ** 33, 2 ** 39].map((bytes) => Math.floor(bytes / blockBytes));
    const tiers = JSON.parse(read('bytes.json')).tierkv.transfers.tiers;
    expect(tiers.map(({ capacityBlocks }: { capacityBlocks: number }) => capacityBlocks)).toEqual(counts);
    expect(out).toMatch(/hbm 1,638 blocks \(4 GiB\), ddr 3,276 blocks \(7\.?\d* GiB|8 GiB\)/);
    const blocks = [...counts.entries()].flatMap(([i, n]) => [['--hbm', '--ddr', '--nvme'][i], String(n)]);
    expect(await printed(...small, '--tp', '2', ...blocks)).toBe(out);
  });

  it('conversations of chat find in host memory what left GPU memory', async () => {
    const talk = ['--model', 'qwen3-14b', '--workload', 'chat', '--rate', '12', '--num-requests', '300'];
    const shareOf = async (...more: string[]): Promise<number> =>
      Number(/ ([\d.]+) % of the blocks found/.exec(await printed(...talk, '--hbm', '4GiB', ...more))?.[1]);
    expect(await shareOf('--ddr', '64GiB')).toBeGreaterThan(10 + (await shareOf()));
  });

  it('keeps KV in FP8: twice the blocks, and half of what decodes read', async () => {
    const blocksOf = async (...more: string[]): Promise<number> =>
      Number(/hbm ([\d,]+) blocks/.exec(await printed(...small, ...more))?.[1].replaceAll(',', ''));
    expect(
      Math.abs((await blocksOf('--kv-cache-dtype', 'fp8')) - 2 * (await blocksOf())),
    ).toBeLessThanOrEqual(1);
    expect(await blocksOf('--hbm', '1GiB', '--kv-cache-dtype', 'fp8')).toBe(
      Math.floor(2 ** 30 / (16 * 40 * 2 * 8 * 128)),
    );
    // what a step of 64 decodes with 4,096 tokens each reads, by the same model of time
    const batch = new BatchSums();
    batch.addDecodes(64, 64 * 4096);
    const attentionUs = (dtype: string): number => {
      const machine = engineHardware(fromFields({ model: 'qwen3-14b', engine: { kvCacheDtype: dtype } }));
      return machine.latency.explain(batch).find(({ part }) => part === 'attention')?.us ?? 0;
    };
    expect(attentionUs('fp8') / attentionUs('auto')).toBeCloseTo(0.5, 9);
    await expect(printed(...small, '--kv-cache-dtype', 'fp4')).rejects.toThrow(/^--kv-cache-dtype is "fp4"/);
  });

  it('writes a row a request as JSON lines and as CSV', async () => {
    await printed(...small, '--requests', at('rows.jsonl'));
    await printed(...small, '--requests', at('rows.csv'));
    const [first, ...rows] = read('rows.jsonl').trim().split('\n');
    expect(JSON.parse(first).provenance.settings['workload.rate']).toBe(20);
    expect(rows).toHaveLength(40);
    const csv = read('rows.csv').trim().split('\n');
    expect(csv).toHaveLength(41);
    const { id, ttftUs, e2eUs } = JSON.parse(rows[7]);
    const cells = csv[8].split(',');
    expect(cells[0]).toBe(id);
    expect(cells[csv[0].split(',').indexOf('ttftUs')]).toBe(String(ttftUs));
    expect(cells[csv[0].split(',').indexOf('e2eUs')]).toBe(String(e2eUs));
  });

  it('the same call gives the same bytes, another seed others', async () => {
    const files = ['a.json', 'b.json', 'c.json'];
    const seeds = ['7', '7', '8'];
    for (const [i, file] of files.entries()) {
      await printed(...small, '--seed', seeds[i], '--metrics-path', at(file));
    }
    expect(read('a.json')).toBe(read('b.json'));
    expect(read('a.json')).not.toBe(read('c.json'));
  });

  it('a Chrome trace holds each step and request, and says what it left out', async () => {
    await printed(...small, '--chrome-trace', at('trace.json'));
    const { traceEvents, otherData } = JSON.parse(read('trace.json'));
    const steps = traceEvents.filter(({ ph }: { ph: string }) => ph === 'X');
    for (let i = 1; i < steps.length; i++) {
      expect(steps[i].ts).toBeGreaterThanOrEqual(steps[i - 1].ts + steps[i - 1].dur);
    }
    expect(traceEvents.filter(({ ph }: { ph: string }) => ph === 'b')).toHaveLength(40);
    expect(otherData.eventsLeftOut).toBe(0);
    await printed(...small, '--chrome-trace', at('short.json'), '--chrome-trace-events', '10');
    const short = JSON.parse(read('short.json'));
    expect(short.otherData.eventsLeftOut).toBeGreaterThan(100);
    expect(short.traceEvents.length).toBeLessThanOrEqual(12);
  });

  it('draws latencies and tiers', async () => {
    await printed(...small, '--kv-cpu-blocks', '1000', '--plot', at('plot.svg'));
    const svg = read('plot.svg');
    expect(svg).toContain('first token');
    expect(svg).toContain('ddr');
  });

  it('what it recorded replays with the same times', async () => {
    await printed(...small, '--trace-output', at('recorded'), '--results-path', at('first.json'));
    const replay = ['--trace-data', at('recorded.csv'), '--horizon', '1000000000'];
    await printed('--model', 'qwen3-14b', ...replay, '--results-path', at('second.json'));
    expect(JSON.parse(read('first.json'))).toHaveLength(40);
    expect(read('second.json')).toBe(read('first.json'));
  });

  it('--trace-data ends at twice the last arrival and says so; an argument serves all', async () => {
    const rows = ['arrived_at,input_tokens,output_tokens', '0,100,20', '0.1,100,900'];
    fs.writeFileSync(at('short.csv'), `${rows.join('\n')}\n`);
    const run = async (...args: string[]): Promise<{ out: string; err: string }> => {
      let err = '';
      const spy = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
        err += String(text);
        return true;
      });
      try {
        return { out: await printed('--model', 'qwen3-14b', ...args), err };
      } finally {
        spy.mockRestore();
      }
    };
    const cut = await run('--trace-data', at('short.csv'));
    expect(cut.out).toContain('0 of 2 requests completed');
    expect(cut.err).toContain('read ');
    expect(cut.err).toMatch(
      /--trace-data ends the run at 0\.2 s, twice the last arrival, as upstream: 2 of 2 requests had not ended/,
    );
    const whole = await run(at('short.csv'));
    expect(whole.out).toContain('2 of 2 requests completed');
    expect(whole.err).not.toContain('twice the last arrival');
    const asked = await run('--trace-data', at('short.csv'), '--horizon', '200000');
    expect(asked.err).not.toContain('twice the last arrival');
  });
});
