/**
 * A control plane's books between decisions: `RouterState`, which policies see, the instance that each request was sent
 * to, and the times at which policies that learn from outcomes are told.
 */

import { invariant } from '../../runtime/errors.ts';
import type { Stateful, StateVisitor } from '../../runtime/snapshot.ts';
import { type CacheView, newShadow, ObservedView } from './cacheView.ts';
import type { ControlConfig, EndKind } from './controlPlane.ts';
import type { InstanceProbe, NamedPolicy, RequestOutcome, RequestView } from './policy.ts';
import {
  type GlobalRouterMetrics,
  type HistoryPoint,
  type PrefixView,
  type RouterState,
  type ShadowView,
  type TenantState,
  TenantTable,
  TrafficHistory,
} from './routerState.ts';

// The router's knowledge, kept up to date by the control plane and shown to policies as a `RouterState`.

/** Empty view, used when no policy reads caches. */
const nothingObserved: PrefixView = { topBlocks: () => 0, place: () => ({ blocks: 0, byTier: [] }) };

export class RouterBooks implements RouterState, Stateful {
  nowUs = 0;
  readonly #tenants: TenantTable;
  readonly #traffic: TrafficHistory;
  readonly #observed: ObservedView | null;
  readonly #shadow: (CacheView & ShadowView) | null;

  constructor(config: ControlConfig, readsCaches: boolean) {
    const { windowUs, windows, burstFactor } = config.history;
    this.#tenants = new TenantTable(windowUs, burstFactor);
    this.#traffic = new TrafficHistory(windowUs, windows);
    this.#observed = readsCaches ? new ObservedView(config.signals.cacheSignalUs) : null;
    this.#shadow = newShadow(config.shadow);
  }

  get wantsEvents(): boolean {
    return this.#observed !== null || this.#shadow?.readsEvents === true;
  }

  tenant(tenantId: string): TenantState {
    return this.#tenants.state(tenantId, this.nowUs);
  }

  get tenants(): readonly TenantState[] {
    return this.#tenants.all(this.nowUs);
  }

  get global(): GlobalRouterMetrics {
    return this.#traffic.global(this.nowUs);
  }

  get history(): readonly HistoryPoint[] {
    return this.#traffic.points(this.nowUs);
  }

  get observedKv(): PrefixView {
    return this.#observed ?? nothingObserved;
  }

  get shadowKv(): ShadowView | null {
    return this.#shadow;
  }

  added(probe: InstanceProbe): void {
    this.#observed?.added(probe);
    this.#shadow?.added(probe);
  }

  removed(instance: number): void {
    this.#observed?.removed(instance);
    this.#shadow?.removed(instance);
  }

  event(instance: number, tier: number, stored: boolean, key: Uint32Array, nowUs: number): void {
    this.#observed?.event(instance, tier, stored, key, nowUs);
    this.#shadow?.event(instance, tier, stored, key, nowUs);
  }

  /** Brings everything up to `nowUs`, before a decision. */
  refresh(nowUs: number): void {
    this.nowUs = nowUs;
    this.#observed?.refresh(nowUs);
    this.#shadow?.refresh(nowUs);
  }

  /** Leading blocks that the shadow has there, or without one the observed view. */
  expectedBlocks(request: RequestView, instance: number): number {
    if (this.#shadow !== null) return this.#shadow.place(request, instance).blocks;
    return this.#observed?.place(request, instance).blocks ?? 0;
  }

  arrived(request: RequestView, nowUs: number): void {
    this.nowUs = nowUs;
    this.#tenants.arrived(request.tenantId, request.sloClass, nowUs);
    this.#traffic.count('arrivals', nowUs);
    this.#traffic.count('promptTokens', nowUs, request.promptTokens);
    this.#traffic.pending++;
  }

  admitted(request: RequestView, nowUs: number): void {
    this.#tenants.admitted(request.tenantId);
    this.#traffic.count('admitted', nowUs);
  }

  rejected(request: RequestView, nowUs: number): void {
    this.#tenants.rejected(request.tenantId);
    this.#traffic.count('rejected', nowUs);
    this.#traffic.pending--;
  }

  /** A request was given up before it was routed. */
  abandoned(): void {
    this.#traffic.pending--;
  }

  /** The request has left the gate. */
  routed(request: RequestView): void {
    this.#tenants.routed(request.tenantId);
    this.#traffic.pending--;
    this.#traffic.inFlight++;
  }

  /** Its prompt is computed there. */
  sent(request: RequestView, instance: number, nowUs: number): void {
    this.#shadow?.routed(request, instance, nowUs);
  }

  ended(request: RequestView, how: EndKind, outputTokens: number, nowUs: number): void {
    this.#tenants.ended(request.tenantId, outputTokens);
    this.#traffic.inFlight--;
    if (how === 'completed') this.#traffic.count('completions', nowUs);
    else if (how === 'redirected') this.#traffic.pending++;
  }

  visitState(visitor: StateVisitor): void {
    this.nowUs = visitor.number(this.nowUs);
    this.#tenants.visitState(visitor);
    this.#traffic.visitState(visitor);
    this.#observed?.visitState(visitor);
    this.#shadow?.visitState(visitor);
  }
}

// One request at one instance: the tokens that it has to compute there and what was expected.

interface Sent {
  readonly instance: number;
  tokens: number;
  /** Blocks that were believed to be cached there; -1 once that was compared, or where nothing was. */
  expectedBlocks: number;
}

export class InFlightBook implements Stateful {
  readonly #byRequest = new Map<number, Sent[]>();

