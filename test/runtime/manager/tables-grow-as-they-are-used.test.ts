/**
 * Tables that begin small and grow decide as tables that are whole from the start, for every eviction policy;
 * a manager costs what it uses, not what it may hold; and a grown manager can be written down.
 */

import { describe, expect, it } from 'vitest';
import {
  evictionPolicyNames,
  KVManager,
  type ManagerConfig,
  Outcome,
  type Sequence,
} from '../../../src/runtime/index.ts';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import { SeededRandom } from '../../../src/testing/index.ts';

const CHAINS = 120;
const BLOCKS = 24;

/** Prompts that come and go, on more blocks than a table begins with. */
class Traffic {
  readonly manager: KVManager;
  readonly random: SeededRandom;
  readonly open: { readonly sequence: Sequence; readonly keys: Uint32Array }[] = [];
  now = 0;

  constructor(manager: KVManager, seed: number) {
    this.manager = manager;
    this.random = new SeededRandom(seed);
  }

  request(): void {
    const { manager, random } = this;
    this.now += 10;
    const chain = random.below(CHAINS);
    const blocks = 1 + random.below(BLOCKS);
    const keys = Uint32Array.from(Array.from({ length: blocks }, (_, i) => [chain, i + 1, 2, 3]).flat());
    const sequence = manager.open(keys, blocks, this.now, blocks);
    manager.load(sequence, this.now);
    this.#endJobs();
    manager.allocate(sequence, sequence.length, blocks, this.now);
    this.#endJobs();
    for (let i = 0; i < sequence.length; i++) {
      if (manager.openBlock(sequence, i) !== undefined)
        manager.seal(sequence, i, i + 1, keys, i * 4, 16, this.now);
    }
    this.#endJobs();
    this.open.push({ sequence, keys });
    while (this.open.length > 0 && random.chance(0.5)) {
      const [{ sequence: done }] = this.open.splice(random.below(this.open.length), 1);
      manager.release(done, this.now);
      this.#endJobs();
    }
  }

  #endJobs(): void {
    const { manager } = this;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, this.now, 7, 7);
    }
  }
}

const configOf = (policy: string, unitBytes: readonly number[]): ManagerConfig => ({
  unitBytes,
  pageBytes: 2,
  hbm: { capacityBytes: 800, landingBytes: 64 },
  ddr: { capacityBytes: 900, landingBytes: 64 },
  eviction: { policy },
});
const wholeTables = { tableMemory: (bytes: number): ArrayBuffer => new ArrayBuffer(bytes) };

describe('tables that grow as they are used', () => {
  it.each(evictionPolicyNames)('decide as whole ones with %s', (policy) => {
    for (const unitBytes of [[1], [2], [2, 1]]) {
      const config = configOf(policy, unitBytes);
      const whole = new Traffic(new KVManager({ ...config, ...wholeTables }), 5);
      const grown = new Traffic(new KVManager(config), 5);
      for (let i = 0; i < 250; i++) {
        whole.request();
        grown.request();
        if (i % 50 !== 49) continue;
        grown.manager.checkIntegrity();
        expect(grown.manager.inspect.dump()).toEqual(whole.manager.inspect.dump());
        expect(grown.manager.inspect.counters).toEqual(whole.manager.inspect.counters);
      }
      expect(grown.manager.inspect.counters.evictions[0], 'the traffic fills the tier').toBeGreaterThan(0);
    }
  });

  it.each(evictionPolicyNames)('are written down grown, and go on, with %s', (policy) => {
    const config = configOf(policy, [1]);
    const first = new Traffic(new KVManager(config), 6);
    for (let i = 0; i < 120; i++) first.request();
    for (const { sequence } of first.open.splice(0)) first.manager.release(sequence, first.now);
    const saved = structuredClone(saveState(first.manager));
    const other = new KVManager(config);
    restoreState(other, saved);
    other.checkIntegrity();
    expect(other.inspect.dump()).toEqual(first.manager.inspect.dump());
    const [a, b] = [new Traffic(first.manager, 7), new Traffic(other, 7)];
    for (const each of [a, b]) each.now = first.now;
    for (let i = 0; i < 60; i++) {
      a.request();
      b.request();
    }
    expect(b.manager.inspect.dump()).toEqual(a.manager.inspect.dump());
  });

  it('come into the same slots, pages that an adoption passed over included', () => {
    const slots = (config: ManagerConfig): number[] => {
      const manager = new KVManager(config);
      const block = { sizeClass: 0, generation: 3, digest: { lo: 1, hi: 2 }, tokens: 16, parent: undefined };
      for (const slot of [700, 5, 701]) {
        expect(manager.adopt(1, { ...block, slot, key: Uint32Array.of(9, slot, 1, 1) }, 0)).toBe(true);
      }
      const traffic = new Traffic(manager, 8);
      for (let i = 0; i < 150; i++) traffic.request();
      manager.checkIntegrity();
      return manager.inspect.dump().replicas.map(({ replica }) => replica);
    };
    const config = configOf('lru', [1]);
    expect(slots(config)).toEqual(slots({ ...config, ...wholeTables }));
  });

  it('have few rows in a manager that holds little, however much it may hold', () => {
    const rowsOf = (config: ManagerConfig): number => {
      const manager = new KVManager(config);
      const traffic = new Traffic(manager, 9);
      for (let i = 0; i < 4; i++) traffic.request();
      let numbers = 0;
      for (const value of saveState(manager)) {
        numbers += (value as { readonly length?: number } | null)?.length ?? 1;
      }
      return numbers;
    };
    const sizes = (blocks: number): ManagerConfig => ({
      unitBytes: [1],
      hbm: { capacityBytes: blocks },
      eviction: { policy: 'lru' },
      maxJobs: 16 * 1024,
    });
    const small = rowsOf(sizes(1024));
    expect(rowsOf(sizes(2 ** 22))).toBe(small);
    expect(rowsOf({ ...sizes(1024), ...wholeTables }), 'the count sees whole tables').toBeGreaterThan(
      4 * small,
    );
  });
});
