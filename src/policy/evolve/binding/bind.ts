/**
 * From a bundle to the parts of a simulation: policies by name for the configuration of the control plane, makers of
 * programs and trees, and policies of engines and of the autoscaler.
 */

import type { EvictionChoice } from '../../../runtime/eviction/evictionPolicy.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import type { StateVisitor } from '../../../runtime/snapshot.ts';
import type { BoundPolicies } from '../../../sim/build/built.ts';
import type { AdmissionPolicy } from '../../../sim/control/admission.ts';
import type {
  AdmissionDecision,
  PolicyChoice,
  PolicyWorld,
  RequestOutcome,
  RequestView,
} from '../../../sim/control/policy.ts';
import type { PriorityPolicy } from '../../../sim/control/priority.ts';
import type { RoutingPolicy } from '../../../sim/control/routing/routingPolicy.ts';
import type { AutoScalePolicy } from '../../../sim/control/scaling/autoScalePolicy.ts';
import { loadProgram } from '../../sandbox/loadProgram.ts';
import { PolicyError } from '../../sandbox/program.ts';
import {
  type ParameterizedPolicy,
  type PolicyBundle,
  type PolicySlot,
  policySlots,
  type TreeNode,
} from '../bundle/policyBundle.ts';
import { policyId } from '../bundle/presets.ts';
import { CodeAdmission, CodePriority, CodeRouting, CodeScaling, type LoadedCode } from './codePolicies.ts';
import { engineWith, schedulingOf } from './scheduling.ts';
import { TreeAdmission, TreePriority, TreeRouting, TreeScaling } from './treePolicies.ts';

function choiceOf({ template, parameters }: ParameterizedPolicy): PolicyChoice {
  return { ...parameters, policy: template };
}

/**
 * Reads the programs of a bundle and binds all policies. Programs run only their top level, so a program without its
 * function fails here.
 * @param bundle as `readBundle` returns it
 * @param isChecked whether the bundle was bound before, so that its programs have their functions
 * @throws PolicyError compile, contract, step_limit, memory_limit, policy_runtime, with the slot
 */
export async function bindBundle(bundle: PolicyBundle, isChecked = false): Promise<BoundPolicies> {
  checkInputs({ bundle, isChecked }, { bundle: is.object(), isChecked: is.optional(is.flag()) });
  const code: Partial<Record<PolicySlot, LoadedCode>> = {};
  for (const slot of policySlots) {
    const spec = bundle[slot];
    if (spec?.type !== 'code') continue;
    code[slot] = { code: spec, program: await inSlot(slot, () => loadProgram(spec.language, spec.source)) };
  }
  const { admission, priority, routing, instanceScheduler, autoScale, eviction } = bundle;
  const named = (slot: 'admission' | 'priority' | 'routing'): Partial<BoundPolicies['control']> => {
    const spec = bundle[slot];
    return spec?.type === 'parameterized' ? { [slot]: choiceOf(spec) } : {};
  };
  const makeAdmission = maker<AdmissionPolicy>(admission, code.admission, CodeAdmission, TreeAdmission);
  const makePriority = maker<PriorityPolicy>(priority, code.priority, CodePriority, TreePriority);
  const makeRouting = maker<RoutingPolicy>(routing, code.routing, CodeRouting, TreeRouting);
  const makeScaling = maker<AutoScalePolicy>(autoScale, code.autoScale, CodeScaling, TreeScaling);
  const scheduling = await inSlot('instanceScheduler', async () =>
    schedulingOf(instanceScheduler, code.instanceScheduler),
  );
  const bound: BoundPolicies = {
    policyId: policyId(bundle),
    control: { ...named('admission'), ...named('priority'), ...named('routing') },
    policies: {
      ...(makeAdmission && { admission: (world: PolicyWorld) => new BoundedDelays(makeAdmission(world)) }),
      ...(makePriority && { priority: makePriority }),
      ...(makeRouting && { routing: makeRouting }),
    },
    scheduler: scheduling.config,
    // templates of this slot are the eviction policies of the manager, whose parameters are plain
    eviction: eviction?.type === 'parameterized' ? (choiceOf(eviction) as EvictionChoice) : undefined,
    scaling: autoScale?.type === 'parameterized' ? choiceOf(autoScale) : makeScaling,
    makeEngine: scheduling.makePolicy && engineWith(scheduling.makePolicy),
  };
  if (!isChecked) await check(code);
  return bound;
}

