/** Autoscaling of a cluster: the loop of each pool that scales, its replicas' lives, and what observers are told of them. */

import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { InstanceSnapshot, RequestView, RoutingDecision } from '../control/policy.ts';
import type { DeploymentMetrics, LoadSample, ScaleDecision } from '../control/scaling/autoScalePolicy.ts';
import type { AutoScaler, ReplicaAction, ReplicaPhase, Replicas } from '../control/scaling/autoScaler.ts';
import { type RequestTable, Status } from '../metrics/requestTable.ts';
import { classOf, meetsTargets, percentile, type TargetsByClass } from '../metrics/statistics.ts';

/** A decision to change the number of replicas of a configuration. */
export interface ScaleChange {
  readonly configId: string;
  readonly timeUs: number;
  readonly action: ScaleDecision['action'];
  /** Replicas that are ready or on their way, before and after. */
  readonly previousCount: number;
  readonly newCount: number;
  readonly reason: string;
  /** Metrics that the policy saw. */
  readonly metrics: DeploymentMetrics;
}

/** A replica begins a phase of its life. */
export interface ReplicaChange {
  readonly configId: string;
  readonly timeUs: number;
  /** From 0 in its configuration. */
  readonly replica: number;
  /** Number of its instance, -1 before it is ready. */
  readonly instance: number;
  readonly phase: ReplicaPhase;
  /**
   * When that phase ends by itself: the delay is drawn. For a ready one, when its warm-up ends; -1 where it
   * has no end of its own.
   */
  readonly untilUs: number;
}

// Autoscaling of one deployment configuration on the clock: polls the autoscaler, has replicas made and taken
// away, and carries out what becomes of requests on a replica that goes. Its replicas are instances of its
// pool; each step of their lives is told.
//
//     check -> decision -> order ... ready -> instance takes requests
//                       -> drain ... empty -> instance is gone

export interface ScalingSetup {
  readonly configId: string;
  readonly scaler: AutoScaler;
  readonly replicas: Replicas;
  /** Tokens of KV that a replica holds. */
  readonly capacityTokens: number;
  /** Targets by SLO class. Policies and triggers see attainment of these. Default: none. */
  readonly targets?: TargetsByClass;
}

/** The same for another run, which has seen nothing yet. */
export function freshScaling({ scaler, replicas, ...rest }: ScalingSetup): ScalingSetup {
  return { ...rest, scaler: scaler.fresh(), replicas: replicas.fresh() };
}

/** Where a configuration stands in its cluster. */
interface ScalingPlace {
  readonly pool: number;
  /** Instances of the pool that there are at first. */
  readonly initial: readonly number[];
  /** Pools that could take what this one takes, this one included. */
  readonly alike: number;
  serves(model: string): boolean;
  /** Whether its instances compute prompts whose answers others give. */
  readonly computesForOthers: boolean;
}

/** The simulation around the loop, as the loop sees it. */
interface ScalingHost {
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
  /** Routes the instance's waiting requests again. */
  redirect(instance: number, nowUs: number): void;
  /** Removes the instance; requests left there are lost. */
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
  readonly #traffic: PoolTraffic;
  /** Instance of each replica; an ordered replica gets one when it is ready. */
  readonly #instanceOf: number[] = [];
  readonly #replicaOf: number[] = [];
  #history: LoadSample[] = [];
  #lastScaleUs = -1;

  constructor(setup: ScalingSetup, place: ScalingPlace, host: ScalingHost) {
    this.#setup = setup;
    this.#place = place;
    this.#host = host;
    this.#traffic = new PoolTraffic(place.alike, setup.targets ?? {});
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
    scaler.visitState(visitor);
    replicas.visitState(visitor);
  }
}

// The autoscalers of a cluster, one for each pool that scales. At one time they look, and their replicas
// change, in order of the pools. Instances of other pools are not touched.

export class ScalingLoops {
  readonly #loops: readonly ScalingLoop[];
  readonly #byPool: readonly (ScalingLoop | undefined)[];
  readonly #poolOf: readonly number[];

  /**
   * @param byPool undefined for a pool that does not scale
   * @param poolOf pool by instance, to which instances are added as they come
   */
  constructor(byPool: readonly (ScalingLoop | undefined)[], poolOf: readonly number[]) {
    this.#loops = byPool.filter((loop) => loop !== undefined);
    this.#byPool = byPool;
    this.#poolOf = poolOf;
  }

