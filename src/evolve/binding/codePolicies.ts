/** Programs as the stages of a control plane and as an autoscaling policy. */

import {
  ADMIT,
  type AdmissionDecision,
  type AdmissionPolicy,
  type AutoScaleContext,
  type AutoScalePolicy,
  type ClusterState,
  type Outcome,
  type PlainState,
  type Priority,
  type PriorityPolicy,
  type RequestView,
  type RouterState,
  type RoutingChoice,
  type RoutingContext,
  type RoutingPolicy,
  type ScaleDecision,
  SloPriorities,
} from '../../sim/control/index.ts';
import {
  anyIsReported,
  cacheFeatures,
  clusterFeatures,
  type FeatureTable,
  type InstanceFacts,
  instanceFeatures,
  memoryOf,
  type RequestFacts,
  requestFeatures,
  routerFeatures,
  scalingFeatures,
} from '../features/index.ts';
import { delayBy, priorityOf } from './decisions.ts';
import { RouterMemory } from './routerMemory.ts';
import { type FeatureWriter, type LoadedCode, SlotProgram } from './slotProgram.ts';

const NAME = 'program';
/** Places of the choices of an admission program. */
const REJECTED = 1;
const DELAYED = 2;

abstract class CodePolicyBase {
  readonly name: string = NAME;
  protected readonly program: SlotProgram;

  /** Present where the program wants to be told. */
  readonly completed?: (outcome: Outcome) => void;

  constructor(program: SlotProgram) {
    this.program = program;
    if (program.observes) this.completed = (outcome) => program.observe(outcome);
  }

  snapshot(): PlainState {
    return this.program.snapshot();
  }

  restore(state: PlainState): void {
    this.program.restore(state);
  }
}

/** Facts of instances where no request is routed: nothing is known of its prefix there. */
function unroutedFeatures(): FeatureTable<InstanceFacts> {
  const blind = [...cacheFeatures, ...Object.keys(memoryOf), 'shadowBlocks', 'adapterResident'];
  return Object.fromEntries(
    Object.entries(instanceFeatures).map(([name, feature]) => [
      name,
      blind.includes(name) ? { ...feature, read: () => 0 } : feature,
    ]),
  );
}

export class CodeAdmission extends CodePolicyBase implements AdmissionPolicy {
  readonly #request: FeatureWriter<RequestFacts>;
  readonly #cluster: FeatureWriter<{ router: RouterState; instances: ClusterState['instances'] }>;
  readonly #instances: FeatureWriter<InstanceFacts>;

  constructor(code: LoadedCode) {
    super(new SlotProgram('admission', code));
    this.#request = this.program.writer(0, requestFeatures);
    this.#cluster = this.program.writer(1, clusterFeatures);
    this.#instances = this.program.writer(2, unroutedFeatures());
  }

  decide(
    request: RequestView,
    priority: Priority,
    router: RouterState,
    { instances }: ClusterState,
  ): AdmissionDecision {
    this.#request.write(0, { request, priority, router });
    this.#cluster.write(0, { router, instances });
    this.#instances.rows(instances.length);
    const context: RoutingContext = { request, priority, candidates: instances, router };
    instances.forEach((instance, row) => {
      this.#instances.write(row, { instance, context, memory: () => 0 });
    });
    const [choice, amount] = this.program.decide(request.id, router.nowUs);
    if (choice === REJECTED) return { verdict: 'reject', reason: NAME };
    if (choice !== DELAYED) return ADMIT;
    return delayBy(amount, request, router.nowUs, NAME);
  }
}

export class CodePriority extends CodePolicyBase implements PriorityPolicy {
  readonly #request: FeatureWriter<RequestFacts>;
  readonly #router: FeatureWriter<{ router: RouterState }>;
  readonly #classes: SloPriorities = new SloPriorities();

  constructor(code: LoadedCode) {
    super(new SlotProgram('priority', code));
    this.#request = this.program.writer(0, requestFeatures);
    this.#router = this.program.writer(1, routerFeatures);
  }

