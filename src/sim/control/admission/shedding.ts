/** Admission rules that turn sheddable requests away while the instances are loaded. */

import { ADMIT, type AdmissionDecision, type Priority } from '../decisions.ts';
import { type ClusterState, effectiveLoad } from '../instances.ts';
import { StatelessPolicy } from '../policy.ts';
import { headroomUs, type LatencyTargets } from '../prediction.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';
import type { AdmissionPolicy } from './admissionPolicy.ts';
import { kvUtilization } from './saturation.ts';

/** Rejects classes below `minPriority` while the most loaded instance has more than `threshold`. */
export class TierShed extends StatelessPolicy implements AdmissionPolicy {
  readonly name: string = 'tier-shed';
  readonly #threshold: number;
  readonly #minPriority: number;

  constructor(threshold: number, minPriority: number) {
    super();
    this.#threshold = threshold;
    this.#minPriority = minPriority;
  }

  decide(
    _request: RequestView,
    priority: Priority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    let most = 0;
    for (const instance of cluster.instances) most = Math.max(most, effectiveLoad(instance));
    if (most <= this.#threshold || priority.score >= this.#minPriority) return ADMIT;
    return { verdict: 'reject', reason: `load ${most} above ${this.#threshold}` };
  }
}

/** Rejects sheddable classes while the instances are saturated. Of what says how much they are, 1 is full. */
export class SaturationShed extends StatelessPolicy implements AdmissionPolicy {
  readonly name: string;
  readonly #saturation: (cluster: ClusterState) => number;

  constructor(name: string, saturation: (cluster: ClusterState) => number) {
    super();
    this.name = name;
    this.#saturation = saturation;
  }

  decide(
    _request: RequestView,
    priority: Priority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    if (!priority.hints.sheddable || this.#saturation(cluster) < 1) return ADMIT;
    return { verdict: 'reject', reason: 'saturated' };
  }
}

export interface LatencyRules extends LatencyTargets {
  /** KV utilisation below which an instance takes anything. */
  readonly nearlyEmpty: number;
}

/**
 * llm-d's latency admission: a sheddable request comes in where some instance is predicted to meet both
 * targets, has nothing in flight, or has less than `nearlyEmpty` of its HBM held. Its whole prompt counts as
 * uncached.
 */
export class LatencySlo extends StatelessPolicy implements AdmissionPolicy {
  readonly name: string = 'latency-slo';
  readonly #rules: LatencyRules;

  constructor(rules: LatencyRules) {
    super();
    this.#rules = rules;
  }

  decide(
    request: RequestView,
    priority: Priority,
    _router: RouterState,
    { instances }: ClusterState,
  ): AdmissionDecision {
    if (!priority.hints.sheddable) return ADMIT;
    const takesIt = instances.some((instance) => {
      if (instance.inFlight === 0 || kvUtilization(instance) < this.#rules.nearlyEmpty) return true;
      const { ttft, tpot } = headroomUs(request, instance, request.promptTokens, this.#rules);
      return ttft >= 0 && tpot >= 0;
    });
    return takesIt ? ADMIT : { verdict: 'reject', reason: 'no instance has head room' };
  }
}
