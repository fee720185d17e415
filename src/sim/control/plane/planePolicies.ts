/** The policies of a control plane: made from a configuration, and written down together. */

import { PartitionedRandom } from '../../random/index.ts';
import { type AdmissionPolicy, admissionPolicies } from '../admission/index.ts';
import type { ControlConfig } from '../controlPlane.ts';
import { type PrefillDecodeDecider, prefillDecodeDeciders } from '../disaggregation/index.ts';
import { type Gateway, gateways } from '../flowControl/index.ts';
import type { PlainState, PolicyWorld, Stateful } from '../policy.ts';
import { type PriorityPolicy, priorityPolicies } from '../priority/index.ts';
import type { RoutingPolicy } from '../routing/index.ts';
import { Learners } from './learners.ts';
import { routersOf } from './routers.ts';

export interface ControlWorld {
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

export class PlanePolicies implements Stateful {
  readonly admission: AdmissionPolicy;
  readonly priority: PriorityPolicy;
  readonly decider: PrefillDecodeDecider;
  readonly gateway: Gateway | null;
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

  snapshot(): PlainState {
    const { all, prefill, decode } = this.routers;
    return {
      admission: this.admission.snapshot(),
      priority: this.priority.snapshot(),
      decider: this.decider.snapshot(),
      gateway: this.gateway?.queue.snapshot() ?? null,
      routers: [all.snapshot(), prefill.snapshot(), decode.snapshot()],
      learners: this.learners.snapshot(),
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as Record<string, PlainState>;
    this.admission.restore(saved.admission);
    this.priority.restore(saved.priority);
    this.decider.restore(saved.decider);
    if (this.gateway !== null) this.gateway.queue.restore(saved.gateway);
    const [all, prefill, decode] = saved.routers as readonly PlainState[];
    this.routers.all.restore(all);
    this.routers.prefill.restore(prefill);
    this.routers.decode.restore(decode);
    this.learners.restore(saved.learners);
  }
}
