/** The plans that tierkv brings. */

import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type PolicyBundle, type PolicySlot, policySlots } from '../evolve/bundle/policyBundle.ts';
import { baseline } from '../evolve/bundle/presets.ts';
import { readBundle } from '../evolve/bundle/readBundle.ts';
import {
  type EvaluationPlan,
  type SuiteCase,
  type SuiteName,
  suiteNames,
} from '../evolve/fitness/evaluation.ts';
import {
  isMetricName,
  metricDescriptions,
  type ObjectiveSpec,
  type Scoring,
  scalarisers,
  scoreModes,
} from '../evolve/fitness/objectives.ts';
import { inputError, readText, systemReason } from '../files/inputs.ts';
import { dataFolder } from '../packageFiles.ts';
import { maxLineValues, parseJson } from '../runtime/boundedJson.ts';
import { configError, TierKVError, unknownName } from '../runtime/errors.ts';
import { simulateArguments } from '../simulate/arguments.ts';

/** Where their workloads lie. */
export const suiteFolder: string = fileURLToPath(new URL('suites/', dataFolder()));

const machine = ['--model', 'qwen/qwen2.5-7b-instruct', '--hardware', 'H100', '--tp', '1'];
const cluster = ['--num-instances', '4', '--snapshot-refresh-interval', '5000000'];

const latency: ObjectiveSpec = { name: 'latency', metric: 'latency_ms', direction: 'min', weight: 0.6 };
const tail: ObjectiveSpec = { name: 'ttft', metric: 'ttft_p99_ms', direction: 'min', weight: 0.2 };
const attainment: ObjectiveSpec = {
  name: 'attainment',
  metric: 'slo_attainment',
  direction: 'max',
  weight: 0.2,
};

const suites: PlanSource['suites'] = {
  train: { seeds: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], perturbation: 0.2 },
  validation: { seeds: [31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42], perturbation: 0.2 },
  hidden: { seeds: [101, 102, 103, 104, 105, 106, 107, 108], perturbation: 0.2 },
};

/** Plans by name. */
export const plans: Readonly<Record<string, PlanSource>> = {
  routing: {
    workloads: ['shared-prefixes.yaml', 'heavy-tail.yaml'],
    latencyModels: ['roofline', 'calibrated'],
    args: [...machine, ...cluster, '--total-kv-blocks', '20000'],
    suites,
    scoring: {
      objectives: [latency, tail, attainment],
      scalariser: 'weighted-sum',
      mode: 'weighted',
      attainmentTarget: 0.9,
    },
    baseline,
    slots: ['routing', 'priority', 'instanceScheduler'],
  },
  admission: {
    workloads: ['overload.yaml'],
    latencyModels: ['roofline', 'calibrated'],
    args: [...machine, ...cluster, '--total-kv-blocks', '20000'],
    suites,
    scoring: {
      objectives: [
        { name: 'attainment', metric: 'class_weighted_attainment', direction: 'max', weight: 0.5 },
        { name: 'throughput', metric: 'requests_per_s', direction: 'max', weight: 0.3 },
        { name: 'fairness', metric: 'jain_index', direction: 'max', weight: 0.2 },
      ],
      scalariser: 'weighted-sum',
      mode: 'weighted',
      attainmentTarget: 0.9,
    },
    baseline,
    slots: ['admission', 'priority', 'instanceScheduler'],
  },
  scaling: {
    workloads: ['waves.yaml'],
    latencyModels: ['roofline', 'calibrated'],
    args: [
      ...machine,
      ...['--num-instances', '2', '--snapshot-refresh-interval', '1000000', '--total-kv-blocks', '20000'],
      ...['--policy-config', path.join(suiteFolder, 'scaling.yaml')],
    ],
    suites,
    scoring: {
      objectives: [
        { name: 'attainment', metric: 'slo_attainment', direction: 'max', weight: 0.5 },
        { name: 'replicas', metric: 'mean_replicas', direction: 'min', weight: 0.3 },
        { ...tail, weight: 0.2 },
      ],
      scalariser: 'weighted-sum',
      mode: 'weighted',
      attainmentTarget: 0.9,
    },
    baseline,
    slots: ['autoScale'],
  },
};

