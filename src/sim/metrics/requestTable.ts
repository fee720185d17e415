/**
 * What a simulation knows of each request, one row each, in columns of typed arrays: about 100 bytes a
 * request, so a million of them fit beside everything else. Times are in microseconds; -1 says that something
 * did not happen.
 */

import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import type { RequestOrigin, WorkloadRequest } from '../workload/index.ts';

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
} as const;
export type Status = (typeof Status)[keyof typeof Status];
export const statusNames = [
  'arrived',
  'queued',
  'running',
  'completed',
  'rejected',
  'unroutable',
  'unservable',
  'timedOut',
  'shed',
  'expired',
  'lost',
  'handedOff',
] as const;

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
  /** Tokens that it generated, once it is completed. */
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
