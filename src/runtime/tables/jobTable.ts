/**
 * The jobs: one transfer each, from a (slot, generation) to a (slot, generation). A row is reused after its job
 * retired; a `JobId` holds the row and how often it was used, so that a late or doubled completion is recognised.
 * tableMemory.ts says what -1 and 0 mean.
 *
 *     WAITING (for a slot, a source) -> ISSUED (the driver has it) -> ENDED (waiters to serve) -> retired
 *                                          | cancelled, deadline                                  ^
 *                                          v                                                      |
 *                                       DETACHED (no waiters; slots stay taken until it ends) ----+
 */

import type { Digest } from '../digest.ts';
import { invariant, TierKVError } from '../errors.ts';
import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { Tier } from '../tier/tier.ts';

export type JobId = number & { readonly __job: never };

/**
 * MOVE brings a content from one tier to another, SEAL takes the digest of an open block, OPEN waits for a slot to
 * open, COPY fills an open block from another block of the same tier.
 */
export const JobKind = { MOVE: 0, SEAL: 1, OPEN: 2, COPY: 3 } as const;
export type JobKind = (typeof JobKind)[keyof typeof JobKind];

export const JobState = { NONE: 0, WAITING: 1, ISSUED: 2, DETACHED: 3, ENDED: 4 } as const;
export type JobState = (typeof JobState)[keyof typeof JobState];

/** `WHOLE`: the bytes are as they were, so that the source can be found again. `LOST`: its tier was lost meanwhile. */
export const Leaving = { NOT: 0, WHOLE: 1, LOST: 2 } as const;

/** Purposes of jobs, most urgent first. */
export const JobPriority = {
  DEMAND_LOAD: 0,
  /** A copy that a caller waits for to be durable. */
  SAVE: 1,
  PREFETCH: 2,
  WRITE_THROUGH: 3,
  SCRUB: 4,
} as const;
export type JobPriority = (typeof JobPriority)[keyof typeof JobPriority];

const ROWS_MAX = 2 ** 21;

/**
 * The row in a job's id, in exact integer arithmetic: the remainder of two doubles would be a call of the C library.
 */
function rowIn(id: JobId): number {
  return id - Math.floor(id / ROWS_MAX) * ROWS_MAX;
}

export class JobTable {
  readonly capacity: number;
  kind: Uint8Array;
  state: Uint8Array;
  priority: Uint8Array;
  sizeClass: Uint8Array;
  content: Int32Array;
  /** Replica numbers, -1 while unknown. */
  source: Int32Array;
  target: Int32Array;
  targetTier: Int8Array;
  sourceGeneration: Uint32Array;
  targetGeneration: Uint32Array;
  deadlineUs: Float64Array;
  /** When the job was made, in microseconds of the manager's time. */
  madeAtUs: Float64Array;
  /** How it ended, for a job that is ENDED or DETACHED. */
  outcome: Uint8Array;
  /** Owner whose room it takes. */
  owner: Uint16Array;
  /** `Leaving`: whether the source was evicted and keeps its slot only until this job has ended. */
  leaving: Uint8Array;
  /** 1 for a job whose target reads back what was written before it says that it has it. */
  proves: Uint8Array;
  /** 1 for a job whose content's copies above give up their room once it has arrived. */
  frees: Uint8Array;
  /** 1 once the listener was told of its end, which a detached job has twice. */
  told: Uint8Array;
  /** 1 while a job without a slot counts against its target tier's capacity. */
  resident: Uint8Array;
  /** Next job that brings the same content into a tier, -1 for none. */
  nextIncoming: Int32Array;
  /** First waiter, -1 for none. */
  waiter: Int32Array;
  /** 1 once an issued job's deadline has passed: no sequence waits for its end any more. */
  overdue: Uint8Array;
  #uses: Uint32Array;
  /** Returned rows; the last one is used again first. */
  #free: Int32Array;
  #freeCount = 0;
  /** Rows from here on were never used; they are taken in order when no returned row is left. */
  #made = 0;
  issued = 0;
  /** Issued jobs past their deadline: they may never end. */
  overdueCount = 0;
  waiting = 0;

  /** @param whole whether all rows are allocated at the start */
  constructor(capacity: number, whole = true) {
    invariant(capacity <= ROWS_MAX, 'job rows fit a job id');
    this.capacity = capacity;
    const rows = firstRows(capacity, whole);
    this.kind = new Uint8Array(rows);
    this.state = new Uint8Array(rows);
    this.priority = new Uint8Array(rows);
    this.sizeClass = new Uint8Array(rows);
    this.content = new Int32Array(rows).fill(-1);
    this.source = new Int32Array(rows).fill(-1);
    this.target = new Int32Array(rows).fill(-1);
    this.targetTier = new Int8Array(rows);
    this.sourceGeneration = new Uint32Array(rows);
    this.targetGeneration = new Uint32Array(rows);
    this.deadlineUs = new Float64Array(rows).fill(Number.POSITIVE_INFINITY);
    this.madeAtUs = new Float64Array(rows);
    this.outcome = new Uint8Array(rows);
    this.owner = new Uint16Array(rows);
    this.leaving = new Uint8Array(rows);
    this.frees = new Uint8Array(rows);
    this.proves = new Uint8Array(rows);
    this.told = new Uint8Array(rows);
    this.resident = new Uint8Array(rows);
    this.nextIncoming = new Int32Array(rows).fill(-1);
    this.waiter = new Int32Array(rows).fill(-1);
    this.overdue = new Uint8Array(rows);
    this.#uses = new Uint32Array(rows);
    this.#free = new Int32Array(rows);
  }

