/**
 * Least frequently used first: the replica whose content was used by the fewest requests since the manager
 * knows it, and of equal ones the one that was let go longest ago. A count is lost with its content, so a
 * block that returns begins anew.
 */

import type { StateVisitor } from '../snapshot/index.ts';
import type { PolicyWorld } from './evictionPolicy.ts';
import { RankedPolicy } from './parts/index.ts';

export class Lfu extends RankedPolicy {
  /** By content: requests that used it. A replica keeps the rank with which it entered. */
  readonly #uses: Float64Array;

  constructor(world: PolicyWorld) {
    super(world);
    this.#uses = new Float64Array(world.contents);
  }

  protected rankOf(_replica: number, content: number): number {
    return this.#uses[content];
  }

  override touch(content: number): void {
    this.#uses[content]++;
  }

  override forgotten(content: number): void {
    this.#uses[content] = 0;
  }

  override visitState(visitor: StateVisitor): void {
    super.visitState(visitor);
    visitor.array(this.#uses);
  }
}
