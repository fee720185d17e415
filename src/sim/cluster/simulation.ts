/**
 * The event loop of a cluster on one clock: requests arrive, are admitted and routed, and instances step
 * until the workload is served or the horizon is reached. Between any two events a run can be written down,
 * and any number of others can go on from there.
 *
 *     run ... --snapshot--> fork --> the same events, to the last byte
 *                      \--> fork with forced decisions --> what would have been
 */

import { invariant, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import type { ControlPlane } from '../control/controlPlane.ts';
import type { Role } from '../control/policy.ts';
import type { EngineStep } from '../instance/engine.ts';
import type { Instance, InstanceHost } from '../instance/instance.ts';
import { KeysNeeded, type SimRequest } from '../instance/simRequest.ts';
import type { SharedServer } from '../links/sharedServer.ts';
import type { RequestTable } from '../metrics/requestTable.ts';
import { ClusterCore, type Conservation, checkConservation } from './core.ts';
import {
  admit,
  arrived,
  cancel,
  computed,
  ended,
  enqueue,
  expire,
  gaveWay,
  handOff,
  makeGateway,
  prefilled,
  pull,
  redirect,
  remove,
  route,
  timeOut,
  transferred,
} from './flow.ts';
import type { Handoffs } from './handoffs.ts';
import {
  checkForced,
  type ForcedDecisions,
  type PoolPart,
  SimEvent,
  type SimulationKey,
  type SimulationObserver,
  type SimulationParts,
} from './parts.ts';
import { ScalingLoop, ScalingLoops, type ScalingSetup } from './scaling.ts';
import { restoreCluster, SimulationSnapshot, type SnapshotData, takeCluster } from './snapshot.ts';

/** Options of a fork of a simulation: its observer, and decisions that are forced. */
export interface ForkOptions {
  readonly observer?: SimulationObserver;
  /** Default: none. */
  readonly forced?: ForcedDecisions;
}

const forkOptionsTable = optionTable({
  observer: is.optional(is.passed()),
  forced: is.optional(is.passed()),
} satisfies Kinds<ForkOptions>);

/** A simulation that runs step by step, and can be forked. */
export class Simulation implements InstanceHost {
  readonly horizonUs: number;
  /** Events handled so far. */
  events = 0;
  readonly #core: ClusterCore;

  private constructor(parts: SimulationParts) {
    if (parts.forced !== undefined) checkForced(parts.forced);
    const core = new ClusterCore(parts, this);
    this.#core = core;
    this.horizonUs = parts.options.horizonUs;
    core.gateway = makeGateway(core);
    core.scaling = parts.scaling === undefined ? null : makeScaling(core, parts.scaling);
  }

  /** A simulation before its first event. */
  static begin(parts: SimulationParts): Simulation {
    checkInputs({ parts }, { parts: is.fields({ makeInstance: is.func() }) });
    const simulation = new Simulation(parts);
    const core = simulation.#core;
    for (const pool of parts.instances) {
      const { number } = core.addInstance(pool);
      core.control.setRoutable(number, core.scaling?.isReady(number) ?? true);
    }
    core.scaling?.begin();
    pull(core);
    return simulation;
  }

  /**
   * Goes on from a snapshot that was kept as plain data, with parts that are made as those of its simulation
   * were.
   * @throws TKV_MISMATCH for a snapshot of another version or key, and for a damaged one
   */
  static resume(parts: SimulationParts, data: SnapshotData): Simulation {
    checkInputs(
      { parts, data },
      {
        parts: is.fields({ makeInstance: is.func() }),
        data: is.fields({ version: is.number(), events: is.number() }),
      },
    );
    return Simulation.#goOn(parts, data, true);
  }

  /** Another simulation that goes on from the snapshot, and shares nothing that changes with any other. */
  static fork(snapshot: SimulationSnapshot, options: ForkOptions = {}): Simulation {
    checkInputs(
      { snapshot, options },
      { snapshot: is.fields({ parts: is.func() }), options: is.optional(is.object()) },
    );
    forkOptionsTable.read(options);
    return Simulation.#goOn({ ...snapshot.parts(), ...options }, snapshot.own, false);
  }

  static #goOn(parts: SimulationParts, data: SnapshotData, isForeign: boolean): Simulation {
    const simulation = new Simulation(parts);
    simulation.events = restoreCluster(simulation.#core, data, isForeign);
    return simulation;
  }

  /** The state between two events. */
  snapshot(): SimulationSnapshot {
    const core = this.#core;
    if (core.parts.keys.skips) {
      const remedy = 'Build it with skipsKeys false.';
      throw new TierKVError('TKV_STATE', `A run that leaves block keys out has no snapshots. ${remedy}`);
    }
    return new SimulationSnapshot(core.parts, takeCluster(core, this.events), core.tape.fork());
  }

  get key(): SimulationKey {
    return this.#core.parts.key;
  }

  /** The tier that instances share, with what it did; null where they share none. */
  get shared(): SharedServer | null {
    return this.#core.shared;
  }

  get table(): RequestTable {
    return this.#core.table;
  }

  get instances(): readonly Instance[] {
    return this.#core.instances;
  }

  get control(): ControlPlane {
    return this.#core.control;
  }

  get handoffs(): Handoffs {
    return this.#core.handoffs;
  }

  get nowUs(): number {
    return this.#core.nowUs;
  }

  /** Admission and routing decisions so far: the numbers that the next ones have. */
  get decisions(): { readonly admission: number; readonly routing: number } {
    return { admission: this.#core.admissions, routing: this.#core.routings };
  }

  /** Runs to the end. `progress` is called now and then with the requests that have arrived. */
  run(progress: (arrived: number, nowUs: number) => void = () => {}): void {
    const between = 1 << 16;
    while (this.runSome(between)) progress(this.table.size, this.nowUs);
  }

  /** Handles at most `events` events. @returns whether there are more */
  runSome(events: number): boolean {
    for (let left = events; left > 0; left--) if (!this.#handleNext(this.horizonUs)) return false;
    return true;
  }

  /**
   * Handles the events up to and at a time, or until `reached` says so after one.
   * @returns whether there are more
   */
  runUntil(reached: number | ((simulation: Simulation) => boolean)): boolean {
    if (typeof reached === 'number') {
      while (this.#handleNext(Math.min(reached, this.horizonUs)));
      return this.#core.queue.nextTimeUs <= this.horizonUs;
    }
    while (this.#handleNext(this.horizonUs)) if (reached(this)) return true;
    return false;
  }

  /**
   * The end of the run: its books are audited, and tokens of requests that still run count in no statistics
   * of gaps from now on.
   */
  close(): Conservation {
    const { table, instances, requests } = this.#core;
    const conservation = checkConservation(table, instances, this.unfinished());
    for (const request of requests) {
      if (request === undefined || table.instance[request.number] === -1) continue;
      instances[table.instance[request.number]].leave(request);
    }
    return conservation;
  }

  /** Requests that have arrived and not ended. */
  unfinished(): SimRequest[] {
    return this.#core.unfinished();
  }

  checkIntegrity(): void {
    for (const { engine } of this.instances) engine.checkIntegrity();
  }

  scheduleStep(instance: number, timeUs: number): void {
    this.#core.queue.schedule(timeUs, SimEvent.STEP, instance, 0, instance);
  }

  admitted(request: SimRequest, instance: number): void {
    const { control, observer } = this.#core;
    const found = Math.max(request.foundBlocks, 0);
    const divergence = control.scheduled(request, instance, found, this.nowUs);
    if (divergence !== null) observer.diverged?.(divergence);
    observer.joined?.(request, instance, this.nowUs);
  }

  started(request: SimRequest, instance: number): void {
    this.control.firstToken(request, instance, this.nowUs);
  }

  stepped(instance: number, startUs: number, endUs: number, step: EngineStep): void {
    const { observer } = this.#core;
    if (observer.step === undefined) return;
    const { tokens, decodeRequests: decodes, prefillRequests: prefills } = step.sums;
    const { transferUs, thrashedFor } = step;
    observer.step({ instance, startUs, endUs, tokens, decodes, prefills, transferUs, thrashedFor });
  }

  gaveWay(request: SimRequest, instance: number): void {
    this.#core.observer.preempted?.(request, instance, this.nowUs);
    gaveWay(this.#core, request, this.nowUs);
    if (this.#core.parts.keys.skips) throw new KeysNeeded('a request gave way in a run without block keys');
  }

  computed(request: SimRequest, instance: number, tokens: number, timeUs: number): void {
    computed(this.#core, request, instance, tokens, timeUs);
  }

  prefilled(request: SimRequest, instance: number, timeUs: number): void {
    prefilled(this.#core, request, instance, timeUs);
  }

  ended(request: SimRequest, instance: number, timeUs: number): void {
    ended(this.#core, request, instance, timeUs);
  }

  /** @returns false when no event is due by then */
  #handleNext(latestUs: number): boolean {
    const { queue, clock } = this.#core;
    if (!(queue.nextTimeUs <= latestUs) || !queue.pop()) return false;
    clock.advanceTo(queue.timeUs);
    this.events++;
    this.#handle(queue.type as SimEvent, queue.a, queue.b, queue.timeUs);
    return true;
  }

  #handle(type: SimEvent, a: number, b: number, nowUs: number): void {
    const core = this.#core;
    switch (type) {
      case SimEvent.STEP:
        core.instances[a].step(nowUs);
        return;
      case SimEvent.QUEUED:
        enqueue(core, a, b, nowUs);
        return;
      case SimEvent.ARRIVAL:
        arrived(core, a, b, nowUs);
        return;
      case SimEvent.ADMISSION:
        admit(core, core.request(a), nowUs);
        return;
      case SimEvent.ROUTING:
        route(core, core.request(a), nowUs);
        return;
      case SimEvent.TIMEOUT:
        timeOut(core, a, nowUs);
        return;
      case SimEvent.CANCEL:
        cancel(core, a, nowUs);
        return;
      case SimEvent.DISPATCH:
        core.gateway?.tick(nowUs);
        return;
      case SimEvent.EXPIRY:
        expire(core, a, nowUs);
        return;
      case SimEvent.SCALE_CHECK:
        core.scaling?.check(a, nowUs);
        return;
      case SimEvent.SCALE_ACTION:
        core.scaling?.due(b, a, nowUs);
        return;
      case SimEvent.HANDOFF:
        handOff(core, a, b, nowUs);
        return;
      case SimEvent.ROOM:
        core.handoffs.serve(core.instances[a], nowUs);
        return;
      case SimEvent.TRANSFER:
        transferred(core, a, b, nowUs);
        return;
      default:
        invariant(false, `event of kind ${type} has no handler`);
    }
  }
}

//  The autoscaling of a cluster: what its loops ask for, done on the cluster's state.

function makeScaling(core: ClusterCore, setups: readonly ScalingSetup[]): ScalingLoops {
  const { pools } = core.parts;
  const byPool = pools.map(({ configId }, pool) => {
    const number = setups.findIndex((setup) => setup.configId === configId);
    return number === -1 ? undefined : loopOf(core, setups[number], number, pool);
  });
  return new ScalingLoops(byPool, core.poolOf);
}

/** @param number of the autoscaler: of events at one time, lower ones go first */
function loopOf(core: ClusterCore, setup: ScalingSetup, number: number, pool: number): ScalingLoop {
  const { control } = core;
  const { pools, instances } = core.parts;
  const own = pools[pool];
  const place = {
    pool,
    initial: instances.flatMap((each, instance) => (each === pool ? [instance] : [])),
    alike: pools.filter((other) => isAlike(own, other)).length,
    serves: (model: string): boolean => own.model === '' || model === '' || own.model === model,
    computesForOthers: own.role === 'prefill',
  };
  return new ScalingLoop(setup, place, {
    scheduleCheck: (timeUs) => {
      core.queue.schedule(timeUs, SimEvent.SCALE_CHECK, number, 0, number);
    },
    scheduleDue: (timeUs, replica) => {
      core.queue.schedule(timeUs, SimEvent.SCALE_ACTION, replica, number, number);
    },
    pendingRequests: () => control.gateway?.count(({ model }) => place.serves(model)) ?? 0,
    hasWork: () => core.hasWork,
    snapshots: (nowUs) => {
      return control.cluster(nowUs).instances.filter(({ instance }) => core.poolOf[instance] === pool);
    },
    table: core.table,
    makeInstance: () => core.addInstance(pool).number,
    setRoutable: (instance, routable) => control.setRoutable(instance, routable),
    isEmpty: (instance) => {
      const { sent, expected, handoffs } = core;
      return sent[instance] === 0 && expected[instance] === 0 && !handoffs.holdsAny(instance);
    },
    redirect: (instance, nowUs) => redirect(core, instance, nowUs),
    remove: (instance, nowUs) => remove(core, instance, nowUs),
    scaled: (change) => core.observer.scaled?.(change),
    replica: (change) => core.observer.replica?.(change),
  });
}

/** Whether a request could go to either of them. */
function isAlike(one: PoolPart, other: PoolPart): boolean {
  const computes = (role: Role): boolean => role === 'prefill';
  if (computes(one.role) !== computes(other.role)) return false;
  return one.model === '' || other.model === '' || one.model === other.model;
}
