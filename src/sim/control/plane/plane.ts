/** The control plane made of the policies of a configuration. */

import type {
  ControlConfig,
  ControlCounters,
  ControlPlane,
  EndKind,
  ShadowDivergence,
} from '../controlPlane.ts';
import {
  ADMIT,
  type AdmissionDecision,
  type ForcedRouting,
  type Priority,
  type RoutingDecision,
  type Stay,
} from '../decisions.ts';
import type { FlowControl } from '../flowControl/index.ts';
import type { ClusterState, InstanceProbe, InstanceSnapshot } from '../instances.ts';
import type { PlainState } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';
import type { RoutingChoice, RoutingContext } from '../routing/index.ts';
import { SignalBoard } from '../state/index.ts';
import { checkControl } from './checkConfig.ts';
import { recordOf } from './decisionRecord.ts';
import { forcedAdmission, forcedIndex } from './forced.ts';
import { InFlightBook } from './inFlightBook.ts';
import { type ControlWorld, PlanePolicies } from './planePolicies.ts';
import { RouterBooks } from './routerBooks.ts';

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
  /** By model of the request: who could serve it of the instances that were routable last. */
  readonly #pools = new Map<string, ModelPools>();
  #pooled: readonly InstanceSnapshot[] = [];

  /** @throws TKV_CONFIG with the field at fault */
  constructor(config: Partial<ControlConfig>, world: ControlWorld) {
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

  admit(request: RequestView, nowUs: number, forced?: 'admit' | 'reject'): AdmissionDecision {
    const cluster = this.cluster(nowUs);
    const priority = this.#policies.priority.prioritise(request, this.#books);
    const chosen = this.#policies.admission.decide(request, priority, this.#books, cluster);
    const decision = forced === undefined ? chosen : forcedAdmission(forced);
    switch (decision.verdict) {
      case 'admit':
        this.counters.admitted++;
        this.#books.admitted(request, nowUs);
        return ADMIT;
      case 'reject':
        this.counters.rejected++;
        this.#books.rejected(request, nowUs);
        return decision;
      case 'delay':
        this.counters.delayed++;
        return decision;
    }
  }

  prioritise(request: RequestView, nowUs: number): Priority {
    this.#books.refresh(nowUs);
    return this.#policies.priority.prioritise(request, this.#books);
  }

  route(
    request: RequestView,
    priority: Priority,
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
      prefillInstance,
      decodeInstance,
      expectedBlocks,
      couldTake: this.recordsScores ? decoders.map(({ instance }) => instance) : [],
    };
  }

  rehome(request: RequestView, priority: Priority, from: number, configId: string, nowUs: number): number {
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
    priority: Priority,
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
    priority: Priority,
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

  snapshot(): PlainState {
    return {
      counters: { ...this.counters },
      policies: this.#policies.snapshot(),
      board: this.#board.snapshot(),
      books: this.#books.snapshot(),
      inFlight: this.#inFlight.snapshot(),
    };
  }

  /** The instances are added before, with the same numbers. */
  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as Record<string, PlainState>;
    Object.assign(this.counters, saved.counters);
    this.#policies.restore(saved.policies);
    this.#board.restore(saved.board);
    this.#books.restore(saved.books);
    this.#inFlight.restore(saved.inFlight);
  }
}

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
