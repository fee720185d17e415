/**
 * How likely a return is, by class and idle age, and what keeping a block is worth. Each node of the class
 * tree counts returns and exposures by bucket (a discrete-time survival estimate, as in Cox and Oakes,
 * Analysis of Survival Data, 1984), drawn towards its parent where its own counts are small. A class's worth
 * at an age is the Gittins index: the best ratio, over all ages to give up at, of the chance of a return to
 * the time for which the block is held.
 *
 * Only + - * / and comparisons: every engine gives the same numbers.
 */

import type { StateVisitor } from '../../../snapshot/index.ts';
import { BUCKETS, bucketStartUs } from './ages.ts';
import { CLASSES, FIRST_CLASS_NODE, NODES, parentNode } from './classes.ts';

/** Pseudo-exposures with which a bucket is drawn towards its parent's hazard. */
const BUCKET_WEIGHT = 10;
/** Pseudo-returns with which a node's level is drawn towards its parent's. */
const LEVEL_WEIGHT = 3;
/** Chance of a return per bucket before anything was seen, worth so many exposures. */
const PRIOR = 0.01;
const PRIOR_WEIGHT = 4;
const HIGHEST_HAZARD = 0.95;

export class Estimates {
  /**
   * Worth of a block by class and bucket, at `class * BUCKETS + bucket`: expected returns per microsecond of
   * holding.
   */
  readonly worth: Float64Array = new Float64Array(CLASSES * BUCKETS);
  /** By node and bucket. Classes are counted at once, the nodes above them at each refit. */
  readonly #returns: Float64Array = new Float64Array(NODES * BUCKETS);
  readonly #exposures: Float64Array = new Float64Array(NODES * BUCKETS);
  readonly #hazard: Float64Array = new Float64Array(NODES * BUCKETS);
  readonly #used: Uint8Array = new Uint8Array(NODES);
  readonly #stackReturn: Float64Array = new Float64Array(BUCKETS);
  readonly #stackTime: Float64Array = new Float64Array(BUCKETS);
  readonly #stackStay: Float64Array = new Float64Array(BUCKETS);

  /** Makes sure that the class has a worth. */
  use(c: number): void {
    if (this.#used[FIRST_CLASS_NODE + c] === 0) this.#use(FIRST_CLASS_NODE + c);
  }

  addReturns(c: number, bucket: number, weight: number): void {
    this.#returns[(FIRST_CLASS_NODE + c) * BUCKETS + bucket] += weight;
  }

  addExposures(c: number, bucket: number, weight: number): void {
    this.#exposures[(FIRST_CLASS_NODE + c) * BUCKETS + bucket] += weight;
  }

  /** Forgets half of what was counted, so that newer counts weigh more. */
  halve(): void {
    for (let i = 0; i < this.#returns.length; i++) {
      this.#returns[i] *= 0.5;
      this.#exposures[i] *= 0.5;
    }
  }

  /** Takes what was counted since the last time into account. */
  refit(): void {
    this.#returns.fill(0, 0, FIRST_CLASS_NODE * BUCKETS);
    this.#exposures.fill(0, 0, FIRST_CLASS_NODE * BUCKETS);
    for (let node = NODES - 1; node > 0; node--) if (this.#used[node] === 1) this.#sumUp(node);
    for (let node = 0; node < NODES; node++) if (this.#used[node] === 1) this.#refitNode(node);
  }

  #sumUp(node: number): void {
    const own = node * BUCKETS;
    const parent = parentNode[node] * BUCKETS;
    for (let b = 0; b < BUCKETS; b++) {
      this.#returns[parent + b] += this.#returns[own + b];
      this.#exposures[parent + b] += this.#exposures[own + b];
    }
  }

  #use(node: number): void {
    const parent = parentNode[node];
    if (node !== 0 && this.#used[parent] === 0) this.#use(parent);
    this.#used[node] = 1;
    this.#refitNode(node);
  }

  #refitNode(node: number): void {
    const returns = this.#returns;
    const exposures = this.#exposures;
    const hazard = this.#hazard;
    const own = node * BUCKETS;
    if (node === 0) {
      for (let b = 0; b < BUCKETS; b++) {
        hazard[b] = (returns[b] + PRIOR_WEIGHT * PRIOR) / (exposures[b] + PRIOR_WEIGHT);
      }
      return;
    }
    const parent = parentNode[node] * BUCKETS;
    let seen = LEVEL_WEIGHT;
    let expected = LEVEL_WEIGHT;
    for (let b = 0; b < BUCKETS; b++) {
      seen += returns[own + b];
      expected += exposures[own + b] * hazard[parent + b];
    }
    const level = seen / expected;
    for (let b = 0; b < BUCKETS; b++) {
      const drawn = Math.min(HIGHEST_HAZARD, level * hazard[parent + b]);
      hazard[own + b] = (returns[own + b] + BUCKET_WEIGHT * drawn) / (exposures[own + b] + BUCKET_WEIGHT);
    }
    if (node >= FIRST_CLASS_NODE) this.#rate(node - FIRST_CLASS_NODE);
  }

  /**
   * The Gittins index of every bucket of a class, from the oldest back: a bucket joins the later ones as long
   * as they are worth more than it, which gives the best age to give up at in one pass.
   */
  #rate(c: number): void {
    const hazard = this.#hazard;
    const own = (FIRST_CLASS_NODE + c) * BUCKETS;
    const returned = this.#stackReturn;
    const held = this.#stackTime;
    const stays = this.#stackStay;
    let depth = 0;
    for (let b = BUCKETS - 1; b >= 0; b--) {
      const p = hazard[own + b];
      let r = p;
      let t = (bucketStartUs[b + 1] - bucketStartUs[b]) * (1 - p / 2);
      let stay = 1 - p;
      while (depth > 0 && returned[depth - 1] * t > r * held[depth - 1]) {
        depth--;
        r += stay * returned[depth];
        t += stay * held[depth];
        stay *= stays[depth];
      }
      returned[depth] = r;
      held[depth] = t;
      stays[depth++] = stay;
      this.worth[c * BUCKETS + b] = r / t;
    }
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.worth);
    visitor.array(this.#returns);
    visitor.array(this.#exposures);
    visitor.array(this.#hazard);
    visitor.array(this.#used);
  }
}
