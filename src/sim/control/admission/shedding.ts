/** Admission rules that turn sheddable requests away while the instances are loaded. */

import { ADMIT, type AdmissionDecision, type Priority } from '../decisions.ts';
import { type ClusterState, effectiveLoad } from '../instances.ts';
import { StatelessPolicy } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';
import type { AdmissionPolicy } from './admissionPolicy.ts';
import { utilizationSaturation } from './saturation.ts';

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

/** Rejects sheddable classes while the instances are saturated; the rule of the gateway API's extension. */
export class GaieLegacy extends StatelessPolicy implements AdmissionPolicy {
  readonly name: string = 'gaie-legacy';
  readonly #queueThreshold: number;
  readonly #kvThreshold: number;

  constructor(queueThreshold: number, kvThreshold: number) {
    super();
    this.#queueThreshold = queueThreshold;
    this.#kvThreshold = kvThreshold;
  }

  decide(
    _request: RequestView,
    priority: Priority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    if (!priority.hints.sheddable) return ADMIT;
    const saturation = utilizationSaturation(cluster, this.#queueThreshold, this.#kvThreshold);
    return saturation < 1 ? ADMIT : { verdict: 'reject', reason: 'saturated' };
  }
}
