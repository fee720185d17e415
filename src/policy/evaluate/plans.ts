/** Evaluation plans: those of tierkv, and plans in files. */

import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { inputError, systemReason } from '../../io/files/inputErrors.ts';
import { readText } from '../../io/files/inputs.ts';
import { dataFolder } from '../../packageFiles.ts';
import { maxLineValues, parseJson } from '../../runtime/boundedJson.ts';
import { configError, requireInteger, TierKVError, unknownName } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { type DeploymentSpec, knobs, type Path } from '../../sim/description/knobs.ts';
import { askedBy, fromFields, readWords } from '../../sim/description/readers.ts';
import { type Deployment, get, isGiven, withValue } from '../../sim/description/settings.ts';
import { type LatencyBackend, latencyBackends } from '../../sim/latency/latencyNames.ts';
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

/** Folder of their workloads. */
const suiteFolder: string = fileURLToPath(new URL('suites/', dataFolder()));

/**
 * The deployment of the plans. Each setting that affects times stands here, so that changed defaults elsewhere do not change
 * published results of searches. Reports are up to 5 s old, so the router's own knowledge has a value.
 */
const cluster: DeploymentSpec = {
  model: 'qwen/qwen2.5-7b-instruct',
  hardware: 'H100',
  tp: 1,
  latency: { floor: false },
  pools: { instances: 4 },
  control: { snapshotUs: 5_000_000 },
  engine: { kvBlocks: 20_000, preemptionMode: 'restart' },
};

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
const plans: Readonly<Record<string, PlanSource>> = {
  routing: {
    workloads: ['shared-prefixes.yaml', 'heavy-tail.yaml'],
    latencyModels: ['roofline', 'calibrated'],
    deployment: fromFields(cluster),
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
    deployment: fromFields(cluster),
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
    deployment: fromFields({
      ...cluster,
      pools: { instances: 2 },
      control: { snapshotUs: 1_000_000, policyFile: path.join(suiteFolder, 'scaling.yaml') },
    }),
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

//  From a plan's name or file to its cases: the deployments that they come to.

const planNames: readonly string[] = Object.keys(plans);

/** Changes to a plan. */
export interface PlanChanges {
  readonly latencyModels?: readonly string[];
  /** For all suites. */
  readonly seeds?: readonly number[];
  readonly perturbation?: number;
}

const planChangesTable = optionTable({
  latencyModels: is.optional(is.list(is.text())),
  seeds: is.optional(is.array()),
  perturbation: is.optional(is.fraction(), 0),
} satisfies Kinds<PlanChanges>);

/**
 * Loads an evaluation plan: one that comes with tierkv, or a JSON file.
 * @param asked a name of `planNames`, or the path of a JSON file
 */
export function loadPlan(asked: string, changes: PlanChanges = {}): EvaluationPlan {
  checkInputs({ asked }, { asked: is.text() });
  const { latencyModels = [], seeds = [] } = planChangesTable.readFlat(changes, 'changes');
  for (const name of ['latencyModels', 'seeds'] as const) {
    if (changes[name]?.length === 0) throw configError(name, 'is an empty list', 'Name one or more.');
  }
  for (const name of latencyModels) is.oneOf(latencyBackends).read(name, 'latencyModels');
  for (const seed of seeds) requireInteger('seeds', seed, 0);
  if (asked.endsWith('.json')) {
    return expand(changed(readPlan(asked), changes), path.dirname(path.resolve(asked)));
  }
  if (!planNames.includes(asked)) throw unknownName('plan', asked, planNames);
  return expand(changed(plans[asked], changes), suiteFolder);
}

function changed(source: PlanSource, { latencyModels, seeds, perturbation }: PlanChanges): PlanSource {
  const file = get(source.deployment, 'file');
  if (latencyModels !== undefined && file !== undefined) {
    const problem = `chooses models of time, and ${file} names them`;
    throw configError('latencyModels', problem, 'Leave it out, or change the file.');
  }
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
  { workloads, latencyModels, deployment }: PlanSource,
  suite: SuiteSource,
  folder: string,
): SuiteCase[] {
  return workloads.flatMap((workload) => {
    const file = path.resolve(folder, workload);
    const served = withValue(deployment, 'workload.file', file, { name: file });
    return latencyModels.flatMap((model) => {
      const timed = isGiven(deployment, 'file')
        ? served
        : withValue(served, 'latency.model', model as LatencyBackend);
      return suite.seeds.map((seed) => ({
        id: `${path.basename(workload).replace(/\.ya?ml$/, '')}/${model}/${seed}`,
        deployment: timed,
        seed,
        perturbation: suite.perturbation,
      }));
    });
  });
}

/** Most cases of a suite. Memory holds each case with its deployment, and each policy runs on each case. */
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
  return {
    suites: { train: cases('train'), validation: cases('validation'), hidden: cases('hidden') },
    scoring: source.scoring,
    baseline: source.baseline,
    slots: source.slots,
  };
}

//  A plan of one's own: a JSON file.

/** @param what its entries are, in the plural */
const listOf = <Value>(each: is.ValueKind<Value>, what: string): is.ValueKind<readonly Value[]> =>
  is.filledList(each, `Give it a list of ${what}.`);

const perturbation = is.that<number>(
  'a share from 0 to 0.9',
  (value) => typeof value === 'number' && value >= 0 && value <= 0.9,
);

const suiteTable = optionTable(
  {
    seeds: listOf(is.that<number>('an integer', Number.isSafeInteger), 'integers'),
    perturbation: is.optional(perturbation, 0),
  } satisfies Kinds<Partial<SuiteSource> & Pick<SuiteSource, 'seeds'>>,
  'TKV_CONFIG',
);

function requireMetric(metric: string, field: string): string {
  is.text().read(metric, field, 'TKV_CONFIG');
  if (isMetricName(metric)) return metric;
  const known = metricDescriptions.map(({ name }) => name);
  throw unknownName(field, metric, known);
}

const objectiveTable = optionTable(
  {
    name: is.optional(is.text()),
    metric: is.by(requireMetric),
    direction: is.oneOf<ObjectiveSpec['direction']>(['min', 'max']),
    weight: is.optional(is.positive()),
  },
  'TKV_CONFIG',
);

const planTable = optionTable(
  {
    workloads: listOf(is.text(), 'paths of specifications'),
    latencyModels: is.optional(listOf(is.oneOf(latencyBackends), 'models of time')),
    /** A description, which `fromFields` reads. */
    deployment: is.optional(is.object<object>()),
    args: is.optional(listOf(is.text(), 'arguments of simulate')),
    suites: is.optional(
      optionTable(
        {
          train: is.optional(suiteTable),
          validation: is.optional(suiteTable),
          hidden: is.optional(suiteTable),
        },
        'TKV_CONFIG',
      ),
      {},
    ),
    scoring: is.optional(
      optionTable(
        {
          objectives: is.optional(listOf(objectiveTable, 'objectives with name, metric, direction, weight')),
          scalariser: is.optional(is.oneOf(scalarisers)),
          mode: is.optional(is.oneOf(scoreModes)),
          attainmentTarget: is.optional(is.fraction()),
        },
        'TKV_CONFIG',
      ),
      {},
    ),
    /** A bundle, which `readBundle` reads. */
    baseline: is.optional(is.passed<unknown>()),
    slots: is.optional(listOf(is.oneOf(policySlots), 'slots')),
  },
  'TKV_CONFIG',
);
type PlanFields = ReturnType<typeof planTable.read>;

/**
 * Reads a plan. Fields that the file leaves out are those of the plan `routing`.
 * @throws TKV_IO, TKV_INPUT, or TKV_CONFIG with the file and the field at fault
 */
function readPlan(file: string): PlanSource {
  const text = readText(file);
  // a long list of seeds is refused later, with an error of its own
  const json = parseJson(
    text,
    (problem) => inputError(file, `must be a plan: it ${problem}`, 'Correct it there.'),
    maxLineValues,
  );
  try {
    const source = sourceOf(json, path.dirname(path.resolve(file)));
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
      const isMissing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
      const what = isMissing ? 'does not exist' : `cannot be read: ${systemReason(cause)}`;
      const problem = `is ${JSON.stringify(workload)}, and ${at} ${what}`;
      throw configError(
        `workloads[${i}]`,
        problem,
        "Give a path that can be read, as seen from the plan's folder.",
      );
    }
  }
}

