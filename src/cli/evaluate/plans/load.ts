/** From a plan's name or file to its cases: the arguments of `tierkv simulate` that they come to. */

import path from 'node:path';
import {
  type EvaluationPlan,
  type SuiteCase,
  type SuiteName,
  suiteNames,
} from '../../../evolve/fitness/index.ts';
import { configError } from '../../../runtime/errors.ts';
import { unknownName } from '../../../sim/control/index.ts';
import { simulateArguments } from '../../sweep/point.ts';
import { plans, suiteFolder } from './brought.ts';
import { readPlan } from './planFile.ts';
import type { PlanSource, SuiteSource } from './source.ts';

export const planNames: readonly string[] = Object.keys(plans);

/** What is different from the plan that was asked for. */
export interface PlanChanges {
  readonly latencyModels?: readonly string[];
  /** For all suites. */
  readonly seeds?: readonly number[];
  readonly perturbation?: number;
}

/** @param asked a name of `planNames`, or the path of a JSON file */
export function loadPlan(asked: string, changes: PlanChanges = {}): EvaluationPlan {
  if (asked.endsWith('.json')) {
    return expand(changed(readPlan(asked), changes), path.dirname(path.resolve(asked)));
  }
  if (!planNames.includes(asked)) throw unknownName('--plan', asked, planNames);
  return expand(changed(plans[asked], changes), suiteFolder);
}

function changed(source: PlanSource, { latencyModels, seeds, perturbation }: PlanChanges): PlanSource {
  const suite = (of: SuiteSource): SuiteSource => ({
    seeds: seeds ?? of.seeds,
    perturbation: perturbation ?? of.perturbation,
  });
  const { train, validation, hidden } = source.suites;
  return {
    ...source,
    latencyModels: latencyModels ?? source.latencyModels,
    suites: { train: suite(train), validation: suite(validation), hidden: suite(hidden) },
  };
}

function casesOf(
  { workloads, latencyModels, args }: PlanSource,
  suite: SuiteSource,
  folder: string,
): SuiteCase[] {
  return workloads.flatMap((workload) =>
    latencyModels.flatMap((model) =>
      suite.seeds.map((seed) => ({
        id: `${path.basename(workload).replace(/\.ya?ml$/, '')}/${model}/${seed}`,
        args: [...args, '--workload-spec', path.resolve(folder, workload), '--latency-model', model],
        seed,
        perturbation: suite.perturbation,
      })),
    ),
  );
}

/** Most cases of a suite. Each is held with its arguments, and simulated for each policy. */
const CASES_MAX = 10_000;

function refuseTooMany({ workloads, latencyModels, suites }: PlanSource): void {
  for (const name of suiteNames) {
    const { seeds } = suites[name];
    const count = workloads.length * latencyModels.length * seeds.length;
    if (count <= CASES_MAX) continue;
    const problem =
      `has ${seeds.length} seeds, which come to ${count} cases with ${workloads.length} workloads and ` +
      `${latencyModels.length} models of time`;
    throw configError(`suites.${name}.seeds`, problem, `Name fewer: a suite has ${CASES_MAX} cases at most.`);
  }
}

function expand(source: PlanSource, folder: string): EvaluationPlan {
  refuseTooMany(source);
  const cases = (name: SuiteName): SuiteCase[] => casesOf(source, source.suites[name], folder);
  checkArguments(cases('train')[0]);
  return {
    suites: { train: cases('train'), validation: cases('validation'), hidden: cases('hidden') },
    scoring: source.scoring,
    baseline: source.baseline,
    slots: source.slots,
  };
}

/** Finds arguments that `tierkv simulate` refuses before a run does. */
function checkArguments({ args }: SuiteCase): void {
  try {
    simulateArguments(args);
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^error: /, '') : String(error);
    throw configError('args', `are refused: ${why}`, 'Give arguments of tierkv simulate.');
  }
}
