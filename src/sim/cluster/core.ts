/**
 * The state of a running cluster, which the rooms beside this file work on: `flow` has the way of requests,
 * `scaling` that of instances, `snapshot` writes all of it down. Everything in it is plain, and every choice
 * has a defined order.
 */

import { invariant } from '../../runtime/errors.ts';
import type { ControlPlane } from '../control/index.ts';
import type { Timeline } from '../driver/index.ts';
import type { Instance, InstanceHost, SimRequest } from '../instance/index.ts';
import { EventQueue, VirtualClock } from '../kernel/index.ts';
import { RequestTable } from '../metrics/index.ts';
import { SessionManager, type WorkloadRequest } from '../workload/index.ts';
import { eventPriorities, HANDOFF_ARRIVED, SimEvent } from './events.ts';
import type { GatewayQueue } from './flow/gatewayQueue.ts';
import { Handoffs } from './flow/handoffs.ts';
import type { ForcedDecisions } from './forced.ts';
import { probeOf } from './instanceProbe.ts';
import type { SimulationObserver } from './observer.ts';
import type { SimulationOptions, SimulationParts } from './parts.ts';
import type { ScalingLoops } from './scaling/scalingLoops.ts';
import { RequestTape } from './snapshot/requestTape.ts';

export class ClusterCore {
  readonly parts: SimulationParts;
  readonly options: SimulationOptions;
  readonly control: ControlPlane;
  readonly observer: SimulationObserver;
  readonly forced: ForcedDecisions;
  readonly table: RequestTable = new RequestTable();
  readonly instances: Instance[] = [];
  readonly clock: VirtualClock = new VirtualClock();
  queue: EventQueue = new EventQueue(eventPriorities);
  readonly tape: RequestTape;
  sessions: SessionManager | null;
  readonly handoffs: Handoffs;
  gateway: GatewayQueue | null = null;
  scaling: ScalingLoops | null = null;
  /** By instance: its pool. */
  readonly poolOf: number[] = [];
  /** Requests sent to each instance and not ended. */
  readonly sent: number[] = [];
  /** Requests that go on at each instance when their prompt is computed elsewhere and has come. */
  readonly expected: number[] = [];
  /** Instances that are gone. */
  readonly removed: number[] = [];
  /** Requests that have not arrived yet, in slots; free slots are listed. */
  coming: (WorkloadRequest | undefined)[] = [];
  readonly freeSlots: number[] = [];
  /** Requests that have arrived and not ended, by row. */
  readonly requests: (SimRequest | undefined)[] = [];
  /** How many those are. */
  open = 0;
  /** Decisions so far. */
  admissions = 0;
  routings = 0;
  readonly #host: InstanceHost;

  constructor(parts: SimulationParts, host: InstanceHost) {
    const { workload, options } = parts;
    this.parts = parts;
    this.options = options;
    this.control = parts.control;
    this.observer = parts.observer ?? {};
    this.control.recordsScores = this.observer.routing !== undefined;
    this.forced = parts.forced ?? {};
    this.tape = workload.stream instanceof RequestTape ? workload.stream : new RequestTape(workload.stream);
    this.sessions = workload.sessions === undefined ? null : new SessionManager(workload.sessions);
    this.handoffs = new Handoffs(
      options.handoff,
      (timeUs, row) => {
        this.queue.schedule(timeUs, SimEvent.HANDOFF, row, HANDOFF_ARRIVED);
      },
      (sent) => this.observer.handoffSent?.(sent),
    );
    this.#host = host;
  }

  get nowUs(): number {
    return this.clock.nowUs;
  }

  /** A new instance of the pool with the next number, which gets no requests yet. */
  addInstance(pool: number): Instance {
    const number = this.instances.length;
    const { control } = this;
    const instance = this.parts.makeInstance(number, pool, this.table, this.#host, this.#timelineOf(number));
    this.instances.push(instance);
    this.poolOf.push(pool);
    this.sent.push(0);
    this.expected.push(0);
    if (this.parts.scaling !== undefined) {
      instance.slowdown = (nowUs) => this.scaling?.slowdown(number, nowUs) ?? 1;
    }
    control.addInstance(probeOf(instance), this.nowUs);
    const { observer } = this;
    const told = control.wantsCacheEvents;
    if (told || observer.stored !== undefined || observer.removed !== undefined) {
      instance.engine.watchCache({
        stored: (tier, key) => {
          if (told) control.kvStored(number, tier, key, this.nowUs);
          observer.stored?.(number, tier, key);
        },
        removed: (tier, key) => {
          if (told) control.kvRemoved(number, tier, key, this.nowUs);
          observer.removed?.(number, tier, key);
        },
      });
    }
    return instance;
  }

  request(row: number): SimRequest {
    const request = this.requests[row];
    invariant(request !== undefined, 'a request that is decided about has arrived and not ended');
    return request;
  }

  /** Requests that have arrived and not ended. */
  unfinished(): SimRequest[] {
    return this.requests.filter((request) => request !== undefined);
  }

  /** Whether any request is still to come or to end. */
  get hasWork(): boolean {
    return this.coming.length > this.freeSlots.length || this.open > 0;
  }

  #timelineOf(instance: number): Timeline {
    const { clock } = this;
    return {
      get nowUs() {
        return clock.nowUs;
      },
      schedule: (timeUs, flight) =>
        this.queue.schedule(timeUs, SimEvent.TRANSFER, instance, flight, instance),
    };
  }
}