/** @param folder that paths of a description are seen from */
function sourceOf(json: unknown, folder: string): PlanSource {
  const base = plans.routing;
  is.object().read(json, 'the plan', 'TKV_CONFIG');
  const read = planTable.read(json, 'config');
  const deployment = deploymentIn(read, base.deployment, folder);
  const { suites: given, scoring, slots } = read;
  return {
    workloads: read.workloads,
    latencyModels: modelsIn(read, deployment, base.latencyModels),
    deployment,
    suites: {
      train: given.train ?? base.suites.train,
      validation: given.validation ?? base.suites.validation,
      hidden: given.hidden ?? base.suites.hidden,
    },
    scoring: {
      objectives:
        scoring.objectives?.map(({ metric, direction, name = metric, weight = 1 }) => {
          return { name, metric, direction, weight };
        }) ?? base.scoring.objectives,
      scalariser: scoring.scalariser ?? base.scoring.scalariser,
      mode: scoring.mode ?? base.scoring.mode,
      attainmentTarget: scoring.attainmentTarget ?? base.scoring.attainmentTarget,
    },
    baseline: read.baseline === undefined ? base.baseline : readBundle(read.baseline),
    slots: slots ?? base.slots,
  };
}

/** Stands for the model of time in ids of cases, where a deployment file names the models. */
const OF_FILE = 'file';

