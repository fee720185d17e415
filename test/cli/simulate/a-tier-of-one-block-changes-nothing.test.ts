/**
 * A comparison of with and without a tier changes nothing else: a tier below GPU memory that is too small to be of use gives the
 * figures of none, and no tier of any size adds GPU memory. The room in which blocks land is taken out of the size.
 */

import { expect, it } from 'vitest';
import { buildPlanned, runToEnd } from '../../../src/sim/build/build.ts';
import type { BuiltSimulation } from '../../../src/sim/build/built.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';

interface Served {
  readonly completed: number;
  readonly perS: number;
  readonly hitShare: number;
  /** Blocks of GPU memory that were held at the most, and blocks that the options ask for. */
  readonly held: number;
  readonly size: number;
}

function run(words: string, ...more: string[]): Served {
  const plan = planSimulation(askedBy(readWords([...words.split(' '), ...more])).deployment);
  let built: BuiltSimulation | undefined;
  let held = 0;
  const observer = {
    step: (): void => {
      for (const { engine } of built?.simulation.instances ?? []) {
        const [{ usedBlocks, capacityBlocks }] = engine.tiers();
        expect(usedBlocks).toBeLessThanOrEqual(capacityBlocks);
        held = Math.max(held, usedBlocks);
      }
    },
  };
  const { simulation } = runToEnd((skipsKeys) => {
    built = buildPlanned(plan, { skipsKeys, observer });
    return built;
  });
  const { instances } = simulation;
  const sum = (of: (instance: (typeof instances)[number]) => number): number =>
    instances.reduce((total, one) => total + of(one), 0);
  const found = sum(({ engine }) => engine.counters.hits.reduce((total, blocks) => total + blocks, 0));
  const opened = sum(({ engine }) => engine.counters.openedBlocks);
  const completed = sum(({ counters }) => counters.completed);
  return {
    completed,
    perS: completed / (Math.max(...instances.map(({ endUs }) => endUs)) / 1e6),
    hitShare: found / Math.max(1, found + opened),
    held,
    size: plan.pools[0].engine.topBlocks,
  };
}

const qwen = '--model qwen/qwen3-14b';
const lengths =
  '--workload distribution --prompt-tokens 700 --prompt-tokens-stdev 200 --output-tokens 300 --num-requests 300 --max-model-len 1500';

const deployments: readonly (readonly [name: string, words: string])[] = [
  ['a memory of two requests', `${qwen} ${lengths} --rate 30 --hbm 100`],
  ['a memory of ten requests', `${qwen} ${lengths} --rate 30 --hbm 600`],
  [
    'conversations in a memory that is full',
    `${qwen} --workload chat --rate 20 --num-requests 400 --hbm 3000`,
  ],
  ['conversations in real memory', `${qwen} --workload chat --rate 30 --num-requests 400`],
  [
    'two instances by prefix',
    `${qwen} --workload chat --rate 20 --num-requests 400 --hbm 2000 --num-instances 2 --routing-policy weighted --routing-scorers precise-prefix-cache:1,active-requests:1`,
  ],
  [
    'prefill and decode apart',
    `${qwen} ${lengths} --rate 10 --hbm 1500 --prefill-instances 1 --decode-instances 1 --pd-decider always --num-instances 2`,
  ],
  [
    'requests that give way',
    `${qwen} ${lengths} --rate 30 --hbm 300 --preemption-mode recompute --max-num-seqs 64`,
  ],
];

it.each(deployments)('%s', (_, words) => {
  const without = run(words);
  expect(without.completed).toBeGreaterThan(0);
  expect(without.held).toBeGreaterThan(0);
  for (const tiers of [
    ['--ddr', '1'],
    ['--ddr', '1', '--nvme', '1'],
    ['--nvme', '1'],
  ]) {
    const beside = run(words, ...tiers);
    expect(Math.abs(beside.perS / without.perS - 1), tiers.join(' ')).toBeLessThanOrEqual(0.01);
    expect(Math.abs(beside.hitShare - without.hitShare)).toBeLessThanOrEqual(0.001);
    expect(beside.held).toBeLessThanOrEqual(beside.size);
  }
  // a tier that is of use takes its landing room out of GPU memory, whatever it holds itself
  for (const blocks of [String(without.size), String(8 * without.size)]) {
    const { held, size } = run(words, '--ddr', blocks, '--kv-load', 'always');
    expect(size).toBe(without.size);
    expect(held).toBeLessThanOrEqual(size);
  }
});
