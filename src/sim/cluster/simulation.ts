/**
 * The event loop of a cluster on one clock: requests arrive, are admitted and routed, and instances step
 * until the workload is served or the horizon is reached. All state is plain and every choice has a defined
 * order, so one configuration gives one result.
 */

import { invariant } from '../../runtime/errors.ts';
import type { Timeline } from '../driver/index.ts';
import { Instance, type InstanceHost, type RunningRequest } from '../instance/index.ts';
import { EventQueue, VirtualClock } from '../kernel/index.ts';
import { RequestTable, Status } from '../metrics/index.ts';
import {
  type RequestStream,
  SessionManager,
  type SessionPlan,
  type WorkloadRequest,
} from '../workload/index.ts';
import type { Arrival, ControlPlane } from './controlPlane.ts';
import { eventPriorities, SimEvent } from './events.ts';

export interface SimulatedWorkload {
  /** Requests in order of arrival. */
  readonly stream: RequestStream;
  /** Present where requests exist only once others have ended. */
  readonly sessions: SessionPlan | undefined;
}

export interface SimulationOptions {
  /** No event after this happens. Infinity for none. */
  readonly horizonUs: number;
  readonly admissionLatencyUs: number;
  readonly routingLatencyUs: number;
  /** Whether the last token of an answer is part of the conversation that follows. */
  readonly lastTokenInContext: boolean;
}

/** Makes the instance of that number; the timeline is for its transfers. */
export type MakeInstance = (
  number: number,
  table: RequestTable,
  host: InstanceHost,
  timeline: Timeline,
) => Instance;

/** Of equal arrival times, those of the stream go before follow-ups. */
const FOLLOW_UP_RANK = 1;

export class Simulation implements InstanceHost {
  readonly table: RequestTable = new RequestTable();
  readonly instances: Instance[] = [];
  readonly horizonUs: number;
  /** Events handled so far. */
  events = 0;
  readonly #options: SimulationOptions;
  readonly #clock: VirtualClock = new VirtualClock();
  readonly #queue: EventQueue = new EventQueue(eventPriorities);
  readonly #stream: RequestStream;
  readonly #sessions: SessionManager | null;
  readonly #control: ControlPlane;
  readonly #makeInstance: MakeInstance;
  /** Requests that have not arrived yet, in slots; free slots are listed. */
  readonly #coming: (WorkloadRequest | undefined)[] = [];
  readonly #freeSlots: number[] = [];
  /** Requests that are with the control plane, by row. */
  readonly #arrivals: (Arrival | undefined)[] = [];
  /** Requests on their way to an instance or with it, by row. */
  readonly #running: (RunningRequest | undefined)[] = [];

  constructor(
    workload: SimulatedWorkload,
    options: SimulationOptions,
    instances: number,
    makeInstance: MakeInstance,
    makeControl: (simulation: Simulation) => ControlPlane,
  ) {
    this.horizonUs = options.horizonUs;
    this.#options = options;
    this.#stream = workload.stream;
    this.#sessions = workload.sessions === undefined ? null : new SessionManager(workload.sessions);
    this.#makeInstance = makeInstance;
    for (let i = 0; i < instances; i++) this.addInstance();
    this.#control = makeControl(this);
    this.#pull();
  }

  get nowUs(): number {
    return this.#clock.nowUs;
  }

  /** A new instance with the next number. */
  addInstance(): Instance {
    const number = this.instances.length;
    const timeline = this.#timelineOf(number);
    const instance = this.#makeInstance(number, this.table, this, timeline);
    this.instances.push(instance);
    return instance;
  }

  /** Runs to the end. `progress` is called now and then with the requests that have arrived. */
  run(progress: (arrived: number, nowUs: number) => void = () => {}): void {
    const between = 1 << 16;
    while (this.runSome(between)) progress(this.table.size, this.nowUs);
  }

  /** Handles at most so many events. @returns whether there are more */
  runSome(events: number): boolean {
    const queue = this.#queue;
    for (let left = events; left > 0; left--) {
      if (!(queue.nextTimeUs <= this.horizonUs) || !queue.pop()) return false;
      this.#clock.advanceTo(queue.timeUs);
      this.events++;
      this.#handle(queue.type as SimEvent, queue.a, queue.b);
    }
    return true;
  }

  scheduleStep(instance: number, timeUs: number): void {
    this.#queue.schedule(timeUs, SimEvent.STEP, instance, 0, instance);
  }

