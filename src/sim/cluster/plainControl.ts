/**
 * The smallest control plane: every request is admitted, its class decides how urgent it is, and instances
 * take turns. It keeps no state of tenants and looks at no instance.
 */

import {
  ADMIT,
  type ControlCounters,
  type ControlPlane,
  type PlainState,
  type Priority,
  type RequestView,
  type RouterState,
  type RoutingDecision,
} from '../control/index.ts';

/** Upstream's urgency of the SLO classes; unknown ones and none are standard. */
const urgencies: Readonly<Record<string, number>> = {
  critical: 4,
  standard: 3,
  batch: -1,
  sheddable: -2,
  background: -3,
};
const MOST_URGENT = 4;

const noTenant = {
  tenantId: '',
  sloClass: '',
  requestCount: 0,
  activeRequests: 0,
  admitted: 0,
  rejected: 0,
  recentRate: 0,
  burstDetected: false,
  outputTokens: 0,
};

export class PlainControl implements ControlPlane {
  readonly gateway: null = null;
  readonly wantsCacheEvents: boolean = false;
  readonly counters: ControlCounters = {
    arrived: 0,
    admitted: 0,
    rejected: 0,
    delayed: 0,
    routed: 0,
    unroutable: 0,
    disaggregated: 0,
    shadowOverestimates: 0,
    shadowUnderestimates: 0,
    shadowChecks: 0,
  };
  readonly router: RouterState = {
    nowUs: 0,
    tenant: () => noTenant,
    tenants: [],
    global: { inFlight: 0, pending: 0, throughput: 0, requestRate: 0 },
    history: [],
    observedKv: { hbmBlocks: () => 0, place: () => ({ blocks: 0, byTier: [] }) },
    shadowKv: null,
  };
  readonly #routable: number[] = [];

  addInstance(): void {}

  setRoutable(instance: number, routable: boolean): void {
    const at = this.#routable.indexOf(instance);
    if (routable && at === -1) this.#routable.push(instance);
    else if (!routable && at !== -1) this.#routable.splice(at, 1);
    this.#routable.sort((a, b) => a - b);
  }

  removeInstance(instance: number): void {
    this.setRoutable(instance, false);
  }

  cluster(nowUs: number): { nowUs: number; instances: [] } {
    return { nowUs, instances: [] };
  }

  saturation(): number {
    return 0;
  }

  arrived(): void {
    this.counters.arrived++;
  }

  admit(): typeof ADMIT {
    this.counters.admitted++;
    return ADMIT;
  }

  prioritise(request: RequestView): Priority {
    const score = urgencies[request.sloClass] ?? urgencies.standard;
    return { score, rank: MOST_URGENT - score, hints: { sheddable: score < 0, dueUs: 0 } };
  }

  route(): RoutingDecision | null {
    if (this.#routable.length === 0) {
      this.counters.unroutable++;
      return null;
    }
    const target = this.#routable[this.counters.routed++ % this.#routable.length];
    return {
      target,
      prefillInstance: -1,
      decodeInstance: -1,
      reason: 'round-robin',
      scores: [],
      filteredOut: [],
      topKCandidates: [],
      expectedBlocks: 0,
    };
  }

  scheduled(): null {
    return null;
  }

  firstToken(): void {}
  ended(): void {}
  abandoned(): void {}
  kvStored(): void {}
  kvRemoved(): void {}

  snapshot(): PlainState {
    return { ...this.counters };
  }

  restore(state: PlainState): void {
    Object.assign(this.counters, state);
  }
}
