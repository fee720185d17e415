/** Urgency of the SLO classes. Negative ones may be shed. Unknown names, and none, count as standard. */

/** Upstream's. */
export const defaultSloPriorities: Readonly<Record<string, number>> = {
  critical: 4,
  standard: 3,
  batch: -1,
  sheddable: -2,
  background: -3,
};

export class SloPriorities {
  readonly #byClass: Readonly<Record<string, number>>;
  readonly #standard: number;
  /** The highest of all classes and of the default. */
  readonly highest: number;

  /** @param overrides priorities of classes that differ from upstream's, or of other classes */
  constructor(overrides: Readonly<Record<string, number>> = {}) {
    this.#byClass = { ...defaultSloPriorities, ...overrides };
    this.#standard = this.#byClass.standard;
    this.highest = Math.max(this.#standard, ...Object.values(this.#byClass));
  }

  of(sloClass: string): number {
    return Object.hasOwn(this.#byClass, sloClass) ? this.#byClass[sloClass] : this.#standard;
  }
}