//  From a plan's name or file to its cases: the arguments of `tierkv simulate` that they come to.

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
  // a deployment file says its models of time itself
  const isDeployed = args.includes('--deployment');
  return workloads.flatMap((workload) =>
    (isDeployed ? [DEPLOYED] : latencyModels).flatMap((model) =>
      suite.seeds.map((seed) => ({
        id: `${path.basename(workload).replace(/\.ya?ml$/, '')}/${model}/${seed}`,
        args: [
          ...args,
          ...workloadArgs(path.resolve(folder, workload)),
          ...(isDeployed ? [] : ['--latency-model', model]),
        ],
        seed,
        perturbation: suite.perturbation,
      })),
    ),
  );
}

/** Name of the model of time of a case, where a deployment file has its own. */
const DEPLOYED = 'deployment';

/** A specification, or a recorded trace, which is served as it arrived. */
function workloadArgs(file: string): readonly string[] {
  return /\.ya?ml$/.test(file) ? ['--workload-spec', file] : [file];
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

//  A plan of one's own: a JSON file.

type PlanFields = Readonly<Record<string, unknown>>;

function object(field: string, value: unknown, known: readonly string[]): PlanFields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw configError(field, 'is no object', `Give it ${known.join(', ')}.`);
  }
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw unknownName(`${field}.${key}`, key, known);
  }
  return value as PlanFields;
}

function list<T>(field: string, value: unknown, is: (each: unknown) => each is T, what: string): T[] {
  if (Array.isArray(value) && value.length > 0 && value.every(is)) return value;
  const problem = value === undefined ? 'is missing' : `is ${JSON.stringify(value)}`;
  throw configError(field, problem, `Give it a list of ${what}.`);
}

const isText = (value: unknown): value is string => typeof value === 'string';
const isSlot = (value: unknown): value is PolicySlot => policySlots.some((slot) => slot === value);
const isNumber = (value: unknown): value is number => Number.isSafeInteger(value);

/**
 * What a file leaves out is as in the plan `routing`.
 * @throws TKV_IO, TKV_INPUT, or TKV_CONFIG with the file and the field at fault
 */
export function readPlan(file: string): PlanSource {
  const text = readText(file);
  // lists of seeds may be long: their number is refused with its own words
  const json = parseJson(
    text,
    (problem) => inputError(file, `is no plan: it ${problem}`, 'Correct it there.'),
    maxLineValues,
  );
  try {
    const source = sourceOf(json);
    checkWorkloads(source.workloads, path.dirname(path.resolve(file)));
    return source;
  } catch (cause) {
    if (!(cause instanceof TierKVError)) throw cause;
    const { code, message, field } = cause;
    const at = field === undefined ? {} : { field };
    throw new TierKVError(code, `${file}: ${message}`, { ...at, path: file, cause });
  }
}

/** @param folder that their paths are seen from */
function checkWorkloads(workloads: readonly string[], folder: string): void {
  for (const [i, workload] of workloads.entries()) {
    const at = path.resolve(folder, workload);
    try {
      accessSync(at, constants.R_OK);
    } catch (cause) {
      const problem = `is ${JSON.stringify(workload)}, and ${at} cannot be read: ${systemReason(cause)}`;
      throw configError(
        `workloads[${i}]`,
        problem,
        "Give a path that can be read, as seen from the plan's folder.",
      );
    }
  }
}

function sourceOf(json: unknown): PlanSource {
  const base = plans.routing;
  const fields = object('plan', json, [
    'workloads',
    'latencyModels',
    'args',
    'suites',
    'scoring',
    'baseline',
    'slots',
  ]);
  const given = fields.suites === undefined ? {} : object('suites', fields.suites, suiteNames);
  return {
    workloads: list('workloads', fields.workloads, isText, 'paths of specifications'),
    latencyModels:
      fields.latencyModels === undefined
        ? base.latencyModels
        : list('latencyModels', fields.latencyModels, isText, 'models of time'),
    args: fields.args === undefined ? base.args : list('args', fields.args, isText, 'arguments of simulate'),
    suites: {
      train: suiteSource('train', given.train, base),
      validation: suiteSource('validation', given.validation, base),
      hidden: suiteSource('hidden', given.hidden, base),
    },
    scoring: fields.scoring === undefined ? base.scoring : readScoring(fields.scoring, base.scoring),
    baseline: fields.baseline === undefined ? base.baseline : readBundle(fields.baseline),
    slots:
      fields.slots === undefined ? base.slots : list('slots', fields.slots, isSlot, policySlots.join(', ')),
  };
}

