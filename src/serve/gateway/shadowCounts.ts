/** How often policies that decide beside would have decided otherwise. */

import type { GatewayOutput } from './records.ts';

export interface ShadowTally {
  readonly name: string;
  admissions: number;
  /** Admissions with another verdict. */
  otherVerdicts: number;
  routes: number;
  /** Routes to another backend. */
  otherTargets: number;
}

export class ShadowCounts {
  readonly tallies: readonly ShadowTally[];

  constructor(names: readonly string[]) {
    this.tallies = names.map((name) => ({
      name,
      admissions: 0,
      otherVerdicts: 0,
      routes: 0,
      otherTargets: 0,
    }));
  }

  /** Takes a decision of the gateway, with what the others would have done. */
  see(output: GatewayOutput & { readonly out: 'admission' | 'route' }): void {
    for (const tally of this.tallies) {
      if (output.out === 'admission') {
        const verdict = output.shadows?.[tally.name];
        if (verdict === undefined) continue;
        tally.admissions++;
        if (verdict !== output.verdict) tally.otherVerdicts++;
        continue;
      }
      const target = output.shadows?.[tally.name];
      if (target === undefined) continue;
      tally.routes++;
      if (target !== output.target) tally.otherTargets++;
    }
  }
}
