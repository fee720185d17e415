/** What the instances of a run move between their tiers, step by step. */

import type { Simulation, StepSpan } from '../../sim/cluster/index.ts';
import type { SimRequest } from '../../sim/instance/index.ts';
import { MovedBlocks } from './movedBlocks.ts';
import type { TransferRecord } from './records.ts';

interface Moved {
  readonly offloads: number;
  readonly reloads: number;
  readonly thrashed: number;
}

const nothing: Moved = { offloads: 0, reloads: 0, thrashed: 0 };

export class Transfers {
  #simulation: Simulation | undefined;
  /** By instance: what it had moved by its last step. */
  readonly #moved: Moved[] = [];
  readonly #blocks: MovedBlocks[] = [];
  readonly #tiers: (readonly string[])[] = [];

  attach(simulation: Simulation): void {
    this.#simulation = simulation;
  }

  blocksOf(instance: number): MovedBlocks {
    return (this.#blocks[instance] ??= new MovedBlocks(() => this.#tierNames(instance)));
  }

  #tierNames(instance: number): readonly string[] {
    const engine = this.#simulation?.instances[instance]?.engine;
    return (this.#tiers[instance] ??= engine?.traffic().tiers.map(({ tier }) => tier) ?? []);
  }

  /** The slowest tier of the instance that has leading blocks of the prompt now. */
  cacheTier({ keys, promptBlocks }: SimRequest, instance: number): string {
    const engine = this.#simulation?.instances[instance]?.engine;
    if (engine === undefined) return '';
    const byTier = engine.cachedByTier(keys, Math.min(promptBlocks, keys.length));
    const slowest = byTier.findLastIndex((blocks) => blocks > 0);
    return slowest === -1 ? '' : this.#tierNames(instance)[slowest];
  }

  /** What was moved since the instance's step before, also where that is nothing. */
  stepped({ instance, startUs, transferUs }: StepSpan): TransferRecord {
    const { offloads, reloads, thrashing } = this.#simulation?.instances[instance]?.engine.counters ?? {
      ...nothing,
      thrashing: 0,
    };
    const now = { offloads, reloads, thrashed: Math.round(thrashing * reloads) };
    const before = this.#moved[instance] ?? nothing;
    this.#moved[instance] = now;
    return {
      kind: 'transfer',
      timeUs: startUs,
      instance,
      offloadedBlocks: now.offloads - before.offloads,
      reloadedBlocks: now.reloads - before.reloads,
      thrashedBlocks: now.thrashed - before.thrashed,
      transferUs,
      blocks: this.#blocks[instance]?.take() ?? [],
    };
  }
}
