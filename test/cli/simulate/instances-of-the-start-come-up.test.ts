/**
 * What a policy bundle says of nodes and of loading holds for the instances of the start, with an autoscaler
 * and without; nothing idle is taken away before anything was seen; keys that change nothing are declared.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { endingOf } from '../../../src/cli/process.ts';
import { printed } from './printed.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-bundle-'));
});
afterAll(() => {
  fs.rmSync(folder, { recursive: true });
});

/** Keys of a bundle that are read and change nothing, each with its reason. */
const inertBundleKeys: Readonly<Record<string, string>> = {
  'priority.policy': 'upstream reads it and orders by the scheduler alone',
  'node_pools[].min_nodes': 'upstream adds and removes no node',
  'node_pools[].max_nodes': 'upstream adds and removes no node',
  'node_pools[].provisioning_delay': 'nodes of the start are there, and no other comes',
  'node_pools[].gpu_memory_gib': 'the hardware of the instances says it',
  'node_pools[].cost_per_hour': 'nothing is priced',
};

const nodes = 'node_pools:\n  - {name: a, gpu_type: H100, gpus_per_node: 3, initial_nodes: 2}\n';
const loading = (more = ''): string => `instance_lifecycle:\n  loading_delay: {mean: 3}\n${more}`;
const warm = '  warm_start_initial_instances: true\n';
const autoscaler = 'autoscaler:\n  interval_us: 1000000\n';

function run(bundle: string, ...more: string[]): Promise<string> {
  const file = path.join(folder, 'bundle.yaml');
  fs.writeFileSync(file, bundle);
  const traffic = '--model qwen3-14b --workload chatbot --rate 10 --num-requests 60 --num-instances 2'.split(
    ' ',
  );
  return printed(...traffic, '--policy-config', file, ...more);
}

const completed = (text: string): number =>
  Number(/^([\d,]+) of 60 requests completed/m.exec(text)?.[1].replaceAll(',', ''));

describe('instances of the start', () => {
  it.each(['', autoscaler])('load their model first where nodes are named%#', async (scaled) => {
    const cold = completed(await run(nodes + loading() + scaled));
    // ten arrive in each of the three seconds in which no instance is ready
    expect(cold).toBeGreaterThan(20);
    expect(cold).toBeLessThan(40);
    expect(completed(await run(nodes + loading(warm) + scaled))).toBe(60);
    expect(completed(await run(loading() + scaled)), 'loading is of nodes').toBe(60);
  });

  it('fit the nodes, each on one node of its kind, with an autoscaler and without', async () => {
    const problemOf = async (bundle: string, ...more: string[]): Promise<string> =>
      run(bundle, ...more).then(
        () => 'none',
        (error: unknown) => endingOf(error, 'tierkv simulate').text,
      );
    for (const scaled of ['', autoscaler]) {
      expect(await problemOf(nodes + scaled, '--num-instances', '6')).toBe('none');
      expect(await problemOf(nodes + scaled, '--num-instances', '7')).toContain(
        '--num-instances is 7, and the node pools (1 GPU of H100 on one node each) hold 6 of them.',
      );
      // three GPUs a node hold one instance of two
      expect(await problemOf(nodes + scaled, '--tp', '2', '--num-instances', '3')).toContain(
        'hold 2 of them',
      );
      expect(await problemOf(nodes.replace('H100', 'L40S') + scaled)).toContain('hold 0 of them');
    }
  });

  it('are not taken away while nothing was seen', async () => {
    const decisions = path.join(folder, 'decisions.jsonl');
    await run(autoscaler, '--rate', '50', '--decisions', decisions);
    const rows = fs
      .readFileSync(decisions, 'utf8')
      .split('\n')
      .slice(1, -1)
      .map((line) => JSON.parse(line));
    const atStart = rows.filter(({ timeUs, kind }) => timeUs === 0 && ['scale', 'replica'].includes(kind));
    expect(atStart).toEqual([]);
  });

  it('of roles that would have to load are refused with the remedy', async () => {
    const roles = ['--prefill-instances', '1', '--decode-instances', '1', '--pd-decider', 'always'];
    await expect(run(nodes + loading(), ...roles)).rejects.toThrow(
      /--policy-config has instances load their model \(instance_lifecycle\), and there are roles\. Write a YAML file/,
    );
  });
});

it('each key of a bundle that changes nothing is in the page of differences, with its reason', () => {
  const page = fs.readFileSync(
    path.join(import.meta.dirname, '../../../docs/reference/blis-differences.md'),
    'utf8',
  );
  for (const [key, reason] of Object.entries(inertBundleKeys)) {
    expect(
      page.split('\n').some((line) => line.includes(`\`${key}\``) && line.includes(reason)),
      key,
    ).toBe(true);
  }
});
