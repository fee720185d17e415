/**
 * Autoscaling on the clock: polls the autoscaler, has replicas made and taken away, and carries out what
 * becomes of requests on a replica that goes. One deployment configuration; its replicas are instances.
 *
 *     check -> decision -> order ... ready -> instance takes requests
 *                       -> drain ... empty -> instance is gone
 */

import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import type {
  AutoScaler,
  DeploymentMetrics,
  InstanceSnapshot,
  LoadSample,
  ReplicaAction,
  Replicas,
  ScaleDecision,
} from '../../control/index.ts';

export interface ScalingSetup {
  readonly configId: string;
  readonly scaler: AutoScaler;
  readonly replicas: Replicas;
  /** Tokens of KV that a replica holds. */
  readonly capacityTokens: number;
}

/** The same for another run, which has seen nothing yet. */
export function freshScaling({ scaler, replicas, ...rest }: ScalingSetup): ScalingSetup {
  return { ...rest, scaler: scaler.fresh(), replicas: replicas.fresh() };
}

/** What the loop asks of the simulation. */
export interface ScalingHost {
  scheduleCheck(timeUs: number): void;
  scheduleDue(timeUs: number, replica: number): void;
  /** Requests that wait at the gateway, and whether any request is still to come or to end. */
  pendingRequests(): number;
  hasWork(): boolean;
  /** Signals of the routable instances, read now. */
  snapshots(nowUs: number): readonly InstanceSnapshot[];
  /** Arrivals, prompt and output tokens, and latencies of requests that ended, since the last call. */
  takeTraffic(nowUs: number): DeploymentMetrics;
  makeInstance(): number;
  setRoutable(instance: number, routable: boolean): void;
  /** Whether nothing waits or runs there. */
  isEmpty(instance: number): boolean;
  /** What waits there is routed again. */
  redirect(instance: number, nowUs: number): void;
  /** What is left there is lost. */
  remove(instance: number, nowUs: number): void;
  scaled(decision: ScaleDecision, before: number, nowUs: number): void;
}

/** Readings of the load that policies see. */
const HISTORY = 256;

export class ScalingLoop {
  readonly #setup: ScalingSetup;
  readonly #host: ScalingHost;
  /** Instance of each replica, -1 before it is ready. */
  readonly #instanceOf: number[] = [];
  readonly #replicaOf: number[] = [];
  #history: LoadSample[] = [];
  #lastScaleUs = -1;

  /** The initial replicas are the first instances. */
  constructor(setup: ScalingSetup, host: ScalingHost) {
    this.#setup = setup;
    this.#host = host;
    for (const { number } of setup.replicas.all) this.#join(number, number);
  }

  begin(): void {
    this.#host.scheduleCheck(0);
  }

  /** A poll is due. */
  check(nowUs: number): void {
    const { scaler, replicas, configId, capacityTokens } = this.#setup;
    const instances = this.#host.snapshots(nowUs);
    const metrics = this.#host.takeTraffic(nowUs);
    const concurrency =
      instances.reduce((sum, { inFlight }) => sum + inFlight, 0) + this.#host.pendingRequests();
    const { requestRate, avgQueueDepth, avgUtilization } = metrics;
    const sample: LoadSample = { timeUs: nowUs, concurrency, requestRate, avgQueueDepth, avgUtilization };
    this.#history = [...this.#history.slice(1 - HISTORY), sample];
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
      pendingRequests: this.#host.pendingRequests(),
      sinceLastScaleUs: this.#lastScaleUs < 0 ? Infinity : nowUs - this.#lastScaleUs,
    });
    if (decision.action !== 'none') {
      this.#lastScaleUs = nowUs;
      this.#host.scaled(decision, before, nowUs);
      this.#carryOut(replicas.apply(decision, nowUs), nowUs);
    }
    if (this.#host.hasWork()) this.#host.scheduleCheck(nowUs + scaler.config.pollIntervalUs);
  }

  /** The time of a replica's phase is up. */
  due(replica: number, nowUs: number): void {
    this.#carryOut(this.#setup.replicas.due(replica, nowUs), nowUs);
  }

  /** A request ended on the instance: if it drains, it may be empty now. */
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
      const instance = this.#instanceOf[action.replica] ?? -1;
      switch (action.kind) {
        case 'wait':
          this.#host.scheduleDue(action.untilUs, action.replica);
          break;
        case 'ready':
          this.#join(action.replica, this.#host.makeInstance());
          this.#host.setRoutable(this.#instanceOf[action.replica], true);
          break;
        case 'drain':
          this.#host.setRoutable(instance, false);
          if (action.mode === 'redirect') this.#host.redirect(instance, nowUs);
          if (this.#host.isEmpty(instance) && action.mode !== 'immediate') {
            this.#carryOut(this.#setup.replicas.empty(action.replica), nowUs);
          }
          break;
        case 'terminate':
          if (instance !== -1) this.#host.remove(instance, nowUs);
      }
    }
  }

  #join(replica: number, instance: number): void {
    this.#instanceOf[replica] = instance;
    this.#replicaOf[instance] = replica;
  }

  visitState(visitor: StateVisitor): void {
    const { scaler, replicas } = this.#setup;
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
