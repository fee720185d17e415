/**
 * The event loop of a cluster on one clock: requests arrive, are admitted and routed, and instances step
 * until the workload is served or the horizon is reached. All state is plain and every choice has a defined
 * order, so one configuration gives one result.
 */

import { invariant } from '../../runtime/errors.ts';
import type { ControlPlane, EndKind, Priority } from '../control/index.ts';
import type { Timeline } from '../driver/index.ts';
import {
  type EngineStep,
  type Instance,
  type InstanceHost,
  KeysNeeded,
  type PromptKeys,
  SimRequest,
} from '../instance/index.ts';
import { EventQueue, VirtualClock } from '../kernel/index.ts';
import { RequestTable, Status } from '../metrics/index.ts';
import {
  type RequestStream,
  SessionManager,
  type SessionPlan,
  type WorkloadRequest,
} from '../workload/index.ts';
import { type Conservation, checkConservation } from './conservation.ts';
import { eventPriorities, SimEvent } from './events.ts';
import { GatewayQueue, type GatewayTiming } from './gatewayQueue.ts';
import { type HandoffConfig, Handoffs } from './handoffs.ts';
import { probeOf } from './instanceProbe.ts';
import type { SimulationObserver } from './observer.ts';
import { ScalingLoop, type ScalingSetup } from './scalingLoop.ts';
import { Traffic } from './traffic.ts';

export interface SimulatedWorkload {
  /** Requests in order of arrival. */
  readonly stream: RequestStream;
  /** Present where requests exist only once others have ended. */
  readonly sessions: SessionPlan | undefined;
  /** Whether no request has tokens of another one, as far as is known before. */
  readonly sharesNothing?: boolean;
}

export interface SimulationOptions {
  /** No event after this happens. Infinity for none. */
  readonly horizonUs: number;
  readonly admissionLatencyUs: number;
  readonly routingLatencyUs: number;
  /** Whether the last token of an answer is part of the conversation that follows. */
  readonly lastTokenInContext: boolean;
  /** Between prefill and decode instances. */
  readonly handoff: HandoffConfig;
  /** Of the control plane's gateway queue, where it has one. */
  readonly gateway?: GatewayTiming;
}

/** What a simulation is made of. */
export interface SimulationParts {
  readonly workload: SimulatedWorkload;
  readonly options: SimulationOptions;
  readonly instances: number;
  /** Makes the instance of that number; the timeline is for its transfers. */
  makeInstance(number: number, table: RequestTable, host: InstanceHost, timeline: Timeline): Instance;
  readonly control: ControlPlane;
  readonly keys: PromptKeys;
  readonly observer?: SimulationObserver;
  readonly scaling?: ScalingSetup;
}

/** What a HANDOFF event says: the prompt is computed, or its KV has arrived. */
const HANDOFF_READY = 0;
const HANDOFF_ARRIVED = 1;
/** Of equal arrival times, those of the stream go before follow-ups. */
const FOLLOW_UP_RANK = 1;

export class Simulation implements InstanceHost {
  readonly table: RequestTable = new RequestTable();
  readonly instances: Instance[] = [];
  readonly control: ControlPlane;
  readonly horizonUs: number;
  readonly handoffs: Handoffs;
  /** Events handled so far. */
  events = 0;
  readonly #parts: SimulationParts;
  readonly #clock: VirtualClock = new VirtualClock();
  readonly #queue: EventQueue = new EventQueue(eventPriorities);
  readonly #sessions: SessionManager | null;
  readonly #gateway: GatewayQueue | null;
  readonly #scaling: ScalingLoop | null;
  readonly #traffic: Traffic = new Traffic();
  /** Requests sent to each instance and not ended. */
  readonly #with: number[] = [];
  readonly #observer: SimulationObserver;
  /** Requests that have not arrived yet, in slots; free slots are listed. */
  readonly #coming: (WorkloadRequest | undefined)[] = [];
  readonly #freeSlots: number[] = [];
  /** Requests that have arrived and not ended, by row. */
  readonly #requests: (SimRequest | undefined)[] = [];
  /** How many those are. */
  #open = 0;
  /** By row, for requests that a prefill instance has: where they go on. */
  readonly #decodeOf: number[] = [];
  /** Priorities of requests that are with the control plane, by row. */
  readonly #priorities: (Priority | undefined)[] = [];

