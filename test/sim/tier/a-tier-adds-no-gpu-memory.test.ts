/**
 * A tier below GPU memory adds none to it: what is on its way takes its room out of the size. Tiers too small to pay are
 * as none, to the last figure; larger ones find more and slow nothing down.
 */

import { expect, it } from 'vitest';
import { buildPlanned, runToEnd } from '../../../src/sim/build/build.ts';
import type { BuiltSimulation } from '../../../src/sim/build/built.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';
import type { MetricsOutput } from '../../../src/sim/report/metricsOutput.ts';
import { run } from '../../goldens/upstream/wholeCases.ts';

/** More than memory has room for, from the first second on. */
const crowded = (blocks: number, requests = 300): string[] =>
  (
    '--model qwen/qwen3-14b --workload distribution --prompt-tokens 700 --prompt-tokens-stdev 200 ' +
    `--output-tokens 300 --num-requests ${requests} --max-model-len 1500 --rate 30 --hbm ${blocks}`
  ).split(' ');

const withoutTier = new Map<number, MetricsOutput>();
const none = (blocks: number): MetricsOutput => {
  const known = withoutTier.get(blocks) ?? run(crowded(blocks));
  withoutTier.set(blocks, known);
  return known;
};

it.each([
  [100, 1],
  [100, 11],
  [200, 1],
  [1000, 1],
  [1000, 100],
])('%i blocks of GPU memory with a tier of %i, too small to pay, are as without it', (blocks, below) => {
  const { cache_hit_rate: hits, ...metrics } = run([...crowded(blocks), '--ddr', `${below}`]);
  const { cache_hit_rate: bare, ...plain } = none(blocks);
  expect(metrics).toMatchObject(plain);
  expect(hits).toBe(bare);
});

it.each([
  [100, 12],
  [100, 600],
  [200, 30],
  [200, 5000],
  [1000, 150],
  [1000, 5000],
])('%i blocks of GPU memory with a tier of %i serve as fast as without it', (blocks, below) => {
  const metrics = run([...crowded(blocks), '--ddr', `${below}`]);
  const plain = none(blocks);
  const ratio = metrics.tokens_per_sec / plain.tokens_per_sec;
  expect(ratio).toBeGreaterThan(0.99);
  // memory of a sixteenth more serves at least a sixteenth more of this
  expect(ratio).toBeLessThan(1.03);
});

it.each([
  ['a tier of host memory', ['--ddr', '5000']],
  ['two tiers', ['--ddr', '100', '--nvme', '2000']],
  ['preempted requests that go down', ['--ddr', '2000', '--preemption-mode', 'offload']],
  ['loads billed to the step', ['--kv-cpu-blocks', '500']],
])('no share of a tier is above 1, and none has fewer than 0 blocks free: %s', (_, tiers) => {
  let most = 0;
  let built: BuiltSimulation | undefined;
  const look = (): void => {
    for (const { engine } of built?.simulation.instances ?? []) {
      for (const { usedBlocks, freeBlocks, capacityBlocks } of engine.tiers()) {
        expect(freeBlocks).toBeGreaterThanOrEqual(0);
        expect(usedBlocks).toBeLessThanOrEqual(capacityBlocks);
        most = Math.max(most, usedBlocks / capacityBlocks);
      }
    }
  };
  const { deployment } = askedBy(readWords([...crowded(150, 150), ...tiers]));
  const plan = planSimulation(deployment);
  runToEnd((skipsKeys) => {
    built = buildPlanned(plan, { skipsKeys, observer: { step: look } });
    return built;
  });
  expect(most, 'the control: memory was full').toBeGreaterThan(0.95);
});
