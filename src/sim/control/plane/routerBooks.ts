/** What the router knows, kept up to date by the control plane and shown to policies as a `RouterState`. */

import type { ControlConfig, EndKind } from '../controlPlane.ts';
import type { InstanceProbe } from '../instances.ts';
import { type CacheView, newShadow, ObservedView } from '../kvView/index.ts';
import type { PlainState, Stateful } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type {
  GlobalRouterMetrics,
  HistoryPoint,
  PrefixView,
  RouterState,
  ShadowView,
  TenantState,
} from '../routerState.ts';
import { TenantTable, TrafficHistory } from '../state/index.ts';

/** What the observed view says where nobody asked for one to be kept. */
const nothingObserved: PrefixView = { hbmBlocks: () => 0, place: () => ({ blocks: 0, byTier: [] }) };

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

  snapshot(): PlainState {
    return {
      nowUs: this.nowUs,
      tenants: this.#tenants.snapshot(),
      traffic: this.#traffic.snapshot(),
      observed: this.#observed?.snapshot() ?? null,
      shadow: this.#shadow?.snapshot() ?? null,
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as Record<string, PlainState>;
    this.nowUs = saved.nowUs as number;
    this.#tenants.restore(saved.tenants);
    this.#traffic.restore(saved.traffic);
    this.#observed?.restore(saved.observed);
    this.#shadow?.restore(saved.shadow);
  }
}