  constructor(parts: SimulationParts) {
    const { options, workload } = parts;
    this.horizonUs = options.horizonUs;
    this.control = parts.control;
    this.#parts = parts;
    this.#observer = parts.observer ?? {};
    this.handoffs = new Handoffs(options.handoff, (timeUs, row) => {
      this.#queue.schedule(timeUs, SimEvent.HANDOFF, row, HANDOFF_ARRIVED);
    });
    this.#gateway = this.#makeGateway();
    this.#sessions = workload.sessions === undefined ? null : new SessionManager(workload.sessions);
    for (let i = 0; i < parts.instances; i++) {
      this.control.setRoutable(this.addInstance().number, true);
    }
    this.#scaling = parts.scaling === undefined ? null : this.#makeScaling(parts.scaling);
    this.#pull();
  }

  get nowUs(): number {
    return this.#clock.nowUs;
  }

  /** A new instance with the next number, which gets no requests yet. */
  addInstance(): Instance {
    const number = this.instances.length;
    const instance = this.#parts.makeInstance(number, this.table, this, this.#timelineOf(number));
    this.instances.push(instance);
    this.#with.push(0);
    if (this.#parts.scaling !== undefined) {
      instance.slowdown = (nowUs) => this.#scaling?.slowdown(number, nowUs) ?? 1;
    }
    this.control.addInstance(probeOf(instance), this.nowUs);
    if (this.control.wantsCacheEvents) {
      instance.engine.watchCache({
        stored: (tier, key) => this.control.kvStored(number, tier, key, this.nowUs),
        removed: (tier, key) => this.control.kvRemoved(number, tier, key, this.nowUs),
      });
    }
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

  /**
   * The end of the run: its books are audited, and tokens of requests that still run count in no statistics
   * of
   * gaps from now on.
   */
  close(): Conservation {
    const conservation = checkConservation(this.table, this.instances, this.unfinished());
    for (const request of this.#requests) {
      if (request === undefined || this.table.instance[request.number] === -1) continue;
      const { times } = this.instances[this.table.instance[request.number]];
      times.forget(request, times.steps - 1);
    }
    return conservation;
  }

  scheduleStep(instance: number, timeUs: number): void {
    this.#queue.schedule(timeUs, SimEvent.STEP, instance, 0, instance);
  }

  admitted(request: SimRequest, instance: number): void {
    const found = Math.max(request.foundBlocks, 0);
    const divergence = this.control.scheduled(request, instance, found, this.nowUs);
    if (divergence !== null) this.#observer.diverged?.(divergence);
  }

  started(request: SimRequest, instance: number): void {
    this.control.firstToken(request, instance, this.nowUs);
  }

  stepped(instance: number, startUs: number, endUs: number, step: EngineStep): void {
    if (this.#observer.step === undefined) return;
    const { tokens, decodeRequests: decodes, prefillRequests: prefills } = step.sums;
    const { transferUs } = step;
    this.#observer.step({ instance, startUs, endUs, tokens, decodes, prefills, transferUs });
  }

  gaveWay(): void {
    if (this.#parts.keys.skips) throw new KeysNeeded('a request gave way in a run without block keys');
  }

  prefilled(request: SimRequest, instance: number, timeUs: number): void {
    const { nowUs } = this;
    this.control.ended(request, instance, 'handedOff', 0, nowUs);
    this.#with[instance]--;
    const decode = this.instances[this.#decodeOf[request.number]];
    this.handoffs.begin(request, this.instances[instance], decode, nowUs, timeUs);
    this.#queue.schedule(timeUs, SimEvent.HANDOFF, request.number, HANDOFF_READY);
  }

  ended(request: SimRequest, instance: number, timeUs: number): void {
    const { number: row, workload } = request;
    this.#requests[row] = undefined;
    this.#open--;
    const status = this.table.status[row] as Status;
    const generated = this.table.generatedTokens[row];
    this.control.ended(request, instance, endKind(status), generated, this.nowUs);
    this.#observer.ended?.(request, status, timeUs, instance);
    this.#with[instance]--;
    if (this.#scaling !== null) {
      this.#traffic.ended(this.table, row);
      this.#scaling.left(instance, this.nowUs);
    }
    if (this.handoffs.waitingFor(instance) > 0) this.#roomOn(instance, timeUs);
    this.#followUp(workload, status, generated, timeUs);
  }

  /** Requests that have arrived and not ended. */
  unfinished(): SimRequest[] {
    return this.#requests.filter((request) => request !== undefined);
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
        this.#enqueue(a, b, nowUs);
        return;
      case SimEvent.ARRIVAL:
        this.#arrived(a, b, nowUs);
        return;
      case SimEvent.ADMISSION:
        this.#admit(this.#request(a), nowUs);
        return;
      case SimEvent.ROUTING:
        this.#route(this.#request(a), nowUs);
        return;
      case SimEvent.TIMEOUT:
        this.#timeOut(a, nowUs);
        return;
      case SimEvent.DISPATCH:
        this.#gateway?.tick(nowUs);
        return;
      case SimEvent.EXPIRY:
        this.#expire(a, nowUs);
        return;
      case SimEvent.SCALE_CHECK:
        this.#scaling?.check(nowUs);
        return;
      case SimEvent.SCALE_ACTION:
        this.#scaling?.due(a, nowUs);
        return;
      case SimEvent.HANDOFF:
        this.#handOff(a, b, nowUs);
        return;
      case SimEvent.ROOM:
        this.handoffs.serve(this.instances[a], nowUs);
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
    const request = this.#parts.workload.stream.next();
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
    const request = new SimRequest(workload, row, this.#parts.keys);
    this.#requests[row] = request;
    this.#open++;
    this.control.arrived(request, nowUs);
    this.#traffic.arrived(request.promptTokens);
    this.#observer.arrived?.(request, nowUs);
    this.#queue.schedule(nowUs + this.#parts.options.admissionLatencyUs, SimEvent.ADMISSION, row);
  }

  #admit(request: SimRequest, nowUs: number): void {
    const { number: row } = request;
    const decision = this.control.admit(request, nowUs);
    this.#observer.admission?.(request, decision, nowUs);
    switch (decision.verdict) {
      case 'reject':
        this.#drop(request, Status.REJECTED, nowUs);
        return;
      case 'delay':
        this.#queue.schedule(nowUs + decision.durationUs, SimEvent.ADMISSION, row);
        return;
      case 'admit': {
        const priority = this.control.prioritise(request, nowUs);
        if (this.#gateway === null) this.#scheduleRouting(row, priority, nowUs);
        else this.#gateway.enqueue(request, priority, nowUs);
      }
    }
  }

  #scheduleRouting(row: number, priority: Priority, nowUs: number): void {
    this.#priorities[row] = priority;
    this.#queue.schedule(nowUs + this.#parts.options.routingLatencyUs, SimEvent.ROUTING, row);
  }

  #makeGateway(): GatewayQueue | null {
    const { gateway } = this.#parts.options;
    if (gateway === undefined || this.control.gateway === null) return null;
    return new GatewayQueue(this.control, gateway, {
      scheduleDispatch: (timeUs) => {
        this.#queue.schedule(timeUs, SimEvent.DISPATCH);
      },
      scheduleExpiry: (request, timeUs) => {
        this.#queue.schedule(timeUs, SimEvent.EXPIRY, request.number);
      },
      dispatched: ({ request, priority, enqueuedUs }, nowUs) => {
        this.table.gatewayUs[request.number] = nowUs - enqueuedUs;
        this.#scheduleRouting(request.number, priority, nowUs);
      },
      shed: (row, nowUs) => this.#drop(this.#request(row), Status.SHED, nowUs),
    });
  }

  #makeScaling(setup: ScalingSetup): ScalingLoop {
    return new ScalingLoop(setup, {
      scheduleCheck: (timeUs) => {
        this.#queue.schedule(timeUs, SimEvent.SCALE_CHECK);
      },
      scheduleDue: (timeUs, replica) => {
        this.#queue.schedule(timeUs, SimEvent.SCALE_ACTION, replica);
      },
      pendingRequests: () => this.control.gateway?.size ?? 0,
      hasWork: () => this.#coming.length > this.#freeSlots.length || this.#open > 0,
      snapshots: (nowUs) => this.control.cluster(nowUs).instances,
      takeTraffic: (nowUs) => this.#traffic.take(this.control.cluster(nowUs).instances, nowUs),
      makeInstance: () => this.addInstance().number,
      setRoutable: (instance, routable) => this.control.setRoutable(instance, routable),
      isEmpty: (instance) => this.#with[instance] === 0,
      redirect: (instance, nowUs) => this.#redirect(instance, nowUs),
      remove: (instance, nowUs) => this.#remove(instance, nowUs),
      scaled: (decision, before, nowUs) => this.#observer.scaled?.(decision, before, nowUs),
    });
  }

  /** What has not joined a batch of the instance is routed again. */
  #redirect(number: number, nowUs: number): void {
    const instance = this.instances[number];
    for (const request of this.#requests) {
      if (request === undefined || this.table.instance[request.number] !== number) continue;
      const { number: row } = request;
      const status = this.table.status[row];
      if (status !== Status.QUEUED && status !== Status.ARRIVED) continue;
      if (status === Status.QUEUED) instance.release(request, nowUs);
      this.table.status[row] = Status.ARRIVED;
      this.table.instance[row] = -1;
      this.#with[number]--;
      this.control.ended(request, number, 'redirected', 0, nowUs);
      this.#scheduleRouting(row, this.control.prioritise(request, nowUs), nowUs);
    }
  }

  /** The instance is gone, with what it still had. */
  #remove(number: number, nowUs: number): void {
    const instance = this.instances[number];
    for (const request of this.#requests) {
      if (request === undefined || this.table.instance[request.number] !== number) continue;
      if (this.table.status[request.number] === Status.ARRIVED) {
        instance.giveUp(request, Status.LOST, nowUs);
      } else {
        instance.remove(request, Status.LOST, nowUs);
      }
    }
    this.control.removeInstance(number);
  }

