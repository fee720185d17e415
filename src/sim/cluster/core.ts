/**
 * The state of a running cluster, which the rooms beside this file work on: `flow` moves requests,
 * `scaling` starts and stops instances, `snapshot` saves all of it. Everything in it is plain data, and every choice
 * has a defined order.
 */

import type { CodeName } from '../../runtime/codes.ts';
import { invariant } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { ControlPlane } from '../control/controlPlane.ts';
import type { GatewayQueue } from '../control/gatewayQueue.ts';
import type { InstanceProbe, InstanceReport } from '../control/policy.ts';
import type { Instance, InstanceHost } from '../instance/instance.ts';
import type { SimRequest } from '../instance/simRequest.ts';
import { VirtualClock } from '../kernel/clock.ts';
import { EventQueue } from '../kernel/eventQueue.ts';
import type { Timeline } from '../links/modeledDriver.ts';
import { SharedServer } from '../links/sharedServer.ts';
import { RequestTable, Status, statusNames } from '../metrics/requestTable.ts';
import { SessionManager } from '../workload/closedLoop.ts';
import type { RequestStream, WorkloadRequest } from '../workload/request.ts';
import { Handoffs } from './handoffs.ts';
import {
  eventPriorities,
  type ForcedDecisions,
  HANDOFF_ARRIVED,
  readsScores,
  SimEvent,
  type SimulationObserver,
  type SimulationOptions,
  type SimulationParts,
} from './parts.ts';
import type { ScalingLoops } from './scaling.ts';

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
  /** The tier that instances share. */
  readonly shared: SharedServer | null;
  /** Pool of each instance. */
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
    this.shared = parts.shared === undefined ? null : new SharedServer(parts.shared);
    this.control = parts.control;
    this.observer = parts.observer ?? {};
    this.control.recordsScores = readsScores(this.observer);
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
    const timeline = this.#timelineOf(number);
    const instance = this.parts.makeInstance(number, pool, this.table, this.#host, timeline, this.shared);
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
    const { stored, removed, moved } = observer;
    if (told || stored !== undefined || removed !== undefined || moved !== undefined) {
      instance.engine.watchCache({
        stored: (tier, key) => {
          if (told) control.kvStored(number, tier, key, this.nowUs);
          observer.stored?.(number, tier, key);
        },
        removed: (tier, key) => {
          if (told) control.kvRemoved(number, tier, key, this.nowUs);
          observer.removed?.(number, tier, key);
        },
        ...(moved === undefined ? {} : { moved: (move) => observer.moved?.(number, move) }),
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

// The audit at the end of a run: every request that came in is in exactly one place, times are in order, and
// the counters of the instances agree with the rows.

/** Requests by what became of them. */
export type Conservation = Readonly<Record<CodeName<typeof Status>, number>> & {
  readonly injected: number;
};

export function conservationOf(table: RequestTable): Conservation {
  checkInputs({ table }, { table: is.fields({ size: is.number(), arrivalUs: is.bytes() }) });
  const counts = new Array<number>(statusNames.length).fill(0);
  for (let row = 0; row < table.size; row++) counts[table.status[row]]++;
  const byName = Object.fromEntries(statusNames.map((name, i) => [name, counts[i]]));
  return { injected: table.size, ...byName } as Conservation;
}

/** @throws an error of ours where the books do not add up */
export function checkConservation(
  table: RequestTable,
  instances: readonly Instance[],
  unfinished: readonly SimRequest[],
): Conservation {
  const found = conservationOf(table);
  const open = found.arrived + found.queued + found.running + found.handedOff;
  invariant(open === unfinished.length, 'each request that has not ended is known to the simulation');
  const sum = (pick: (instance: Instance) => number): number =>
    instances.reduce((total, instance) => total + pick(instance), 0);
  invariant(found.completed === sum(({ counters }) => counters.completed), 'completed requests add up');
  invariant(found.unservable === sum(({ counters }) => counters.unservable), 'unservable requests add up');
  invariant(found.timedOut >= sum(({ counters }) => counters.timedOut), 'timed-out requests add up');
  invariant(found.cancelled >= sum(({ counters }) => counters.cancelled), 'cancelled requests add up');
  for (let row = 0; row < table.size; row++) checkRow(table, row);
  return found;
}

/** Arrival, admission into a batch, first token and end follow each other. */
function checkRow(table: RequestTable, row: number): void {
  const delay = table.schedulingDelayUs[row];
  const first = table.firstTokenUs[row];
  const end = table.e2eUs[row];
  const isComplete = table.status[row] === Status.COMPLETED;
  invariant(isComplete === end >= 0, 'a completed request has an end, and no other');
  invariant(delay < 0 || first < 0 || table.status[row] !== Status.COMPLETED || delay <= first, () => {
    return `request ${table.idOf(row)} has its first token before it joins a batch`;
  });
  if (!isComplete) return;
  invariant(first >= 0 && first <= end, 'a completed request has its first token before its end');
  const generated = table.generatedTokens[row];
  invariant(generated >= 1, 'a completed request has a token');
  invariant(
    generated <= Math.max(1, table.outputTokens[row]),
    'a request generates at most the tokens it asked for',
  );
}

//  How the control plane reads an instance.

function probeOf(instance: Instance): InstanceProbe {
  const { engine } = instance;
  return {
    instance: instance.number,
    id: instance.id,
    role: instance.role,
    model: instance.model,
    configId: instance.configId,
    capacityBlocks: engine.tiers().map(({ capacityBlocks }) => capacityBlocks),
    changes: (): number => instance.changes,
    report: (into: InstanceReport): void => report(instance, into),
  };
}

function report(instance: Instance, into: InstanceReport): void {
  const { engine, recent } = instance;
  const { hits, openedBlocks, preemptions, sent, reloads } = engine.counters;
  const tiers = engine.tiers();
  into.queueDepth = engine.waitingCount;
  into.batchSize = engine.runningCount;
  into.maxBatch = instance.limits.maxSequences;
  into.preemptions = preemptions;
  into.usedBlocks = tiers.map(({ usedBlocks }) => usedBlocks);
  into.freeBlocks = tiers.map(({ freeBlocks }) => freeBlocks);
  into.hitBlocks = hits.reduce((sum, count) => sum + count, 0);
  into.lookupBlocks = into.hitBlocks + openedBlocks;
  into.offloadedBlocks = sent;
  into.reloadedBlocks = reloads;
  into.recentTtftUs = recent.ttftUs;
  into.recentTpotUs = recent.tpotUs;
  into.adapters = engine.adapters ?? [];
}

// A stream of requests that forks of a simulation share: each reads on from its own place, and a request is
// drawn from the source once, by the reader that comes to it first. What every reader has passed is let go.

/** A place between two requests: the one before it, and the next place once a reader has looked. */
interface TapePlace {
  readonly request: WorkloadRequest | undefined;
  next: TapePlace | null;
}

export class RequestTape implements RequestStream {
  readonly #source: RequestStream;
  #place: TapePlace = { request: undefined, next: null };
  /** Requests taken so far. */
  #taken = 0;

  constructor(source: RequestStream) {
    this.#source = source;
  }

  get taken(): number {
    return this.#taken;
  }

  next(): WorkloadRequest | undefined {
    const place = this.#place;
    const next = (place.next ??= { request: this.#source.next(), next: null });
    if (next.request === undefined) return undefined;
    this.#place = next;
    this.#taken++;
    return next.request;
  }

  /** Another reader at this place. */
  fork(): RequestTape {
    const fork = new RequestTape(this.#source);
    fork.#place = this.#place;
    fork.#taken = this.#taken;
    return fork;
  }

  /** Moves on to the place behind `taken` requests of the source. Only before the first request is taken. */
  skipTo(taken: number): void {
    while (this.#taken < taken && this.next() !== undefined);
  }
}
