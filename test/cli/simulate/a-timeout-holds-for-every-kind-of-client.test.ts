/** `--timeout` and the key `timeout` of a client: every request has its deadline, whatever makes the requests. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { stringify } from 'yaml';
import { conservationOf } from '../../../src/sim/cluster/core.ts';
import { simulated } from '../../goldens/upstream/wholeCases.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-timeout-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

const lengths = (value: number): object => ({ type: 'constant', params: { value } });
const client = {
  id: 'one',
  rate_fraction: 1,
  arrival: { process: 'constant' },
  input_distribution: lengths(300),
  output_distribution: lengths(150),
};
const cohort = { ...client, id: 'many', population: 3 };
const turns = { reasoning: { multi_turn: { max_rounds: 3, think_time_us: 1000 } } };
const own = { windows: [{ start_us: 500_000, end_us: 3_500_000, trace_rate: 5 }] };
const perf = {
  shared_prefix: {
    num_unique_system_prompts: 2,
    num_users_per_system_prompt: 2,
    system_prompt_len: 64,
    question_len: 50,
    output_len: 150,
    enable_multi_turn_chat: false,
  },
};

/** Each kind of clients that makes requests in a way of its own. */
const kinds: Readonly<Record<string, object>> = {
  'plain clients': { clients: [client] },
  'clients of a prefix group': { clients: [{ ...client, prefix_group: 'g', prefix_length: 64 }] },
  'windows at the common rate': {
    clients: [{ ...client, lifecycle: { windows: [{ start_us: 0, end_us: 4e6 }] } }],
  },
  'windows of their own': { clients: [{ ...client, lifecycle: own }] },
  'windows of their own and a prefix': {
    clients: [{ ...client, prefix_group: 'g', prefix_length: 64, lifecycle: own }],
  },
  'windows of their own with sessions': { clients: [{ ...client, ...turns, lifecycle: own }] },
  'open sessions in windows of their own': {
    clients: [{ ...client, ...turns, closed_loop: false, lifecycle: own }],
  },
  'sessions in a closed loop': { clients: [{ ...client, ...turns }] },
  'sessions in an open loop': { clients: [{ ...client, ...turns, closed_loop: false }] },
  'users in a closed loop': {
    clients: [{ ...client, rate_fraction: undefined, concurrency: 3, think_time_us: 1000 }],
  },
  'a plain cohort': { cohorts: [cohort] },
  'a spike': { cohorts: [{ ...cohort, spike: { start_time_us: 1e6, duration_us: 2e6, trace_rate: 6 } }] },
  'a diurnal cohort': { cohorts: [{ ...cohort, diurnal: { peak_hour: 0, peak_to_trough_ratio: 2 } }] },
  'a draining cohort': { cohorts: [{ ...cohort, drain: { start_time_us: 2e6, ramp_duration_us: 2e6 } }] },
  'a spike beside plain clients': {
    clients: [client],
    cohorts: [{ ...cohort, spike: { start_time_us: 1e6, duration_us: 2e6, trace_rate: 6 } }],
  },
  'inference_perf of one stage': { inference_perf: { ...perf, stages: [{ rate: 8, duration: 3 }] } },
  'inference_perf of two stages': {
    inference_perf: {
      ...perf,
      stages: [
        { rate: 8, duration: 2 },
        { rate: 4, duration: 2 },
      ],
    },
  },
};

function deadlinesOf(spec: object, ...more: string[]): { waits: number[]; ended: number; completed: number } {
  const file = path.join(folder, 'spec.yaml');
  fs.writeFileSync(file, stringify({ version: '2', seed: 5, num_requests: 24, ...spec }));
  const waits: number[] = [];
  const { simulation } = simulated(['--model', 'qwen/qwen3-14b', '--workload-spec', file, ...more], {
    observer: { arrived: ({ workload }) => waits.push(workload.deadlineUs - workload.arrivalUs) },
  });
  const { timedOut, completed } = conservationOf(simulation.table);
  return { waits, ended: timedOut, completed };
}

describe.each(Object.keys(kinds))('%s', (name) => {
  it('has the deadlines of --timeout, and misses the ones that are too short', () => {
    const { waits, ended, completed } = deadlinesOf({ aggregate_rate: 8, ...kinds[name] }, '--timeout', '1');
    expect(waits.length).toBeGreaterThan(0);
    expect(new Set(waits)).toEqual(new Set([1_000_000]));
    // 150 tokens take longer than a second
    expect([completed, ended]).toEqual([0, waits.length]);
  });
});

/** Clients and cohorts have the key; `inference_perf` has none. */
const withKey = Object.keys(kinds).filter((name) => !('inference_perf' in kinds[name]));

it.each(withKey)('%s: the key timeout is held', (name) => {
  const { clients = [], cohorts = [] } = kinds[name] as { clients?: object[]; cohorts?: object[] };
  const timed = (all: object[]): object[] => all.map((one) => ({ ...one, timeout: 2_500_000 }));
  const { waits } = deadlinesOf({ aggregate_rate: 8, clients: timed(clients), cohorts: timed(cohorts) });
  expect(new Set(waits)).toEqual(new Set([2_500_000]));
});
