/**
 * Tells a person of a tier that takes no blocks, or gives none, for longer than a hiccup: once when it begins and once when it
 * has ended. A tier that comes and goes has to be well for longer each time before it counts as well, so it is not told of at
 * each turn. What each single transfer came to is in the metrics.
 */

import { Outcome, type TierName } from '../../runtime/tier/tier.ts';
import type { StoreResult } from '../../runtime/tier/tierStore.ts';

/** Failures above what four successes each make up for, after which a refusal lasts. */
const FAILURES_MAX = 3;
const FORGIVEN_BY_SUCCESS = 1 / 4;
/** Successes in a row after which it has ended: at first, and at most. */
const CALM = 4;
const CALM_MAX = 1024;

export class LastingRefusal {
  readonly #begins: (reason: string) => void;
  readonly #ends: () => void;
  readonly #failuresMax: number;
  #failures = 0;
  #good = 0;
  #calm = CALM;
  #isOn = false;

  /** @param failuresMax 0: the first failure is told */
  constructor(begins: (reason: string) => void, ends: () => void, failuresMax: number = FAILURES_MAX) {
    this.#begins = begins;
    this.#ends = ends;
    this.#failuresMax = failuresMax;
    if (failuresMax === 0) this.#calm = 1;
  }

  failed(reason: string): void {
    this.#good = 0;
    this.#failures++;
    if (this.#isOn || this.#failures <= this.#failuresMax) return;
    this.#isOn = true;
    this.#begins(reason);
  }

  succeeded(): void {
    this.#failures = Math.max(0, this.#failures - FORGIVEN_BY_SUCCESS);
    if (!this.#isOn || ++this.#good < this.#calm) return;
    this.#isOn = false;
    this.#failures = 0;
    this.#calm = Math.min(2 * this.#calm, CALM_MAX);
    this.#ends();
  }
}

/** The refusals of the tiers of an engine, each way by itself. */
export class Refusals {
  readonly #titles: ReadonlyMap<TierName, string>;
  readonly #notice: (line: string) => void;
  readonly #byWay: Map<string, LastingRefusal> = new Map();

  /** @param titles of the tiers that do not tell it themselves, by name */
  constructor(titles: ReadonlyMap<TierName, string>, notice: (line: string) => void) {
    this.#titles = titles;
    this.#notice = notice;
  }

  /** A block was written to the tier, or read from it. */
  ended(tier: TierName, way: 'write' | 'read', { outcome, reason, isStale }: StoreResult): void {
    const title = this.#titles.get(tier);
    if (title === undefined || isStale === true) return;
    const isRefused = outcome === Outcome.REFUSED || outcome === Outcome.TIMED_OUT;
    if (!isRefused && outcome !== Outcome.LOADED) return;
    let refusal = this.#byWay.get(`${way} ${tier}`);
    if (refusal === undefined) {
      if (!isRefused) return;
      refusal = this.#of(title, way);
      this.#byWay.set(`${way} ${tier}`, refusal);
    }
    if (isRefused) refusal.failed(reason);
    else refusal.succeeded();
  }

  #of(title: string, way: 'write' | 'read'): LastingRefusal {
    const [does, again, meanwhile] =
      way === 'write'
        ? ['takes no blocks', 'takes blocks', 'Blocks that have no other place are dropped meanwhile.']
        : ['gives no blocks', 'gives blocks', 'Its blocks are computed meanwhile.'];
    return new LastingRefusal(
      (reason) => this.#notice(`${title}: ${does} for now (${reason}). ${meanwhile}`),
      () => this.#notice(`${title}: ${again} again`),
    );
  }
}
