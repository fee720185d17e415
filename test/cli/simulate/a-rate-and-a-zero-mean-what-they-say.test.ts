/**
 * A rate counts what arrives by itself: requests, and sessions where a client has rounds. Host memory of 0 bytes makes no tier,
 * and a point of a sweep that has it runs like one without.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { planPoint, runPoint } from '../../../src/sim/build/point.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { parseWorkloadSpec } from '../../../src/sim/description/readWorkload.ts';
import { requestsOf } from '../../../src/sim/workload/request.ts';
import { generateWorkload } from '../../../src/sim/workload/workload.ts';
import { pointsOf } from './sweptPoints.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-rate-'));
});
afterAll(() => fs.rmSync(folder, { recursive: true }));

const rounds = 2;
const spec = (loop: string): string => `version: "2"
seed: 1
aggregate_rate: 5
num_requests: 3000
clients:
  - id: a
    rate_fraction: 1
${loop}    arrival: {process: constant}
    input_distribution: {type: constant, params: {value: 40}}
    output_distribution: {type: constant, params: {value: 20}}
    reasoning: {multi_turn: {max_rounds: ${rounds}, think_time_us: 1000}}
`;

describe('a rate with rounds', () => {
  it('is held by sessions, and their number by the requests that were asked for', () => {
    const workload = generateWorkload(parseWorkloadSpec(spec('    closed_loop: false\n'), 'w.yaml'));
    const all = [...requestsOf(workload.stream())];
    const firsts = all.filter(({ round }) => round === 0);
    expect(all).toHaveLength(3000);
    expect(firsts).toHaveLength(3000 / rounds);
    const seconds = (firsts.at(-1)!.arrivalUs - firsts[0].arrivalUs) / 1e6;
    expect((firsts.length - 1) / seconds).toBeCloseTo(5, 1);
  });
});

describe('host memory of 0 bytes', () => {
  const text = (tiers: string): string => `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
pools:
  - name: chat
    engine: {total_kv_blocks: 200}
${tiers}workload: {preset: chatbot, rate: 10, num_requests: 30}
`;
  const run = (name: string, tiers: string): unknown => {
    const file = path.join(folder, name);
    fs.writeFileSync(file, text(tiers));
    const { metrics } = simulate({ file });
    return metrics;
  };

  it('makes no tier', () => {
    expect(run('zero.yaml', '    tiers: {cpu_bytes_to_use: 0}\n')).toEqual(run('none.yaml', ''));
  });

  it('is a point of a sweep like others', () => {
    const points = pointsOf(
      ['kv-cpu-blocks=0,100'],
      ['--model', 'qwen3-14b', '--rate', '10', '--num-requests', '20'],
    );
    const results = points.map((point) => runPoint(planPoint(point)));
    expect(results.map(({ injected }) => injected)).toEqual([20, 20]);
  });
});
