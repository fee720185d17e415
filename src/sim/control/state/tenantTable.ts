/** What the router counts of each tenant. A request without a tenant counts for the tenant ''. */

import type { PlainState, Stateful } from '../policy.ts';
import type { TenantState } from '../routerState.ts';
import { RateWindow } from './rateWindow.ts';

interface Row {
  sloClass: string;
  requestCount: number;
  activeRequests: number;
  admitted: number;
  rejected: number;
  outputTokens: number;
  window: RateWindow;
}

/** A burst needs at least so many arrivals in the last tenth of the window. */
const BURST_ARRIVALS_MIN = 3;

export class TenantTable implements Stateful {
  readonly #windowUs: number;
  readonly #burstFactor: number;
  /** In order of first arrival. */
  readonly #rows = new Map<string, Row>();

  constructor(windowUs: number, burstFactor: number) {
    this.#windowUs = windowUs;
    this.#burstFactor = burstFactor;
  }

  arrived(tenantId: string, sloClass: string, nowUs: number): void {
    const row = this.#row(tenantId);
    row.sloClass = sloClass;
    row.requestCount++;
    row.window.add(nowUs);
  }

  admitted(tenantId: string): void {
    this.#row(tenantId).admitted++;
  }

  rejected(tenantId: string): void {
    this.#row(tenantId).rejected++;
  }

  routed(tenantId: string): void {
    this.#row(tenantId).activeRequests++;
  }

  ended(tenantId: string, outputTokens: number): void {
    const row = this.#row(tenantId);
    row.activeRequests--;
    row.outputTokens += outputTokens;
  }

  activeRequests(tenantId: string): number {
    return this.#rows.get(tenantId)?.activeRequests ?? 0;
  }

  state(tenantId: string, nowUs: number): TenantState {
    const row = this.#rows.get(tenantId);
    if (row === undefined) {
      return {
        tenantId,
        sloClass: '',
        requestCount: 0,
        activeRequests: 0,
        admitted: 0,
        rejected: 0,
        recentRate: 0,
        burstDetected: false,
        outputTokens: 0,
      };
    }
    const { window, ...counts } = row;
    const recentRate = window.rate(nowUs);
    const last = window.recentRate(nowUs);
    const arrivals = (last * this.#windowUs) / 1e7;
    const burstDetected = arrivals >= BURST_ARRIVALS_MIN && last > this.#burstFactor * recentRate;
    return { tenantId, ...counts, recentRate, burstDetected };
  }

  all(nowUs: number): TenantState[] {
    return [...this.#rows.keys()].map((tenantId) => this.state(tenantId, nowUs));
  }

  snapshot(): PlainState {
    return [...this.#rows].map(([tenantId, { window, ...counts }]) => ({
      tenantId,
      ...counts,
      window: window.snapshot(),
    }));
  }

  restore(state: PlainState): void {
    this.#rows.clear();
    // the state is what `snapshot` made
    type Saved = Omit<Row, 'window'> & { tenantId: string; window: ReturnType<RateWindow['snapshot']> };
    for (const { tenantId, window, ...counts } of state as unknown as readonly Saved[]) {
      const row = this.#row(tenantId);
      Object.assign(row, counts);
      row.window.restore(window);
    }
  }

  #row(tenantId: string): Row {
    let row = this.#rows.get(tenantId);
    if (row === undefined) {
      row = {
        sloClass: '',
        requestCount: 0,
        activeRequests: 0,
        admitted: 0,
        rejected: 0,
        outputTokens: 0,
        window: new RateWindow(this.#windowUs),
      };
      this.#rows.set(tenantId, row);
    }
    return row;
  }
}
