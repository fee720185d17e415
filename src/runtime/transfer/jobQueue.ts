/** A first-in first-out ring of job ids that grows and never shrinks. */

import type { StateVisitor } from '../snapshot/index.ts';
import type { JobId } from './jobTable.ts';

export class JobQueue {
  #ring: Float64Array = new Float64Array(64);
  #head = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(job: JobId): void {
    if (this.#size === this.#ring.length) {
      const ring = new Float64Array(this.#size * 2);
      for (let i = 0; i < this.#size; i++) ring[i] = this.#ring[(this.#head + i) & (this.#size - 1)];
      this.#ring = ring;
      this.#head = 0;
    }
    this.#ring[(this.#head + this.#size++) & (this.#ring.length - 1)] = job;
  }

  /** The jobs in order. */
  toArray(): JobId[] {
    return Array.from(
      { length: this.#size },
      (_, i) => this.#ring[(this.#head + i) & (this.#ring.length - 1)] as JobId,
    );
  }

  /** The first job, or 0, which is no job's id. */
  peek(): JobId {
    return (this.#size === 0 ? 0 : this.#ring[this.#head]) as JobId;
  }

  shift(): JobId {
    const job = this.peek();
    if (this.#size > 0) {
      this.#head = (this.#head + 1) & (this.#ring.length - 1);
      this.#size--;
    }
    return job;
  }

  visitState(visitor: StateVisitor): void {
    this.#ring = visitor.growing(this.#ring);
    this.#head = visitor.number(this.#head);
    this.#size = visitor.number(this.#size);
  }
}
