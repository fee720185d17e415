/** Users give requests up: at the drawn time, wherever the request is; its blocks come free, and the books add up. */

import { expect, it } from 'vitest';
import { requestRecords } from '../../../src/sim/build/output.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import { newSimulation } from '../../../src/sim/description/deployment.ts';
import { parseWorkloadSpec } from '../../../src/sim/description/readWorkload.ts';
import { formatWorkloadSpec } from '../../../src/sim/description/writeWorkload.ts';
import { statusNames } from '../../../src/sim/metrics/requestTable.ts';
import type { WorkloadRequest } from '../../../src/sim/workload/request.ts';
import { requestsOf } from '../../../src/sim/workload/request.ts';
import { generateWorkload } from '../../../src/sim/workload/workload.ts';
import { type SmallRequest, smallPool, smallWorkload, streamOf } from './smallCluster.ts';

const spec = (cancellation: string, client = 'rate_fraction: 1'): string => `version: "2"
seed: 11
category: language
aggregate_rate: 40
num_requests: 2000
horizon: 100000000
clients:
  - id: a
    ${client}
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 100}}
    output_distribution: {type: constant, params: {value: 50}}
${cancellation}`;
const given = '    cancellation: {share: 0.25, delay_ms: {type: constant, params: {value: 300}}}\n';
const requests = (text: string): WorkloadRequest[] => [
  ...requestsOf(generateWorkload(parseWorkloadSpec(text, 'w.yaml')).stream()),
];

/** One instance with steps of 1 ms and 10 µs a token. */
function run(rows: readonly (SmallRequest & { readonly cancelUs?: number })[], topBlocks: number) {
  const observed: string[] = [];
  const workload = smallWorkload(rows).map((request, i) => ({ ...request, cancelUs: rows[i].cancelUs ?? 0 }));
  const simulation = newSimulation({
    deployment: { pools: [smallPool({ topBlocks })] },
    workload: { stream: streamOf(workload), sessions: undefined },
    control: new PolicyControlPlane({}, { key: 1n, blockTokens: 4, maxSequences: 16 }),
    observer: { ended: ({ id }, status, timeUs) => observed.push(`${id} ${statusNames[status]} ${timeUs}`) },
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 50, bandwidthBytesPerS: 1e8 },
    },
  });
  simulation.run();
  return { simulation, conservation: simulation.close(), observed };
}

it('draws a share of the requests, their times, and leaves all else as it is without', () => {
  const with_ = requests(spec(given));
  const without = requests(spec(''));
  expect(with_).toHaveLength(2000);
  const cancelled = with_.filter(({ cancelUs = 0 }) => cancelUs > 0);
  // 2000 draws of probability 1/4 have mean 500 and deviation 19.4: four of them
  expect(Math.abs(cancelled.length - 500)).toBeLessThan(78);
  for (const { arrivalUs, cancelUs } of cancelled) expect(cancelUs).toBe(arrivalUs + 300_000);
  const bare = with_.map(({ cancelUs: _c, origin: { cancellation: _o, ...origin }, ...rest }) => ({
    ...rest,
    origin,
  }));
  expect(bare).toEqual(without);
  expect(requests(spec(given))).toEqual(with_); // the same seed, the same users
  expect(requests(spec(given).replace('seed: 11', 'seed: 12')).map(({ cancelUs }) => cancelUs)).not.toEqual(
    with_.map(({ cancelUs }) => cancelUs),
  );
});

it('is written and read back, and refused out of range', () => {
  const read = parseWorkloadSpec(spec(given), 'w.yaml');
  expect(read.clients[0].cancellation).toEqual({ share: 0.25, delayMs: { type: 'constant', value: 300 } });
  expect(parseWorkloadSpec(formatWorkloadSpec(read), 'w.yaml')).toEqual(read);
  for (const [text, message] of [
    ['{share: 1.5, delay_ms: {type: constant, params: {value: 1}}}', /share is 1\.5/],
    ['{delay_ms: {type: constant, params: {value: 1}}}', /share is missing/],
    ['{share: 0.5}', /delay_ms is missing/],
    ['{share: 0.5, delay: 3}', /delay/],
  ] as const) {
    expect(() => parseWorkloadSpec(spec(`    cancellation: ${text}\n`), 'w.yaml')).toThrow(message);
  }
});

