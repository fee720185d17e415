/**
 * The control plane made of the policies of a configuration: the configuration checked, the policies made, and each call of
 * the cluster turned into their decisions.
 */

import { configError, described, TierKVError, unknownName } from '../../runtime/errors.ts';
import type { ValueKind } from '../../runtime/kinds.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import type { Stateful, StateVisitor } from '../../runtime/snapshot.ts';
import { PartitionedRandom } from '../random/goRand.ts';
import { type AdmissionPolicy, admissionPolicies } from './admission.ts';
import type {
  ControlConfig,
  ControlCounters,
  ControlPlane,
  EndKind,
  ForcedAdmission,
  HistoryConfig,
  ShadowConfig,
  ShadowDivergence,
  SignalConfig,
} from './controlPlane.ts';
import { type PrefillDecodeDecider, prefillDecodeDeciders } from './disaggregation.ts';
import { type FlowControl, type GatewayStage, gateways } from './flowControl.ts';
import {
  type AdmissionDecision,
  type CandidateScore,
  type ClusterState,
  effectiveLoad,
  type ForcedRouting,
  type InstanceProbe,
  type InstanceSnapshot,
  type PolicyWorld,
  type RequestPriority,
  type RequestView,
  type RoutingDecision,
  type Stay,
} from './policy.ts';
import { type PriorityPolicy, priorityPolicies } from './priority.ts';
import { InFlightBook, Learners, RouterBooks } from './routerBooks.ts';
import { type RouterState, SignalBoard, shadowNames } from './routerState.ts';
import { routingPolicies } from './routing/routing.ts';
import type { RoutingChoice, RoutingContext, RoutingPolicy } from './routing/routingPolicy.ts';

const DAY_US = 86_400_000_000;

const duration = is.integer(0, DAY_US);
const signalTable = optionTable(
  { snapshotIntervalUs: duration, cacheSignalUs: duration } satisfies Kinds<SignalConfig>,
  'TKV_CONFIG',
);
const shadowTable = optionTable(
  {
    model: is.by(requireShadow),
    blocks: is.integer(0, 2 ** 24),
    eventDelayUs: duration,
    speculativeTtlUs: duration,
  } satisfies Kinds<ShadowConfig>,
  'TKV_CONFIG',
);
const historyTable = optionTable(
  {
    windowUs: is.integer(1000, DAY_US),
    windows: is.integer(0, 100_000),
    burstFactor: is.by(requireBurst),
  } satisfies Kinds<HistoryConfig>,
  'TKV_CONFIG',
);
/** A policy by its name; its own entry checks the parameters. */
const choice = <Choice extends object>(): ValueKind<Choice> => is.fields({ policy: is.text() });
/** The defaults are upstream's; ties go to the lowest instance. */
const controlTable = optionTable(
  {
    admission: is.optional(choice(), { policy: admissionPolicies.nameOf('isUsual') }),
    priority: is.optional(choice(), { policy: 'slo-class' }),
    routing: is.optional(choice(), { policy: routingPolicies.nameOf('isUsual') }),
    prefillRouting: is.optional(choice()),
    decodeRouting: is.optional(choice()),
    decider: is.optional(choice(), { policy: 'never' }),
    gateway: is.optional(is.orNull(choice()), null),
    signals: is.optional(signalTable, { snapshotIntervalUs: 50_000, cacheSignalUs: 50_000 }),
    shadow: is.optional(shadowTable, {
      ...{ model: 'none', blocks: 0 },
      ...{ eventDelayUs: 50_000, speculativeTtlUs: 2_000_000 },
    }),
    history: is.optional(historyTable, { windowUs: 10_000_000, windows: 60, burstFactor: 3 }),
    topK: is.optional(is.integer(-1, 10_000), 0),
  } satisfies Kinds<Partial<ControlConfig>>,
  'TKV_CONFIG',
);

export const defaultControl: ControlConfig = controlTable.read({}, 'config');

function requireShadow(model: ShadowConfig['model'], field: string): ShadowConfig['model'] {
  if (shadowNames.includes(model)) return model;
  throw unknownName(field, model, shadowNames);
}

