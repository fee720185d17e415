/**
 * What came to a configuration and what ended there between two looks of its autoscaler. A request that could
 * go to several configurations counts in each by that one's share of those that were routed; by equal shares
 * until one was.
 */

import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import type { DeploymentMetrics, InstanceSnapshot } from '../../control/index.ts';
import {
  classOf,
  meetsTargets,
  percentile,
  type RequestTable,
  Status,
  type TargetsByClass,
} from '../../metrics/index.ts';

export class Traffic {
  readonly #alike: number;
  readonly #targets: TargetsByClass;
  /** By class with targets: requests that ended, and that met them. */
  readonly #attained = new Map<string, { ended: number; met: number }>();
  #sinceUs = 0;
  #routed = 0;
  #routedHere = 0;
  #arrivals = 0;
  #promptTokens = 0;
  #ended = 0;
  #outputTokens = 0;
  #ttftUs = 0;
  #tpotUs = 0;
  #latenciesUs: number[] = [];

  /** @param alike configurations that could take what this one takes, this one included */
  constructor(alike: number, targets: TargetsByClass) {
    this.#alike = alike;
    this.#targets = targets;
    for (const name of Object.keys(targets).sort()) this.#attained.set(name, { ended: 0, met: 0 });
  }

  /** Share of what it could take that comes here. */
  get share(): number {
    return this.#routed === 0 ? 1 / this.#alike : this.#routedHere / this.#routed;
  }

  /** A request that it could take arrived. */
  arrived(promptTokens: number): void {
    this.#arrivals++;
    this.#promptTokens += promptTokens;
  }

  /** A request that it could take was routed. */
  routed(here: boolean): void {
    this.#routed++;
    if (here) this.#routedHere++;
  }

  ended(table: RequestTable, row: number): void {
    const attained = this.#attained.get(classOf(table, row));
    if (attained !== undefined) {
      attained.ended++;
      if (meetsTargets(table, row, this.#targets)) attained.met++;
    }
    if (table.status[row] !== Status.COMPLETED) return;
    this.#ended++;
    this.#outputTokens += table.generatedTokens[row];
    this.#ttftUs += table.firstTokenUs[row];
    this.#tpotUs += table.meanGapUs(row);
    this.#latenciesUs.push(table.e2eUs[row]);
  }

  /** The metrics since the last call. */
  take(instances: readonly InstanceSnapshot[], nowUs: number): DeploymentMetrics {
    const mean = (sum: number, count: number): number => (count === 0 ? 0 : sum / count);
    const over = (pick: (instance: InstanceSnapshot) => number): number =>
      mean(
        instances.reduce((sum, instance) => sum + pick(instance), 0),
        instances.length,
      );
    const latencies = Float64Array.from(this.#latenciesUs).sort();
    const latencySum = latencies.reduce((sum, us) => sum + us, 0);
    const metrics: DeploymentMetrics = {
      avgQueueDepth: over(({ queueDepth }) => queueDepth),
      avgUtilization: over(({ kv }) => kv.tiers[0]?.utilization ?? 0),
      requestRate: mean(this.#arrivals * this.share * 1e6, nowUs - this.#sinceUs),
      avgPromptTokens: mean(this.#promptTokens, this.#arrivals),
      avgOutputTokens: mean(this.#outputTokens, this.#ended),
      sloAttainment: Object.fromEntries(
        [...this.#attained]
          .filter(([, { ended }]) => ended > 0)
          .map(([name, { ended, met }]) => [name, met / ended]),
      ),
      avgLatencyUs: mean(latencySum, latencies.length),
      p99LatencyUs: percentile(latencies, 99),
      avgTtftUs: mean(this.#ttftUs, this.#ended),
      avgTpotUs: mean(this.#tpotUs, this.#ended),
    };
    this.#sinceUs = nowUs;
    this.#routed = 0;
    this.#routedHere = 0;
    this.#arrivals = 0;
    this.#promptTokens = 0;
    this.#ended = 0;
    this.#outputTokens = 0;
    this.#ttftUs = 0;
    this.#tpotUs = 0;
    this.#latenciesUs = [];
    for (const attained of this.#attained.values()) {
      attained.ended = 0;
      attained.met = 0;
    }
    return metrics;
  }

  visitState(visitor: StateVisitor): void {
    this.#sinceUs = visitor.number(this.#sinceUs);
    this.#routed = visitor.number(this.#routed);
    this.#routedHere = visitor.number(this.#routedHere);
    this.#arrivals = visitor.number(this.#arrivals);
    this.#promptTokens = visitor.number(this.#promptTokens);
    this.#ended = visitor.number(this.#ended);
    this.#outputTokens = visitor.number(this.#outputTokens);
    this.#ttftUs = visitor.number(this.#ttftUs);
    this.#tpotUs = visitor.number(this.#tpotUs);
    visitor.list(this.#latenciesUs);
    for (const attained of this.#attained.values()) visitor.fields(attained);
  }
}