function modelsIn(
  { latencyModels }: PlanFields,
  deployment: Deployment,
  base: readonly string[],
): readonly string[] {
  const file = get(deployment, 'file');
  if (file === undefined) return latencyModels ?? base;
  if (latencyModels === undefined) return [OF_FILE];
  const problem = `chooses models of time, and ${file} names them`;
  throw configError('latencyModels', problem, 'Leave it out, or change the file.');
}

/** The deployment with its files as seen from the folder of the plan. */
function seenFrom(folder: string, deployment: Deployment): Deployment {
  const isFile = (at: Path, value: unknown): value is string =>
    typeof value === 'string' &&
    (knobs[at].kind === 'file' || (knobs[at].isFile && value.endsWith('.json')) === true);
  const values = Object.entries(deployment.values).map(([at, value]): [string, unknown] => [
    at,
    isFile(at as Path, value) ? path.resolve(folder, value) : value,
  ]);
  return { ...deployment, values: Object.fromEntries(values) };
}

/** Reads a deployment from a description, or from arguments of `tierkv simulate`. */
function deploymentIn({ deployment, args }: PlanFields, base: Deployment, folder: string): Deployment {
  if (deployment === undefined) return args === undefined ? base : fromArguments(args);
  if (args !== undefined) throw configError('args', 'comes beside deployment', 'Keep one of them.');
  return seenFrom(folder, fromFields(deployment, 'deployment.'));
}

function fromArguments(args: readonly string[]): Deployment {
  try {
    return askedBy(readWords(args)).deployment;
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    throw configError('args', `are refused: ${error.message}`, 'Give arguments of tierkv simulate.');
  }
}

//  Plans in which the number of instances can change.

export function planScales({ suites }: EvaluationPlan): boolean {
  const [{ deployment }] = suites.train;
  const scaling = ['file', 'control.policyFile', 'control.autoscalerIntervalUs'] as const;
  return scaling.some((each) => isGiven(deployment, each));
}

/** @throws TKV_CONFIG for a bundle that would scale, and cannot */
export function refuseIdleScaling({ autoScale }: PolicyBundle, plan: EvaluationPlan): void {
  if (autoScale === undefined || planScales(plan)) return;
  if (autoScale.type === 'parameterized' && autoScale.template === 'none') return;
  throw configError(
    'autoScale',
    'decides nothing where the plan scales no instances',
    'Leave the slot out, or take the plan scaling.',
  );
}

//  The written form of a plan: workloads, models of time and seeds.

/** Seeds of a suite. Its cases are every workload with every model of time and every seed. */
interface SuiteSource {
  readonly seeds: readonly number[];
  readonly perturbation: number;
}

interface PlanSource {
  /** Paths of specifications, seen from `folder`. */
  readonly workloads: readonly string[];
  readonly latencyModels: readonly string[];
  /** Deployment of all cases, without workload and model of time. */
  readonly deployment: Deployment;
  readonly suites: Readonly<Record<SuiteName, SuiteSource>>;
  readonly scoring: Scoring;
  readonly baseline: PolicyBundle;
  /** Slots that a search changes by default. */
  readonly slots: readonly PolicySlot[];
}
