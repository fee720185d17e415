/**
 * Deadlines of jobs, the earliest first: a binary heap of (deadline, job). Jobs that have retired stay in it
 * until they come to the top or until they outnumber the living, when the heap is built anew. So the next
 * deadline costs O(1) and setting one O(log n), whatever happens to the jobs.
 */

import type { StateVisitor } from '../snapshot/index.ts';
import type { JobId } from './jobTable.ts';

export class Deadlines {
  readonly #isLive: (job: JobId) => boolean;
  #due: Float64Array = new Float64Array(64);
  #job: Float64Array = new Float64Array(64);
  #size = 0;
  #rebuildAt = 256;

  /** @param isLive whether the job's deadline still counts */
  constructor(isLive: (job: JobId) => boolean) {
    this.#isLive = isLive;
  }

  /** Microseconds of the earliest deadline of a living job; Infinity when there is none. */
  get nextUs(): number {
    this.#dropDead();
    return this.#size === 0 ? Number.POSITIVE_INFINITY : this.#due[0];
  }

  add(job: JobId, dueUs: number): void {
    if (dueUs === Number.POSITIVE_INFINITY) return;
    if (this.#size === this.#rebuildAt) this.#rebuild();
    if (this.#size === this.#due.length) {
      this.#due = grown(this.#due);
      this.#job = grown(this.#job);
    }
    this.#rise(this.#size++, dueUs, job);
  }

  /** Takes the job whose deadline is the earliest of those due at `nowUs`; 0 when none is due. */
  takeDue(nowUs: number): JobId {
    this.#dropDead();
    if (this.#size === 0 || this.#due[0] > nowUs) return 0 as JobId;
    const job = this.#job[0] as JobId;
    this.#dropFirst();
    return job;
  }

  #dropDead(): void {
    while (this.#size > 0 && !this.#isLive(this.#job[0] as JobId)) this.#dropFirst();
  }

  #dropFirst(): void {
    const last = --this.#size;
    if (last > 0) this.#sink(this.#due[last], this.#job[last]);
  }

  #rebuild(): void {
    const due = this.#due.slice(0, this.#size);
    const jobs = this.#job.slice(0, this.#size);
    this.#size = 0;
    this.#rebuildAt = Number.POSITIVE_INFINITY;
    for (let i = 0; i < due.length; i++)
      if (this.#isLive(jobs[i] as JobId)) this.add(jobs[i] as JobId, due[i]);
    this.#rebuildAt = Math.max(256, this.#size * 2);
  }

  #rise(from: number, dueUs: number, job: number): void {
    let at = from;
    for (; at > 0; at = (at - 1) >> 1) {
      const parent = (at - 1) >> 1;
      if (this.#due[parent] <= dueUs) break;
      this.#due[at] = this.#due[parent];
      this.#job[at] = this.#job[parent];
    }
    this.#due[at] = dueUs;
    this.#job[at] = job;
  }

  #sink(dueUs: number, job: number): void {
    let at = 0;
    for (let child = 1; child < this.#size; child = 2 * at + 1) {
      if (child + 1 < this.#size && this.#due[child + 1] < this.#due[child]) child++;
      if (this.#due[child] >= dueUs) break;
      this.#due[at] = this.#due[child];
      this.#job[at] = this.#job[child];
      at = child;
    }
    this.#due[at] = dueUs;
    this.#job[at] = job;
  }

  visitState(visitor: StateVisitor): void {
    this.#due = visitor.growing(this.#due);
    this.#job = visitor.growing(this.#job);
    this.#size = visitor.number(this.#size);
    this.#rebuildAt = visitor.number(this.#rebuildAt);
  }
}

function grown(from: Float64Array): Float64Array {
  const to = new Float64Array(from.length * 2);
  to.set(from);
  return to;
}
