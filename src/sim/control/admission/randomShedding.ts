/** Admission rules that shed a growing share of the sheddable requests as load grows. */

import type { GoRandom, SourceState } from '../../random/index.ts';
import { ADMIT, type AdmissionDecision, type Priority } from '../decisions.ts';
import type { ClusterState } from '../instances.ts';
import type { PlainState } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';
import type { AdmissionPolicy } from './admissionPolicy.ts';
import { utilizationSaturation } from './saturation.ts';

/**
 * Sheds with probability min(factor x saturation^5, 1); with the factor of 300 that is 2.3% at a saturation
 * of 0.15 and everything from 0.32 on. Draws only for requests that may be shed.
 */
export class ProbabilisticShed implements AdmissionPolicy {
  readonly name: string = 'probabilistic';
  readonly #factor: number;
  readonly #queueThreshold: number;
  readonly #kvThreshold: number;
  readonly #random: GoRandom;

  constructor(factor: number, queueThreshold: number, kvThreshold: number, random: GoRandom) {
    this.#factor = factor;
    this.#queueThreshold = queueThreshold;
    this.#kvThreshold = kvThreshold;
    this.#random = random;
  }

  decide(
    _request: RequestView,
    priority: Priority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    if (!priority.hints.sheddable) return ADMIT;
    const saturation = utilizationSaturation(cluster, this.#queueThreshold, this.#kvThreshold);
    const square = saturation * saturation;
    const chance = Math.min(this.#factor * square * square * saturation, 1);
    return this.#random.float64() < chance ? { verdict: 'reject', reason: 'shed at random' } : ADMIT;
  }

  snapshot(): PlainState {
    return this.#random.snapshot();
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    this.#random.restore(state as SourceState);
  }
}

/**
 * Each class has a ceiling: the most urgent 1, the one at place i of N 1 - i x saturation / (N - 1), so that
 * the ceilings sink as load grows. A class whose ceiling the saturation has reached is held: it opens once
 * in round(saturation / (1 - saturation)) of its requests, which keeps it alive. Held requests come again
 * after `retryUs`, or are rejected where that is 0. The soft-reflective ceilings of the gateway API's flow
 * control, as admission.
 */
export class SoftReflective implements AdmissionPolicy {
  readonly name: string = 'soft-reflective';
  readonly #queueThreshold: number;
  readonly #kvThreshold: number;
  readonly #retryUs: number;
  /** Priorities seen, the most urgent first, and requests held since each last opened. */
  readonly #bands: { readonly score: number; held: number }[] = [];

  constructor(queueThreshold: number, kvThreshold: number, retryUs: number) {
    this.#queueThreshold = queueThreshold;
    this.#kvThreshold = kvThreshold;
    this.#retryUs = retryUs;
  }

  decide(
    _request: RequestView,
    priority: Priority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    const place = this.#placeOf(priority.score);
    const saturation = utilizationSaturation(cluster, this.#queueThreshold, this.#kvThreshold);
    if (saturation < softCeiling(place, this.#bands.length, saturation)) return ADMIT;
    const band = this.#bands[place];
    band.held++;
    if (saturation < 1 && band.held >= Math.max(1, Math.round(saturation / (1 - saturation)))) {
      band.held = 0;
      return ADMIT;
    }
    const reason = `saturation ${saturation.toFixed(3)} at its ceiling`;
    if (this.#retryUs === 0) return { verdict: 'reject', reason };
    return { verdict: 'delay', durationUs: this.#retryUs, reason };
  }

  #placeOf(score: number): number {
    let place = 0;
    while (place < this.#bands.length && this.#bands[place].score > score) place++;
    if (this.#bands[place]?.score !== score) this.#bands.splice(place, 0, { score, held: 0 });
    return place;
  }

  snapshot(): PlainState {
    return this.#bands.map((band) => ({ ...band }));
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as unknown as readonly { score: number; held: number }[];
    this.#bands.splice(0, this.#bands.length, ...saved.map((band) => ({ ...band })));
  }
}

/** Ceiling of the band at `place` of `bands`; a single band has 1. */
export function softCeiling(place: number, bands: number, saturation: number): number {
  return bands <= 1 ? 1 : 1 - (place * saturation) / (bands - 1);
}
