/**
 * With decisions kept, each block that goes from tier to tier or with a hand-off has a record: as many as the engines count,
 * with the time that it took, and why it went.
 */

import { expect, it } from 'vitest';
import { buildPlanned } from '../../../src/sim/build/build.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';
import { Decisions, type KVTransferRecord } from '../../../src/sim/report/decisions.ts';

const shared =
  'data/suites/shared-prefixes.yaml --model qwen/qwen2.5-7b-instruct --seed 3 --num-requests 70 --hbm 2000';

function run(words: string) {
  const decisions = new Decisions(true);
  const built = buildPlanned(planSimulation(askedBy(readWords(words.split(' '))).deployment), {
    skipsKeys: false,
    observer: decisions,
  });
  built.simulation.run();
  const moves = decisions.records.filter(
    (record): record is KVTransferRecord => (record as KVTransferRecord).kind === 'kv_transfer',
  );
  return { moves, simulation: built.simulation };
}

const count = (moves: readonly KVTransferRecord[], ...names: string[]): number =>
  moves.filter(({ reason, type }) => names.includes(reason) || names.includes(type)).length;

const tiers: readonly (readonly [name: string, words: string, types: readonly string[]])[] = [
  ['links', '--ddr 16000', ['demand', 'evict']],
  ['two tiers', '--ddr 3000 --nvme 16000', ['demand', 'evict']],
  ['copies of all that is free', '--ddr 16000 --kv-offload eager', ['copy', 'demand', 'evict']],
  ['loads that a step pays for', '--kv-cpu-blocks 16000', ['demand', 'evict']],
];

it.each(tiers)('%s: as many as the engines count', (_, words, types) => {
  const { moves, simulation } = run(`${shared} ${words}`);
  let sent = 0;
  let reloads = 0;
  for (const { engine } of simulation.instances) {
    sent += engine.counters.sent;
    reloads += engine.counters.reloads;
  }
  expect(count(moves, 'offload')).toBe(sent);
  expect(count(moves, 'reload')).toBe(reloads);
  expect(reloads).toBeGreaterThan(0);
  expect(new Set(moves.map(({ type }) => type))).toEqual(new Set(types));
  for (const { block, bytes, latencyUs, fromTier, toTier, timeUs } of moves) {
    expect(block).toMatch(/^[0-9a-f]{32}$/);
    expect(bytes).toBe(simulation.instances[0].engine.blockBytes);
    expect(latencyUs).toBeGreaterThanOrEqual(0);
    expect(timeUs).toBeLessThanOrEqual(simulation.nowUs);
    expect(fromTier).not.toBe(toTier);
  }
  // what comes up went down before
  const lower = new Set<string>();
  for (const { block, reason } of moves) {
    if (reason === 'offload') lower.add(block);
    else expect(lower.has(block), block).toBe(true);
  }
});

it('of loads that a step pays for it has what the step pays', () => {
  const { moves } = run(`${shared} --kv-cpu-blocks 16000 --kv-transfer-base-latency 90`);
  const reloads = moves.filter(({ reason }) => reason === 'reload');
  expect(new Set(reloads.map(({ latencyUs }) => latencyUs)).size).toBe(1);
  expect(reloads[0].latencyUs).toBeGreaterThanOrEqual(90);
});

it('a hand-off has a record of each block that was sent, from instance to instance', () => {
  const { moves, simulation } = run(
    `${shared} --num-instances 2 --prefill-instances 1 --decode-instances 1 --pd-decider always`,
  );
  const handed = moves.filter(({ reason }) => reason === 'pd_handoff');
  const { bytes, completed } = simulation.handoffs.counters;
  expect(completed).toBeGreaterThan(0);
  expect(handed.reduce((sum, one) => sum + one.bytes, 0)).toBeCloseTo(bytes, 3);
  expect(
    handed.every(({ instance, toInstance, type }) => instance !== toInstance && type === 'handoff'),
  ).toBe(true);
});
