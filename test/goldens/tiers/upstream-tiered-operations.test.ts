/**
 * Upstream's operation traces of stores with lower tiers: the models of those stores equal them in everything
 * that is recorded, after every operation. What tierkv does instead is in upstream-kv-operations.test.ts.
 */

import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { goldens } from '../goldenFolders.ts';
import { ChainStore } from './chainStore.ts';
import { MirrorStore } from './mirrorStore.ts';
import { chainState, mirrorState, OperationReplay, type TieredOperation } from './operations.ts';
import type { StationTier } from './transferStation.ts';

const folder = new URL('micro/', goldens('KV operation traces with lower tiers'));
const fileOf = (name: string, seed: number): URL => new URL(`kvops-${name}-seed${seed}.json`, folder);

function secondary(i: number): StationTier {
  return {
    NRead: 2,
    NWrite: 2,
    ReadBaseTicks: 50 * (i + 1),
    WriteBaseTicks: 50 * (i + 1),
    ReadBytesPerTick: 10 / (i + 1),
    WriteBytesPerTick: 8 / (i + 1),
    SaturationQueueDepth: 4,
    SingleTransferFraction: 0.25,
  };
}

const mirror = (blocks: number, cpuBlocks: number, bandwidth: number, baseTicks: number): MirrorStore =>
  new MirrorStore(blocks, 4, { cpuBlocks, bandwidth, baseTicks });
const chain = (cpuBlocks: number, promptOnly: boolean, tiers: number): ChainStore =>
  new ChainStore(12, 4, {
    cpuBlocks,
    blockBytes: 1000,
    promptOnly,
    tiers: Array.from({ length: tiers }, (_, i) => secondary(i)),
  });

const stores: Readonly<Record<string, () => MirrorStore | ChainStore>> = {
  'tiered-12x4-cpu10': () => mirror(12, 10, 0.3, 5),
  'tiered-16x4-cpu64': () => mirror(16, 64, 100, 0),
  'offload-12x4-cpu6-1tier': () => chain(6, true, 1),
  'offload-12x4-cpu8-2tier-decode': () => chain(8, false, 2),
};

const cases = Object.keys(stores)
  .flatMap((name) => [1, 2].map((seed) => [name, seed] as const))
  .filter(([name, seed]) => existsSync(fileOf(name, seed)));

describe('KV operations with lower tiers, as upstream', () => {
  it('are there', () => {
    expect(cases.length).toBeGreaterThanOrEqual(2);
  });

  it.each(cases)('%s, seed %i', (name, seed) => {
    const { ops } = JSON.parse(readFileSync(fileOf(name, seed), 'utf8')) as { ops: TieredOperation[] };
    expect(ops.length).toBeGreaterThan(100);
    const store = stores[name]();
    const replay = new OperationReplay(store);
    for (const [i, operation] of ops.entries()) {
      const where = `operation ${i}, ${operation.op}`;
      for (const [field, value] of Object.entries(replay.next(operation))) {
        const theirs = operation[field as keyof TieredOperation];
        expect(value, `${field} of ${where}`).toEqual(theirs ?? []);
      }
      const state = store instanceof MirrorStore ? mirrorState(store) : chainState(store);
      for (const [field, theirs] of Object.entries(operation.state)) {
        const empty = field === 'map' ? {} : [];
        expect(state[field], `${field} after ${where}`).toEqual(theirs ?? empty);
      }
    }
  });
});
