/**
 * Autoscaling of one deployment configuration on the clock: polls the autoscaler, has replicas made and taken
 * away, and carries out what becomes of requests on a replica that goes. Its replicas are instances of its
 * pool; each step of their lives is told.
 *
 *     check -> decision -> order ... ready -> instance takes requests
 *                       -> drain ... empty -> instance is gone
 */

import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import type {
  AutoScaler,
  InstanceSnapshot,
  LoadSample,
  ReplicaAction,
  ReplicaPhase,
  Replicas,
  RequestView,
} from '../../control/index.ts';
import type { RequestTable, TargetsByClass } from '../../metrics/index.ts';
import type { ReplicaChange, ScaleChange } from './scaleChange.ts';
import { Traffic } from './traffic.ts';

export interface ScalingSetup {
  readonly configId: string;
  readonly scaler: AutoScaler;
  readonly replicas: Replicas;
  /** Tokens of KV that a replica holds. */
  readonly capacityTokens: number;
  /** By SLO class; what policies and triggers see of attainment is of these. Default: none. */
  readonly targets?: TargetsByClass;
}

/** The same for another run, which has seen nothing yet. */
export function freshScaling({ scaler, replicas, ...rest }: ScalingSetup): ScalingSetup {
  return { ...rest, scaler: scaler.fresh(), replicas: replicas.fresh() };
}

/** Where a configuration stands in its cluster. */
export interface ScalingPlace {
  readonly pool: number;
  /** Instances of the pool that there are at first. */
  readonly initial: readonly number[];
  /** Pools that could take what this one takes, this one included. */
  readonly alike: number;
  serves(model: string): boolean;
  /** Whether its instances compute prompts whose answers others give. */
  readonly computesForOthers: boolean;
}

/** What the loop asks of the simulation. */
export interface ScalingHost {
  scheduleCheck(timeUs: number): void;
  scheduleDue(timeUs: number, replica: number): void;
  /** Requests that wait at the gateway and that it could take. */
  pendingRequests(): number;
  /** Whether any request is still to come or to end. */
  hasWork(): boolean;
  /** Signals of the pool's routable instances, read now. */
  snapshots(nowUs: number): readonly InstanceSnapshot[];
  readonly table: RequestTable;
  makeInstance(): number;
  setRoutable(instance: number, routable: boolean): void;
  /** Whether nothing waits or runs there, is to come or to be fetched. */
  isEmpty(instance: number): boolean;
  /** What waits there is routed again. */
  redirect(instance: number, nowUs: number): void;
  /** What is left there is lost. */
  remove(instance: number, nowUs: number): void;
  scaled(change: ScaleChange): void;
  replica(change: ReplicaChange): void;
}

/** Readings of the load that policies see, and more where a trigger asks how long something has lasted. */
const HISTORY = 256;

export class ScalingLoop {
  readonly #setup: ScalingSetup;
  readonly #place: ScalingPlace;
  readonly #host: ScalingHost;
  readonly #traffic: Traffic;
  /** Instance of each replica; those that are ordered have one when they are ready. */
  readonly #instanceOf: number[] = [];
  readonly #replicaOf: number[] = [];
  #history: LoadSample[] = [];
  #lastScaleUs = -1;

  constructor(setup: ScalingSetup, place: ScalingPlace, host: ScalingHost) {
    this.#setup = setup;
    this.#place = place;
    this.#host = host;
    this.#traffic = new Traffic(place.alike, setup.targets ?? {});
    for (const { number } of setup.replicas.all) this.#join(number, place.initial[number]);
  }

  /** Where replicas can neither come nor go there is nothing to look for. */
  begin(): void {
    const { scaler, replicas } = this.#setup;
    this.#carryOut(replicas.begin(0), 0);
    if (scaler.config.minReplicas < scaler.config.maxReplicas) this.#host.scheduleCheck(0);
  }

  /** Whether the instance of the start may get requests from the start. */
  isReady(instance: number): boolean {
    return this.#setup.replicas.all[this.#replicaOf[instance]].phase === 'ready';
  }

