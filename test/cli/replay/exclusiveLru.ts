/**
 * The tiers of reference traces, written down as plainly as their definition: an array a tier, oldest first;
 * a request's blocks go to the newest end of HBM from last to first, and then each tier is trimmed once into
 * the next. The oracle for the manager, which does the same with slots, jobs and bytes.
 */

export interface OracleReport {
  readonly hits: number[];
  readonly demotions: number[];
  dropped: number;
  readonly perRequest: number[];
}

export class ExclusiveLru {
  readonly report: OracleReport;
  readonly #tiers: number[][];
  readonly #capacities: readonly number[];

  constructor(capacities: readonly number[]) {
    this.#capacities = capacities;
    this.#tiers = capacities.map(() => []);
    this.report = {
      hits: capacities.map(() => 0),
      demotions: capacities.map(() => 0),
      dropped: 0,
      perRequest: [],
    };
  }

  request(ids: readonly number[]): void {
    let matched = 0;
    for (; matched < ids.length; matched++) {
      const tier = this.#tiers.findIndex((blocks) => blocks.includes(ids[matched]));
      if (tier === -1) break;
      this.report.hits[tier]++;
    }
    this.report.perRequest.push(matched);
    for (const id of [...ids].reverse()) {
      for (const blocks of this.#tiers) {
        const at = blocks.indexOf(id);
        if (at !== -1) blocks.splice(at, 1);
      }
      this.#tiers[0].push(id);
    }
    this.#tiers.forEach((blocks, tier) => {
      while (blocks.length > this.#capacities[tier]) {
        const id = blocks.shift()!;
        const below = this.#tiers[tier + 1];
        if (below === undefined) this.report.dropped++;
        else {
          below.push(id);
          this.report.demotions[tier]++;
        }
      }
    });
  }
}
