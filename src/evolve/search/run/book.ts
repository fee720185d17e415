/** All that were evaluated, by content, by id and by behaviour. */

import { contentKey, type Individual } from '../bundles/index.ts';

export class Book {
  readonly #byContent: Map<string, Individual> = new Map();
  readonly #byId: Map<string, Individual> = new Map();
  /** The first of each behaviour. */
  readonly #byBehaviour: Map<string, Individual> = new Map();

  constructor(individuals: readonly Individual[]) {
    for (const individual of individuals) this.enter(individual);
  }

  enter(individual: Individual): void {
    const { bundle, id, behaviour } = individual;
    this.#byContent.set(contentKey(bundle), individual);
    this.#byId.set(id, individual);
    if (behaviour !== '' && !this.#byBehaviour.has(behaviour)) this.#byBehaviour.set(behaviour, individual);
  }

  has(id: string): boolean {
    return this.#byId.has(id);
  }

  find(id: string): Individual {
    const found = this.#byId.get(id);
    if (found === undefined) throw new Error(`the search knows no bundle ${id}`);
    return found;
  }

  /** @param key `contentKey` of a bundle */
  ofContent(key: string): Individual | undefined {
    return this.#byContent.get(key);
  }

  ofBehaviour(behaviour: string): Individual | undefined {
    return this.#byBehaviour.get(behaviour);
  }

  get behaviours(): ReadonlySet<string> {
    return new Set(this.#byBehaviour.keys());
  }
}
