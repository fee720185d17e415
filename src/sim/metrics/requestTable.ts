/**
 * A simulation's table of requests, one row each, in columns of typed arrays: about 100 bytes a request, so a million
 * of them fit beside everything else. Times are in microseconds; -1 says that something did not happen.
 */

import { type CodeName, codeNames } from '../../runtime/codes.ts';
import { invariant } from '../../runtime/errors.ts';
import { grown } from '../../runtime/growing.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { RequestOrigin, WorkloadRequest } from '../workload/request.ts';

/** Where a request is, or how it ended. */
export const Status = {
  /** On its way to an instance: in admission, in a gateway queue, in routing, or before its queueing time. */
  ARRIVED: 0,
  /** With an instance, outside the batch. */
  QUEUED: 1,
  RUNNING: 2,
  COMPLETED: 3,
  /** Refused by admission. */
  REJECTED: 4,
  /** No instance could take it. */
  UNROUTABLE: 5,
  /** Its prompt and output can never fit its instance. */
  UNSERVABLE: 6,
  TIMED_OUT: 7,
  /** Turned away or put out by a full gateway queue. */
  SHED: 8,
  /** Waited longer in the gateway queue than its time to live. */
  EXPIRED: 9,
  /** In flight on an instance that was taken away at once. */
  LOST: 10,
  /** Its prompt is computed, and its KV waits for or is on its way to the decode instance. */
  HANDED_OFF: 11,
  /** Given up by its user. */
  CANCELLED: 12,
} as const;
export type Status = (typeof Status)[keyof typeof Status];
export const statusNames: readonly CodeName<typeof Status>[] = codeNames(Status);

const FIRST_ROWS = 1024;

export class RequestTable {
  /** Rows in use. */
  size = 0;
  arrivalUs: Float64Array = new Float64Array(FIRST_ROWS);
  /** Arrival to first token as the client sees it, or -1. */
  firstTokenUs: Float64Array = new Float64Array(FIRST_ROWS);
  /** Arrival to the end, or -1. */
  e2eUs: Float64Array = new Float64Array(FIRST_ROWS);
  /** Arrival to the admission into a batch, the last one after preemptions, or -1. */
  schedulingDelayUs: Float64Array = new Float64Array(FIRST_ROWS);
  /** Time in the gateway queue, or -1 without one. */
  gatewayUs: Float64Array = new Float64Array(FIRST_ROWS);
  /** Sum of the gaps between tokens of a completed request. */
  gapUs: Float64Array = new Float64Array(FIRST_ROWS);
  promptTokens: Int32Array = new Int32Array(FIRST_ROWS);
  /** Tokens that it is to generate. */
  outputTokens: Int32Array = new Int32Array(FIRST_ROWS);
  /**
   * Tokens that it generated, once it has ended, by the end of the run or before: with those of the step that ran then, as
   * `firstTokenUs` has it.
   */
  generatedTokens: Int32Array = new Int32Array(FIRST_ROWS);
  round: Int32Array = new Int32Array(FIRST_ROWS);
  /** Number of the instance that has or had it, or -1. */
  instance: Int32Array = new Int32Array(FIRST_ROWS);
  /** Index in `origins`. */
  origin: Int32Array = new Int32Array(FIRST_ROWS);
  preemptions: Int32Array = new Int32Array(FIRST_ROWS);
  status: Uint8Array = new Uint8Array(FIRST_ROWS);
  readonly origins: RequestOrigin[] = [];
  readonly #originIndex = new Map<RequestOrigin, number>();
  /** Ids that are not `request_<row>`. */
  readonly #ids = new Map<number, string>();
  readonly #sessions = new Map<number, string>();

  /** A new row for a request that arrives. */
  add(request: WorkloadRequest): number {
    const row = this.size++;
    if (row === this.arrivalUs.length) this.#grow();
    this.arrivalUs[row] = request.arrivalUs;
    this.firstTokenUs[row] = -1;
    this.e2eUs[row] = -1;
    this.schedulingDelayUs[row] = -1;
    this.gatewayUs[row] = -1;
    this.promptTokens[row] = request.inputTokens;
    this.outputTokens[row] = request.outputTokens;
    this.round[row] = request.round;
    this.instance[row] = -1;
    this.origin[row] = this.#indexOf(request.origin);
    if (request.id !== `request_${row}`) this.#ids.set(row, request.id);
    if (request.sessionId !== '') this.#sessions.set(row, request.sessionId);
    return row;
  }

  idOf(row: number): string {
    return this.#ids.get(row) ?? `request_${row}`;
  }

  /** '' for none. */
  sessionOf(row: number): string {
    return this.#sessions.get(row) ?? '';
  }

  originOf(row: number): RequestOrigin {
    return this.origins[this.origin[row]];
  }