  /** A request has waited in the gateway's queue as long as it may. */
  #expire(row: number, nowUs: number): void {
    const request = this.#requests[row];
    if (request === undefined || this.#gateway?.remove(request) !== true) return;
    this.#drop(request, Status.EXPIRED, nowUs);
  }

  #route(request: SimRequest, nowUs: number): void {
    const { number: row } = request;
    const priority = this.#priorities[row];
    invariant(priority !== undefined, 'a request that is routed has a priority');
    this.#priorities[row] = undefined;
    const decision = this.control.route(request, priority, nowUs);
    this.#observer.routing?.(request, decision, nowUs);
    if (decision === null) {
      this.#drop(request, Status.UNROUTABLE, nowUs);
      return;
    }
    request.priority = priority.rank;
    if (decision.prefillInstance === -1) {
      this.#send(request, decision.target, nowUs);
      return;
    }
    const decode = this.instances[decision.decodeInstance];
    if (!decode.canServe(request)) {
      this.table.instance[row] = decode.number;
      this.#with[decode.number]++;
      decode.giveUp(request, Status.UNSERVABLE, nowUs);
      return;
    }
    this.#decodeOf[row] = decision.decodeInstance;
    request.part = 'prefill';
    request.maxOutputTokens = 1;
    this.#send(request, decision.prefillInstance, nowUs);
  }

  /** The request is on its way to the instance, and queues there after the queueing time. */
  #send(request: SimRequest, number: number, nowUs: number): void {
    this.table.instance[request.number] = number;
    this.#with[number]++;
    const instance = this.instances[number];
    const queueingUs = instance.latency.queueingTimeUs(request.promptTokens);
    instance.engine.announce(request, nowUs, queueingUs);
    this.#queue.schedule(nowUs + queueingUs, SimEvent.QUEUED, request.number, number, number);
  }

  #enqueue(row: number, number: number, nowUs: number): void {
    const request = this.#requests[row];
    // routed to another instance meanwhile
    if (request === undefined || this.table.instance[row] !== number) return;
    const { deadlineUs } = request;
    this.instances[number].enqueue(request, nowUs);
    if (deadlineUs > nowUs && deadlineUs <= this.horizonUs && this.#requests[row] !== undefined) {
      this.#queue.schedule(deadlineUs, SimEvent.TIMEOUT, row, number, number);
    }
  }

  #timeOut(row: number, nowUs: number): void {
    const request = this.#requests[row];
    // one that is being routed again gets its deadline anew
    if (request === undefined || this.table.instance[row] === -1) return;
    const handoff = this.handoffs.find(row);
    const instance = this.instances[handoff === undefined ? this.table.instance[row] : handoff.to];
    if (handoff === undefined) {
      instance.timeOut(request, nowUs);
      return;
    }
    this.table.instance[row] = handoff.to;
    this.#with[handoff.to]++;
    this.handoffs.cancel(handoff, this.instances[handoff.from], instance, nowUs);
    this.instances[handoff.from].wake(nowUs);
    instance.giveUp(request, Status.TIMED_OUT, nowUs);
  }

  #handOff(row: number, what: number, nowUs: number): void {
    const handoff = this.handoffs.find(row);
    if (handoff === undefined) return;
    const from = this.instances[handoff.from];
    const to = this.instances[handoff.to];
    if (what === HANDOFF_READY) {
      this.handoffs.ready(row, to, nowUs);
      return;
    }
    if (handoff.endUs !== nowUs) return; // of an earlier hand-off of the same row
    this.handoffs.arrived(handoff, from, to, nowUs);
    this.#observer.handedOff?.(handoff);
    const { request } = handoff;
    request.part = 'decode';
    request.maxOutputTokens = request.workload.outputTokens;
    this.table.instance[row] = to.number;
    this.#with[to.number]++;
    to.enqueue(request, nowUs);
    from.wake(nowUs);
  }

  /** Blocks come free on a decode instance at `timeUs`, and others wait for them. */
  #roomOn(instance: number, timeUs: number): void {
    this.#queue.schedule(Math.max(timeUs, this.nowUs), SimEvent.ROOM, instance, 0, instance);
  }

  /** A request ends before it came to an instance. */
  #drop(request: SimRequest, status: Status, nowUs: number): void {
    this.#requests[request.number] = undefined;
    this.#open--;
    this.table.status[request.number] = status;
    if (status !== Status.REJECTED) this.control.abandoned(request, nowUs);
    this.#observer.ended?.(request, status, nowUs, -1);
    this.#followUp(request.workload, status, 0, nowUs);
  }

  #followUp(workload: WorkloadRequest, status: Status, generated: number, timeUs: number): void {
    if (this.#sessions === null) return;
    const outcome =
      status === Status.COMPLETED ? 'completed' : status === Status.TIMED_OUT ? 'timed-out' : 'dropped';
    const lost = this.#parts.options.lastTokenInContext ? 0 : 1;
    const contextTokens = Math.max(generated - lost, 0);
    const next = this.#sessions.next(workload, { outcome, timeUs, contextTokens });
    if (next !== undefined) this.#announce(next, FOLLOW_UP_RANK);
  }

  #request(row: number): SimRequest {
    const request = this.#requests[row];
    invariant(request !== undefined, 'a request that is decided about has arrived and not ended');
    return request;
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

function endKind(status: Status): EndKind {
  switch (status) {
    case Status.COMPLETED:
      return 'completed';
    case Status.TIMED_OUT:
      return 'timedOut';
    default:
      return 'dropped';
  }
}
