/** Decision trees as the stages of a control plane and as an autoscaling policy. */

import type { StateVisitor } from '../../../runtime/snapshot.ts';
import type { AdmissionPolicy } from '../../../sim/control/admission.ts';
import {
  ADMIT,
  type AdmissionDecision,
  type ClusterState,
  type PolicyWorld,
  type RequestPriority,
  type RequestView,
  StatelessPolicy,
} from '../../../sim/control/policy.ts';
import { type PriorityPolicy, SloPriorities } from '../../../sim/control/priority.ts';
import type { RouterState } from '../../../sim/control/routerState.ts';
import { type InstanceScore, instanceScores } from '../../../sim/control/routing/routing.ts';
import type {
  RoutingChoice,
  RoutingContext,
  RoutingPolicy,
} from '../../../sim/control/routing/routingPolicy.ts';
import { type Scorer, scorers } from '../../../sim/control/routing/scorers.ts';
import type {
  AutoScaleContext,
  AutoScalePolicy,
  ScaleDecision,
} from '../../../sim/control/scaling/autoScalePolicy.ts';
import type { PolicySlot, TreeComparison, TreeLeaf, TreeNode } from '../bundle/policyBundle.ts';
import { slotContracts } from '../bundle/slots.ts';
import { clusterFeatures } from '../features/cluster.ts';
import { anyIsReported, type Feature } from '../features/feature.ts';
import { cacheFeatures, instanceFeatures, type MemoryName } from '../features/instance.ts';
import { scaleTo } from './codePolicies.ts';
import { delayBy, priorityOf, RouterMemory } from './decisions.ts';

const NAME = 'tree';

export class TreeAdmission extends StatelessPolicy implements AdmissionPolicy {
  readonly name: string = NAME;
  readonly #tree: DecisionTree;

  constructor(root: TreeNode) {
    super();
    this.#tree = new DecisionTree('admission', root);
  }

  decide(
    request: RequestView,
    priority: RequestPriority,
    router: RouterState,
    { instances }: ClusterState,
  ): AdmissionDecision {
    const facts = { request: { request, priority, router }, cluster: { router, instances } };
    const { action, value = 0 } = this.#tree.walk(facts);
    if (action === 'admit') return ADMIT;
    if (action === 'reject') return { verdict: 'reject', reason: NAME };
    return delayBy(value, request, router.nowUs, NAME);
  }
}

export class TreePriority extends StatelessPolicy implements PriorityPolicy {
  readonly name: string = NAME;
  readonly #tree: DecisionTree;
  readonly #classes: SloPriorities = new SloPriorities();

  constructor(root: TreeNode) {
    super();
    this.#tree = new DecisionTree('priority', root);
  }

  prioritise(request: RequestView, router: RouterState): RequestPriority {
    const facts = { request: { request, priority: null, router }, cluster: { router } };
    const { action, value = 0 } = this.#tree.walk(facts);
    const score = action === 'class' ? this.#classes.of(request.sloClass) + value : value;
    return priorityOf(request, score, this.#classes);
  }
}

/** The tree is walked once for each candidate; its leaf scores the candidate. */
export class TreeRouting implements RoutingPolicy {
  readonly name: string = NAME;
  readonly readsCaches: boolean;
  readonly readsReports: boolean;
  readonly #tree: DecisionTree;
  readonly #memory: RouterMemory;
  readonly #rules: ReadonlyMap<string, InstanceScore>;
  readonly #scorers: ReadonlyMap<string, { readonly scorer: Scorer; values: Float64Array; asked: boolean }>;
  #scores: Float64Array = new Float64Array(16);

