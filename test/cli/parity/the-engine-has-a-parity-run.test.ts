/**
 * `tierkv parity --engine` on this server's engine: its recorded run comes out of the simulator's manager and
 * scheduler byte for byte, and the free prediction finds what it found. Times are never asserted.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parityCommand } from '../../../src/cli/parity/command.ts';
import type { ParityReport } from '../../../src/studies/parity/comparison.ts';
import { loadEngine } from '../../../src/studies/parity/engine.ts';
import { resultOf } from '../../resultSchema.ts';
import { printedBy } from '../printed.ts';

const engine = path.join(import.meta.dirname, '../../../examples/server/parity/engine.ts');
const link = { baseLatencyUs: 50, bandwidthBytesPerS: 1e9 };
const links = {
  schema: 'tierkv.links/1',
  device: 'a guess',
  links: { hbmToDdr: link, ddrToHbm: link },
};
const spec = `version: "2"
seed: 11
num_requests: 6
aggregate_rate: 4
clients:
  - id: talk
    rate_fraction: 1
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 70}}
    output_distribution: {type: constant, params: {value: 6}}
    reasoning:
      multi_turn: {max_rounds: 3, think_time_us: 300000, context_growth: accumulate}
`;

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-engine-parity-'));
  fs.writeFileSync(path.join(folder, 'links.json'), JSON.stringify(links));
  fs.writeFileSync(path.join(folder, 'spec.yaml'), spec);
});
afterAll(() => fs.rmSync(folder, { recursive: true }));

it('the engine computes the traffic, and its run is replayed and predicted', async () => {
  const json = path.join(folder, 'report.json');
  const sizes = ['--hbm', '20', '--ddr', '200', '--nvme', '0'];
  const files = ['--links', path.join(folder, 'links.json'), '--json', json];
  const args = [path.join(folder, 'spec.yaml'), '--engine', engine, '--max-num-batched-tokens', '128'];
  await printedBy(parityCommand(), ...args, ...sizes, ...files);
  const report = resultOf<ParityReport>('parity', fs.readFileSync(json, 'utf8'));
  expect(report.runner).toContain('examples/server');
  expect(report.latencyModel).toMatch(/^linear, fitted to the \d+ steps/);
  expect(report.exact).toMatchObject({ identical: true, firstDifference: null });
  expect(report.requests).toBeGreaterThan(4);
  expect(report.wrongBlocks).toBe(0);
  expect(report.hits.real.rate).toBeGreaterThan(0);
  expect(Math.abs(report.hits.points)).toBeLessThan(2);
  expect(Object.keys(report.transfers), 'what leaves GPU memory').toContain('hbmToDdr');
});

it('a module that is not there, or does not export an engine, is one clear error', async () => {
  await expect(loadEngine('nothing.ts')).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'engine' });
  const other = path.join(import.meta.dirname, '../../examples/server/streams.ts');
  await expect(loadEngine(other)).rejects.toThrow(/exports no engine/);
});
