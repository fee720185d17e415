/**
 * How the aggregate rate is shared. Sums run over clients in order, as upstream's do, since the order decides
 * the last bit; clients that share their windows (by reference) share the sum.
 */

import { TierKVError } from '../../../../runtime/errors.ts';
import type { ActiveWindow, ClientSpec } from '../../spec/types.ts';

type Windows = readonly ActiveWindow[];

/** Most comparisons of windows; more than this is a spec that nobody wrote by hand, and a wait of minutes. */
const MAX_COMPARISONS = 2e9;

function requireComparable(clients: readonly ClientSpec[]): void {
  const lists = new Set<Windows>();
  let windows = 0;
  for (const client of clients) {
    if (lists.has(client.windows)) continue;
    lists.add(client.windows);
    windows += client.windows.length;
  }
  if (windows ** 2 + clients.length * lists.size <= MAX_COMPARISONS) return;
  throw new TierKVError(
    'TKV_INPUT',
    `clients have ${windows} windows in all, too many to tell which overlap. Give every window a ` +
      `trace_rate, or fewer windows`,
    { field: 'clients' },
  );
}

function overlap(a: Windows, b: Windows): boolean {
  if (a === b || a.length === 0 || b.length === 0) return true;
  return a.some((x) => b.some((y) => x.startUs < y.endUs && y.startUs < x.endUs));
}

/** Remembers a number for every pair of arrays, by identity. */
class PairMemo<V> {
  readonly #known = new Map<Windows, Map<Windows, V>>();
  get(a: Windows, b: Windows, make: () => V): V {
    let row = this.#known.get(a);
    if (row === undefined) this.#known.set(a, (row = new Map()));
    let value = row.get(b);
    if (value === undefined) row.set(b, (value = make()));
    return value;
  }
}

/**
 * Requests per µs of every client: the aggregate rate times its fraction over the sum of the fractions of the
 * clients that are active together with it (all of them when nobody has windows).
 */
export function clientRatesPerUs(clients: readonly ClientSpec[], aggregateRate: number): Float64Array {
  const rates = new Float64Array(clients.length);
  const anyWindows = clients.some((client) => client.windows.length > 0);
  if (!anyWindows) {
    let total = 0;
    for (const client of clients) total += client.rateFraction;
    if (total === 0) return rates;
    return rates.map((_, i) => (aggregateRate * (clients[i].rateFraction / total)) / 1e6);
  }
  requireComparable(clients);
  const sums = new Map<Windows | 'always', number>();
  const overlaps = new PairMemo<boolean>();
  clients.forEach((client, i) => {
    if (client.rateFraction <= 0) return;
    const key = client.windows.length === 0 ? 'always' : client.windows;
    let sum = sums.get(key);
    if (sum === undefined) {
      sum = 0;
      for (const other of clients) {
        if (other.rateFraction <= 0) continue;
        if (overlaps.get(client.windows, other.windows, () => overlap(client.windows, other.windows))) {
          sum += other.rateFraction;
        }
      }
      sums.set(key, sum);
    }
    if (sum > 0) rates[i] = (aggregateRate * (client.rateFraction / sum)) / 1e6;
  });
  return rates;
}

/** Whether any window overrides a parameter, which selects generation window by window. */
export function hasWindowParameters(clients: readonly ClientSpec[]): boolean {
  const seen = new Set<Windows>();
  return clients.some((client) => {
    if (seen.has(client.windows)) return false;
    seen.add(client.windows);
    return client.windows.some(
      (window) =>
        window.traceRate !== undefined ||
        window.arrival !== undefined ||
        window.inputLength !== undefined ||
        window.outputLength !== undefined,
    );
  });
}

/**
 * Requests per second of one window: its own trace rate, or its share of the aggregate among clients active
 * with it.
 */
export class WindowRates {
  readonly #clients: readonly ClientSpec[];
  readonly #aggregateRate: number;
  readonly #totals = new Map<string, number>();

  constructor(clients: readonly ClientSpec[], aggregateRate: number) {
    this.#clients = clients;
    this.#aggregateRate = aggregateRate;
  }

  ratePerS(client: ClientSpec, window: ActiveWindow, endUs: number): number {
    const weight = window.traceRate ?? client.rateFraction;
    if (this.#aggregateRate === 0 && window.traceRate !== undefined) return weight;
    const total = this.#totalWeight(window.startUs, endUs);
    return total === 0 ? 0 : this.#aggregateRate * (weight / total);
  }

  /** Weights of all clients active in [startUs, endUs), each counted once with its first window there. */
  #totalWeight(startUs: number, endUs: number): number {
    const key = `${startUs}-${endUs}`;
    const known = this.#totals.get(key);
    if (known !== undefined) return known;
    const firstOverlap = new Map<Windows, ActiveWindow | undefined>();
    let total = 0;
    for (const client of this.#clients) {
      if (client.windows.length === 0) {
        total += client.rateFraction;
        continue;
      }
      if (!firstOverlap.has(client.windows)) {
        firstOverlap.set(
          client.windows,
          client.windows.find((window) => window.startUs < endUs && startUs < window.endUs),
        );
      }
      const window = firstOverlap.get(client.windows);
      if (window !== undefined) total += window.traceRate ?? client.rateFraction;
    }
    this.#totals.set(key, total);
    return total;
  }
}