  get count(): number {
    return this.#made - this.#freeCount;
  }

  /** Rows below this were used at some time. */
  get rows(): number {
    return this.#made;
  }

  /** A fresh row in state WAITING, or -1 when every row is in use. */
  create(
    kind: JobKind,
    targetTier: number,
    sizeClass: number,
    content: number,
    priority: JobPriority,
    owner: number,
  ): number {
    const row = this.#takeRow();
    if (row === -1) return -1;
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
    this.frees[row] = 0;
    this.proves[row] = 0;
    this.told[row] = 0;
    this.waiter[row] = -1;
    this.#uses[row]++;
    this.waiting++;
    return row;
  }

  #takeRow(): number {
    if (this.#freeCount > 0) return this.#free[--this.#freeCount];
    if (this.#made === this.capacity) return -1;
    if (this.#made === this.kind.length) this.#grow();
    return this.#made++;
  }

  #grow(): void {
    const rows = rowsFor(this.#made, this.kind.length, this.capacity);
    this.kind = grown(this.kind, rows);
    this.state = grown(this.state, rows);
    this.priority = grown(this.priority, rows);
    this.sizeClass = grown(this.sizeClass, rows);
    this.content = grown(this.content, rows, -1);
    this.source = grown(this.source, rows, -1);
    this.target = grown(this.target, rows, -1);
    this.targetTier = grown(this.targetTier, rows);
    this.sourceGeneration = grown(this.sourceGeneration, rows);
    this.targetGeneration = grown(this.targetGeneration, rows);
    this.deadlineUs = grown(this.deadlineUs, rows, Number.POSITIVE_INFINITY);
    this.madeAtUs = grown(this.madeAtUs, rows);
    this.outcome = grown(this.outcome, rows);
    this.owner = grown(this.owner, rows);
    this.leaving = grown(this.leaving, rows);
    this.frees = grown(this.frees, rows);
    this.proves = grown(this.proves, rows);
    this.told = grown(this.told, rows);
    this.resident = grown(this.resident, rows);
    this.nextIncoming = grown(this.nextIncoming, rows, -1);
    this.waiter = grown(this.waiter, rows, -1);
    this.overdue = grown(this.overdue, rows);
    this.#uses = grown(this.#uses, rows);
    this.#free = grown(this.#free, rows);
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

  /** Ends the job; its waiters are still to be served. */
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
      row < this.#made &&
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
    visitor.constant(this.capacity);
    visitor.fields(this);
    this.#uses = visitor.growing(this.#uses);
    this.#free = visitor.growing(this.#free);
    this.#freeCount = visitor.number(this.#freeCount);
    this.#made = visitor.number(this.#made);
  }

  checkIntegrity(): void {
    let issued = 0;
    let waiting = 0;
    let overdue = 0;
    for (let row = 0; row < this.#made; row++) {
      invariant(this.state[row] !== JobState.ENDED, 'no waiter is left unserved at the end of a call');
      if (this.state[row] === JobState.WAITING) waiting++;
      else if (this.state[row] !== JobState.NONE) issued++;
      overdue += this.overdue[row];
      invariant(
        this.overdue[row] === 0 || this.state[row] === JobState.DETACHED,
        'a job past its deadline has no waiters',
      );
    }
    invariant(overdue === this.overdueCount, 'the job table knows which jobs are overdue');
    invariant(issued === this.issued && waiting === this.waiting, 'the job table knows its jobs');
    invariant(issued + waiting === this.count, 'rows in use are jobs');
  }
}

// A job as a driver sees it: from where to where, which bytes, and their key and digest.

/** A job as a driver without bytes needs it; one object for any number of them. */
export interface JobRoute {
  /** Null for a seal, whose block lies where it is. */
  from: Tier | null;
  to: Tier;
  bytes: number;
  /** The content's key is the four words of `keys` from `keyAt` on; of a copy, which has none, -1. */
  keys: Uint32Array;
  keyAt: number;
  priority: JobPriority;
  /** Whether the source was evicted, and gives its slot up when the bytes have arrived. */
  leaves: boolean;
}

/** One transfer that the manager asked for: what goes from where to where. */
export interface Transfer {
  readonly job: JobId;
  /**
   * `move` brings source to target in another tier, `copy` within one tier; `seal` takes the digest of the
   * target where it lies, and has no source.
   */
  readonly kind: 'move' | 'copy' | 'seal';
  readonly source: Place | null;
  readonly target: Place;
  /** For a copy: its source is a block that a sequence still writes. */
  readonly unsealed?: boolean | undefined;
  readonly sizeClass: number;
  readonly bytes: number;
  /** The content's key: four words. Zeros for a copy, whose content is not sealed. */
  readonly key: Uint32Array;
  /** Key of the block before it in its chain; zeros for the first, absent where it is not known. */
  readonly parent?: Uint32Array | undefined;
  readonly tokens?: number | undefined;
  /** Digest of the bytes that a move must bring. */
  readonly digest: Digest;
  readonly priority: JobPriority;
  /** A store whose blocks outlive the process reads back what it wrote before it says that it has it. */
  readonly readBack?: boolean | undefined;
  readonly deadlineUs: number;
}

/** A slot of a tier, with the generation that names its present content. */
export interface Place {
  readonly tier: Tier;
  readonly slot: number;
  readonly generation: number;
}

// The waiters of jobs: chains of (sequence, block) hung on job rows, in the order in which they began to wait.

export class WaiterTable {
  #sequence: Float64Array = new Float64Array(64);
  #block: Int32Array = new Int32Array(64);
  #next: Int32Array = new Int32Array(64);
  #free = -1;
  #made = 0;
  #count = 0;

  /** Waiters that hang on a job. */
  get count(): number {
    return this.#count;
  }

  sequence(waiter: number): number {
    return this.#sequence[waiter];
  }

  block(waiter: number): number {
    return this.#block[waiter];
  }

  next(waiter: number): number {
    return this.#next[waiter];
  }

  /** Appends to the chain that starts at `heads[at]`. */
  append(heads: Int32Array, at: number, sequence: number, block: number): void {
    const waiter = this.#take();
    this.#sequence[waiter] = sequence;
    this.#block[waiter] = block;
    this.#next[waiter] = -1;
    let last = heads[at];
    if (last === -1) {
      heads[at] = waiter;
      return;
    }
    while (this.#next[last] !== -1) last = this.#next[last];
    this.#next[last] = waiter;
  }

  /** Takes (sequence, block) out of the chain at `heads[at]`; false when it is not there. */
  remove(heads: Int32Array, at: number, sequence: number, block: number): boolean {
    let before = -1;
    for (let waiter = heads[at]; waiter !== -1; before = waiter, waiter = this.#next[waiter]) {
      if (this.#sequence[waiter] !== sequence || this.#block[waiter] !== block) continue;
      if (before === -1) heads[at] = this.#next[waiter];
      else this.#next[before] = this.#next[waiter];
      this.#giveBack(waiter);
      return true;
    }
    return false;
  }

  /**
   * Unhangs the first waiter of the chain and returns it; valid until the next append. -1 for an empty chain.
   */
  shift(heads: Int32Array, at: number): number {
    const waiter = heads[at];
    if (waiter === -1) return -1;
    heads[at] = this.#next[waiter];
    this.#giveBack(waiter);
    return waiter;
  }

  #take(): number {
    this.#count++;
    if (this.#free !== -1) {
      const waiter = this.#free;
      this.#free = this.#next[waiter];
      return waiter;
    }
    if (this.#made === this.#block.length) this.#grow();
    return this.#made++;
  }

  #giveBack(waiter: number): void {
    this.#count--;
    this.#next[waiter] = this.#free;
    this.#free = waiter;
  }

  #grow(): void {
    const size = this.#block.length * 2;
    invariant(size <= 2 ** 30, 'waiters within limits');
    const sequence = new Float64Array(size);
    sequence.set(this.#sequence);
    const block = new Int32Array(size);
    block.set(this.#block);
    const next = new Int32Array(size);
    next.set(this.#next);
    this.#sequence = sequence;
    this.#block = block;
    this.#next = next;
  }

  visitState(visitor: StateVisitor): void {
    this.#sequence = visitor.growing(this.#sequence);
    this.#block = visitor.growing(this.#block);
    this.#next = visitor.growing(this.#next);
    this.#free = visitor.number(this.#free);
    this.#made = visitor.number(this.#made);
    this.#count = visitor.number(this.#count);
  }
}

// Deadlines of jobs, the earliest first: a binary heap of (deadline, job). Retired jobs stay in it until they come to
// the top or outnumber the live jobs, when the heap is rebuilt. So the next deadline costs O(1) and setting one O(log
// n).

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

  /** Microseconds of the earliest deadline of a live job; Infinity without one. */
  get nextUs(): number {
    this.#dropDead();
    return this.#size === 0 ? Number.POSITIVE_INFINITY : this.#due[0];
  }

  add(job: JobId, dueUs: number): void {
    if (dueUs === Number.POSITIVE_INFINITY) return;
    if (this.#size === this.#rebuildAt) this.#rebuild();
    if (this.#size === this.#due.length) {
      this.#due = doubled(this.#due);
      this.#job = doubled(this.#job);
    }
    this.#rise(this.#size++, dueUs, job);
  }

  /** Takes the job with the earliest deadline that is due at `nowUs`; 0 if none is due. */
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

function doubled(from: Float64Array): Float64Array {
  const to = new Float64Array(from.length * 2);
  to.set(from);
  return to;
}
