/**
 * The jobs: one transfer each, from a (slot, generation) to a (slot, generation). A row is reused after its
 * job retired; a `JobId` holds the row and how often it was used, so that a late or doubled completion is
 * recognised.
 *
 *     WAITING (for a slot, a source) -> ISSUED (the driver has it) -> ENDED (waiters to serve) -> retired
 *                                          | cancelled, deadline                                  ^
 *                                          v                                                      |
 *                                       DETACHED (nobody waits, slots stay taken until it ends) --+
 */

import { invariant, TierKVError } from '../errors.ts';
import type { StateVisitor } from '../snapshot/index.ts';

export type JobId = number & { readonly __job: never };

/**
 * MOVE brings a content from one tier to another, SEAL takes the digest of an open block, OPEN waits for a
 * slot to open, COPY fills an open block from another one of the same tier.
 */
export const JobKind = { MOVE: 0, SEAL: 1, OPEN: 2, COPY: 3 } as const;
export type JobKind = (typeof JobKind)[keyof typeof JobKind];
export const jobKindNames = ['move', 'seal', 'open', 'copy'] as const;

export const JobState = { NONE: 0, WAITING: 1, ISSUED: 2, DETACHED: 3, ENDED: 4 } as const;
export type JobState = (typeof JobState)[keyof typeof JobState];

/** What a job is for, most urgent first. */
export const Priority = {
  DEMAND_LOAD: 0,
  PREEMPTION_SAVE: 1,
  PREFETCH: 2,
  WRITE_THROUGH: 3,
  SCRUB: 4,
} as const;
export type Priority = (typeof Priority)[keyof typeof Priority];

const ROWS_MAX = 2 ** 21;

/** The row in a job's id. The remainder of two doubles is a call of the C library; this is exact as well. */
function rowIn(id: JobId): number {
  return id - Math.floor(id / ROWS_MAX) * ROWS_MAX;
}

export class JobTable {
  readonly capacity: number;
  readonly kind: Uint8Array;
  readonly state: Uint8Array;
  readonly priority: Uint8Array;
  readonly sizeClass: Uint8Array;
  readonly content: Int32Array;
  /** Replica numbers, -1 while unknown. */
  readonly source: Int32Array;
  readonly target: Int32Array;
  readonly targetTier: Int8Array;
  readonly sourceGeneration: Uint32Array;
  readonly targetGeneration: Uint32Array;
  readonly deadlineUs: Float64Array;
  /** When the job was made, in microseconds of the manager's time. */
  readonly madeAtUs: Float64Array;
  /** How it ended, for a job that is ENDED or DETACHED. */
  readonly outcome: Uint8Array;
  /** Whose room it takes. */
  readonly owner: Uint16Array;
  /** 1 for a job whose source was evicted and keeps its slot only until this job has ended. */
  readonly leaving: Uint8Array;
  /** 1 once the listener was told of its end, which comes twice to a job that was detached. */
  readonly told: Uint8Array;
  /** 1 while a job without a slot counts against its target tier's capacity. */
  readonly resident: Uint8Array;
  /** Next job that brings the same content into a tier, -1 for none. */
  readonly nextIncoming: Int32Array;
  /** First waiter, -1 for none. */
  readonly waiter: Int32Array;
  /** 1 once an issued job's deadline has passed: nobody counts on its end any more. */
  readonly overdue: Uint8Array;
  readonly #uses: Uint32Array;
  readonly #free: Int32Array;
  #freeCount: number;
  issued = 0;
  /** Of these, past their deadline: they may never end. */
  overdueCount = 0;
  waiting = 0;

  constructor(capacity: number) {
    invariant(capacity <= ROWS_MAX, 'job rows fit a job id');
    this.capacity = capacity;
    this.kind = new Uint8Array(capacity);
    this.state = new Uint8Array(capacity);
    this.priority = new Uint8Array(capacity);
    this.sizeClass = new Uint8Array(capacity);
    this.content = new Int32Array(capacity).fill(-1);
    this.source = new Int32Array(capacity).fill(-1);
    this.target = new Int32Array(capacity).fill(-1);
    this.targetTier = new Int8Array(capacity);
    this.sourceGeneration = new Uint32Array(capacity);
    this.targetGeneration = new Uint32Array(capacity);
    this.deadlineUs = new Float64Array(capacity).fill(Number.POSITIVE_INFINITY);
    this.madeAtUs = new Float64Array(capacity);
    this.outcome = new Uint8Array(capacity);
    this.owner = new Uint16Array(capacity);
    this.leaving = new Uint8Array(capacity);
    this.told = new Uint8Array(capacity);
    this.resident = new Uint8Array(capacity);
    this.nextIncoming = new Int32Array(capacity).fill(-1);
    this.waiter = new Int32Array(capacity).fill(-1);
    this.overdue = new Uint8Array(capacity);
    this.#uses = new Uint32Array(capacity);
    this.#free = new Int32Array(capacity);
    for (let i = 0; i < capacity; i++) this.#free[i] = capacity - 1 - i;
    this.#freeCount = capacity;
  }