  ended(request: RunningRequest, instance: number, timeUs: number): void {
    this.#running[request.row] = undefined;
    this.#control.ended(request, instance);
    if (this.#sessions === null) return;
    const { row, workload } = request;
    const status = this.table.status[row];
    const generated = this.table.generatedTokens[row];
    const next = this.#sessions.next(workload, {
      outcome:
        status === Status.COMPLETED ? 'completed' : status === Status.TIMED_OUT ? 'timed-out' : 'dropped',
      timeUs,
      contextTokens: this.#options.lastTokenInContext ? generated : Math.max(generated - 1, 0),
    });
    if (next !== undefined) this.#announce(next, FOLLOW_UP_RANK);
  }

  /** The end of the run: tokens of requests that still run count in no statistics of gaps. */
  close(): void {
    for (const request of this.#running) {
      if (request === undefined) continue;
      const { times } = this.instances[this.table.instance[request.row]];
      times.forget(request, times.steps - 1);
    }
  }

  /** Requests that have arrived and not ended, by row. */
  unfinished(): { readonly arrivals: number; readonly running: number } {
    const count = (list: readonly unknown[]): number =>
      list.reduce((sum: number, entry) => sum + (entry === undefined ? 0 : 1), 0);
    return { arrivals: count(this.#arrivals), running: count(this.#running) };
  }

  checkIntegrity(): void {
    for (const { engine } of this.instances) engine.checkIntegrity();
  }

  #handle(type: SimEvent, a: number, b: number): void {
    const { nowUs } = this;
    switch (type) {
      case SimEvent.STEP:
        this.instances[a].step(nowUs);
        return;
      case SimEvent.QUEUED:
        this.#enqueue(a, nowUs);
        return;
      case SimEvent.ARRIVAL:
        this.#arrived(a, b, nowUs);
        return;
      case SimEvent.ADMISSION:
        this.#admit(this.#arrivalOf(a), nowUs);
        return;
      case SimEvent.ROUTING:
        this.#route(this.#arrivalOf(a), nowUs);
        return;
      case SimEvent.TIMEOUT:
        this.#timeOut(a, nowUs);
        return;
      case SimEvent.TRANSFER:
        this.instances[a].transferred(b);
        return;
      default:
        invariant(false, `event of kind ${type} has no handler`);
    }
  }

  /** The next request of the stream gets its place in the queue. */
  #pull(): void {
    const request = this.#stream.next();
    if (request !== undefined) this.#announce(request, 0);
  }

  #announce(request: WorkloadRequest, rank: number): void {
    const slot = this.#freeSlots.pop() ?? this.#coming.length;
    this.#coming[slot] = request;
    this.#queue.schedule(request.arrivalUs, SimEvent.ARRIVAL, slot, rank, rank);
  }

  #arrived(slot: number, rank: number, nowUs: number): void {
    const workload = this.#coming[slot];
    invariant(workload !== undefined, 'a request that arrives was announced');
    this.#coming[slot] = undefined;
    this.#freeSlots.push(slot);
    if (rank !== FOLLOW_UP_RANK) this.#pull();
    const row = this.table.add(workload);
    this.#arrivals[row] = { workload, row };
    this.#queue.schedule(nowUs + this.#options.admissionLatencyUs, SimEvent.ADMISSION, row);
  }

  #admit(arrival: Arrival, nowUs: number): void {
    const { row } = arrival;
    const answer = this.#control.admit(arrival, nowUs);
    if (answer === 'reject') {
      this.#drop(arrival, Status.REJECTED, nowUs);
    } else if (answer === 'admit') {
      this.#queue.schedule(nowUs + this.#options.routingLatencyUs, SimEvent.ROUTING, row);
    } else {
      this.#queue.schedule(nowUs + answer.delayUs, SimEvent.ADMISSION, row);
    }
  }

  #route(arrival: Arrival, nowUs: number): void {
    const { row, workload } = arrival;
    const number = this.#control.route(arrival, nowUs);
    if (number === -1) {
      this.#drop(arrival, Status.UNROUTABLE, nowUs);
      return;
    }
    this.#arrivals[row] = undefined;
    const instance = this.instances[number];
    this.table.instance[row] = number;
    const request = instance.runningRequest(workload, row, this.#control.priority(arrival));
    this.#running[row] = request;
    const queuedUs = nowUs + instance.latency.queueingTimeUs(workload.inputTokens);
    this.#queue.schedule(queuedUs, SimEvent.QUEUED, row, number, number);
  }

  #enqueue(row: number, nowUs: number): void {
    const request = this.#running[row];
    if (request === undefined) return;
    const { deadlineUs } = request.workload;
    const number = this.table.instance[row];
    this.instances[number].enqueue(request, nowUs);
    if (deadlineUs > nowUs && deadlineUs <= this.horizonUs && this.#running[row] !== undefined) {
      this.#queue.schedule(deadlineUs, SimEvent.TIMEOUT, row, number, number);
    }
  }

  #timeOut(row: number, nowUs: number): void {
    const request = this.#running[row];
    if (request !== undefined) this.instances[this.table.instance[row]].timeOut(request, nowUs);
  }

  /** A request ends before it came to an instance. */
  #drop({ row, workload }: Arrival, status: Status, nowUs: number): void {
    this.#arrivals[row] = undefined;
    this.table.status[row] = status;
    this.#sessions?.next(workload, { outcome: 'dropped', timeUs: nowUs, contextTokens: 0 });
  }

  #arrivalOf(row: number): Arrival {
    const arrival = this.#arrivals[row];
    invariant(arrival !== undefined, 'a request that is decided about has arrived');
    return arrival;
  }

  #timelineOf(instance: number): Timeline {
    const clock = this.#clock;
    return {
      get nowUs() {
        return clock.nowUs;
      },
      schedule: (timeUs, flight) =>
        this.#queue.schedule(timeUs, SimEvent.TRANSFER, instance, flight, instance),
    };
  }
}
