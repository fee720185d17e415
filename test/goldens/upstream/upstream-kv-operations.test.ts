/**
 * Upstream's operation traces of the single-tier store. The model without repairs equals them in every block,
 * reference, hash and list after every operation; the manager, called as the scheduler calls it, equals the
 * model with all repairs in what each operation answers and counts. Which block lies in which slot is
 * tierkv's own affair.
 */

import { describe, expect, it } from 'vitest';
import { copies, fixtures, sharedGoldens } from '../goldenFolders.ts';
import {
  firstTierAct,
  hbmState,
  type KVOperation,
  loadOperations,
  runModel,
  runPort,
} from '../kvOperations.ts';
import { asUpstream, repaired } from './upstreamStore.ts';

interface Traced {
  readonly name: string;
  readonly blocks: number;
  readonly blockTokens: number;
}

function account(operations: readonly KVOperation[], { blocks, blockTokens }: Traced): void {
  expect(operations.length).toBeGreaterThan(100);
  const upstream = runModel(operations, blocks, blockTokens, asUpstream);
  for (const [i, { op, ok, state }] of operations.entries()) {
    if (ok !== undefined) expect(upstream.effects[i].ok, `operation ${i}, ${op}`).toBe(ok);
    expect(upstream.states[i], `state after operation ${i}, ${op}`).toEqual(hbmState(state));
  }
  const model = runModel(operations, blocks, blockTokens, repaired);
  const ours = runPort(operations, blocks, blockTokens);
  for (const [i, effect] of ours.entries()) expect(effect, `operation ${i}`).toEqual(model.effects[i]);
}

const traces: readonly Traced[] = [1, 2].flatMap((seed) => [
  { name: `single-16x4-seed${seed}`, blocks: 16, blockTokens: 4 },
  { name: `single-12x1-seed${seed}`, blocks: 12, blockTokens: 1 },
]);

const shared = sharedGoldens('the KV operation traces kvops-*.json');

describe('KV operations on one tier', () => {
  it('single-16x4-seed1, copied into the project', () => {
    account(loadOperations(fixtures, traces[0].name), traces[0]);
  });

  it.each(shared === undefined ? [] : traces)('$name', (traced) => {
    account(loadOperations(shared ?? fixtures, traced.name), traced);
  });
});

/**
 * `acts`: the first operation in which a lower tier of upstream brings blocks, or -1 where none ever does.
 */
const tiered: readonly (Traced & { readonly hostBlocks: number; readonly acts: number })[] = [
  { name: 'tiered-12x4-cpu10-seed1', blocks: 12, blockTokens: 4, hostBlocks: 10, acts: 25 },
  { name: 'tiered-12x4-cpu10-seed2', blocks: 12, blockTokens: 4, hostBlocks: 10, acts: -1 },
  { name: 'tiered-16x4-cpu64-seed1', blocks: 16, blockTokens: 4, hostBlocks: 64, acts: -1 },
  { name: 'tiered-16x4-cpu64-seed2', blocks: 16, blockTokens: 4, hostBlocks: 64, acts: -1 },
  { name: 'offload-12x4-cpu6-1tier-seed1', blocks: 12, blockTokens: 4, hostBlocks: 6, acts: 25 },
  { name: 'offload-12x4-cpu6-1tier-seed2', blocks: 12, blockTokens: 4, hostBlocks: 6, acts: -1 },
  { name: 'offload-12x4-cpu8-2tier-decode-seed1', blocks: 12, blockTokens: 4, hostBlocks: 8, acts: 25 },
  { name: 'offload-12x4-cpu8-2tier-decode-seed2', blocks: 12, blockTokens: 4, hostBlocks: 8, acts: -1 },
];

const folder = shared ?? new URL('micro/', copies);
const present = tiered.filter(({ name }) => loadOperations(folder, name).length > 0);

describe('KV operations with lower tiers', () => {
  it('are there', () => {
    expect(present.length).toBeGreaterThanOrEqual(2);
  });

  it.each(present)(
    '$name: as on one tier until a lower tier acts; from there on D3, D4, D11, D12 and D13 hold',
    ({ name, blocks, blockTokens, acts }) => {
      const operations = loadOperations(folder, name);
      expect(firstTierAct(operations)).toBe(acts);
      const upstream = runModel(operations, blocks, blockTokens, asUpstream);
      for (const [i, { op, ok, state }] of operations
        .slice(0, acts === -1 ? operations.length : acts)
        .entries()) {
        if (ok !== undefined) expect(upstream.effects[i].ok, `operation ${i}, ${op}`).toBe(ok);
        expect(upstream.states[i], `state after operation ${i}, ${op}`).toEqual(hbmState(state));
      }
      const model = runModel(operations, blocks, blockTokens, repaired);
      expect(runPort(operations, blocks, blockTokens)).toEqual(model.effects);
    },
  );

  it.each(present)(
    '$name: with host memory, all operations are sound and no hit is lost',
    ({ name, blocks, blockTokens, hostBlocks }) => {
      const operations = loadOperations(folder, name);
      const effects = runPort(operations, blocks, blockTokens, hostBlocks);
      const alone = runPort(operations, blocks, blockTokens);
      expect(effects.at(-1)?.hits).toBeGreaterThanOrEqual(alone.at(-1)?.hits ?? 0);
    },
  );
});