  get count(): number {
    return this.capacity - this.#freeCount;
  }

  /** A fresh row in state WAITING, or -1 when every row is in use. */
  create(
    kind: JobKind,
    targetTier: number,
    sizeClass: number,
    content: number,
    priority: Priority,
    owner: number,
  ): number {
    if (this.#freeCount === 0) return -1;
    const row = this.#free[--this.#freeCount];
    this.kind[row] = kind;
    this.state[row] = JobState.WAITING;
    this.priority[row] = priority;
    this.sizeClass[row] = sizeClass;
    this.content[row] = content;
    this.source[row] = -1;
    this.target[row] = -1;
    this.targetTier[row] = targetTier;
    this.deadlineUs[row] = Number.POSITIVE_INFINITY;
    this.resident[row] = 0;
    this.owner[row] = owner;
    this.leaving[row] = 0;
    this.told[row] = 0;
    this.waiter[row] = -1;
    this.#uses[row]++;
    this.waiting++;
    return row;
  }

  issue(row: number): void {
    invariant(this.state[row] === JobState.WAITING, 'only a waiting job can be issued');
    this.state[row] = JobState.ISSUED;
    this.waiting--;
    this.issued++;
  }

  detach(row: number, outcome: number): void {
    invariant(this.state[row] === JobState.ISSUED, 'only an issued job can be detached');
    this.state[row] = JobState.DETACHED;
    this.outcome[row] = outcome;
  }

  /** The job is over; whoever waits for it is still to be served. */
  end(row: number, outcome: number): void {
    const state = this.state[row];
    invariant(state !== JobState.NONE && state !== JobState.ENDED, 'a job ends once');
    if (state === JobState.WAITING) this.waiting--;
    else this.issued--;
    this.overdueCount -= this.overdue[row];
    this.overdue[row] = 0;
    this.state[row] = JobState.ENDED;
    this.outcome[row] = outcome;
  }

  markOverdue(row: number): void {
    if (this.overdue[row] === 1) return;
    this.overdue[row] = 1;
    this.overdueCount++;
  }

  retire(row: number): void {
    invariant(this.state[row] === JobState.ENDED, 'a job retires once, after it has ended');
    this.state[row] = JobState.NONE;
    this.#free[this.#freeCount++] = row;
  }

  idOf(row: number): JobId {
    return (this.#uses[row] * ROWS_MAX + row) as JobId;
  }

  /** Whether the job has not ended. */
  isLive(id: JobId): boolean {
    const row = rowIn(id);
    return (
      row < this.capacity &&
      this.#uses[row] === (id - row) / ROWS_MAX &&
      this.state[row] !== JobState.NONE &&
      this.state[row] !== JobState.ENDED
    );
  }

  /** @throws TKV_STALE when the job has retired before */
  rowOf(id: JobId): number {
    const row = rowIn(id);
    if (!this.isLive(id)) {
      throw new TierKVError('TKV_STALE', `job ${id} is not in flight. Report each job's end once.`, {
        field: 'job',
      });
    }
    return row;
  }

  /** The row of a job that may have ended and has not retired. */
  rowOfAny(id: JobId): number {
    const row = rowIn(id);
    invariant(this.#uses[row] === (id - row) / ROWS_MAX, 'the job has not retired');
    return row;
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    visitor.array(this.#uses);
    visitor.array(this.#free);
    this.#freeCount = visitor.number(this.#freeCount);
  }

  checkIntegrity(): void {
    let issued = 0;
    let waiting = 0;
    let overdue = 0;
    for (let row = 0; row < this.capacity; row++) {
      invariant(this.state[row] !== JobState.ENDED, 'no waiter is left unserved at the end of a call');
      if (this.state[row] === JobState.WAITING) waiting++;
      else if (this.state[row] !== JobState.NONE) issued++;
      overdue += this.overdue[row];
      invariant(
        this.overdue[row] === 0 || this.state[row] === JobState.DETACHED,
        'nobody waits for a job past its deadline',
      );
    }
    invariant(overdue === this.overdueCount, 'the job table knows which jobs are overdue');
    invariant(issued === this.issued && waiting === this.waiting, 'the job table knows its jobs');
    invariant(issued + waiting === this.count, 'rows in use are jobs');
  }
}
