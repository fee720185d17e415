/**
 * Least frequently used first: the replica whose content was used by the fewest requests since the manager knows it;
 * among equals, the one released longest ago. A count is lost with its content, so a block that returns starts at 0.
 */

import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { EvictionWorld } from './evictionPolicy.ts';
import { RankedPolicy } from './rankedPolicy.ts';

export class Lfu extends RankedPolicy {
  /** Requests that used a content, by content. A replica keeps the rank with which it entered. */
  #uses: Float64Array;
  readonly #contents: number;

  constructor(world: EvictionWorld) {
    super(world);
    this.#contents = world.contents;
    this.#uses = new Float64Array(firstRows(world.contents, world.whole));
  }

  protected rankOf(_replica: number, content: number): number {
    return this.#uses[content] ?? 0;
  }

  override touch(content: number): void {
    if (content >= this.#uses.length) {
      this.#uses = grown(this.#uses, rowsFor(content, this.#uses.length, this.#contents));
    }
    this.#uses[content]++;
  }

  override forgotten(content: number): void {
    this.#uses[content] = 0;
  }

  override visitState(visitor: StateVisitor): void {
    super.visitState(visitor);
    this.#uses = visitor.growing(this.#uses);
  }
}
