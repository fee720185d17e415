/** One case of a suite with one bundle: a simulation, and its raw metrics. */

import { type BoundBundle, bindBundle } from '../../../evolve/binding/index.ts';
import { type PolicyBundle, policyId } from '../../../evolve/bundle/index.ts';
import { type RawMetrics, RunWatch, rawMetrics, type SuiteCase } from '../../../evolve/fitness/index.ts';
import {
  type ForcedDecisions,
  observers,
  type Simulation,
  type SimulationObserver,
} from '../../../sim/cluster/index.ts';
import type { TargetsByClass } from '../../../sim/report/index.ts';
import { buildSimulation } from '../../simulate/build.ts';
import type { BuiltSimulation } from '../../simulate/built.ts';
import type { Options } from '../../simulate/input/options.ts';
import { goodputTargets } from '../../simulate/input/targets.ts';
import { simulateArguments } from '../../sweep/point.ts';
import { drawFactors, perturbed } from './perturb.ts';

/** Binds bundles, and keeps the last one: a bundle runs through all cases of a suite. */
export class Binder {
  #last: { readonly id: string; readonly bound: BoundBundle } | undefined;

  async bind(bundle: PolicyBundle): Promise<BoundBundle> {
    const id = policyId(bundle);
    if (this.#last?.id !== id) this.#last = { id, bound: await bindBundle(bundle) };
    return this.#last.bound;
  }
}

export interface RunCase {
  readonly metrics: RawMetrics;
  readonly built: BuiltSimulation;
  readonly targets: TargetsByClass;
}

/** Makes the simulation of a case, as often as it is asked. */
export function caseBuilder(
  bound: BoundBundle,
  { args, seed, perturbation }: SuiteCase,
): {
  readonly options: Options;
  build(observer: SimulationObserver, forced?: ForcedDecisions): BuiltSimulation;
} {
  const { workload, options } = simulateArguments([...args, '--seed', String(seed)]);
  const factors = drawFactors(BigInt(seed), perturbation);
  return {
    options,
    // policies of a bundle may look at blocks, so keys are made from the first
    build: (observer, forced) =>
      buildSimulation(workload, options, {
        bundle: bound,
        observer,
        skipsKeys: false,
        ...(forced === undefined ? {} : { forced }),
        ...(perturbation === 0 ? {} : { adjust: (spec) => perturbed(spec, factors) }),
      }),
  };
}

/**
 * @param watchers observers of the run
 * @param begun told of the simulation before its first event
 * @throws PolicyError of the bundle's programs, TierKVError for arguments at fault
 */
export function runCase(
  bound: BoundBundle,
  suiteCase: SuiteCase,
  watchers: readonly SimulationObserver[] = [],
  begun: (simulation: Simulation) => void = () => {},
): RunCase {
  const { build } = caseBuilder(bound, suiteCase);
  const running: { simulation: Simulation | null } = { simulation: null };
  const watch = new RunWatch(() => running.simulation?.instances.map(({ engine }) => engine.tiers()) ?? []);
  const built = build(observers([watch, ...watchers]));
  const { simulation } = built;
  running.simulation = simulation;
  const byConfig = new Map<string, number>();
  for (const { configId } of simulation.instances) byConfig.set(configId, (byConfig.get(configId) ?? 0) + 1);
  watch.begin(simulation.instances.length, byConfig);
  begun(simulation);
  simulation.run();
  simulation.close();
  const targets = goodputTargets(built.options, built.opened.spec);
  return { metrics: rawMetrics(simulation, watch, targets), built, targets };
}
