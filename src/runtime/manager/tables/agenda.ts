/**
 * Work that one step leaves behind for the end of the call: slots that came free may be given to jobs that
 * wait, a tier may hold more than its capacity, a job's waiters are to be served. A step only notes it here;
 * `drain` (jobs/drain.ts) does it, so that no step calls back into the one that caused it.
 */

import type { StateVisitor } from '../../snapshot/index.ts';
import { JobQueue } from '../../transfer/jobQueue.ts';

export class Agenda {
  /** Jobs whose waiters are to be served, in the order in which they ended. */
  readonly ended: JobQueue = new JobQueue();
  /** Replicas of HBM whose bytes were found wrong while sequences read them. */
  readonly wrong: number[] = [];
  /** By tier that copies eagerly: replicas that became evictable. */
  readonly fresh: number[][] = [];
  /** Bit t: slots of tier t came free. */
  freed = 0;
  /** Bit t: tier t may hold more than its capacity. */
  crowded = 0;

  slotsFreed(tier: number): void {
    this.freed |= 1 << tier;
  }

  mayBeCrowded(tier: number): void {
    this.crowded |= 1 << tier;
  }

  get isEmpty(): boolean {
    return (this.freed | this.crowded | this.wrong.length) === 0 && this.ended.size === 0;
  }

  visitState(visitor: StateVisitor): void {
    this.ended.visitState(visitor);
    visitor.list(this.wrong);
    for (const list of this.fresh) visitor.list(list);
    this.freed = visitor.number(this.freed);
    this.crowded = visitor.number(this.crowded);
  }
}