function requireBurst(factor: number, field: string): number {
  if (factor > 1 && Number.isFinite(factor)) return factor;
  throw configError(field, `is ${described(factor)}`, 'Give it a number above 1.');
}

/**
 * The configuration with every parameter of every policy.
 * @throws TKV_CONFIG with the field at fault
 */
export function checkControl(config: Partial<ControlConfig>): ControlConfig {
  const whole = controlTable.read(config, 'config');
  const { shadow } = whole;
  if (shadow.model === 'speculative' && shadow.speculativeTtlUs === 0) {
    throw configError('shadow.speculativeTtlUs', 'is 0', 'Set it above 0, or the shadow to events.');
  }
  return {
    ...whole,
    admission: admissionPolicies.resolve(whole.admission),
    priority: priorityPolicies.resolve(whole.priority),
    routing: routingPolicies.resolve(whole.routing),
    ...(whole.prefillRouting && { prefillRouting: routingPolicies.resolve(whole.prefillRouting) }),
    ...(whole.decodeRouting && { decodeRouting: routingPolicies.resolve(whole.decodeRouting) }),
    decider: prefillDecodeDeciders.resolve(whole.decider),
    gateway: whole.gateway === null ? null : gateways.resolve(whole.gateway),
  };
}

/** Whether any policy of the control plane, or its shadow, looks at the block keys of prompts. */
export function controlReadsKeys(config: ControlConfig): boolean {
  const { routing, prefillRouting = routing, decodeRouting = routing } = config;
  return (
    config.shadow.model !== 'none' ||
    [routing, prefillRouting, decodeRouting].some((choice) => routingPolicies.readsKeys(choice)) ||
    admissionPolicies.readsKeys(config.admission) ||
    priorityPolicies.readsKeys(config.priority) ||
    prefillDecodeDeciders.readsKeys(config.decider) ||
    (config.gateway !== null && gateways.readsKeys(config.gateway))
  );
}

//  The record of a routing decision, from what a policy chose.

type ChoiceRecord = Omit<
  RoutingDecision,
  'prefillInstance' | 'decodeInstance' | 'expectedBlocks' | 'couldTake' | 'wished'
>;

/** @param topK others that are kept; -1 leaves out scores as well */
function recordOf(context: RoutingContext, choice: RoutingChoice, topK: number): ChoiceRecord {
  const chosen = context.candidates[choice.index];
  const base = { target: chosen.instance, reason: choice.reason };
  if (topK < 0) return { ...base, scores: [], filteredOut: choice.filteredOut, topKCandidates: [] };
  const scores = context.candidates.map((candidate, i): CandidateScore => {
    const scoreBreakdown: Record<string, number> = {};
    for (const part of choice.parts) scoreBreakdown[part.name] = part.weight * part.values[i];
    // a policy without scores is compared by load, as upstream's counterfactual analysis does
    const score = choice.scores === null ? -effectiveLoad(candidate) : choice.scores[i];
    return { instance: candidate.instance, id: candidate.id, score, scoreBreakdown };
  });
  const others = topK === 0 ? [] : scores.filter((_, i) => i !== choice.index);
  others.sort((a, b) => b.score - a.score || a.instance - b.instance);
  return { ...base, scores, filteredOut: choice.filteredOut, topKCandidates: others.slice(0, topK) };
}

//  Decisions that a caller forces in a policy's place, for what-if runs.

function forcedAdmission(forced: ForcedAdmission, wished: AdmissionDecision): AdmissionDecision {
  if (forced === 'admit') return { verdict: 'admit', wished };
  if (forced === 'reject') return { verdict: 'reject', reason: 'forced', wished };
  return { verdict: 'delay', durationUs: 0, reason: 'forced', wished };
}

/**
 * The place of the forced instance among the candidates.
 * @throws TKV_INPUT when it is not among them
 */
function forcedIndex(
  candidates: readonly InstanceSnapshot[],
  forced: number,
  does: 'take the request' | 'compute its prompt',
): number {
  const index = candidates.findIndex(({ instance }) => instance === forced);
  if (index !== -1) return index;
  const names = candidates.map(({ instance }) => instance).join(', ');
  const remedy = names === '' ? 'No instance can.' : `Name one of ${names}.`;
  throw new TierKVError(
    'TKV_INPUT',
    `forced.routing names instance ${forced}, which cannot ${does}. ${remedy}`,
    { field: 'forced.routing' },
  );
}

