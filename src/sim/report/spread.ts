/**
 * How requests were spread over the instances of each pool, and what is wrong with it: an instance that idles
 * costs as much as one that works, and a cluster of which one instance does the work is not the cluster that
 * was meant.
 */

import type { SimulationObserver } from '../cluster/index.ts';
import type { RoutingDecision } from '../control/index.ts';
import type { Instance, SimRequest } from '../instance/index.ts';

/** Requests for each instance below which chance alone leaves instances out. */
const REQUESTS_MIN = 4;

export class Spread implements SimulationObserver {
  /** By instance number: requests that were routed there, as a whole or for one of their parts. */
  readonly #routed: number[] = [];

  routing(_request: SimRequest, decision: RoutingDecision | null): void {
    if (decision === null) return;
    const { target, prefillInstance } = decision;
    this.#routed[target] = (this.#routed[target] ?? 0) + 1;
    if (prefillInstance !== -1) this.#routed[prefillInstance] = (this.#routed[prefillInstance] ?? 0) + 1;
  }

  /** @param scaled names of pools whose replicas come and go, and so cannot have equal shares */
  warnings(instances: readonly Instance[], scaled: ReadonlySet<string>): string[] {
    const pools = new Map<string, Instance[]>();
    for (const instance of instances) {
      if (scaled.has(instance.configId)) continue;
      // without a deployment file, pools of different roles have one name
      const name = `${instance.configId} ${instance.role}`;
      pools.set(name, [...(pools.get(name) ?? []), instance]);
    }
    return [...pools.values()].flatMap((pool) => this.#ofPool(pool));
  }

  #ofPool(pool: readonly Instance[]): string[] {
    const counts = pool.map(({ number }) => this.#routed[number] ?? 0);
    const all = counts.reduce((sum, count) => sum + count, 0);
    if (pool.length < 2 || all < REQUESTS_MIN * pool.length) return [];
    const most = Math.max(...counts);
    const idle = counts.filter((count) => count === 0).length;
    const [{ configId, role }] = pool;
    const of = `instances of ${configId}${role === 'monolithic' ? '' : ` (${role})`}`;
    const busiest = `${pool[counts.indexOf(most)].id} got ${most} of ${all} requests`;
    const remedy = 'Look at the routing policy: the weights of its scorers, and how old its signals are.';
    if (idle > 0) return [`${idle} of ${pool.length} ${of} got no request, and ${busiest}. ${remedy}`];
    // of two instances one has half or more in any case
    if (most <= all * Math.max(0.5, 1.5 / pool.length)) return [];
    return [`of ${pool.length} ${of} one took over half: ${busiest}. ${remedy}`];
  }
}
