/**
 * Blocks that returned, counted in runs: blocks of one cohort that one visit touched one after the other. A
 * run teaches the cohort and tells the guard what an LRU would have found of it.
 */

import type { StateVisitor } from '../../snapshot/index.ts';
import type { Guard } from './guard.ts';
import type { Cohorts } from './learning/cohorts.ts';
import type { Visits } from './visits.ts';

export class Returns {
  readonly #cohorts: Cohorts;
  readonly #guard: Guard;
  readonly #visits: Visits;
  /** The run that is not counted yet. */
  #cohort = 0;
  #row = 0;
  #us = 0;
  #length = 0;

  constructor(cohorts: Cohorts, guard: Guard, visits: Visits) {
    this.#cohorts = cohorts;
    this.#guard = guard;
    this.#visits = visits;
  }

  /** One more block of the cohort returned. @param row of the visit that touched it */
  add(row: number, cohort: number, nowUs: number): void {
    if (cohort !== this.#cohort || row !== this.#row || this.#length === 0) {
      this.flush();
      this.#cohort = cohort;
      this.#row = row;
      this.#us = nowUs;
    }
    this.#length++;
  }

  /** Counts the run at hand. */
  flush(): void {
    if (this.#length === 0) return;
    const length = this.#length;
    const cohort = this.#cohort;
    const row = this.#row;
    const visits = this.#visits;
    this.#length = 0;
    this.#cohorts.close();
    if (visits.lruFinds[row] === 1) {
      let found = length;
      if (cohort < this.#cohorts.firstHeld) {
        found =
          cohort > 0 && cohort === this.#cohorts.firstHeld - 1 ? Math.min(length, visits.lruRoom[row]) : 0;
        visits.lruRoom[row] -= found;
      }
      if (found < length) visits.lruFinds[row] = 0;
      this.#guard.lruFound(found);
    }
    this.#cohorts.returned(cohort, length, this.#us);
  }

  /** The cohort of the run at hand, and its blocks that are not counted yet. */
  get cohort(): number {
    return this.#cohort;
  }

  get length(): number {
    return this.#length;
  }

  visitState(visitor: StateVisitor): void {
    this.#cohort = visitor.number(this.#cohort);
    this.#row = visitor.number(this.#row);
    this.#us = visitor.number(this.#us);
    this.#length = visitor.number(this.#length);
  }
}
