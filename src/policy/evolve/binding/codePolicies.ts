/** Programs as the stages of a control plane and as an autoscaling policy. */

import type { Stateful, StateVisitor } from '../../../runtime/snapshot.ts';
import type { AdmissionPolicy } from '../../../sim/control/admission.ts';
import {
  ADMIT,
  type AdmissionDecision,
  type ClusterState,
  type RequestOutcome,
  type RequestPriority,
  type RequestView,
  visitProgram,
} from '../../../sim/control/policy.ts';
import { type PriorityPolicy, SloPriorities } from '../../../sim/control/priority.ts';
import type { RouterState } from '../../../sim/control/routerState.ts';
import type {
  RoutingChoice,
  RoutingContext,
  RoutingPolicy,
} from '../../../sim/control/routing/routingPolicy.ts';
import type {
  AutoScaleContext,
  AutoScalePolicy,
  ScaleDecision,
} from '../../../sim/control/scaling/autoScalePolicy.ts';
import {
  type InputKind,
  type InputShape,
  type InputTable,
  PolicyError,
  type PolicyFunction,
  type PolicyInstance,
  type PolicyProgram,
} from '../../sandbox/program.ts';
import type { CodePolicy, PolicySlot } from '../bundle/policyBundle.ts';
import { observerFunction, type SlotFunction, slotContracts } from '../bundle/slots.ts';
import { clusterFeatures, routerFeatures } from '../features/cluster.ts';
import { anyIsReported, type Feature, type FeatureTable } from '../features/feature.ts';
import { cacheFeatures, type InstanceFacts, instanceFeatures, memoryOf } from '../features/instance.ts';
import { outcomeFeatures, type RequestFacts, requestFeatures } from '../features/request.ts';
import { scalingFeatures } from '../features/scaling.ts';
import { delayBy, priorityOf, RouterMemory } from './decisions.ts';

const NAME = 'program';
/** Positions of the choices in the answer of an admission program. */
const REJECTED = 1;
const DELAYED = 2;

abstract class CodePolicyBase implements Stateful {
  readonly name: string = NAME;
  protected readonly program: SlotProgram;

  /** Present where the program defines `on_complete`. */
  readonly completed?: (outcome: RequestOutcome) => void;

  constructor(program: SlotProgram) {
    this.program = program;
    if (program.observes) this.completed = (outcome) => program.observe(outcome);
  }

  visitState(visitor: StateVisitor): void {
    this.program.visitState(visitor);
  }
}

/** Features of instances before routing: what depends on the request's prefix is 0. */
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
    this.#request = this.program.main.writer(0, requestFeatures);
    this.#cluster = this.program.main.writer(1, clusterFeatures);
    this.#instances = this.program.main.writer(2, unroutedFeatures());
  }

  decide(
    request: RequestView,
    priority: RequestPriority,
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
    const [choice, amount] = this.program.main.decide(request.id, router.nowUs);
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
    this.#request = this.program.main.writer(0, requestFeatures);
    this.#router = this.program.main.writer(1, routerFeatures);
  }

  prioritise(request: RequestView, router: RouterState): RequestPriority {
    this.#request.write(0, { request, priority: null, router });
    this.#router.write(0, { router });
    const [score] = this.program.main.decide(request.id, router.nowUs);
    return priorityOf(request, score, this.#classes);
  }
}

export class CodeRouting implements RoutingPolicy {
  readonly name: string = NAME;
  readonly readsCaches: boolean;
  readonly readsReports: boolean;
  /** Present where the program defines `on_complete`. */
  readonly completed?: (outcome: RequestOutcome) => void;
  readonly #program: SlotProgram;
  readonly #request: FeatureWriter<RequestFacts>;
  readonly #cluster: FeatureWriter<{ router: RouterState; instances: ClusterState['instances'] }>;
  readonly #instances: FeatureWriter<InstanceFacts>;
  readonly #memory: RouterMemory;