//  The control plane made of the policies of a configuration.

export class PolicyControlPlane implements ControlPlane {
  readonly config: ControlConfig;
  readonly counters: ControlCounters = {
    arrived: 0,
    admitted: 0,
    rejected: 0,
    delayed: 0,
    routed: 0,
    unroutable: 0,
    disaggregated: 0,
    shadowOverestimates: 0,
    shadowUnderestimates: 0,
    shadowChecks: 0,
  };
  recordsScores = true;
  readonly #policies: PlanePolicies;
  readonly #board: SignalBoard;
  readonly #books: RouterBooks;
  readonly #inFlight: InFlightBook = new InFlightBook();
  readonly #world: ControlWorld;
  /** Pools by model of the request: the routable instances that could serve it. */
  readonly #pools = new Map<string, ModelPools>();
  #pooled: readonly InstanceSnapshot[] = [];

  /** @throws TKV_CONFIG with the field at fault */
  constructor(config: Partial<ControlConfig>, world: ControlWorld) {
    is.fields({ key: is.bigint(), blockTokens: is.number() }).read(world, 'world');
    this.config = checkControl(config);
    this.#world = world;
    this.#policies = new PlanePolicies(this.config, world);
    this.#board = new SignalBoard(this.config.signals.snapshotIntervalUs);
    this.#books = new RouterBooks(this.config, this.#policies.readsCaches);
  }

