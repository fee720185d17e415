/**
 * The gateway's queue on the clock: a request that comes in is queued and one dispatch is tried at once;
 * after that the queue is looked at in ticks for as long as it holds anything, and lets at most one request
 * through at each. Whatever finds the queue with a request in it has the next tick come, before it lets one
 * through: a tick is due also where that one was the last.
 */

import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { ControlPlane } from './controlPlane.ts';
import type { GatewayEntry } from './flowControl.ts';
import type { RequestPriority, RequestView } from './policy.ts';

export interface GatewayTiming {
  readonly tickUs: number;
  /** Longest wait; 0 for any. */
  readonly ttlUs: number;
}

/** The calls that the queue makes to the simulation, or to the gateway before real servers. */
interface GatewayHost {
  scheduleDispatch(timeUs: number): void;
  scheduleExpiry(request: RequestView, timeUs: number): void;
  /** The request leaves the queue for routing. */
  dispatched(entry: GatewayEntry, nowUs: number): void;
  /** The request is turned away, or put out for a more urgent one. */
  shed(request: number, nowUs: number): void;
}

export class GatewayQueue {
  readonly #control: ControlPlane;
  readonly #timing: GatewayTiming;
  readonly #host: GatewayHost;
  #ticks = false;

  constructor(control: ControlPlane, timing: GatewayTiming, host: GatewayHost) {
    this.#control = control;
    this.#timing = timing;
    this.#host = host;
  }

  enqueue(request: RequestView, priority: RequestPriority, nowUs: number): void {
    const queue = this.#control.gateway;
    if (queue === null) return;
    const result = queue.enqueue(request, priority, nowUs);
    if (result.outcome === 'rejected') {
      this.#host.shed(request.number, nowUs);
      return;
    }
    if (result.outcome === 'evicted') this.#host.shed(result.evicted.request.number, nowUs);
    if (this.#timing.ttlUs > 0) this.#host.scheduleExpiry(request, nowUs + this.#timing.ttlUs);
    this.#tickOn(nowUs);
    this.#dispatch(nowUs);
  }

  /** A tick is due. */
  tick(nowUs: number): void {
    this.#ticks = false;
    this.#tickOn(nowUs);
    this.#dispatch(nowUs);
  }

  /** @returns whether it was here */
  remove(request: RequestView): boolean {
    return this.#control.gateway?.remove(request) ?? false;
  }

  #dispatch(nowUs: number): void {
    const queue = this.#control.gateway;
    if (queue === null || queue.size === 0) return;
    const entry = queue.dispatch(this.#control.saturation(nowUs), nowUs);
    if (entry !== undefined) this.#host.dispatched(entry, nowUs);
  }

  #tickOn(nowUs: number): void {
    if (this.#ticks || (this.#control.gateway?.size ?? 0) === 0) return;
    this.#ticks = true;
    this.#host.scheduleDispatch(nowUs + this.#timing.tickUs);
  }

  visitState(visitor: StateVisitor): void {
    this.#ticks = visitor.flag(this.#ticks);
  }
}
