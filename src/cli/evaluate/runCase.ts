/** One case of a suite with one bundle: a simulation, and its raw metrics. */

import { type BoundBundle, bindBundle } from '../../evolve/binding/index.ts';
import { type PolicyBundle, policyId } from '../../evolve/bundle/index.ts';
import { type RawMetrics, RunWatch, rawMetrics, type SuiteCase } from '../../evolve/fitness/index.ts';
import { observers, type SimulationObserver } from '../../sim/cluster/index.ts';
import { buildSimulation, runToEnd } from '../simulate/build.ts';
import type { BuiltSimulation } from '../simulate/built.ts';
import { goodputTargets } from '../simulate/input/targets.ts';
import { simulateArguments } from '../sweep/point.ts';
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
}

/**
 * @param watch observers of the run, made anew should it have to start again
 * @throws PolicyError of the bundle's programs, TierKVError for arguments at fault
 */
export function runCase(
  bound: BoundBundle,
  { args, seed, perturbation }: SuiteCase,
  watch: () => readonly SimulationObserver[] = () => [],
): RunCase {
  const { workload, options } = simulateArguments([...args, '--seed', String(seed)]);
  const factors = drawFactors(BigInt(seed), perturbation);
  let counting: RunWatch | undefined;
  const built = runToEnd((skipsKeys) => {
    let simulation: BuiltSimulation['simulation'] | undefined;
    const replicas = Number(options.numInstances);
    const runWatch = new RunWatch(
      () => simulation?.instances.map(({ engine }) => engine.tiers()) ?? [],
      replicas,
    );
    counting = runWatch;
    const made = buildSimulation(workload, options, {
      bundle: bound,
      observer: observers([runWatch, ...watch()]),
      skipsKeys,
      ...(perturbation === 0 ? {} : { adjust: (spec) => perturbed(spec, factors) }),
    });
    simulation = made.simulation;
    return made;
  });
  const targets = goodputTargets(built.options, built.opened.spec);
  // made by the build that ran to its end
  const metrics = rawMetrics(built.simulation, counting as unknown as RunWatch, targets);
  return { metrics, built };
}
