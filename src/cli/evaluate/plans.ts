/**
 * Evaluation plans: the ones that tierkv brings, and those of a file. A plan names workloads, models of time
 * and seeds; its cases are the arguments of `tierkv simulate` that they come to.
 */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { baseline, type PolicyBundle, readBundle } from '../../evolve/bundle/index.ts';
import {
  type EvaluationPlan,
  type ObjectiveSpec,
  type Scoring,
  type SuiteCase,
  type SuiteName,
  scalarisers,
  scoreModes,
  suiteNames,
} from '../../evolve/fitness/index.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import { unknownName } from '../../sim/control/index.ts';
import { simulateArguments } from '../sweep/point.ts';

/** What a suite is made of: every workload with every model of time and seed. */
interface SuiteSource {
  readonly seeds: readonly number[];
  readonly perturbation: number;
}

interface PlanSource {
  /** Paths of specifications, seen from `folder`. */
  readonly workloads: readonly string[];
  readonly latencyModels: readonly string[];
  /** More arguments of `tierkv simulate`, for all cases. */
  readonly args: readonly string[];
  readonly suites: Readonly<Record<SuiteName, SuiteSource>>;
  readonly scoring: Scoring;
  readonly baseline: PolicyBundle;
}

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
  train: { seeds: [1, 2, 3, 4, 5, 6, 7, 8], perturbation: 0.2 },
  validation: { seeds: [11, 12, 13, 14, 15, 16], perturbation: 0.2 },
  hidden: { seeds: [101, 102, 103, 104, 105, 106, 107, 108], perturbation: 0.2 },
};

/** Plans by name. */
const plans: Readonly<Record<string, PlanSource>> = {
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
  },
};

export const planNames: readonly string[] = Object.keys(plans);

const own: string = fileURLToPath(new URL('../../../data/suites/', import.meta.url));

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
  return expand(changed(plans[asked], changes), own);
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

function expand(source: PlanSource, folder: string): EvaluationPlan {
  const cases = (name: SuiteName): SuiteCase[] => casesOf(source, source.suites[name], folder);
  checkArguments(cases('train')[0]);
  return {
    suites: { train: cases('train'), validation: cases('validation'), hidden: cases('hidden') },
    scoring: source.scoring,
    baseline: source.baseline,
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

type Fields = Readonly<Record<string, unknown>>;

function object(field: string, value: unknown, known: readonly string[]): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw configError(field, 'is no object', `Give it ${known.join(', ')}.`);
  }
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw unknownName(`${field}.${key}`, key, known);
  }
  return value as Fields;
}

function list<T>(field: string, value: unknown, is: (each: unknown) => each is T, what: string): T[] {
  if (Array.isArray(value) && value.length > 0 && value.every(is)) return value;
  throw configError(field, `is ${JSON.stringify(value)}`, `Give it a list of ${what}.`);
}

const isText = (value: unknown): value is string => typeof value === 'string';
const isNumber = (value: unknown): value is number => Number.isSafeInteger(value);

/** What a file leaves out is as in the plan `routing`. */
function readPlan(file: string): PlanSource {
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    const why = error instanceof Error ? error.message.split('\n')[0] : String(error);
    throw new TierKVError('TKV_INPUT', `${file} is no plan: ${why}. Correct it there.`, { path: file });
  }
  const base = plans.routing;
  const fields = object('plan', json, [
    'workloads',
    'latencyModels',
    'args',
    'suites',
    'scoring',
    'baseline',
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
    if (direction !== 'min' && direction !== 'max')
      throw unknownName(`${field}.direction`, String(direction), ['min', 'max']);
    if (!(Number(weight) > 0))
      throw configError(`${field}.weight`, `is ${String(weight)}`, 'Give a number above 0.');
    return { name: isText(name) ? name : metric, metric, direction, weight: Number(weight) };
  });
}