type Constructor<P, A> = new (from: A, world: PolicyWorld) => P;

function maker<P>(
  spec: PolicyBundle[PolicySlot],
  code: LoadedCode | undefined,
  Code: Constructor<P, LoadedCode>,
  Tree: Constructor<P, TreeNode>,
): ((world: PolicyWorld) => P) | undefined {
  if (code !== undefined) return (world) => new Code(code, world);
  if (spec?.type === 'decisionTree') return (world) => new Tree(spec.root, world);
  return undefined;
}

/** Instantiates every program once, so that a program without its function fails before a simulation begins. */
async function check(code: Partial<Record<PolicySlot, LoadedCode>>): Promise<void> {
  const makers: Partial<Record<PolicySlot, (loaded: LoadedCode) => unknown>> = {
    admission: (loaded) => new CodeAdmission(loaded),
    priority: (loaded) => new CodePriority(loaded),
    routing: (loaded) => new CodeRouting(loaded),
    autoScale: (loaded) => new CodeScaling(loaded),
  };
  for (const slot of policySlots) {
    const loaded = code[slot];
    if (loaded !== undefined) await inSlot(slot, async () => makers[slot]?.(loaded));
  }
}

/** Errors of a program name its slot. */
async function inSlot<T>(slot: PolicySlot, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof PolicyError) || error.path !== undefined) throw error;
    throw new PolicyError(error.kind, error.problem, {
      path: slot,
      ...(error.line === undefined ? {} : { line: error.line }),
      cause: error,
    });
  }
}

// An admission policy that delays requests for ever would keep a simulation from its end. Too many delays are an error
// of the policy, so that the result does not depend on the time limit of a machine.

/** Most delays for each decided request, on average. */
const DELAYS_A_REQUEST = 1000;

class BoundedDelays implements AdmissionPolicy {
  readonly name: string;
  readonly completed?: (outcome: RequestOutcome) => void;
  readonly ended?: (request: RequestView, nowUs: number) => void;
  readonly #policy: AdmissionPolicy;
  #decided = 0;
  #delayed = 0;
  /** Rows of delayed requests that wait for another decision. */
  #waiting = new Set<number>();

  constructor(policy: AdmissionPolicy) {
    this.#policy = policy;
    this.name = policy.name;
    if (policy.completed !== undefined) this.completed = (outcome) => policy.completed?.(outcome);
    if (policy.ended !== undefined) this.ended = (request, nowUs) => policy.ended?.(request, nowUs);
  }

  /** @throws PolicyError invalid_decision */
  decide(...asked: Parameters<AdmissionPolicy['decide']>): AdmissionDecision {
    const [{ number, id }, , { nowUs }] = asked;
    const decision = this.#policy.decide(...asked);
    if (decision.verdict !== 'delay') {
      if (!this.#waiting.delete(number)) this.#decided++;
      return decision;
    }
    if (!this.#waiting.has(number)) {
      this.#waiting.add(number);
      this.#decided++;
    }
    if (++this.#delayed <= DELAYS_A_REQUEST * this.#decided) return decision;
    throw new PolicyError(
      'invalid_decision',
      `${this.#delayed} delays for ${this.#decided} requests, the last by ${decision.durationUs} µs. ` +
        'Delay for longer, and admit or reject once request.waitedUs is large',
      { path: 'admission', requestId: id, simTimeUs: nowUs },
    );
  }

  visitState(visitor: StateVisitor): void {
    this.#policy.visitState(visitor);
    this.#decided = visitor.number(this.#decided);
    this.#delayed = visitor.number(this.#delayed);
    visitor.value(
      () => [...this.#waiting],
      (saved) => {
        this.#waiting = new Set(saved);
      },
    );
  }
}
