/** A pool whose transfers are carried out at once, one number a slot instead of bytes, and compared. */

import { type JobId, Outcome } from '../../../src/runtime/index.ts';
import type { KVBlockDescriptor, PoolUnit } from '../../../src/views/kvBlockDescriptor.ts';
import { MultiGranularKVPool } from '../../../src/views/multiGranularKVPool.ts';
import type { KVPoolConfig } from '../../../src/views/poolConfig.ts';

/** 4 layers, 2 heads: a block of 4 tokens has 4 * 2 * 4 * 2 rows of 16 bytes. */
export const layout: KVPoolConfig['layout'] = { layers: 4, kvHeads: 2, headDim: 4, dtype: 'f32' };
export const blockBytes: number = 4 * 2 * 4 * 2 * 16;
export const allLayers: readonly number[] = [0, 1, 2, 3];

export function poolConfig(config: Partial<KVPoolConfig> = {}): KVPoolConfig {
  return {
    layout,
    blockSize: 4,
    hbmCapacityBytes: 32 * blockBytes,
    ddrCapacityBytes: 32 * blockBytes,
    nvmeCapacityBytes: 32 * blockBytes,
    landingShare: 0,
    model: 'test@1',
    secretKey: new Uint8Array(32).fill(7),
    ...config,
  };
}

export class PoolWorld {
  readonly pool: MultiGranularKVPool;
  /** What lies in each slot, by tier. */
  readonly slots: Map<number, number>[] = [new Map(), new Map(), new Map(), new Map()];
  /** Ends the next transfers to a tier otherwise. */
  outcome: Outcome = Outcome.LOADED;
  moves = 0;

  constructor(config: Partial<KVPoolConfig> = {}) {
    this.pool = new MultiGranularKVPool(poolConfig(config));
  }

  /** Carries out everything until nothing is left to do. */
  settle(): void {
    const { manager } = this.pool;
    for (let job: JobId = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      const { kind, source, target } = manager.transfer(job);
      const to = this.slots[target.tier];
      if (kind === 'move') this.moves++;
      if (this.outcome === Outcome.LOADED && source !== null) {
        to.set(target.slot, this.slots[source.tier].get(source.slot) ?? -1);
      }
      const value = to.get(target.slot) ?? 0;
      const outcome = kind === 'move' ? this.outcome : Outcome.LOADED;
      manager.complete(job, outcome, this.pool.nowUs, kind === 'seal' ? value : 0, 0);
    }
    this.pool.checkIntegrity();
  }

  /** Writes a number into each open unit of the blocks. */
  write(blocks: readonly KVBlockDescriptor[], value: number): void {
    this.settle();
    blocks.forEach((block) => {
      block.units.forEach((unit, i) => {
        const place = block.places[i];
        if (place !== undefined) this.slots[place.tier].set(place.slot, numberOf(unit, value));
      });
    });
  }

  /** Whether every unit of the block has the number that was written, wherever it lies now. */
  holds(block: KVBlockDescriptor, value: number): boolean {
    return block.units.every((unit, i) => {
      const place = block.places[i];
      return place !== undefined && this.slots[place.tier].get(place.slot) === numberOf(unit, value);
    });
  }
}

function numberOf({ track, unit }: PoolUnit, value: number): number {
  const { layerStart, headStart } = track.column;
  return value * 1e6 + layerStart * 1e4 + headStart * 1e3 + unit;
}