  constructor(code: LoadedCode) {
    const program = new SlotProgram('routing', code);
    this.#program = program;
    if (program.observes) this.completed = (outcome) => program.observe(outcome);
    this.#request = this.#program.main.writer(0, requestFeatures);
    this.#cluster = this.#program.main.writer(1, clusterFeatures);
    this.#instances = this.#program.main.writer(2, instanceFeatures);
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
    const decision = this.#program.main.decide(request.id, router.nowUs);
    const common = { reason: NAME, parts: [], filteredOut: [] };
    if (this.#program.main.function.decision.kind === 'index') {
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

  visitState(visitor: StateVisitor): void {
    this.#program.visitState(visitor);
    this.#memory.visitState(visitor);
  }
}

export class CodeScaling extends CodePolicyBase implements AutoScalePolicy {
  readonly #deployment: FeatureWriter<AutoScaleContext>;

  constructor(code: LoadedCode) {
    super(new SlotProgram('autoScale', code));
    this.#deployment = this.program.main.writer(0, scalingFeatures);
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    this.#deployment.write(0, context);
    const [wish] = this.program.main.decide('', context.nowUs);
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

// A program in a slot: its function, bound to the signature of the slot, with inputs filled from the features that the
// program reads.

/** A code policy with its compiled program. */
export interface LoadedCode {
  readonly code: CodePolicy;
  readonly program: PolicyProgram;
}

/** The shape of one input, as the sandbox wants it. */
function shapeOf({ name, features, isList }: SlotFunction['arguments'][number]): InputShape {
  const fields: Record<string, InputKind> = {};
  for (const [field, { kind }] of Object.entries(features)) fields[field] = kind;
  return { name, kind: isList ? 'records' : 'record', fields };
}

interface Wanted<Facts> {
  readonly place: number;
  readonly feature: Feature<Facts>;
}

/** Fills one input of a call. */
class FeatureWriter<Facts> {
  readonly names: readonly string[];
  readonly #table: InputTable;
  readonly #wanted: readonly Wanted<Facts>[];

  constructor(table: InputTable, features: FeatureTable<Facts>, wants: (name: string) => boolean) {
    this.#table = table;
    this.names = Object.keys(features).filter(wants);
    this.#wanted = this.names.map((name) => ({ place: table.field(name), feature: features[name] }));
  }

  rows(count: number): void {
    this.#table.resize(count);
  }

  write(row: number, facts: Facts): void {
    const table = this.#table;
    const start = row * table.width;
    for (const { place, feature } of this.#wanted) {
      const value = feature.read(facts);
      if (typeof value === 'string') table.texts[start + place] = value;
      else table.values[start + place] = Number(value);
    }
  }
}

/** One function of a program, bound. */
export class SlotCall {
  readonly function: SlotFunction;
  readonly #bound: PolicyFunction;
  readonly #run: (bound: PolicyFunction, requestId: string, nowUs: number) => Float64Array;

  constructor(
    slotFunction: SlotFunction,
    instance: PolicyInstance,
    run: (bound: PolicyFunction, requestId: string, nowUs: number) => Float64Array,
  ) {
    this.function = slotFunction;
    const { name, arguments: inputs, decision } = slotFunction;
    this.#bound = instance.bind({ name, inputs: inputs.map(shapeOf), decision });
    this.#run = run;
  }

  /** The writer of the argument number `place`. */
  writer<Facts>(place: number, features: FeatureTable<Facts>): FeatureWriter<Facts> {
    const { name: input } = this.function.arguments[place];
    const table = this.#bound.inputs[place];
    return new FeatureWriter(table, features, (name) => this.#bound.reads(input, name));
  }

  /**
   * Runs the function on the written inputs.
   * @throws PolicyError with the request and the simulated time
   */
  decide(requestId: string, nowUs: number): Float64Array {
    return this.#run(this.#bound, requestId, nowUs);
  }
}

export class SlotProgram implements Stateful {
  readonly #slot: PolicySlot;
  readonly #instance: PolicyInstance;
  /** The program's functions by their names in the slot. */
  readonly #calls: ReadonlyMap<string, SlotCall>;
  /** The function that decides; of a slot with several, the first that the program has. */
  readonly main: SlotCall;
  readonly #observer: {
    readonly bound: PolicyFunction;
    readonly writer: FeatureWriter<RequestOutcome>;
  } | null;

  /** @throws PolicyError contract, and what loading the program may throw */
  constructor(slot: PolicySlot, { code, program }: LoadedCode) {
    this.#slot = slot;
    this.#instance = program.instantiate();
    this.#calls = new Map(
      functionsOf(slot, code, this.#instance).map(([name, each]) => [
        name,
        new SlotCall(each, this.#instance, (...call) => this.#call(...call)),
      ]),
    );
    [this.main] = this.#calls.values();
    this.#observer = this.#bindObserver();
  }

  /** Whether the program defines `on_complete`. */
  get observes(): boolean {
    return this.#observer !== null;
  }

  /** Passes an outcome to `on_complete`, where the program defines it. @throws PolicyError as `decide` does */
  observe(outcome: RequestOutcome): void {
    if (this.#observer === null) return;
    const { bound, writer } = this.#observer;
    writer.write(0, outcome);
    this.#call(bound, outcome.request.id, outcome.nowUs);
  }

  #bindObserver(): { readonly bound: PolicyFunction; readonly writer: FeatureWriter<RequestOutcome> } | null {
    const { name, arguments: inputs } = observerFunction;
    if (!this.#instance.has(name)) return null;
    const [input] = inputs;
    const bound = this.#instance.bind({ name, inputs: [shapeOf(input)], decision: { kind: 'none' } });
    const wants = (field: string): boolean => bound.reads(input.name, field);
    return { bound, writer: new FeatureWriter(bound.inputs[0], outcomeFeatures, wants) };
  }

  /** The function with that name in the slot; undefined where the program lacks it. */
  call(name: string): SlotCall | undefined {
    return this.#calls.get(name);
  }

  #call(bound: PolicyFunction, requestId: string, nowUs: number): Float64Array {
    try {
      return bound.call();
    } catch (error) {
      if (!(error instanceof PolicyError) || error.path !== undefined) throw error;
      throw new PolicyError(error.kind, error.problem, {
        path: this.#slot,
        ...(error.line === undefined ? {} : { line: error.line }),
        ...(requestId === '' ? {} : { requestId }),
        simTimeUs: nowUs,
        cause: error,
      });
    }
  }

  visitState(visitor: StateVisitor): void {
    visitProgram(visitor, this.#instance);
  }
}

/** The program's functions by their names in the slot. An `entrypoint` gives the program's own name of the function. */
function functionsOf(
  slot: PolicySlot,
  { entrypoint }: CodePolicy,
  instance: PolicyInstance,
): (readonly [name: string, function_: SlotFunction])[] {
  const { functions, takesSeveral } = slotContracts[slot];
  if (entrypoint !== undefined) {
    const named = functions.find(({ name }) => name === entrypoint) ?? functions[0];
    return [[named.name, { ...named, name: entrypoint }]];
  }
  const found = functions.filter(({ name }) => instance.has(name));
  if (found.length > 1 && takesSeveral !== true) {
    const names = found.map(({ name }) => name).join(' and ');
    throw new PolicyError('contract', `the program has ${names}, and only one may decide. Keep one`);
  }
  if (found.length > 0) return found.map((each) => [each.name, each]);
  const calls = functions.map(
    ({ name, arguments: inputs }) => `${name}(${inputs.map((input) => input.name).join(', ')})`,
  );
  throw new PolicyError('contract', `the program has no function ${calls.join(' or ')}. Define it`);
}