  /** A poll is due. */
  check(nowUs: number): void {
    const { scaler, replicas, configId, capacityTokens } = this.#setup;
    const instances = this.#host.snapshots(nowUs);
    const pendingRequests = Math.round(this.#host.pendingRequests() * this.#traffic.share);
    const metrics = this.#traffic.take(instances, nowUs);
    const concurrency = instances.reduce((sum, { inFlight }) => sum + inFlight, 0) + pendingRequests;
    const { requestRate, avgQueueDepth, avgUtilization } = metrics;
    const sample: LoadSample = { timeUs: nowUs, concurrency, requestRate, avgQueueDepth, avgUtilization };
    this.#remember(sample, scaler.config.triggers.sustainedUs);
    const before = replicas.current;
    const decision = scaler.evaluate({
      configId,
      nowUs,
      currentReplicas: before,
      readyReplicas: replicas.ready,
      pendingReplicas: replicas.pending,
      minReplicas: scaler.config.minReplicas,
      maxReplicas: scaler.config.maxReplicas,
      metrics,
      replicas: instances.map(({ instance, queueDepth, batchSize, inFlight, availableCapacity, kv }) => ({
        instance,
        queueDepth,
        batchSize,
        inFlight,
        maxBatch: batchSize + availableCapacity,
        kvUtilization: kv.tiers[0]?.utilization ?? 0,
        kvCapacityTokens: capacityTokens,
        kvUsedTokens: (kv.tiers[0]?.utilization ?? 0) * capacityTokens,
      })),
      loadHistory: this.#history,
      pendingRequests,
      sinceLastScaleUs: this.#lastScaleUs < 0 ? Infinity : nowUs - this.#lastScaleUs,
    });
    if (decision.action !== 'none') {
      this.#lastScaleUs = nowUs;
      const { action, targetReplicas, reason } = decision;
      const counts = { previousCount: before, newCount: targetReplicas };
      this.#host.scaled({ configId, timeUs: nowUs, action, ...counts, reason, metrics });
      this.#carryOut(replicas.apply(decision, nowUs), nowUs);
    }
    if (this.#host.hasWork()) this.#host.scheduleCheck(nowUs + scaler.config.pollIntervalUs);
  }

  /** Readings reach back to one that is as old as `sustainedUs`. */
  #remember(sample: LoadSample, sustainedUs: number): void {
    const old = this.#history.findLastIndex(({ timeUs }) => timeUs <= sample.timeUs - sustainedUs);
    const most = Math.max(0, this.#history.length + 1 - HISTORY);
    this.#history = [...this.#history.slice(Math.min(most, Math.max(0, old))), sample];
  }

  /** The time of a replica's phase is up. */
  due(replica: number, nowUs: number): void {
    this.#carryOut(this.#setup.replicas.due(replica, nowUs), nowUs);
  }

  arrived({ model, promptTokens }: RequestView): void {
    if (this.#place.serves(model)) this.#traffic.arrived(promptTokens);
  }

  /** @param prefillPool -1 without a hand-off */
  routed({ model }: RequestView, targetPool: number, prefillPool: number): void {
    const { pool, computesForOthers } = this.#place;
    const to = computesForOthers ? prefillPool : targetPool;
    if (this.#place.serves(model)) this.#traffic.routed(to === pool);
  }

  ended(row: number): void {
    this.#traffic.ended(this.#host.table, row);
  }

  /** Something left the instance: if it drains, it may be empty now. */
  left(instance: number, nowUs: number): void {
    const replica = this.#replicaOf[instance];
    if (replica === undefined || this.#setup.replicas.all[replica].phase !== 'draining') return;
    if (this.#host.isEmpty(instance)) this.#carryOut(this.#setup.replicas.empty(replica), nowUs);
  }

  /** Factor on the time of a step that the instance begins now. */
  slowdown(instance: number, nowUs: number): number {
    const replica = this.#replicaOf[instance];
    return replica === undefined ? 1 : this.#setup.replicas.slowdown(replica, nowUs);
  }

  #carryOut(actions: readonly ReplicaAction[], nowUs: number): void {
    for (const action of actions) {
      const { replica } = action;
      const { replicas } = this.#setup;
      const instance = this.#instanceOf[replica] ?? -1;
      switch (action.kind) {
        case 'wait':
          this.#host.scheduleDue(action.untilUs, replica);
          if (replicas.all[replica].phase !== 'draining') this.#tell(replica, action.untilUs, nowUs);
          break;
        case 'ready':
          if (instance === -1) this.#join(replica, this.#host.makeInstance());
          this.#host.setRoutable(this.#instanceOf[replica], true);
          this.#tell(replica, replicas.warmUntilUs(replica), nowUs);
          break;
        case 'drain':
          this.#host.setRoutable(instance, false);
          this.#tell(replica, action.untilUs, nowUs, 'draining');
          if (action.mode === 'redirect') this.#host.redirect(instance, nowUs);
          if (this.#host.isEmpty(instance) && action.mode !== 'immediate') {
            this.#carryOut(replicas.empty(replica), nowUs);
          }
          break;
        case 'terminate':
          if (instance !== -1) this.#host.remove(instance, nowUs);
          this.#tell(replica, -1, nowUs);
      }
    }
  }

  #tell(
    replica: number,
    untilUs: number,
    timeUs: number,
    phase: ReplicaPhase = this.#setup.replicas.all[replica].phase,
  ): void {
    const instance = this.#instanceOf[replica] ?? -1;
    this.#host.replica({ configId: this.#setup.configId, timeUs, replica, instance, phase, untilUs });
  }

  #join(replica: number, instance: number): void {
    this.#instanceOf[replica] = instance;
    this.#replicaOf[instance] = replica;
  }

  visitState(visitor: StateVisitor): void {
    const { scaler, replicas } = this.#setup;
    this.#traffic.visitState(visitor);
    visitor.list(this.#instanceOf);
    visitor.list(this.#replicaOf);
    this.#lastScaleUs = visitor.number(this.#lastScaleUs);
    visitor.value(
      () => this.#history,
      (saved) => {
        this.#history = saved;
      },
    );
    for (const owner of [scaler, replicas]) {
      visitor.value(
        () => owner.snapshot(),
        (saved) => owner.restore(saved),
      );
    }
  }
}
