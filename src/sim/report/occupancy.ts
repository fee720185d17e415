/** How full the tiers are over time, sampled at steps; the samples thin out as the run grows. */

import type { SimulationObserver, StepSpan } from '../cluster/index.ts';
import type { TierReport } from '../instance/index.ts';

export interface OccupancySample {
  readonly timeUs: number;
  /** By tier, HBM first: share in use, over all instances. */
  readonly shares: readonly number[];
}

/** Most samples that are kept. */
const SAMPLES_MAX = 2048;

export class Occupancy implements SimulationObserver {
  #samples: OccupancySample[] = [];
  #everyUs = 1000;
  #nextUs = 0;
  readonly #tiers: () => readonly (readonly TierReport[])[];

  /** @param tiers reports of all instances */
  constructor(tiers: () => readonly (readonly TierReport[])[]) {
    this.#tiers = tiers;
  }

  get samples(): readonly OccupancySample[] {
    return this.#samples;
  }

  step({ startUs }: StepSpan): void {
    if (startUs < this.#nextUs) return;
    const used: number[] = [];
    const capacity: number[] = [];
    for (const tiers of this.#tiers()) {
      for (const [i, { usedBlocks, capacityBlocks }] of tiers.entries()) {
        used[i] = (used[i] ?? 0) + usedBlocks;
        capacity[i] = (capacity[i] ?? 0) + capacityBlocks;
      }
    }
    this.#samples.push({ timeUs: startUs, shares: used.map((blocks, i) => blocks / capacity[i]) });
    if (this.#samples.length === SAMPLES_MAX) {
      this.#samples = this.#samples.filter((_, i) => i % 2 === 0);
      this.#everyUs *= 2;
    }
    this.#nextUs = startUs + this.#everyUs;
  }
}