  constructor(root: TreeNode, world: PolicyWorld) {
    this.#tree = new DecisionTree('routing', root);
    const { actions } = this.#tree;
    const read = this.#tree.ofGroup('instance');
    this.#memory = RouterMemory.of(read);
    this.#rules = new Map(
      actions
        .filter((name) => instanceScores.names.includes(name))
        .map((name) => [name, instanceScores.make({ policy: name }, world)]),
    );
    this.#scorers = new Map(
      actions
        .filter((name) => name !== 'score' && !this.#rules.has(name))
        .map((name) => [
          name,
          { scorer: scorers.make({ policy: name }, world), values: new Float64Array(16), asked: false },
        ]),
    );
    this.readsCaches =
      read.some((name) => cacheFeatures.includes(name)) ||
      [...this.#scorers.values()].some(({ scorer }) => scorer.readsCaches);
    this.readsReports =
      anyIsReported(instanceFeatures, read) ||
      anyIsReported(clusterFeatures, this.#tree.ofGroup('cluster')) ||
      [...this.#rules.keys()].some((name) => instanceScores.readsReports({ policy: name })) ||
      [...this.#scorers.keys()].some((name) => scorers.readsReports({ policy: name }));
  }

  choose(context: RoutingContext): RoutingChoice {
    const { request, priority, candidates, router } = context;
    const count = candidates.length;
    if (this.#scores.length < count) this.#scores = new Float64Array(2 * count);
    this.#memory.ask(context);
    for (const entry of this.#scorers.values()) entry.asked = false;
    let index = 0;
    for (let i = 0; i < count; i++) {
      const instance = candidates[i];
      const memory = (name: MemoryName): number => this.#memory.of(name, i);
      const { action, value } = this.#tree.walk({
        request: { request, priority, router },
        cluster: { router, instances: candidates },
        instance: { instance, context, memory },
      });
      this.#scores[i] = action === 'score' ? (value ?? 0) : this.#scored(action, i, context) * (value ?? 1);
      if (this.#scores[i] > this.#scores[index]) index = i;
    }
    return { index, reason: NAME, scores: this.#scores, parts: [], filteredOut: [] };
  }

  #scored(action: string, candidate: number, context: RoutingContext): number {
    const rule = this.#rules.get(action);
    if (rule !== undefined) return rule(context.candidates[candidate], context.request);
    const entry = this.#scorers.get(action);
    if (entry === undefined) return 0;
    if (!entry.asked) {
      const count = context.candidates.length;
      if (entry.values.length < count) entry.values = new Float64Array(2 * count);
      entry.scorer.score(context, entry.values);
      entry.asked = true;
    }
    return entry.values[candidate];
  }

  routed(context: RoutingContext, instance: number): void {
    this.#memory.routed(context, instance);
    for (const { scorer } of this.#scorers.values()) scorer.routed?.(context, instance);
  }

  removed(instance: number): void {
    this.#memory.removed(instance);
    for (const { scorer } of this.#scorers.values()) scorer.removed?.(instance);
  }

  visitState(visitor: StateVisitor): void {
    this.#memory.visitState(visitor);
    for (const { scorer } of this.#scorers.values()) scorer.visitState(visitor);
  }
}

export class TreeScaling extends StatelessPolicy implements AutoScalePolicy {
  readonly name: string = NAME;
  readonly #tree: DecisionTree;

  constructor(root: TreeNode) {
    super();
    this.#tree = new DecisionTree('autoScale', root);
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    const { action, value = 1 } = this.#tree.walk({ deployment: context });
    const { currentReplicas } = context;
    const wishes: Readonly<Record<string, number>> = {
      keep: currentReplicas,
      up: currentReplicas + value,
      down: currentReplicas - value,
      target: value,
    };
    return scaleTo(context, wishes[action], NAME);
  }
}

// A decision tree with its features and thresholds resolved. A walk allocates nothing.

/** Facts by group of features. The slot defines the facts of each group. */
type TreeFacts = Readonly<Record<string, unknown>>;

type TreeWalk = (facts: TreeFacts) => TreeLeaf;

function holds(comparison: TreeComparison, a: number, b: number): boolean {
  switch (comparison) {
    case '<':
      return a < b;
    case '<=':
      return a <= b;
    case '>':
      return a > b;
    case '>=':
      return a >= b;
    case '==':
      return a === b;
    case '!=':
      return a !== b;
  }
}

export class DecisionTree {
  /** Compared features, as `group.name`, and actions of leaves. */
  readonly features: readonly string[];
  readonly actions: readonly string[];
  readonly walk: TreeWalk;

  /** @param root as `readTree` returns it */
  constructor(slot: PolicySlot, root: TreeNode) {
    const features = new Set<string>();
    const actions = new Set<string>();
    const compile = (node: TreeNode): TreeWalk => {
      if (!('condition' in node)) {
        actions.add(node.action);
        return () => node;
      }
      const { feature: name, comparison, value } = node.condition;
      features.add(name);
      const [group, field] = name.split('.');
      // the features of a group read the facts of that group
      const feature = slotContracts[slot].groups[group][field] as Feature<unknown>;
      const whenTrue = compile(node.trueChild);
      const whenFalse = compile(node.falseChild);
      return (facts) =>
        holds(comparison, Number(feature.read(facts[group])), value) ? whenTrue(facts) : whenFalse(facts);
    };
    this.walk = compile(root);
    this.features = [...features];
    this.actions = [...actions];
  }

  /** Names of the compared features of one group. */
  ofGroup(group: string): string[] {
    return this.features
      .filter((name) => name.startsWith(`${group}.`))
      .map((name) => name.slice(group.length + 1));
  }
}