  sent(request: number, instance: number, tokens: number, expectedBlocks: number): void {
    const entry: Sent = { instance, tokens, expectedBlocks };
    const entries = this.#byRequest.get(request);
    if (entries === undefined) this.#byRequest.set(request, [entry]);
    else entries.push(entry);
  }

  /** The tokens that were counted for it there; 0 from the second call on. */
  takeTokens(request: number, instance: number): number {
    const entry = this.#find(request, instance);
    const tokens = entry?.tokens ?? 0;
    if (entry !== undefined) entry.tokens = 0;
    return tokens;
  }

  /** The blocks that were expected there; -1 from the second call on. */
  takeExpected(request: number, instance: number): number {
    const entry = this.#find(request, instance);
    const blocks = entry?.expectedBlocks ?? -1;
    if (entry !== undefined) entry.expectedBlocks = -1;
    return blocks;
  }

  /** It has left the instance. @returns whether it is nowhere now */
  end(request: number, instance: number): boolean {
    const entries = this.#byRequest.get(request);
    const at = entries?.findIndex((entry) => entry.instance === instance) ?? -1;
    invariant(
      entries !== undefined && at !== -1,
      () => `request ${request} is not with instance ${instance}`,
    );
    entries.splice(at, 1);
    if (entries.length === 0) this.#byRequest.delete(request);
    return entries.length === 0;
  }

  /** The instances that have it, or were to get it. */
  instancesOf(request: number): readonly number[] {
    return (this.#byRequest.get(request) ?? []).map(({ instance }) => instance);
  }

  #find(request: number, instance: number): Sent | undefined {
    return this.#byRequest.get(request)?.find((entry) => entry.instance === instance);
  }

  visitState(visitor: StateVisitor): void {
    const copied = (entries: readonly Sent[]): Sent[] => entries.map((entry) => ({ ...entry }));
    visitor.value(
      () => [...this.#byRequest].map(([request, entries]) => ({ request, entries: copied(entries) })),
      (saved) => {
        this.#byRequest.clear();
        for (const { request, entries } of saved) this.#byRequest.set(request, copied(entries));
      },
    );
  }
}

//  Reports outcomes of requests to the policies that implement `completed`; keeps times of first tokens for them.

type Learner = Pick<NamedPolicy, 'completed'>;

export class Learners implements Stateful {
  readonly #policies: readonly Learner[];
  /** Time of the first token, by request. */
  readonly #firstUs = new Map<number, number>();

  constructor(policies: readonly Learner[]) {
    this.#policies = [...new Set(policies)].filter(({ completed }) => completed !== undefined);
  }

  firstToken(request: RequestView, nowUs: number): void {
    if (this.#policies.length > 0 && !this.#firstUs.has(request.number)) {
      this.#firstUs.set(request.number, nowUs);
    }
  }

  ended(outcome: Omit<RequestOutcome, 'ttftUs' | 'e2eUs'>): void {
    if (this.#policies.length === 0) return;
    const { request, nowUs } = outcome;
    const firstUs = this.#firstUs.get(request.number);
    this.#firstUs.delete(request.number);
    const ttftUs = firstUs === undefined ? -1 : firstUs - request.arrivalUs;
    const whole: RequestOutcome = { ...outcome, ttftUs, e2eUs: nowUs - request.arrivalUs };
    for (const policy of this.#policies) policy.completed?.(whole);
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#firstUs],
      (saved) => {
        this.#firstUs.clear();
        for (const [request, timeUs] of saved) this.#firstUs.set(request, timeUs);
      },
    );
  }
}