it('ends a running request at its time, and others have its blocks', () => {
  // 8 blocks of 4 tokens: 'a' takes 7 with its prompt and its answers, so 'b' waits until it is given up
  const a = { atUs: 0, prompt: 20, output: 8 };
  const b = { atUs: 0, prompt: 24, output: 1 };
  const kept = run([a, b], 8);
  expect(kept.conservation).toMatchObject({ completed: 2, cancelled: 0 });
  // steps by hand: 1000 + 10 x 20 tokens, then 1010 each; cancelled at 3000, in the step that ends at 3220
  const given = run([{ ...a, cancelUs: 3000 }, b], 8);
  expect(given.conservation).toMatchObject({ injected: 2, completed: 1, cancelled: 1 });
  expect(given.observed).toEqual(['request_0 cancelled 3000', `request_1 completed ${3220 + 1000 + 240}`]);
  expect(given.simulation.instances[0].engine.tiers()[0].usedBlocks).toBe(0);
  expect(given.simulation.instances[0].counters.cancelled).toBe(1);
  // it has the tokens at 1200, 2210 and of the step that runs
  expect([...given.simulation.table.generatedTokens.subarray(0, 2)]).toEqual([3, 1]);
});

it('has its tokens in its row, in its record, and what policies are told, however it ends', () => {
  const told: string[] = [];
  class Listening extends PolicyControlPlane {
    override ended(
      ...[request, instance, how, tokens, nowUs]: Parameters<PolicyControlPlane['ended']>
    ): void {
      told.push(`${request.id} ${how} ${tokens}`);
      super.ended(request, instance, how, tokens, nowUs);
    }
  }
  const workload = smallWorkload(Array.from({ length: 4 }, () => ({ atUs: 0, prompt: 20, output: 8 }))).map(
    (request, i) => ({
      ...request,
      cancelUs: i === 0 ? 6000 : 0,
      deadlineUs: i === 1 ? 6000 : 0,
    }),
  );
  const simulation = newSimulation({
    deployment: { pools: [smallPool({ topBlocks: 64 })] },
    workload: { stream: streamOf(workload), sessions: undefined },
    control: new Listening({}, { key: 1n, blockTokens: 4, maxSequences: 16 }),
    options: {
      horizonUs: 7500,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 50, bandwidthBytesPerS: 1e8 },
    },
  });
  simulation.run();
  simulation.close();
  // four prompts of 20 tokens take 1800 µs, a token of each 1040: 1800, 2840, 3880, 4920, 5960, and 7000 runs at 6000
  const records = [...requestRecords(simulation)].map((record) => [record.status, record.generatedTokens]);
  expect(records.slice(0, 2)).toEqual([
    ['cancelled', 6],
    ['timedOut', 6],
  ]);
  expect(told.sort()).toEqual(['request_0 timedOut 6', 'request_1 timedOut 6']);
  for (const { status, generatedTokens, ttftUs } of requestRecords(simulation)) {
    expect(generatedTokens > 0, status).toBe(ttftUs !== null);
  }
});

it('ends a request that waits, one not yet with its instance, and none that is done', () => {
  const rows = [
    { atUs: 0, prompt: 20, output: 8 },
    { atUs: 0, prompt: 24, output: 1, cancelUs: 1500 }, // waits for blocks
    { atUs: 0, prompt: 4, output: 1, cancelUs: 900_000 }, // is done long before
  ];
  const { conservation, observed } = run(rows, 8);
  expect(conservation).toMatchObject({ injected: 3, completed: 2, cancelled: 1 });
  expect(observed).toContain('request_1 cancelled 1500');
});

it('is counted in the metrics, and targets are judged on the others', () => {
  const files = { '/w.yaml': spec(given.replace('value: 300', 'value: 40')) };
  const asked = {
    model: 'qwen2.5-7b-instruct',
    workload: { file: '/w.yaml' },
    targets: { ttftMs: { default: 60_000 } },
  };
  const { metrics, conservation } = simulate(asked, { files });
  expect(conservation.injected).toBe(2000);
  expect(metrics.cancelled_requests).toBe(conservation.cancelled);
  expect(conservation.cancelled).toBeGreaterThan(400);
  expect(conservation.completed).toBe(2000 - conservation.cancelled);
  expect(metrics.injected_requests).toBe(2000);
  expect(metrics.slo_attainment).toBe(1);
});
