/** LoRA adapters: who may run beside whom, when one is loaded, and what is found under one alone. */

import { describe, expect, it } from 'vitest';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import { newSimulation } from '../../../src/sim/description/deployment.ts';
import { AdapterSlots } from '../../../src/sim/instance/adapterSlots.ts';
import { PromptKeys } from '../../../src/sim/instance/simRequest.ts';
import { type SmallRequest, smallPool, smallWorkload, streamOf } from './smallCluster.ts';

type Asked = SmallRequest & { readonly adapter: string };

/** One instance with steps of 1 ms and 10 µs a token; loads take 5 ms. */
function run(rows: readonly Asked[], slots: number) {
  const pool = smallPool();
  const ended: string[] = [];
  const workload = smallWorkload(rows).map((request, i) => ({
    ...request,
    origin: { ...request.origin, adapter: rows[i].adapter },
  }));
  const simulation = newSimulation({
    deployment: { pools: [{ ...pool, engine: { ...pool.engine, adapters: { slots, loadUs: 5000 } } }] },
    workload: { stream: streamOf(workload), sessions: undefined },
    control: new PolicyControlPlane({}, { key: 1n, blockTokens: 4, maxSequences: 16 }),
    observer: { ended: ({ id }, _status, timeUs) => ended.push(`${id} ${timeUs}`) },
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 50, bandwidthBytesPerS: 1e8 },
    },
  });
  simulation.run();
  return { simulation, conservation: simulation.close(), ended, engine: simulation.instances[0].engine };
}

const one = (adapter: string, atUs = 0, output = 1): Asked => ({ atUs, prompt: 10, output, adapter });

describe('an engine with slots', () => {
  it('loads an adapter in the step that needs it, once while it stays', () => {
    // 5 ms of loading and a step of 10 tokens; then 10 tokens more under the same adapter
    const { ended, engine } = run([one('a'), one('a', 20_000)], 1);
    expect(ended).toEqual([`request_0 ${5000 + 1100}`, `request_1 ${20_000 + 1100}`]);
    expect(engine.adapterLoads).toBe(1);
    expect(engine.adapters).toEqual(['a']);
  });

  it('lets a request wait whose adapter has no slot, and others pass it', () => {
    // a runs two steps; b waits for its slot meanwhile, and a request without an adapter and one under a pass it
    const { ended, engine } = run([one('a', 0, 2), one('b'), one(''), one('a')], 1);
    const first = 5000 + 1000 + 300; // one load, and three prompts in one step
    expect(ended).toEqual([
      `request_2 ${first}`,
      `request_3 ${first}`,
      `request_0 ${first + 1010}`,
      `request_1 ${first + 1010 + 5000 + 1100}`,
    ]);
    expect(engine.adapterLoads).toBe(2);
  });

  it('runs as many adapters at once as there are slots', () => {
    const { ended } = run([one('a'), one('b')], 2);
    expect(ended).toEqual([`request_0 ${10_000 + 1200}`, `request_1 ${10_000 + 1200}`]);
  });

  it.each([1, 2, 3, 8])('with %i of them serves all, whatever comes', (slots) => {
    let state = 99;
    const random = (below: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return (state >>> 8) % below;
    };
    const rows = Array.from(
      { length: 120 },
      (_, i): Asked => ({
        atUs: i * random(3000),
        prompt: 1 + random(60),
        output: 1 + random(30),
        adapter: ['', 'a', 'b', 'c', 'd'][random(5)],
      }),
    ).sort((a, b) => a.atUs - b.atUs);
    const { conservation, simulation, engine } = run(rows, slots);
    expect(conservation.completed).toBe(120);
    expect(engine.adapters!.length).toBeLessThanOrEqual(slots);
    expect(engine.tiers()[0].usedBlocks).toBe(0);
    simulation.checkIntegrity();
    // four adapters come and go where there are fewer slots than that, and each is loaded once where there are not
    if (slots >= 4) expect(engine.adapterLoads).toBe(4);
    else expect(engine.adapterLoads).toBeGreaterThan(4);
  });
});

it('puts out the adapter used longest ago that no request needs', () => {
  const slots = new AdapterSlots({ slots: 2, loadUs: 10 });
  for (const adapter of ['a', 'b']) {
    slots.begin(adapter);
    expect(slots.use(adapter)).toBe(10);
  }
  expect([slots.mayJoin('c'), slots.mayJoin('a'), slots.mayJoin('')]).toEqual([false, true, true]);
  slots.end('b');
  slots.begin('c');
  expect(slots.use('c')).toBe(10);
  expect(slots.resident).toEqual(['a', 'c']); // b went: a is older, and in use
});

it('finds blocks under their own adapter alone', () => {
  const keys = new PromptKeys(4);
  const [plain, a, b, again] = ['', 'a', 'b', 'a'].map((adapter) => {
    const [request] = smallWorkload([{ atUs: 0, prompt: 16, output: 4, stream: 5 }]);
    const { words, length } = keys.keysOf({ ...request, origin: { ...request.origin, adapter } }, 0);
    return [...words.subarray(0, 4 * length)].join();
  });
  expect(a).toBe(again);
  expect(new Set([plain, a, b]).size).toBe(3);
});

it('counts loads in the metrics, and routers may send a request where its adapter is', () => {
  const spec = (scorers: string): string => `version: "2"
seed: 3
category: language
aggregate_rate: 20
num_requests: 300
clients:
${['a', 'b', 'c', 'd']
  .map(
    (id) => `  - id: ${id}
    adapter: ${id}
    rate_fraction: 0.25
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 100}}
    output_distribution: {type: constant, params: {value: 20}}
`,
  )
  .join('')}${scorers}`;
  const loads = (scorers: Readonly<Record<string, number>>): number => {
    const { metrics, conservation } = simulate(
      {
        model: 'llama-3.1-8b-instruct',
        hardware: 'H100',
        engine: { maxLoras: 2, maxLoraRank: 64 },
        pools: { instances: 2 },
        control: { routing: { policy: 'weighted', scorers }, snapshotUs: 0 },
        workload: { file: '/w.yaml' },
      },
      { files: { '/w.yaml': spec('') } },
    );
    expect(conservation.completed).toBe(300);
    return metrics.adapter_loads ?? 0;
  };
  const affine = loads({ 'lora-affinity': 10, 'queue-depth': 1 });
  expect(affine).toBeGreaterThanOrEqual(4);
  expect(loads({ 'queue-depth': 1 })).toBeGreaterThan(2 * affine);
});
