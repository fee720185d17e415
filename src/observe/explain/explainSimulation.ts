/**
 * Explains requests of a simulation: it runs to its end while the memory of each instance is watched. Tenants share their
 * prefixes there, as upstream has it, and instances do not: a prefix that only another instance has is a cause of its own.
 */

import { BlockHistory, type HistoryBounds, type RememberedRequest } from '../../embed/blockHistory.ts';
import { type CacheExplanation, explainRequest, type Twin } from '../../embed/explanation.ts';
import { nearestName } from '../../runtime/errors.ts';
import { TierKVError, tierName } from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { buildPlanned } from '../../sim/build/build.ts';
import { planSimulation, type SimulationPlan } from '../../sim/build/plan.ts';
import type { SimulationObserver } from '../../sim/cluster/parts.ts';
import type { MakeEngine } from '../../sim/description/deployment.ts';
import type { DeploymentSpec } from '../../sim/description/knobs.ts';
import { fromFields } from '../../sim/description/readers.ts';
import type { Instance } from '../../sim/instance/instance.ts';
import { SchedulerEngine } from '../../sim/instance/schedulerEngine.ts';
import { RequestNames } from './logExplainer.ts';

/** Bounds of one instance's history. */
const instanceBounds: HistoryBounds = { blocks: 1_048_576, requestBlocks: 2_097_152 };

/** The explanation of a simulated request on one instance that served it. */
export interface InstanceExplanation extends CacheExplanation {
  readonly instance: string;
}

interface WatchedInstance {
  readonly history: BlockHistory;
  readonly names: RequestNames;
  id: string;
  model: string;
}

/**
 * Runs a simulation, and remembers why its requests found what they found.
 * @throws {TierKVError} TKV_CONFIG with the field at fault
 */
export function explainSimulation(spec: DeploymentSpec): SimulationExplainer {
  checkInputs({ spec }, { spec: is.object() });
  return explainPlanned(planSimulation(fromFields(spec)));
}

/** The same of a plan. */
export function explainPlanned(
  plan: SimulationPlan,
  progress: (requests: number, nowUs: number) => void = () => {},
): SimulationExplainer {
  checkInputs(
    { plan, progress },
    {
      plan: is.fields({ source: is.text(), admissionLatencyUs: is.number() }),
      progress: is.optional(is.func()),
    },
  );
  const explainer = new SimulationExplainer();
  const { makeEngine, observer } = explainer;
  const { simulation, fleet } = buildPlanned(plan, { skipsKeys: false, observer, makeEngine });
  simulation.run(progress);
  simulation.close();
  explainer.ended(simulation.instances, fleet.pools[0].engine.blockTokens);
  return explainer;
}

export class SimulationExplainer {
  readonly #instances: WatchedInstance[] = [];
  readonly #tenants: Map<string, string> = new Map();
  #blockTokens = 0;

  /** Makes the engines of the simulation, and remembers what becomes of their blocks. */
  readonly makeEngine: MakeEngine = ({ engine: config }, timeline, woken, share) => {
    const names = new RequestNames((sequence, id) => {
      const request = history?.request(sequence);
      if (request !== undefined) request.id = id;
    });
    let history: BlockHistory | undefined;
    const engine = new SchedulerEngine(config, timeline, woken, names, share);
    history = new BlockHistory(engine.manager, instanceBounds);
    this.#instances.push({ history, names, id: '', model: '' });
    return engine;
  };

  /** Watches the simulation, beside `makeEngine`. */
  readonly observer: SimulationObserver = {
    arrived: ({ id, tenantId }) => this.#tenants.set(id, tenantId),
  };

  /** The simulation has run. @param instances in the order in which their engines were made */
  ended(instances: readonly Pick<Instance, 'id' | 'model'>[], blockTokens: number): void {
    instances.forEach(({ id, model }, i) => {
      this.#instances[i].id = id;
      this.#instances[i].model = model;
    });
    this.#blockTokens = blockTokens;
  }

  /** Ids of the requests that can be explained. */
  *requests(): Generator<string> {
    for (const { history } of this.#instances) {
      for (const { id } of history.requests) if (id !== undefined) yield id;
    }
  }

  /**
   * On each instance that had the request, in the order in which they had it.
   * @throws TKV_UNKNOWN_ID for a request that no instance had
   */
  request(asked: string): InstanceExplanation[] {
    const found: InstanceExplanation[] = [];
    for (const instance of this.#instances) {
      const last = lastOf(instance.history, asked);
      if (last !== undefined) found.push(this.#explain(instance, last));
    }
    if (found.length > 0) return found.sort((a, b) => a.atUs - b.atUs);
    const ids = [...this.requests()].slice(0, 10_000);
    const nearest = nearestName(asked, ids);
    const hint = nearest === undefined ? '' : ` Did you mean '${nearest}'?`;
    throw new TierKVError(
      'TKV_UNKNOWN_ID',
      `request ${asked} came to no instance.${hint} There are ${ids.length}, such as ${ids.slice(0, 3).join(', ')}.`,
      { field: 'request' },
    );
  }

  #explain(instance: WatchedInstance, request: RememberedRequest): InstanceExplanation {
    const tenant = this.#tenants.get(request.id ?? '') ?? '';
    const twinOf = (block: number): Twin | undefined => {
      for (const other of this.#instances) {
        if (other === instance) continue;
        const facts = other.history.block(request.keys, block * 4);
        if (facts === undefined || facts.sealedUs === -1 || facts.sealedUs > request.openedUs) continue;
        const position = other.history.fastestTier(facts);
        const tier = position === -1 ? null : tierName(other.history.manager.inspect.tiers[position]);
        return other.model === instance.model
          ? { cause: 'anotherInstance', name: other.id, tier }
          : { cause: 'anotherModel', name: `${other.model} on ${other.id}`, tier };
      }
      return undefined;
    };
    const explanation = explainRequest(instance.history, request, {
      tenantOf: () => (tenant === '' ? null : tenant),
      requestOf: (sequence) => instance.names.requestOf(sequence),
      blockTokens: this.#blockTokens,
      twinOf,
    });
    return { instance: instance.id, ...explanation };
  }
}

function lastOf(history: BlockHistory, id: string): RememberedRequest | undefined {
  let found: RememberedRequest | undefined;
  for (const request of history.requests) if (request.id === id) found = request;
  return found;
}
