/** Scorers that go by where earlier requests went. */

import type { PlainState } from '../../policy.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import type { Scorer } from './scorer.ts';

/**
 * Spreads prompts that nobody has cached. Where any instance has a leading block, all get 0.5. Else instances
 * that were never used for such a prompt come first, in order of their numbers, then the others, the one used
 * longest ago first: 1 - rank / (n - 1); a single one gets 1. Only such decisions change the order.
 */
export class NoHitLru implements Scorer {
  readonly name: string = 'no-hit-lru';
  readonly readsCaches: boolean = true;
  /** The one used longest ago first. */
  #used: number[] = [];
  #cold = false;

  score({ request, candidates, router }: RoutingContext, out: Float64Array): void {
    this.#cold = !candidates.some(({ instance }) => router.observedKv.hbmBlocks(request, instance) > 0);
    const count = candidates.length;
    if (!this.#cold) {
      out.fill(0.5, 0, count);
      return;
    }
    const place = (instance: number): number => this.#used.indexOf(instance);
    const ranked = candidates.map(({ instance }, i) => ({ i, place: place(instance) }));
    ranked.sort((a, b) => a.place - b.place || a.i - b.i);
    ranked.forEach(({ i }, rank) => {
      out[i] = count === 1 ? 1 : 1 - rank / (count - 1);
    });
  }

  routed(_context: RoutingContext, instance: number): void {
    if (this.#cold) this.#used = [...this.#used.filter((used) => used !== instance), instance];
  }

  removed(instance: number): void {
    this.#used = this.#used.filter((used) => used !== instance);
  }

  snapshot(): PlainState {
    return { used: [...this.#used], cold: this.#cold };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { used: readonly number[]; cold: boolean };
    this.#used = [...saved.used];
    this.#cold = saved.cold;
  }
}

/** 1 for the instance that the session's last request went to, else 0. */
export class SessionAffinity implements Scorer {
  readonly name: string = 'session-affinity';
  readonly readsCaches: boolean = false;
  readonly #last = new Map<string, number>();

  score({ request, candidates }: RoutingContext, out: Float64Array): void {
    const last = request.sessionId === '' ? undefined : this.#last.get(request.sessionId);
    for (let i = 0; i < candidates.length; i++) out[i] = candidates[i].instance === last ? 1 : 0;
  }

  routed({ request }: RoutingContext, instance: number): void {
    if (request.sessionId !== '') this.#last.set(request.sessionId, instance);
  }

  removed(instance: number): void {
    for (const [session, last] of this.#last) if (last === instance) this.#last.delete(session);
  }

  snapshot(): PlainState {
    return [...this.#last].map(([session, instance]) => [session, instance]);
  }

  restore(state: PlainState): void {
    this.#last.clear();
    // the state is what `snapshot` made
    for (const [session, instance] of state as unknown as readonly [string, number][]) {
      this.#last.set(session, instance);
    }
  }
}
