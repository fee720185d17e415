/** The provenance of a result: options that acted, with the values that they had, and no other. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { buildPlanned, runToEnd } from '../../../src/sim/build/build.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { type Provenance, provenanceOf } from '../../../src/sim/build/provenance.ts';
import { deployedPaths, type Path } from '../../../src/sim/description/knobs.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-provenance-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

function provenance(...args: string[]): Provenance {
  const { deployment } = askedBy(readWords([...args, '--num-requests', '3']));
  return provenanceOf(runToEnd((skipsKeys) => buildPlanned(planSimulation(deployment), { skipsKeys })));
}

const plain = ['--model', 'qwen/qwen3-14b'];
const queue = ['gateway.tickUs'];
const gateway = ['gateway.tickUs', 'gateway.maxDepth', 'gateway.perBandCapacity', 'gateway.ttlUs'];
const handoff = ['handoff.bandwidthGbPerS', 'handoff.baseLatencyMs', 'handoff.granularity'];
const billed = ['tiers.hostBlocks', 'tiers.loadTokensPerUs', 'tiers.loadBaseUs'];
const tiered = ['tiers.load', 'tiers.offloadThreshold'];
const fitted = 'engine.memoryUtilization';

describe('of options', () => {
  const all = [...gateway, ...handoff, 'pools.prefill', ...billed, ...tiered, fitted, 'workload.sessionMode'];
  const roles = ['--num-instances', '2', '--prefill-instances', '1', '--decode-instances', '1'];
  it.each([
    ['nothing else', [], [fitted]],
    ['a number of blocks', ['--total-kv-blocks', '5000'], []],
    ['a gateway', ['--flow-control'], [...queue, fitted]],
    [
      'a gateway in which requests wait',
      ['--flow-control', '--saturation-detector', 'concurrency'],
      [...gateway, fitted],
    ],
    ['roles', roles, ['pools.prefill', fitted]],
    ['hand-offs', [...roles, '--pd-decider', 'always'], ['pools.prefill', ...handoff, fitted]],
    ['a tier that is billed', ['--kv-cpu-blocks', '500'], [...billed, ...tiered, fitted]],
  ])('with %s, options without effect are left out', (_name, args, named) => {
    const { settings } = provenance(...plain, ...args);
    expect(
      Object.keys(settings)
        .filter((name) => all.includes(name))
        .sort(),
    ).toEqual([...named].sort());
    expect(settings).toMatchObject({
      'latency.model': 'calibrated',
      'latency.floor': true,
      'engine.preemptionMode': 'recompute',
    });
  });

  it.each([
    ['a GPU that was not calibrated', ['--hardware', 'H200'], 'calibrated', true, 'recompute'],
    ['upstream', ['--as-upstream'], 'trained-physics', false, 'restart'],
  ])('of %s', (_name, args, latencyModel, floor, preemptionMode) => {
    const of = provenance(...plain, ...args);
    expect(of.settings).toMatchObject({
      'latency.model': latencyModel,
      'engine.preemptionMode': preemptionMode,
    });
    expect([of.settings['latency.floor'], of.floor, of.latencyModel]).toEqual([floor, floor, latencyModel]);
  });

  it('a recorded trace has a session mode', () => {
    const trace = new URL('../../goldens/fixtures/cases/36-traceout/trace.csv.gz', import.meta.url).pathname;
    expect(provenance(...plain, '--trace-data', trace).settings['workload.sessionMode']).toBe('fixed');
  });
});

describe('of a deployment file', () => {
  const text = `version: 1
seed: 9
models: [{name: qwen3-14b, hardware: H100, latency_model: calibrated}]
pools:
  - {name: front, role: prefill, engine: {preemption_mode: recompute, max_num_seqs: 7}}
  - name: back
    role: decode
    engine: {total_kv_blocks: 4000, kv_load: always, eviction: arc}
    tiers: {cpu_bytes_to_use: 4000000000}
slo: {ttft: {default: 2s}}
workload: {preset: chatbot, rate: 12, num_requests: 3}
`;
  const file = path.join(folder, 'deployment.yaml');
  fs.writeFileSync(file, text);

  it('has what the file says of the run, and no default of an option that cannot be given', () => {
    const { settings, latencyModel } = provenance('--deployment', file);
    expect(latencyModel).toBe('calibrated');
    expect(Object.keys(settings).filter((name) => deployedPaths.has(name as Path))).toEqual([]);
    expect(settings).toEqual({
      file,
      'workload.requests': 3,
      'workload.rate': 12,
      seed: '9',
      'targets.ttftMs': { default: 2000 },
      'workload.preset': 'chatbot',
    });
  });

  it('has the options that each pool came to', () => {
    const { pools = [] } = provenance('--deployment', file);
    const [front, back] = pools;
    expect(front).toMatchObject({ name: 'front', role: 'prefill', latencyModel: 'calibrated' });
    expect(front.settings).toMatchObject({
      'latency.model': 'calibrated',
      'engine.preemptionMode': 'recompute',
      'engine.maxSequences': 7,
      'engine.memoryUtilization': 0.9,
    });
    expect(Object.keys(front.settings).filter((name) => tiered.includes(name))).toEqual([]);
    expect(back.settings).toMatchObject({
      'engine.preemptionMode': 'recompute',
      'engine.maxSequences': 256,
      'engine.kvBlocks': '4000',
      'tiers.load': 'always',
      'engine.eviction': 'arc',
    });
    const names = Object.keys(back.settings);
    expect(names).not.toContain('engine.memoryUtilization');
    expect(names).not.toContain('tiers.loadTokensPerUs');
  });

  it('--set is in it, with what it changed', () => {
    const set = ['--set', 'pools[0].engine.max_num_seqs=11'];
    const { settings, pools = [] } = provenance('--deployment', file, ...set);
    expect(settings.set).toEqual(['pools[0].engine.max_num_seqs=11']);
    expect(pools[0].settings['engine.maxSequences']).toBe(11);
  });
});
