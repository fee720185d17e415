/** Admission rules that tell tenants apart. */

import { ADMIT, type AdmissionDecision, type Priority } from '../decisions.ts';
import type { ClusterState } from '../instances.ts';
import type { PlainState } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';
import type { AdmissionPolicy } from './admissionPolicy.ts';

/**
 * Around another rule: a tenant with a budget has at most that share of all batch slots in flight; beyond it
 * its sheddable requests are rejected, and the rest is the inner rule's matter. Tenants without a budget, and
 * requests without a tenant, are not limited.
 */
export class TenantBudgets implements AdmissionPolicy {
  readonly name: string;
  readonly #inner: AdmissionPolicy;
  readonly #shares: Readonly<Record<string, number>>;
  readonly #maxSequences: number;

  constructor(inner: AdmissionPolicy, shares: Readonly<Record<string, number>>, maxSequences: number) {
    this.name = inner.name;
    this.#inner = inner;
    this.#shares = shares;
    this.#maxSequences = maxSequences;
  }

  decide(
    request: RequestView,
    priority: Priority,
    router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    const { tenantId } = request;
    if (priority.hints.sheddable && tenantId !== '' && Object.hasOwn(this.#shares, tenantId)) {
      const most = this.#shares[tenantId] * cluster.instances.length * this.#maxSequences;
      if (router.tenant(tenantId).activeRequests > most) {
        return { verdict: 'reject', reason: `tenant ${tenantId} is over its budget` };
      }
    }
    return this.#inner.decide(request, priority, router, cluster);
  }

  ended(request: RequestView, nowUs: number): void {
    this.#inner.ended?.(request, nowUs);
  }

  snapshot(): PlainState {
    return this.#inner.snapshot();
  }

  restore(state: PlainState): void {
    this.#inner.restore(state);
  }
}

const FAIR_AFTER_REQUESTS = 5;

/**
 * The published evolved rule for two classes under overload: critical and standard always come in; batch is
 * shed above 12 requests in flight an instance, or 20 where less than 0.4 of its tenant's requests were
 * admitted so far; sheddable above 25 or 35. Every other class comes in.
 */
export class EvolvedAdmission implements AdmissionPolicy {
  readonly name: string = 'evolved';
  readonly #requests = new Map<string, number>();
  readonly #admitted = new Map<string, number>();

  decide(
    request: RequestView,
    _priority: Priority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    const { tenantId, sloClass } = request;
    const requests = (this.#requests.get(tenantId) ?? 0) + 1;
    this.#requests.set(tenantId, requests);
    if (sloClass === 'batch' || sloClass === 'sheddable') {
      const admitted = this.#admitted.get(tenantId) ?? 0;
      const underserved = requests > FAIR_AFTER_REQUESTS && admitted / requests < 0.4;
      const [usual, lenient] = sloClass === 'batch' ? [12, 20] : [25, 35];
      let inFlight = 0;
      for (const instance of cluster.instances) inFlight += instance.inFlight;
      const load = cluster.instances.length === 0 ? 0 : inFlight / cluster.instances.length;
      if (load > (underserved ? lenient : usual)) return { verdict: 'reject', reason: `${sloClass} is shed` };
    } else if (sloClass !== 'critical' && sloClass !== 'standard') {
      return ADMIT;
    }
    this.#admitted.set(tenantId, (this.#admitted.get(tenantId) ?? 0) + 1);
    return ADMIT;
  }

  snapshot(): PlainState {
    return { requests: Object.fromEntries(this.#requests), admitted: Object.fromEntries(this.#admitted) };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as unknown as Record<'requests' | 'admitted', Record<string, number>>;
    this.#requests.clear();
    this.#admitted.clear();
    for (const [tenant, count] of Object.entries(saved.requests)) this.#requests.set(tenant, count);
    for (const [tenant, count] of Object.entries(saved.admitted)) this.#admitted.set(tenant, count);
  }
}