function suiteSource(name: SuiteName, value: unknown, base: PlanSource): SuiteSource {
  if (value === undefined) return base.suites[name];
  const { seeds, perturbation = 0 } = object(`suites.${name}`, value, ['seeds', 'perturbation']);
  if (typeof perturbation !== 'number' || !(perturbation >= 0 && perturbation <= 0.9)) {
    throw configError(
      `suites.${name}.perturbation`,
      `is ${String(perturbation)}`,
      'Give a share from 0 to 0.9.',
    );
  }
  return { seeds: list(`suites.${name}.seeds`, seeds, isNumber, 'integers'), perturbation };
}

function readScoring(value: unknown, base: Scoring): Scoring {
  const known = ['objectives', 'scalariser', 'mode', 'attainmentTarget'];
  const { objectives, scalariser, mode, attainmentTarget } = object('scoring', value, known);
  const one = <T extends string>(field: string, given: unknown, names: readonly T[], otherwise: T): T => {
    if (given === undefined) return otherwise;
    const found = names.find((name) => name === given);
    if (found === undefined) throw unknownName(field, String(given), names);
    return found;
  };
  if (attainmentTarget !== undefined && !(Number(attainmentTarget) >= 0 && Number(attainmentTarget) <= 1)) {
    throw configError(
      'scoring.attainmentTarget',
      `is ${String(attainmentTarget)}`,
      'Give a share from 0 to 1.',
    );
  }
  return {
    objectives: objectives === undefined ? base.objectives : readObjectives(objectives),
    scalariser: one('scoring.scalariser', scalariser, scalarisers, base.scalariser),
    mode: one('scoring.mode', mode, scoreModes, base.mode),
    attainmentTarget: attainmentTarget === undefined ? base.attainmentTarget : Number(attainmentTarget),
  };
}

function readObjectives(value: unknown): ObjectiveSpec[] {
  if (!Array.isArray(value) || value.length === 0) {
    throw configError(
      'scoring.objectives',
      'is no list',
      'Give it objectives with name, metric, direction, weight.',
    );
  }
  return value.map((each, i) => {
    const field = `scoring.objectives[${i}]`;
    const {
      name,
      metric,
      direction,
      weight = 1,
    } = object(field, each, ['name', 'metric', 'direction', 'weight']);
    if (!isText(metric)) throw configError(`${field}.metric`, 'is no text', 'Name a raw metric.');
    if (!isMetricName(metric)) {
      throw unknownName(
        `${field}.metric`,
        metric,
        metricDescriptions.map((known) => known.name),
      );
    }
    if (direction !== 'min' && direction !== 'max')
      throw unknownName(`${field}.direction`, String(direction), ['min', 'max']);
    if (!(Number(weight) > 0))
      throw configError(`${field}.weight`, `is ${String(weight)}`, 'Give a number above 0.');
    return { name: isText(name) ? name : metric, metric, direction, weight: Number(weight) };
  });
}

//  Whether the simulations of a plan can have another number of instances than they begin with.

/** Arguments of `tierkv simulate` with which instances may come and go. */
const scalingArguments = ['--deployment', '--policy-config', '--model-autoscaler-interval-us'];

export function planScales({ suites }: EvaluationPlan): boolean {
  return suites.train[0].args.some((arg) => scalingArguments.includes(arg.split('=')[0]));
}

/** @throws TKV_CONFIG for a bundle that would scale, and cannot */
export function refuseIdleScaling({ autoScale }: PolicyBundle, plan: EvaluationPlan): void {
  if (autoScale === undefined || planScales(plan)) return;
  if (autoScale.type === 'parameterized' && autoScale.template === 'none') return;
  const remedy = 'Leave the slot out, or take --plan scaling.';
  throw configError('autoScale', 'decides nothing where the plan scales no instances', remedy);
}

//  What an evaluation plan is written as: workloads, models of time and seeds, before they are cases.

/** What a suite is made of: every workload with every model of time and seed. */
export interface SuiteSource {
  readonly seeds: readonly number[];
  readonly perturbation: number;
}

export interface PlanSource {
  /** Paths of specifications, seen from `folder`. */
  readonly workloads: readonly string[];
  readonly latencyModels: readonly string[];
  /** More arguments of `tierkv simulate`, for all cases. */
  readonly args: readonly string[];
  readonly suites: Readonly<Record<SuiteName, SuiteSource>>;
  readonly scoring: Scoring;
  readonly baseline: PolicyBundle;
  /** Slots that a search changes unless it is told of others. */
  readonly slots: readonly PolicySlot[];
}
