/**
 * What the request table does not keep of a run: decisions, how full tiers were, how many replicas there
 * were.
 */

import type { ScaleChange, SimulationObserver, StepSpan } from '../../sim/cluster/index.ts';
import type { AdmissionDecision, RoutingDecision, ShadowDivergence } from '../../sim/control/index.ts';
import type { SimRequest, TierReport } from '../../sim/instance/index.ts';

/** Reports of all instances, by tier. */
export type ReadTiers = () => readonly (readonly TierReport[])[];

/** How often tiers are looked at, in simulated time. */
const SAMPLE_US = 100_000;

export class RunWatch implements SimulationObserver {
  admitted = 0;
  rejected = 0;
  delayed = 0;
  routed = 0;
  divergences = 0;
  scaleEvents = 0;
  /** By instance number: requests sent there. */
  readonly sent: number[] = [];
  /** By tier: sum of the shares in use, over the samples. */
  readonly #usedSums: number[] = [];
  readonly #usedMost: number[] = [];
  #samples = 0;
  #nextUs = 0;
  /** How many replicas there were, and from when on. */
  readonly #replicas: Period[] = [];
  readonly #byConfig = new Map<string, Period[]>();
  readonly #tiers: ReadTiers;

  constructor(tiers: ReadTiers) {
    this.#tiers = tiers;
  }

  /**
   * @param replicas those that there are before the first event, of all configurations
   * @param byConfig those of each
   */
  begin(replicas: number, byConfig: ReadonlyMap<string, number> = new Map()): void {
    this.#replicas.push({ sinceUs: 0, count: replicas });
    for (const [config, count] of byConfig) this.#byConfig.set(config, [{ sinceUs: 0, count }]);
  }

  admission(_request: SimRequest, { verdict }: AdmissionDecision): void {
    if (verdict === 'admit') this.admitted++;
    else if (verdict === 'reject') this.rejected++;
    else this.delayed++;
  }

  routing(_request: SimRequest, decision: RoutingDecision | null): void {
    if (decision === null) return;
    this.routed++;
    const { target } = decision;
    while (this.sent.length <= target) this.sent.push(0);
    this.sent[target]++;
  }

  diverged(_divergence: ShadowDivergence): void {
    this.divergences++;
  }

  scaled({ configId, previousCount, newCount, timeUs }: ScaleChange): void {
    this.scaleEvents++;
    const { count } = this.#replicas[this.#replicas.length - 1];
    // both are of one configuration, and there may be others
    this.#replicas.push({ sinceUs: timeUs, count: count + newCount - previousCount });
    const own = this.#byConfig.get(configId) ?? [{ sinceUs: 0, count: previousCount }];
    own.push({ sinceUs: timeUs, count: newCount });
    this.#byConfig.set(configId, own);
  }

  step({ startUs }: StepSpan): void {
    if (startUs < this.#nextUs) return;
    this.#nextUs = startUs + SAMPLE_US;
    this.#samples++;
    const used: number[] = [];
    const capacity: number[] = [];
    for (const tiers of this.#tiers()) {
      for (const [tier, { usedBlocks, capacityBlocks }] of tiers.entries()) {
        used[tier] = (used[tier] ?? 0) + usedBlocks;
        capacity[tier] = (capacity[tier] ?? 0) + capacityBlocks;
      }
    }
    for (const [tier, blocks] of used.entries()) {
      const share = blocks / Math.max(1, capacity[tier]);
      this.#usedSums[tier] = (this.#usedSums[tier] ?? 0) + share;
      this.#usedMost[tier] = Math.max(this.#usedMost[tier] ?? 0, share);
    }
  }

  /** By tier: mean share in use. */
  meanUtilization(): number[] {
    return this.#usedSums.map((sum) => sum / Math.max(1, this.#samples));
  }

  /** By tier: the largest share in use that was seen. */
  mostUtilization(): readonly number[] {
    return this.#usedMost;
  }

  /** Over the time until `endUs`; what changes later does not count. */
  meanReplicas(endUs: number): number {
    return meanOver(this.#replicas, endUs);
  }

  /** The same of each configuration, in the order of their names. */
  meanReplicasByConfig(endUs: number): Record<string, number> {
    const all = [...this.#byConfig].sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(all.map(([config, periods]) => [config, meanOver(periods, endUs)]));
  }
}

/** So many replicas from a time on. */
interface Period {
  readonly sinceUs: number;
  readonly count: number;
}

function meanOver(periods: readonly Period[], endUs: number): number {
  if (endUs <= 0) return periods[0].count;
  const sum = periods.reduce((total, { sinceUs, count }, i) => {
    const untilUs = Math.min(endUs, periods[i + 1]?.sinceUs ?? endUs);
    return total + count * Math.max(0, untilUs - sinceUs);
  }, 0);
  return sum / endUs;
}
