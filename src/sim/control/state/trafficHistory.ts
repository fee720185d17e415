/** The traffic in windows of equal width, and what is going on over all. */

import type { PlainState, Stateful } from '../policy.ts';
import type { GlobalRouterMetrics, HistoryPoint } from '../routerState.ts';
import { RateWindow } from './rateWindow.ts';

type Counted = 'arrivals' | 'admitted' | 'rejected' | 'completions' | 'promptTokens';

function emptyPoint(startUs: number): Record<Counted | 'startUs', number> {
  return { startUs, arrivals: 0, admitted: 0, rejected: 0, completions: 0, promptTokens: 0 };
}

export class TrafficHistory implements Stateful {
  readonly #windowUs: number;
  readonly #kept: number;
  readonly #arrivals: RateWindow;
  readonly #completions: RateWindow;
  #points: HistoryPoint[] = [];
  #current: Record<Counted | 'startUs', number> = emptyPoint(0);
  inFlight = 0;
  pending = 0;

  constructor(windowUs: number, kept: number) {
    this.#windowUs = windowUs;
    this.#kept = kept;
    this.#arrivals = new RateWindow(windowUs);
    this.#completions = new RateWindow(windowUs);
  }

  count(what: Counted, nowUs: number, by: number = 1): void {
    this.#advance(nowUs);
    this.#current[what] += by;
    if (what === 'arrivals') this.#arrivals.add(nowUs, by);
    else if (what === 'completions') this.#completions.add(nowUs, by);
  }

  /** Complete windows up to `nowUs`, the newest last; windows in which nothing happened included. */
  points(nowUs: number): readonly HistoryPoint[] {
    this.#advance(nowUs);
    return this.#points;
  }

  global(nowUs: number): GlobalRouterMetrics {
    return {
      inFlight: this.inFlight,
      pending: this.pending,
      throughput: this.#completions.rate(nowUs),
      requestRate: this.#arrivals.rate(nowUs),
    };
  }

  #advance(nowUs: number): void {
    let startUs = this.#current.startUs;
    if (nowUs < startUs + this.#windowUs) return;
    const target = Math.floor(nowUs / this.#windowUs) * this.#windowUs;
    const points = [...this.#points, { ...this.#current }];
    // of a long silence only the windows that are kept are written
    startUs = Math.max(startUs + this.#windowUs, target - this.#kept * this.#windowUs);
    for (; startUs < target; startUs += this.#windowUs) points.push(emptyPoint(startUs));
    this.#points = this.#kept === 0 ? [] : points.slice(-this.#kept);
    this.#current = emptyPoint(target);
  }

  snapshot(): PlainState {
    return {
      points: this.#points.map((point) => ({ ...point })),
      current: { ...this.#current },
      arrivals: this.#arrivals.snapshot(),
      completions: this.#completions.snapshot(),
      inFlight: this.inFlight,
      pending: this.pending,
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as unknown as {
      points: readonly HistoryPoint[];
      current: Record<Counted | 'startUs', number>;
      arrivals: ReturnType<RateWindow['snapshot']>;
      completions: ReturnType<RateWindow['snapshot']>;
      inFlight: number;
      pending: number;
    };
    this.#points = saved.points.map((point) => ({ ...point }));
    this.#current = { ...saved.current };
    this.#arrivals.restore(saved.arrivals);
    this.#completions.restore(saved.completions);
    this.inFlight = saved.inFlight;
    this.pending = saved.pending;
  }
}