  fresh(): PolicyControlPlane {
    return new PolicyControlPlane(this.config, this.#world);
  }

  get router(): RouterState {
    return this.#books;
  }

  get gateway(): FlowControl | null {
    return this.#policies.gateway?.queue ?? null;
  }

  get wantsCacheEvents(): boolean {
    return this.#books.wantsEvents;
  }

  get routesByReports(): boolean {
    return this.#policies.routesByReports;
  }

  addInstance(probe: InstanceProbe): void {
    this.#board.add(probe);
    this.#books.added(probe);
  }

  setRoutable(instance: number, routable: boolean): void {
    this.#board.setRoutable(instance, routable);
  }

  removeInstance(instance: number): void {
    this.#board.remove(instance);
    this.#books.removed(instance);
    this.#policies.instanceRemoved(instance);
  }

  cluster(nowUs: number): ClusterState {
    this.#books.refresh(nowUs);
    return { nowUs, instances: this.#board.routable(nowUs) };
  }

  saturation(nowUs: number): number {
    return this.#policies.gateway === null ? 0 : this.#policies.gateway.saturation(this.cluster(nowUs));
  }

  arrived(request: RequestView, nowUs: number): void {
    this.counters.arrived++;
    this.#books.arrived(request, nowUs);
  }

  admit(request: RequestView, nowUs: number, forced?: ForcedAdmission): AdmissionDecision {
    const cluster = this.cluster(nowUs);
    const priority = this.#policies.priority.prioritise(request, this.#books);
    const chosen = this.#policies.admission.decide(request, priority, this.#books, cluster);
    const decision = forced === undefined ? chosen : forcedAdmission(forced, chosen);
    switch (decision.verdict) {
      case 'admit':
        this.counters.admitted++;
        this.#books.admitted(request, nowUs);
        return decision;
      case 'reject':
        this.counters.rejected++;
        this.#books.rejected(request, nowUs);
        return decision;
      case 'delay':
        this.counters.delayed++;
        return decision;
    }
  }

  prioritise(request: RequestView, nowUs: number): RequestPriority {
    this.#books.refresh(nowUs);
    return this.#policies.priority.prioritise(request, this.#books);
  }

  route(
    request: RequestView,
    priority: RequestPriority,
    nowUs: number,
    forced: ForcedRouting = {},
    stay?: Stay,
  ): RoutingDecision | null {
    const { instances } = this.cluster(nowUs);
    const { allDecoders, allPrefillers, pools } = this.#poolsOf(instances, request.model);
    const decoders = stay === undefined ? allDecoders : staying(allDecoders, stay.target);
    const prefillers = stay === undefined ? allPrefillers : staying(allPrefillers, stay.prefill);
    if (decoders.length === 0) {
      this.counters.unroutable++;
      return null;
    }
    const main = this.#context(request, priority, decoders);
    const router = pools ? this.#policies.routers.decode : this.#policies.routers.all;
    const wished = router.choose(main);
    const wishedInstance = decoders[wished.index].instance;
    const choice: RoutingChoice =
      forced.target === undefined
        ? wished
        : { ...wished, index: forcedIndex(decoders, forced.target, 'take the request'), reason: 'forced' };
    const chosen = decoders[choice.index];
    // written down before the same policy chooses again
    const record = recordOf(main, choice, this.recordsScores ? this.config.topK : -1);
    router.routed?.(main, chosen.instance);
    let splits =
      prefillers.length > 0 && this.#policies.decider.decide(request, chosen, this.#books).disaggregate;
    if (stay !== undefined) splits = stay.prefill !== '' && prefillers.length > 0;
    const prefillInstance = this.#routePrefill(request, priority, prefillers, splits, forced.prefillInstance);
    const disaggregate = prefillInstance !== -1;
    const computedBy = disaggregate ? prefillInstance : chosen.instance;
    const expectedBlocks = this.#books.expectedBlocks(request, computedBy);
    this.counters.routed++;
    this.#sent(request, chosen.instance, disaggregate ? -1 : expectedBlocks, nowUs);
    if (disaggregate) {
      this.counters.disaggregated++;
      this.#sent(request, prefillInstance, expectedBlocks, nowUs);
    }
    this.#books.routed(request);
    const decodeInstance = disaggregate ? chosen.instance : -1;
    return {
      ...record,
      wished: wishedInstance,
      prefillInstance,
      decodeInstance,
      expectedBlocks,
      couldTake: this.recordsScores ? decoders.map(({ instance }) => instance) : [],
    };
  }

  rehome(
    request: RequestView,
    priority: RequestPriority,
    from: number,
    configId: string,
    nowUs: number,
  ): number {
    const { instances } = this.cluster(nowUs);
    const candidates = instances.filter((each) => each.configId === configId && each.instance !== from);
    if (candidates.length === 0) return -1;
    const context = this.#context(request, priority, candidates);
    const { instance } = candidates[this.#policies.routers.decode.choose(context).index];
    this.#policies.routers.decode.routed?.(context, instance);
    this.#board.inFlight(from, -1, -this.#inFlight.takeTokens(request.number, from));
    this.#inFlight.end(request.number, from);
    this.#sent(request, instance, -1, nowUs);
    return instance;
  }

  /**
   * @param splits whether the decider wants a hand-off
   * @param forced an instance, or -1 for no hand-off
   * @returns the instance that computes the prompt, -1 without a hand-off
   */
  #routePrefill(
    request: RequestView,
    priority: RequestPriority,
    prefillers: readonly InstanceSnapshot[],
    splits: boolean,
    forced: number | undefined,
  ): number {
    const context = this.#context(request, priority, prefillers);
    const wished = splits ? prefillers[this.#policies.routers.prefill.choose(context).index].instance : -1;
    if (forced !== undefined && forced !== -1) forcedIndex(prefillers, forced, 'compute its prompt');
    const instance = forced ?? wished;
    if (instance !== -1) this.#policies.routers.prefill.routed?.(context, instance);
    return instance;
  }

  #context(
    request: RequestView,
    priority: RequestPriority,
    candidates: readonly InstanceSnapshot[],
  ): RoutingContext {
    return { request, priority, candidates, router: this.#books, reports: this.#board.reports };
  }

  #poolsOf(instances: readonly InstanceSnapshot[], model: string): ModelPools {
    // the board makes another list when an instance comes or goes
    if (instances !== this.#pooled) {
      this.#pools.clear();
      this.#pooled = instances;
    }
    let pools = this.#pools.get(model);
    if (pools === undefined && this.#pools.size === MODELS_MOST) this.#pools.clear();
    if (pools === undefined) this.#pools.set(model, (pools = modelPools(instances, model)));
    return pools;
  }

  /** @param expectedBlocks that are believed to be cached there; -1 where the prompt is computed elsewhere */
  #sent(request: RequestView, instance: number, expectedBlocks: number, nowUs: number): void {
    const tokens =
      expectedBlocks === -1
        ? 0
        : Math.max(0, request.promptTokens - expectedBlocks * this.#world.blockTokens);
    this.#inFlight.sent(request.number, instance, tokens, expectedBlocks);
    this.#board.inFlight(instance, 1, tokens);
    if (expectedBlocks !== -1) this.#books.sent(request, instance, nowUs);
  }

  scheduled(
    request: RequestView,
    instance: number,
    cachedBlocks: number,
    nowUs: number,
  ): ShadowDivergence | null {
    const expectedBlocks = this.#inFlight.takeExpected(request.number, instance);
    if (this.#books.shadowKv === null || expectedBlocks === -1) return null;
    this.counters.shadowChecks++;
    if (expectedBlocks === cachedBlocks) return null;
    if (expectedBlocks > cachedBlocks) this.counters.shadowOverestimates++;
    else this.counters.shadowUnderestimates++;
    return { timeUs: nowUs, request: request.number, instance, expectedBlocks, actualBlocks: cachedBlocks };
  }

  firstToken(request: RequestView, instance: number, nowUs: number): void {
    this.#policies.learners.firstToken(request, nowUs);
    this.#board.inFlight(instance, 0, -this.#inFlight.takeTokens(request.number, instance));
  }

  ended(request: RequestView, instance: number, how: EndKind, outputTokens: number, nowUs: number): void {
    // a hand-off goes on elsewhere; everything else ends the request wherever it was to go
    const left = how === 'handedOff' ? [instance] : this.#inFlight.instancesOf(request.number);
    let nowhere = false;
    for (const each of left) {
      this.#board.inFlight(each, -1, -this.#inFlight.takeTokens(request.number, each));
      nowhere = this.#inFlight.end(request.number, each);
    }
    if (!nowhere) return;
    this.#books.ended(request, how, outputTokens, nowUs);
    if (how === 'redirected') return;
    this.#policies.admission.ended?.(request, nowUs);
    this.#policies.learners.ended({ request, instance, completed: how === 'completed', outputTokens, nowUs });
  }

  abandoned(request: RequestView, nowUs: number): void {
    this.#books.abandoned();
    this.#policies.admission.ended?.(request, nowUs);
  }

  kvStored(instance: number, tier: number, key: Uint32Array, nowUs: number): void {
    this.#books.event(instance, tier, true, key, nowUs);
  }

  kvRemoved(instance: number, tier: number, key: Uint32Array, nowUs: number): void {
    this.#books.event(instance, tier, false, key, nowUs);
  }

  /** When restored: the instances are added before, with the same numbers. */
  visitState(visitor: StateVisitor): void {
    visitor.fields(this.counters);
    this.#policies.visitState(visitor);
    this.#board.visitState(visitor);
    this.#books.visitState(visitor);
    this.#inFlight.visitState(visitor);
  }
}

/** Models whose pools are remembered: clients of real servers name them as they like. */
const MODELS_MOST = 1024;

/** Who could serve a model. */
interface ModelPools {
  readonly allDecoders: readonly InstanceSnapshot[];
  readonly allPrefillers: readonly InstanceSnapshot[];
  /** Whether prompts may be computed elsewhere than their outputs. */
  readonly pools: boolean;
}

function modelPools(instances: readonly InstanceSnapshot[], wanted: string): ModelPools {
  const own = instances.filter(({ model }) => model === '' || wanted === '' || model === wanted);
  const allDecoders = own.filter(({ role }) => role !== 'prefill');
  const allPrefillers = own.filter(({ role }) => role === 'prefill');
  const pools = allDecoders.some(({ role }) => role === 'decode') || allPrefillers.length > 0;
  return { allDecoders, allPrefillers, pools };
}

/** Those of the configuration; all where none of them is routable. */
function staying(instances: readonly InstanceSnapshot[], configId: string): readonly InstanceSnapshot[] {
  const own = instances.filter((each) => each.configId === configId);
  return own.length === 0 ? instances : own;
}

//  The policies of a control plane: made from a configuration, and written down together.

interface ControlWorld {
  /** Key of the simulation, from which all streams of the policies come. */
  readonly key: bigint;
  readonly blockTokens: number;
  readonly maxSequences: number;
  /**
   * Policies that no registry names, such as those of a policy bundle. They go before the configuration's.
   */
  readonly policies?: MadePolicies;
}

/** Makers of policies; each is called once a simulation, for routing once a pool with a router of its own. */
export interface MadePolicies {
  readonly admission?: (world: PolicyWorld) => AdmissionPolicy;
  readonly priority?: (world: PolicyWorld) => PriorityPolicy;
  readonly routing?: (world: PolicyWorld) => RoutingPolicy;
}

class PlanePolicies implements Stateful {
  readonly admission: AdmissionPolicy;
  readonly priority: PriorityPolicy;
  readonly decider: PrefillDecodeDecider;
  readonly gateway: GatewayStage | null;
  readonly routers: { readonly [pool in 'all' | 'prefill' | 'decode']: RoutingPolicy };
  readonly learners: Learners;

  /** @throws TKV_CONFIG with the field at fault */
  constructor(config: ControlConfig, world: ControlWorld) {
    const policyWorld = (rename: Readonly<Record<string, string>> = {}): PolicyWorld => ({
      blockTokens: world.blockTokens,
      maxSequences: world.maxSequences,
      // each policy has a stream object of its own, so that each can be written down on its own
      stream: (name) => new PartitionedRandom(world.key).stream(rename[name] ?? name),
    });
    const { admission, priority, routing } = world.policies ?? {};
    this.admission = admission?.(policyWorld()) ?? admissionPolicies.make(config.admission, policyWorld());
    this.priority = priority?.(policyWorld()) ?? priorityPolicies.make(config.priority, policyWorld());
    this.decider = prefillDecodeDeciders.make(config.decider, policyWorld());
    this.gateway = config.gateway === null ? null : gateways.make(config.gateway, policyWorld());
    this.routers = routersOf(config, policyWorld, routing);
    const queue = this.gateway === null ? [] : [this.gateway.queue];
    this.learners = new Learners([this.admission, this.priority, ...queue, ...Object.values(this.routers)]);
  }

  get readsCaches(): boolean {
    return this.decider.readsCaches || Object.values(this.routers).some(({ readsCaches }) => readsCaches);
  }

  get routesByReports(): boolean {
    return Object.values(this.routers).some(({ readsReports }) => readsReports);
  }

  instanceRemoved(instance: number): void {
    for (const router of new Set(Object.values(this.routers))) router.removed?.(instance);
  }

  visitState(visitor: StateVisitor): void {
    const { all, prefill, decode } = this.routers;
    for (const policy of [this.admission, this.priority, this.decider]) policy.visitState(visitor);
    if (this.gateway !== null) this.gateway.queue.visitState(visitor);
    for (const router of new Set([all, prefill, decode])) router.visitState(visitor);
    this.learners.visitState(visitor);
  }
}

//  Which routing policy serves which pool, and from which random stream each takes its draws.

/**
 * One policy for everything, made by `made` where that is given, except where a pool has its own: that one is
 * another object with another stream, as upstream's pools with scorers of their own.
 */
function routersOf(
  config: ControlConfig,
  worldOf: (rename?: Readonly<Record<string, string>>) => PolicyWorld,
  made?: (world: PolicyWorld) => RoutingPolicy,
): { readonly all: RoutingPolicy; readonly prefill: RoutingPolicy; readonly decode: RoutingPolicy } {
  const all = made?.(worldOf()) ?? routingPolicies.make(config.routing, worldOf());
  const { prefillRouting, decodeRouting } = config;
  return {
    all,
    prefill:
      prefillRouting === undefined
        ? all
        : routingPolicies.make(prefillRouting, worldOf(ownStreams('prefill'))),
    decode:
      decodeRouting === undefined ? all : routingPolicies.make(decodeRouting, worldOf(ownStreams('decode'))),
  };
}

function ownStreams(pool: 'prefill' | 'decode'): Readonly<Record<string, string>> {
  return { router: `${pool}-router`, 'router-filters': `${pool}-router-filters` };
}
