/** The provenance of a result: options that acted, with the values that they had, and no other. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { buildPlanned, runToEnd } from '../../../src/simulate/build.ts';
import { askedBy, deployedNames, readWords } from '../../../src/simulate/optionTable.ts';
import { planSimulation } from '../../../src/simulate/plan.ts';
import { type Provenance, provenanceOf } from '../../../src/simulate/provenance.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-provenance-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

function provenance(...args: string[]): Provenance {
  const { options } = askedBy(readWords([...args, '--num-requests', '3']));
  return provenanceOf(
    runToEnd((skipsKeys) => buildPlanned(planSimulation(undefined, options), { skipsKeys })),
  );
}

const plain = ['--model', 'qwen/qwen3-14b'];
const gateway = ['dispatchTickInterval', 'maxGatewayQueueDepth', 'perBandCapacity', 'requestTtl'];
const handoff = ['pdTransferBandwidth', 'pdTransferBaseLatency', 'pdTransferGranularity', 'prefillInstances'];
const billed = ['kvCpuBlocks', 'kvTransferBandwidth', 'kvTransferBaseLatency'];
const tiered = ['kvLoad', 'kvOffloadThreshold'];

describe('of options', () => {
  const all = [...gateway, ...handoff, ...billed, ...tiered, 'gpuMemoryUtilization', 'sessionMode'];
  const roles = ['--num-instances', '2', '--prefill-instances', '1', '--decode-instances', '1'];
  it.each([
    ['nothing else', [], ['gpuMemoryUtilization']],
    ['a number of blocks', ['--total-kv-blocks', '5000'], []],
    ['a gateway', ['--flow-control'], [...gateway, 'gpuMemoryUtilization']],
    ['roles', roles, [...handoff, 'gpuMemoryUtilization']],
    ['a tier that is billed', ['--kv-cpu-blocks', '500'], [...billed, ...tiered, 'gpuMemoryUtilization']],
  ])('with %s, options without effect are left out', (_name, args, named) => {
    const { options } = provenance(...plain, ...args);
    expect(
      Object.keys(options)
        .filter((name) => all.includes(name))
        .sort(),
    ).toEqual([...named].sort());
    expect(options).toMatchObject({ latencyModel: 'calibrated', floor: true, preemptionMode: 'recompute' });
  });

  it.each([
    ['a GPU that was not calibrated', ['--hardware', 'H200'], 'calibrated', true, 'recompute'],
    ['upstream', ['--as-upstream'], 'trained-physics', undefined, 'restart'],
  ])('of %s', (_name, args, latencyModel, floor, preemptionMode) => {
    const of = provenance(...plain, ...args);
    expect(of.options).toMatchObject({ latencyModel, preemptionMode });
    expect([of.options.floor, of.floor, of.latencyModel]).toEqual([floor, floor ?? false, latencyModel]);
  });

  it('a recorded trace has a session mode', () => {
    const trace = new URL('../../goldens/fixtures/cases/36-traceout/trace.csv.gz', import.meta.url).pathname;
    expect(provenance(...plain, '--trace-data', trace).options.sessionMode).toBe('fixed');
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
    const { options, latencyModel } = provenance('--deployment', file);
    expect(latencyModel).toBe('calibrated');
    expect(Object.keys(options).filter((name) => deployedNames.includes(name))).toEqual([]);
    expect(options).toEqual({
      deployment: file,
      numRequests: '3',
      rate: '12',
      seed: '9',
      sloTtft: 'default=2s',
      workload: 'chatbot',
    });
  });

  it('has the options that each pool came to', () => {
    const { pools = [] } = provenance('--deployment', file);
    const [front, back] = pools;
    expect(front).toMatchObject({ name: 'front', role: 'prefill', latencyModel: 'calibrated' });
    expect(front.options).toMatchObject({
      latencyModel: 'calibrated',
      preemptionMode: 'recompute',
      maxNumSeqs: '7',
      gpuMemoryUtilization: '0.9',
    });
    expect(Object.keys(front.options).filter((name) => tiered.includes(name))).toEqual([]);
    expect(back.options).toMatchObject({
      preemptionMode: 'recompute',
      maxNumSeqs: '256',
      totalKvBlocks: '4000',
      kvLoad: 'always',
      eviction: 'arc',
    });
    expect(back.options).not.toHaveProperty('gpuMemoryUtilization');
    expect(back.options).not.toHaveProperty('kvTransferBandwidth');
  });

  it('--set is in it, with what it changed', () => {
    const set = ['--set', 'pools[0].engine.max_num_seqs=11'];
    const { options, pools = [] } = provenance('--deployment', file, ...set);
    expect(options.set).toBe('pools[0].engine.max_num_seqs=11');
    expect(pools[0].options.maxNumSeqs).toBe('11');
  });
});