  prioritise(request: RequestView, router: RouterState): Priority {
    this.#request.write(0, { request, priority: null, router });
    this.#router.write(0, { router });
    const [score] = this.program.decide(request.id, router.nowUs);
    return priorityOf(request, score, this.#classes);
  }
}

export class CodeRouting implements RoutingPolicy {
  readonly name: string = NAME;
  readonly readsCaches: boolean;
  readonly readsReports: boolean;
  /** Present where the program wants to be told. */
  readonly completed?: (outcome: Outcome) => void;
  readonly #program: SlotProgram;
  readonly #request: FeatureWriter<RequestFacts>;
  readonly #cluster: FeatureWriter<{ router: RouterState; instances: ClusterState['instances'] }>;
  readonly #instances: FeatureWriter<InstanceFacts>;
  readonly #memory: RouterMemory;

  constructor(code: LoadedCode) {
    const program = new SlotProgram('routing', code);
    this.#program = program;
    if (program.observes) this.completed = (outcome) => program.observe(outcome);
    this.#request = this.#program.writer(0, requestFeatures);
    this.#cluster = this.#program.writer(1, clusterFeatures);
    this.#instances = this.#program.writer(2, instanceFeatures);
    this.#memory = RouterMemory.of(this.#instances.names);
    this.readsCaches = this.#instances.names.some((name) => cacheFeatures.includes(name));
    this.readsReports =
      anyIsReported(instanceFeatures, this.#instances.names) ||
      anyIsReported(clusterFeatures, this.#cluster.names);
  }

  choose(context: RoutingContext): RoutingChoice {
    const { request, priority, candidates, router } = context;
    this.#request.write(0, { request, priority, router });
    this.#cluster.write(0, { router, instances: candidates });
    this.#instances.rows(candidates.length);
    this.#memory.ask(context);
    for (let row = 0; row < candidates.length; row++) {
      this.#instances.write(row, {
        instance: candidates[row],
        context,
        memory: (name) => this.#memory.of(name, row),
      });
    }
    const decision = this.#program.decide(request.id, router.nowUs);
    const common = { reason: NAME, parts: [], filteredOut: [] };
    if (this.#program.function.decision.kind === 'index') {
      return { ...common, index: decision[0], scores: null };
    }
    let index = 0;
    for (let i = 1; i < candidates.length; i++) if (decision[i] > decision[index]) index = i;
    return { ...common, index, scores: decision };
  }

  routed(context: RoutingContext, instance: number): void {
    this.#memory.routed(context, instance);
  }

  removed(instance: number): void {
    this.#memory.removed(instance);
  }

  snapshot(): PlainState {
    return { program: this.#program.snapshot(), memory: this.#memory.snapshot() };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { program: PlainState; memory: PlainState };
    this.#program.restore(saved.program);
    this.#memory.restore(saved.memory);
  }
}

export class CodeScaling extends CodePolicyBase implements AutoScalePolicy {
  readonly #deployment: FeatureWriter<AutoScaleContext>;

  constructor(code: LoadedCode) {
    super(new SlotProgram('autoScale', code));
    this.#deployment = this.program.writer(0, scalingFeatures);
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    this.#deployment.write(0, context);
    const [wish] = this.program.decide('', context.nowUs);
    return scaleTo(context, wish, NAME);
  }
}

/** The decision that leads to `wish` replicas, rounded and within the bounds. */
export function scaleTo(context: AutoScaleContext, wish: number, reason: string): ScaleDecision {
  const { currentReplicas, minReplicas, maxReplicas } = context;
  const targetReplicas = Math.min(maxReplicas, Math.max(minReplicas, Math.round(wish)));
  const action = targetReplicas > currentReplicas ? 'up' : targetReplicas < currentReplicas ? 'down' : 'none';
  return { action, targetReplicas, reason };
}
