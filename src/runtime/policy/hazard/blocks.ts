/**
 * What is remembered of a block: its cohort, its uses, the pace of its chain, when it was let go and in which
 * class. It is kept by content while the manager knows the content, and by key (a ghost) for a while after
 * that.
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot/index.ts';
import type { PolicyWorld } from '../evictionPolicy.ts';
import { GhostKeys } from '../parts/index.ts';
import { classOf, Part } from './learning/classes.ts';
import type { Cohorts } from './learning/cohorts.ts';

const LEAST_GHOSTS = 2 ** 16;
/** Class of a block that came without a request, as one that a store held since an earlier run. */
const NO_REQUEST = classOf(Part.KNOWN, 1, 0, 0);

export class Blocks {
  readonly known: Uint8Array;
  /** Cohort of the last use; 0 while the block is in use, and where there was none. */
  readonly cohort: Float64Array;
  readonly uses: Uint8Array;
  readonly pace: Uint8Array;
  readonly class: Uint16Array;
  readonly usedUs: Float64Array;
  readonly #world: PolicyWorld;
  readonly #cohorts: Cohorts;
  readonly #ghosts: GhostKeys;
  #ghostCohort: Float64Array;
  #ghostUses: Uint8Array;
  #ghostPace: Uint8Array;
  #ghostUsedUs: Float64Array;

  constructor(world: PolicyWorld, cohorts: Cohorts) {
    const { contents } = world;
    this.#world = world;
    this.#cohorts = cohorts;
    this.known = new Uint8Array(contents);
    this.cohort = new Float64Array(contents);
    this.uses = new Uint8Array(contents);
    this.pace = new Uint8Array(contents);
    this.class = new Uint16Array(contents);
    this.usedUs = new Float64Array(contents);
    this.#ghosts = new GhostKeys(Math.max(LEAST_GHOSTS, 2 * contents));
    this.#ghostCohort = new Float64Array(this.#ghosts.rows);
    this.#ghostUses = new Uint8Array(this.#ghosts.rows);
    this.#ghostPace = new Uint8Array(this.#ghosts.rows);
    this.#ghostUsedUs = new Float64Array(this.#ghosts.rows);
  }

  get ghosts(): number {
    return this.#ghosts.count;
  }

  /** Makes a content known that is not. @returns whether its key was known from before */
  recall(content: number, nowUs: number): boolean {
    this.known[content] = 1;
    this.class[content] = NO_REQUEST;
    const ghost = this.#ghosts.find(this.#world.keys, content * 4);
    if (ghost === -1) {
      this.cohort[content] = 0;
      this.uses[content] = 0;
      this.pace[content] = 0;
      this.usedUs[content] = nowUs;
      return false;
    }
    this.cohort[content] = this.#ghostCohort[ghost];
    this.uses[content] = this.#ghostUses[ghost];
    this.pace[content] = this.#ghostPace[ghost];
    this.usedUs[content] = this.#ghostUsedUs[ghost];
    this.#ghosts.remove(ghost);
    return true;
  }

  /** The content's row will be another's; what was known of it is kept under its key. */
  bury(content: number): void {
    this.known[content] = 0;
    if (this.uses[content] === 0) return;
    if (this.#ghosts.isFull) {
      const oldest = this.#ghosts.oldest();
      this.#cohorts.forgotten(this.#ghostCohort[oldest]);
      this.#ghosts.remove(oldest);
    }
    const ghost = this.#ghosts.add(0, this.#world.keys, content * 4);
    if (this.#ghosts.rows > this.#ghostUses.length) this.#grow(this.#ghosts.rows);
    this.#ghostCohort[ghost] = this.cohort[content];
    this.#ghostUses[ghost] = this.uses[content];
    this.#ghostPace[ghost] = this.pace[content];
    this.#ghostUsedUs[ghost] = this.usedUs[content];
  }

  #grow(rows: number): void {
    const grown = <T extends Float64Array | Uint8Array>(from: T, into: T): T => {
      into.set(from);
      return into;
    };
    this.#ghostCohort = grown(this.#ghostCohort, new Float64Array(rows));
    this.#ghostUses = grown(this.#ghostUses, new Uint8Array(rows));
    this.#ghostPace = grown(this.#ghostPace, new Uint8Array(rows));
    this.#ghostUsedUs = grown(this.#ghostUsedUs, new Float64Array(rows));
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    this.#ghosts.visitState(visitor);
    this.#ghostCohort = visitor.growing(this.#ghostCohort);
    this.#ghostUses = visitor.growing(this.#ghostUses);
    this.#ghostPace = visitor.growing(this.#ghostPace);
    this.#ghostUsedUs = visitor.growing(this.#ghostUsedUs);
  }

  /** @param returned blocks of `cohort` that returned and were not counted yet */
  checkIntegrity(cohort: number, returned: number): void {
    this.#ghosts.checkIntegrity();
    const members = new Map<number, number>();
    if (cohort > 0 && returned > 0) members.set(cohort, returned);
    const count = (one: number): void => {
      if (one > 0) members.set(one, (members.get(one) ?? 0) + 1);
    };
    for (let content = 0; content < this.known.length; content++) {
      if (this.known[content] === 1) count(this.cohort[content]);
    }
    for (let ghost = this.#ghosts.oldest(); ghost !== -1; ghost = this.#ghosts.newer(ghost)) {
      invariant(this.#ghostUses[ghost] > 0, 'a ghost was used');
      count(this.#ghostCohort[ghost]);
    }
    this.#cohorts.checkIntegrity(members);
  }
}
