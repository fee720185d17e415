/**
 * Upstream's operation traces of the single-tier store. The model without repairs equals them in every block, reference, hash
 * and list after every operation; the manager, called as the scheduler calls it, equals the model with all repairs in what
 * each operation answers and counts. Which block lies in which slot is tierkv's own affair.
 */

import { describe, expect, it } from 'vitest';
import { fixtures, sharedGoldens } from './goldenFolders.ts';
import { type KVOperation, loadOperations, runModel, runPort } from './kvOperations.ts';
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
    expect(upstream.states[i], `state after operation ${i}, ${op}`).toEqual({
      ...state,
      free: state.free ?? [],
      blocks: state.blocks ?? [],
      map: state.map ?? {},
    });
  }
  const model = runModel(operations, blocks, blockTokens, repaired);
  const ours = runPort(operations, blocks, blockTokens);
  for (const [i, effect] of ours.entries()) expect(effect, `operation ${i}`).toEqual(model.effects[i]);
}

const traces: readonly Traced[] = [1, 2].flatMap((seed) => [
  { name: `single-16x4-seed${seed}`, blocks: 16, blockTokens: 4 },
  { name: `single-12x1-seed${seed}`, blocks: 12, blockTokens: 1 },
]);

describe('KV operations on one tier', () => {
  it('single-16x4-seed1, copied into the project', () => {
    account(loadOperations(fixtures, traces[0].name), traces[0]);
  });

  const shared = sharedGoldens('the KV operation traces kvops-*.json');

  it.skipIf(shared === undefined).each(traces)('$name', (traced) => {
    account(loadOperations(shared ?? fixtures, traced.name), traced);
  });
});