  begin(): void {
    for (const loop of this.#loops) loop.begin();
  }

  /** Whether the instance, which there is at the start, may get requests from the start. */
  isReady(instance: number): boolean {
    return this.#of(instance)?.isReady(instance) ?? true;
  }

  /** A poll of the autoscaler of that number is due. */
  check(number: number, nowUs: number): void {
    this.#loops[number].check(nowUs);
  }

  /** The time of a replica's phase is up. */
  due(number: number, replica: number, nowUs: number): void {
    this.#loops[number].due(replica, nowUs);
  }

  arrived(request: RequestView): void {
    for (const loop of this.#loops) loop.arrived(request);
  }

  routed(request: RequestView, { target, prefillInstance }: RoutingDecision): void {
    const prefillPool = prefillInstance === -1 ? -1 : this.#poolOf[prefillInstance];
    for (const loop of this.#loops) loop.routed(request, this.#poolOf[target], prefillPool);
  }

  /** A request that the instance had has ended; so has what the prefill instance did for it, if one did. */
  ended(row: number, instance: number, prefillInstance: number): void {
    const own = this.#of(instance);
    own?.ended(row);
    const prefill = prefillInstance === -1 ? undefined : this.#of(prefillInstance);
    if (prefill !== own) prefill?.ended(row);
  }

  /** Something left the instance: if it drains, it may be empty now. */
  left(instance: number, nowUs: number): void {
    this.#of(instance)?.left(instance, nowUs);
  }

  /** Factor on the time of a step that the instance begins now. */
  slowdown(instance: number, nowUs: number): number {
    return this.#of(instance)?.slowdown(instance, nowUs) ?? 1;
  }

  #of(instance: number): ScalingLoop | undefined {
    return this.#byPool[this.#poolOf[instance]];
  }

  visitState(visitor: StateVisitor): void {
    for (const loop of this.#loops) loop.visitState(visitor);
  }
}

// Arrivals and ends of a configuration between two looks of its autoscaler. A request that could
// go to several configurations counts in each by its share of the routed requests; by equal shares
// until one was routed.

class PoolTraffic {
  readonly #alike: number;
  readonly #targets: TargetsByClass;
  /** Requests that ended, and that met their targets, by class. */
  readonly #attained = new Map<string, { ended: number; met: number }>();
  #sinceUs = 0;
  #routed = 0;
  #routedHere = 0;
  #arrivals = 0;
  #promptTokens = 0;
  #ended = 0;
  #outputTokens = 0;
  #ttftUs = 0;
  #tpotUs = 0;
  #latenciesUs: number[] = [];

  /** @param alike configurations that could take what this one takes, this one included */
  constructor(alike: number, targets: TargetsByClass) {
    this.#alike = alike;
    this.#targets = targets;
    for (const name of Object.keys(targets).sort()) this.#attained.set(name, { ended: 0, met: 0 });
  }

  /** Share of what it could take that comes here. */
  get share(): number {
    return this.#routed === 0 ? 1 / this.#alike : this.#routedHere / this.#routed;
  }

  /** A request that it could take arrived. */
  arrived(promptTokens: number): void {
    this.#arrivals++;
    this.#promptTokens += promptTokens;
  }

  /** A request that it could take was routed. */
  routed(here: boolean): void {
    this.#routed++;
    if (here) this.#routedHere++;
  }

  ended(table: RequestTable, row: number): void {
    const attained = this.#attained.get(classOf(table, row));
    if (attained !== undefined) {
      attained.ended++;
      if (meetsTargets(table, row, this.#targets)) attained.met++;
    }
    if (table.status[row] !== Status.COMPLETED) return;
    this.#ended++;
    this.#outputTokens += table.generatedTokens[row];
    this.#ttftUs += table.firstTokenUs[row];
    this.#tpotUs += table.meanGapUs(row);
    this.#latenciesUs.push(table.e2eUs[row]);
  }

  /** The metrics since the last call. */
  take(instances: readonly InstanceSnapshot[], nowUs: number): DeploymentMetrics {
    const mean = (sum: number, count: number): number => (count === 0 ? 0 : sum / count);
    const over = (pick: (instance: InstanceSnapshot) => number): number =>
      mean(
        instances.reduce((sum, instance) => sum + pick(instance), 0),
        instances.length,
      );
    const latencies = Float64Array.from(this.#latenciesUs).sort();
    const latencySum = latencies.reduce((sum, us) => sum + us, 0);
    const metrics: DeploymentMetrics = {
      avgQueueDepth: over(({ queueDepth }) => queueDepth),
      avgUtilization: over(({ kv }) => kv.tiers[0]?.utilization ?? 0),
      requestRate: mean(this.#arrivals * this.share * 1e6, nowUs - this.#sinceUs),
      avgPromptTokens: mean(this.#promptTokens, this.#arrivals),
      avgOutputTokens: mean(this.#outputTokens, this.#ended),
      sloAttainment: Object.fromEntries(
        [...this.#attained]
          .filter(([, { ended }]) => ended > 0)
          .map(([name, { ended, met }]) => [name, met / ended]),
      ),
      avgLatencyUs: mean(latencySum, latencies.length),
      p99LatencyUs: percentile(latencies, 99),
      avgTtftUs: mean(this.#ttftUs, this.#ended),
      avgTpotUs: mean(this.#tpotUs, this.#ended),
    };
    this.#sinceUs = nowUs;
    this.#routed = 0;
    this.#routedHere = 0;
    this.#arrivals = 0;
    this.#promptTokens = 0;
    this.#ended = 0;
    this.#outputTokens = 0;
    this.#ttftUs = 0;
    this.#tpotUs = 0;
    this.#latenciesUs = [];
    for (const attained of this.#attained.values()) {
      attained.ended = 0;
      attained.met = 0;
    }
    return metrics;
  }

  visitState(visitor: StateVisitor): void {
    this.#sinceUs = visitor.number(this.#sinceUs);
    this.#routed = visitor.number(this.#routed);
    this.#routedHere = visitor.number(this.#routedHere);
    this.#arrivals = visitor.number(this.#arrivals);
    this.#promptTokens = visitor.number(this.#promptTokens);
    this.#ended = visitor.number(this.#ended);
    this.#outputTokens = visitor.number(this.#outputTokens);
    this.#ttftUs = visitor.number(this.#ttftUs);
    this.#tpotUs = visitor.number(this.#tpotUs);
    visitor.list(this.#latenciesUs);
    for (const attained of this.#attained.values()) visitor.fields(attained);
  }
}
