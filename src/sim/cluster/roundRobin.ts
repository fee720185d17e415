/** The smallest control plane: everything is admitted, and instances take turns. */

import type { Admission, Arrival, ControlPlane } from './controlPlane.ts';

export class RoundRobin implements ControlPlane {
  readonly #instances: () => number;
  #next = 0;

  constructor(instances: () => number) {
    this.#instances = instances;
  }

  admit(): Admission {
    return 'admit';
  }

  route(_arrival: Arrival): number {
    return this.#next++ % this.#instances();
  }

  priority(arrival: Arrival): number {
    return classPriority(arrival.workload.origin.sloClass);
  }

  ended(): void {}
}

/** Distance from the most urgent class; unknown classes and none are standard. */
const urgencies: Readonly<Record<string, number>> = {
  critical: 4,
  standard: 3,
  batch: -1,
  sheddable: -2,
  background: -3,
};

export function classPriority(sloClass: string): number {
  return 4 - (urgencies[sloClass] ?? 3);
}
