/**
 * Entries of a gateway queue: bands by priority, in each a first-in-first-out flow for each tenant. Bands
 * exist from their first entry on, the most urgent first.
 */

import type { RequestView } from '../request.ts';
import type { GatewayEntry } from './gateway.ts';

/** A band: its flows by tenant, and the tenant that was served last. */
export interface Band {
  readonly score: number;
  readonly flows: Map<string, GatewayEntry[]>;
  size: number;
  lastTenant: string;
}

export class Bands {
  readonly #bands: Band[] = [];
  size = 0;

  get all(): readonly Band[] {
    return this.#bands;
  }

  of(score: number): Band {
    let place = 0;
    while (place < this.#bands.length && this.#bands[place].score > score) place++;
    if (this.#bands[place]?.score === score) return this.#bands[place];
    const band: Band = { score, flows: new Map(), size: 0, lastTenant: '' };
    this.#bands.splice(place, 0, band);
    return band;
  }

  add(entry: GatewayEntry): void {
    const band = this.of(entry.priority.score);
    const tenant = flowOf(entry.request);
    const flow = band.flows.get(tenant);
    if (flow === undefined) band.flows.set(tenant, [entry]);
    else flow.push(entry);
    band.size++;
    this.size++;
  }

  remove(entry: GatewayEntry): void {
    const band = this.of(entry.priority.score);
    const flow = band.flows.get(flowOf(entry.request)) ?? [];
    const at = flow.indexOf(entry);
    if (at === -1) return;
    flow.splice(at, 1);
    band.size--;
    this.size--;
  }

  /** The sheddable entry of the least urgent band that has one, the newest of those. */
  leastUrgentSheddable(): GatewayEntry | undefined {
    for (let place = this.#bands.length - 1; place >= 0; place--) {
      let newest: GatewayEntry | undefined;
      for (const flow of this.#bands[place].flows.values()) {
        for (const entry of flow) {
          if (!entry.priority.hints.sheddable) continue;
          if (newest === undefined || entry.sequence > newest.sequence) newest = entry;
        }
      }
      if (newest !== undefined) return newest;
    }
    return undefined;
  }

  clear(): void {
    this.#bands.length = 0;
    this.size = 0;
  }
}

/** Whose flow a request is in: its tenant's; requests without one share a flow. */
export function flowOf({ tenantId }: RequestView): string {
  return tenantId === '' ? 'default' : tenantId;
}
