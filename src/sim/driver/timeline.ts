/**
 * Where modeled transfers wait for their end. A simulation has one for everything that happens in it;
 * `TransferTimeline` is the smallest: the event kernel with one kind of event.
 */

import { EventQueue, VirtualClock } from '../kernel/index.ts';

export interface Timeline {
  /** Integer microseconds. */
  readonly nowUs: number;
  /** Calls back with `flight` at `timeUs`, which is not before `nowUs`. */
  schedule(timeUs: number, flight: number): void;
}

export class TransferTimeline implements Timeline {
  readonly #clock: VirtualClock = new VirtualClock();
  readonly #events: EventQueue = new EventQueue([0]);
  #end: (flight: number) => void = () => {};

  get nowUs(): number {
    return this.#clock.nowUs;
  }

  /** Ends that are still to come. */
  get pending(): number {
    return this.#events.size;
  }

  /** Who is told of each end. */
  onDue(end: (flight: number) => void): void {
    this.#end = end;
  }

  schedule(timeUs: number, flight: number): void {
    this.#events.schedule(timeUs, 0, flight);
  }

  /** Moves to the next end and reports it. @returns false when there is none */
  step(): boolean {
    if (!this.#events.pop()) return false;
    this.#clock.advanceTo(this.#events.timeUs);
    this.#end(this.#events.a);
    return true;
  }

  /** Reports what is due up to `timeUs`, and moves there: for example to a request's arrival. */
  advanceTo(timeUs: number): void {
    while (this.#events.nextTimeUs <= timeUs) this.step();
    if (timeUs > this.#clock.nowUs) this.#clock.advanceTo(timeUs);
  }
}