  /** Mean gap between the tokens of a completed request; 0 for a single token. */
  meanGapUs(row: number): number {
    return this.gapUs[row] / Math.max(this.generatedTokens[row] - 1, 1);
  }

  #indexOf(origin: RequestOrigin): number {
    const known = this.#originIndex.get(origin);
    if (known !== undefined) return known;
    const index = this.origins.push(origin) - 1;
    this.#originIndex.set(origin, index);
    return index;
  }

  #grow(): void {
    const f64 = (old: Float64Array): Float64Array => {
      const grown = new Float64Array(2 * old.length);
      grown.set(old);
      return grown;
    };
    const i32 = (old: Int32Array): Int32Array => {
      const grown = new Int32Array(2 * old.length);
      grown.set(old);
      return grown;
    };
    this.arrivalUs = f64(this.arrivalUs);
    this.firstTokenUs = f64(this.firstTokenUs);
    this.e2eUs = f64(this.e2eUs);
    this.schedulingDelayUs = f64(this.schedulingDelayUs);
    this.gatewayUs = f64(this.gatewayUs);
    this.gapUs = f64(this.gapUs);
    this.promptTokens = i32(this.promptTokens);
    this.outputTokens = i32(this.outputTokens);
    this.generatedTokens = i32(this.generatedTokens);
    this.round = i32(this.round);
    this.instance = i32(this.instance);
    this.origin = i32(this.origin);
    this.preemptions = i32(this.preemptions);
    const status = new Uint8Array(2 * this.status.length);
    status.set(this.status);
    this.status = status;
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    visitor.value(
      () => ({ origins: [...this.origins], ids: [...this.#ids], sessions: [...this.#sessions] }),
      ({ origins, ids, sessions }) => {
        for (const origin of origins) this.#indexOf(origin);
        for (const [row, id] of ids) this.#ids.set(row, id);
        for (const [row, session] of sessions) this.#sessions.set(row, session);
      },
    );
  }
}

// How often each whole number occurred: the gaps between tokens, of which there are many and few different
// ones. Sums, means and percentiles are those of the list that it stands for, to the last bit.

/** Values below this have a place in a page of an array; larger ones are few and go into a map. */
const DENSE = 1 << 16;
const PAGE_BITS = 6;
const PAGE = 1 << PAGE_BITS;

export class ValueCounts {
  /** The place in `counts` of each page of values, 0 for none. There may be a thousand of these objects. */
  readonly #places: Uint16Array = new Uint16Array(DENSE >> PAGE_BITS);
  #counts: Float64Array = new Float64Array(8 * PAGE);
  #pages = 0;
  readonly #sparse = new Map<number, number>();
  /** Values counted. */
  count = 0;
  sum = 0;

  /** Counts `value` as often as `times` says; a negative number takes it out again. */
  add(value: number, times: number): void {
    this.count += times;
    this.sum += value * times;
    if (value >= 0 && value < DENSE) {
      const place = this.#placeOf(value); // which may replace the array
      this.#counts[place] += times;
    } else this.#sparse.set(value, (this.#sparse.get(value) ?? 0) + times);
  }

  /** Values are whole numbers. */
  #placeOf(value: number): number {
    const page = value >> PAGE_BITS;
    if (this.#places[page] === 0) {
      this.#places[page] = ++this.#pages;
      if ((this.#pages + 1) * PAGE > this.#counts.length) {
        this.#counts = grown(this.#counts, 2 * this.#counts.length);
      }
    }
    return this.#places[page] * PAGE + (value & (PAGE - 1));
  }

  addAll(other: ValueCounts): void {
    for (const [value, times] of other.entries()) this.add(value, times);
  }

  /** Values with their counts, from the smallest up. */
  *entries(): Generator<readonly [value: number, times: number]> {
    for (let page = 0; page < this.#places.length; page++) {
      const place = this.#places[page] * PAGE;
      if (place === 0) continue;
      for (let i = 0; i < PAGE; i++) {
        const times = this.#counts[place + i];
        if (times !== 0) yield [page * PAGE + i, times];
      }
    }
    const large = [...this.#sparse].filter(([, times]) => times !== 0).sort(([a], [b]) => a - b);
    yield* large;
  }

  /** Values at several ranks of the sorted list, in rising order of rank. */
  at(ranks: readonly number[]): number[] {
    const found: number[] = [];
    let seen = 0;
    let next = 0;
    for (const [value, times] of this.entries()) {
      invariant(times > 0, 'a value is taken out as often as it was counted');
      seen += times;
      while (next < ranks.length && ranks[next] < seen) {
        found.push(value);
        next++;
      }
      if (next === ranks.length) break;
    }
    return found;
  }

  /** Into counts of nothing. */
  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => Float64Array.from([...this.entries()].flat()),
      (saved) => {
        for (let i = 0; i < saved.length; i += 2) this.add(saved[i], saved[i + 1]);
      },
    );
  }
}
