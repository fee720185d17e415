/** A plan of one's own: a JSON file. */

import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { type PolicySlot, policySlots, readBundle } from '../../../evolve/bundle/index.ts';
import {
  isMetricName,
  metricDescriptions,
  type ObjectiveSpec,
  type Scoring,
  type SuiteName,
  scalarisers,
  scoreModes,
  suiteNames,
} from '../../../evolve/fitness/index.ts';
import { parseJson } from '../../../runtime/boundedJson.ts';
import { configError, TierKVError } from '../../../runtime/errors.ts';
import { unknownName } from '../../../sim/control/index.ts';
import { inputError, readText, systemReason } from '../../input/index.ts';
import { plans } from './brought.ts';
import type { PlanSource, SuiteSource } from './source.ts';

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
  const json = parseJson(text, (problem) =>
    inputError(file, `is no plan: it ${problem}`, 'Correct it there.'),
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
