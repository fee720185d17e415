/**
 * `tierkv parity` on the software device: the recorded run comes out of the simulator's manager and scheduler
 * byte for byte, and a free simulation finds what the runtime found. Times are reported and never asserted.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parityCommand } from '../../../src/cli/parity/command.ts';
import { endingOf } from '../../../src/cli/process.ts';
import type { ParityReport } from '../../../src/studies/parity/comparison.ts';
import { replayExactly } from '../../../src/studies/parity/links.ts';
import { testAdapter } from '../../adapter.ts';
import { resultOf } from '../../resultSchema.ts';
import { printedBy } from '../printed.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-parity-test-'));
  fs.writeFileSync(path.join(folder, 'links.json'), JSON.stringify(links));
});
afterAll(() => {
  fs.rmSync(folder, { recursive: true });
});

const link = { baseLatencyUs: 50, bandwidthBytesPerS: 1e9 };
const links = {
  schema: 'tierkv.links/1',
  device: 'a guess',
  links: { hbmToDdr: link, ddrToHbm: link, ddrToNvme: link, nvmeToDdr: link, nvmeToHbm: link },
};

const parity = (...args: string[]): Promise<string> => printedBy(parityCommand(), ...args);

/**
 * Conversations that come back while others run. HBM and DDR overflow and NVMe holds the rest, so that what is
 * found depends on what was asked and not on who was slow.
 */
const spec = `version: "2"
seed: 11
num_requests: 8
aggregate_rate: 8
clients:
  - id: talk
    rate_fraction: 1
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 160}}
    output_distribution: {type: constant, params: {value: 12}}
    reasoning:
      multi_turn: {max_rounds: 3, think_time_us: 1000000, context_growth: accumulate}
`;

it('replays to the same log, and predicts what is found', async () => {
  const file = path.join(folder, 'spec.yaml');
  fs.writeFileSync(file, spec);
  const json = path.join(folder, 'report.json');
  const log = path.join(folder, 'run.log');
  const sizes = ['--hbm', '48', '--ddr', '64', '--nvme', '1024', '--block-bytes', '4KiB'];
  const where = ['--links', path.join(folder, 'links.json'), '--adapter', testAdapter];
  const out = await parity(file, ...sizes, ...where, '--json', json, '--log', log);
  expect(out.trimEnd().split('\n').at(-5)).toMatch(
    /^exact replay: identical \([\d,]+ lines, [\d,]+ bytes\)$/,
  );
  const report = resultOf<ParityReport>('parity', fs.readFileSync(json, 'utf8'));
  expect(report.exact.identical).toBe(true);
  expect(report.exact.bytes).toBe(fs.statSync(log).size);
  expect(report.requests).toBeGreaterThanOrEqual(8);
  expect(report.wrongBlocks).toBe(0);
  expect(report.latencies.e2e.predicted.count, 'each request is in both runs').toBe(report.requests);
  expect(report.hits.real.rate).toBeGreaterThan(0.3);
  expect(report.hits.predicted.lookups).toBe(report.hits.real.lookups);
  expect(Math.abs(report.hits.points)).toBeLessThanOrEqual(0.1);
  expect(report.transfers.ddrToHbm.real.count).toBeGreaterThan(0);

  const lines = fs.readFileSync(log, 'utf8').split('\n');
  const step = lines.findLastIndex((line) => / step /.test(line));
  fs.writeFileSync(log, lines.toSpliced(step, 1).join('\n'));
  await expect(replayExactly(log, new AbortController().signal)).rejects.toThrow(
    /run\.log:\d+ does not follow/,
  );
});

it('covers a pair: both logs replay, and hand-offs carry what was predicted', async () => {
  const file = path.join(folder, 'pair.yaml');
  fs.writeFileSync(file, spec);
  const json = path.join(folder, 'pair.json');
  const log = path.join(folder, 'pair.log');
  const sizes = [
    '--hbm',
    '300',
    '--ddr',
    '400',
    '--nvme',
    '0',
    '--block-bytes',
    '4KiB',
    '--num-requests',
    '5',
  ];
  const where = ['--links', path.join(folder, 'links.json'), '--adapter', testAdapter];
  const out = await parity(file, '--pair', ...sizes, ...where, '--json', json, '--log', log);
  expect(out).toContain('hand-offs: taken');
  const report = resultOf<ParityReport>('parity', fs.readFileSync(json, 'utf8'));
  expect(report.exact).toMatchObject({ identical: true, firstDifference: null });
  expect(report.exact.bytes).toBe(fs.statSync(`${log}.prefill`).size + fs.statSync(`${log}.decode`).size);
  expect(report.wrongBlocks).toBe(0);
  expect(report.latencies.e2e.predicted.count, 'each request is in both runs').toBe(report.requests);
  expect(report.hits.points).toBe(0);
  const { handoffs } = report;
  expect(handoffs?.ends).toEqual({ taken: report.requests });
  expect(handoffs?.count.predicted).toBe(report.requests);
  // of a prompt the last block, which is not full, is counted by the simulator alone
  expect(handoffs?.blocks.real).toBeGreaterThan(0);
  expect(handoffs?.blocks.predicted).toBeGreaterThanOrEqual(handoffs?.blocks.real ?? 0);
  expect(handoffs?.blocks.predicted).toBeLessThanOrEqual((handoffs?.blocks.real ?? 0) + 2 * report.requests);
  expect(handoffs?.link.handoffs, 'the link is measured').toBeGreaterThan(4);
  // a log that says something else is told
  const lines = fs.readFileSync(`${log}.decode`, 'utf8').split('\n');
  const found = lines.findIndex((line) => / found /.test(line));
  fs.writeFileSync(`${log}.decode`, lines.toSpliced(found, 1).join('\n'));
  await expect(replayExactly(`${log}.decode`, new AbortController().signal)).rejects.toThrow(
    /does not follow/,
  );
}, 600_000);

describe('a mistake is one line', () => {
  it.each([
    [['--hbm', '0'], /--hbm is 0/],
    [['--block-bytes', '100'], /--block-bytes is 100 for 16 tokens. Set it to a multiple of 128/],
    [['--speed', '-1'], /--speed is -1/],
    [['--model', 'qwen3-41b'], /qwen3-14b/],
    [['--preemption-mode', 'restart'], /--preemption-mode is "restart".*recompute, offload/],
    [['--eviction', 'lur'], /--eviction is "lur".*'lru'/],
    [['--dir', '/no/such/dir'], /--dir is \/no\/such\/dir, which is not a directory/],
    [['--links', '/no/links.json'], /links.json/],
    [['missing.jsonl'], /missing.jsonl/],
    [['--pair', '--ddr', '0'], /--ddr is 0, and with --pair blocks come into host memory/],
    [['--pair', '--engine', 'engine.ts'], /--engine excludes --pair/],
    [['missing.jsonl', '--workload', 'chatbot'], /--workload excludes missing.jsonl/],
    [['--json', '/no/such/dir/r.json'], /\/no\/such\/dir\/r.json cannot be written/],
  ])('%j', async (args, says) => {
    let ending: ReturnType<typeof endingOf> | undefined;
    try {
      await parity(...args);
    } catch (error) {
      ending = endingOf(error, 'tierkv parity');
    }
    expect(ending?.text).toMatch(says);
    expect(ending?.text.split('\n')).toHaveLength(1);
    expect(ending?.exitCode).toBe(2);
  });
});
