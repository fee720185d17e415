/**
 * Length distributions and arrival processes of a spec: which parameters each type has, and what values have
 * a meaning. A distribution without mass (no positive weight, an empty interval) is an error here and not a
 * surprise at generation.
 */

import { maxLineValues, parseJson } from '../../runtime/boundedJson.ts';
import { nearestName, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { ArrivalProcess, ArrivalSpec, LengthSpec } from '../random/samplers.ts';
import { maxRequestTokens } from '../workload/request.ts';
import { shown, shownPlain } from '../workload/traceLines.ts';
import { describeRange, type NumberRange, type SpecNode } from './fields.ts';

type DistributionFail = (key: string, problem: string, remedy: string) => TierKVError;

interface DistributionParameter extends NumberRange {
  readonly optional?: true;
}

const TOKENS: DistributionParameter = { min: 0, max: maxRequestTokens };
const SOME_TOKENS: DistributionParameter = { above: 0, max: maxRequestTokens };
const BOUND: DistributionParameter = { ...TOKENS, optional: true };
/**
 * Mean of the logarithm of a length: e^18 is 66 million tokens. Above, upstream's sampler overflows and gives
 * 1 token.
 */
const LOG_MEAN: DistributionParameter = { min: -100, max: 18 };
const LOG_DEVIATION: DistributionParameter = { min: 0, max: 10 };

/** The parameters of every type but `empirical`, whose keys are token counts. */
const PARAMETERS: Readonly<Record<string, Readonly<Record<string, DistributionParameter>>>> = {
  gaussian: {
    mean: { min: -maxRequestTokens, max: maxRequestTokens },
    std_dev: TOKENS,
    min: TOKENS,
    max: TOKENS,
  },
  exponential: { mean: SOME_TOKENS, min: BOUND, max: BOUND },
  lognormal: { mu: LOG_MEAN, sigma: LOG_DEVIATION, min: BOUND, max: BOUND },
  pareto_lognormal: {
    alpha: { min: 0.1, max: 1000 },
    xm: SOME_TOKENS,
    mu: LOG_MEAN,
    sigma: LOG_DEVIATION,
    mix_weight: { min: 0, max: 1 },
  },
  constant: { value: TOKENS },
};
const LENGTH_TYPES: readonly string[] = [...Object.keys(PARAMETERS), 'empirical'];

const plainError: DistributionFail = (key, problem, remedy) =>
  new TierKVError('TKV_INPUT', `${key} ${problem}. ${remedy}`, { field: key });

function empiricalOf(params: Readonly<Record<string, number>>, fail: DistributionFail): LengthSpec {
  const bins: Array<readonly [number, number]> = [];
  let mass = 0;
  for (const [key, weight] of Object.entries(params)) {
    const tokens = /^\d+$/.test(key) ? Number(key) : Number.NaN;
    if (!Number.isSafeInteger(tokens))
      throw fail(key, 'is not a token count', 'Name every bin by a whole number of tokens');
    if (tokens > maxRequestTokens)
      throw fail(key, 'is longer than a request may be', `Name bins up to ${maxRequestTokens} tokens`);
    if (!(weight >= 0) || !Number.isFinite(weight))
      throw fail(key, `has weight ${weight}`, 'Give every bin a weight of at least 0');
    bins.push([tokens, weight]);
    mass += weight;
  }
  if (mass === Infinity) throw fail('', 'has weights without a finite sum', 'Make the weights smaller');
  if (!(mass > 0)) throw fail('', 'has no mass', 'Give at least one bin a positive weight');
  return { type: 'empirical', bins };
}

/**
 * A length distribution from its type and parameters.
 * @throws {TierKVError} TKV_INPUT, through `fail`, which receives the parameter at fault ('' for the whole).
 */
export function lengthSpecOf(
  type: string,
  params: Readonly<Record<string, number>>,
  fail: DistributionFail = plainError,
): LengthSpec {
  checkInputs({ type, params, fail }, { type: is.text(), params: is.object(), fail: is.optional(is.func()) });
  if (type === 'empirical') return empiricalOf(params, fail);
  const known = Object.hasOwn(PARAMETERS, type) ? PARAMETERS[type] : undefined;
  if (known === undefined) {
    const near = nearestName(type, LENGTH_TYPES);
    const hint = near === undefined ? '' : `Did you mean "${near}"? `;
    throw fail(
      '',
      type === '' ? 'has no type' : `has the unknown type "${shownPlain(type)}"`,
      `${hint}Valid: ${LENGTH_TYPES.join(', ')}`,
    );
  }
  for (const key of Object.keys(params)) {
    if (Object.hasOwn(known, key)) continue;
    const near = nearestName(key, Object.keys(known));
    const hint = near === undefined ? '' : `Did you mean "${near}"? `;
    throw fail(key, `is not a parameter of ${type}`, `${hint}It has: ${Object.keys(known).join(', ')}`);
  }
  for (const [key, range] of Object.entries(known)) {
    const value = params[key];
    if (value === undefined) {
      if (range.optional) continue;
      throw fail(key, 'is missing', `A ${type} distribution needs: ${Object.keys(known).join(', ')}`);
    }
    const low = range.above !== undefined ? value > range.above : value >= (range.min ?? -Infinity);
    if (Number.isFinite(value) && low && value <= (range.max ?? Infinity)) continue;
    throw fail(key, `is ${value}`, `Set it to ${describeRange(range, 'a number')}`);
  }
  const { min, max } = params;
  const bounded = type === 'gaussian' || (min > 0 && max > 0);
  if (bounded && min > max) throw fail('', `has no mass: min ${min} is above max ${max}`, 'Exchange them');
  return { type, ...params } as LengthSpec;
}

/** Reads the distribution under `key`; undefined when the key is absent. */
export function readLength(
  node: SpecNode,
  key: string,
  readFile: (path: string) => string,
): LengthSpec | undefined {
  const section = node.section(key);
  if (section === undefined) return undefined;
  const type = section.text('type');
  const params: Record<string, number> = Object.create(null);
  const inside = section.section('params');
  for (const name of inside?.keys() ?? []) params[name] = inside!.number(name, {}, 0);
  const file = section.text('file');
  section.close();
  if (file !== '') {
    if (type !== 'empirical' || inside !== undefined) {
      throw section.error(
        'file',
        'belongs to an empirical distribution without params',
        'Leave one of them out',
      );
    }
    Object.assign(params, binsOf(readFile(file), file));
  }
  return lengthSpecOf(type, params, (name, problem, remedy) => {
    const at = inside !== undefined && name !== '' ? inside : section;
    return at.error(at === inside ? name : '', problem, remedy);
  });
}

const maxBinCharacters = 2 ** 24;

/** Bins of an empirical distribution: a JSON object from token count to weight, or lines `tokens,weight`. */
function binsOf(text: string, file: string): Record<string, number> {
  const bins: Record<string, number> = Object.create(null);
  const bad = (line: number, what: string): TierKVError =>
    new TierKVError('TKV_INPUT', `${file}:${line}: ${what}. Write lines "tokens,weight" or one JSON object`, {
      path: file,
      line,
    });
  if (text.length > maxBinCharacters) throw bad(1, `has more than ${maxBinCharacters} characters`);
  if (text.trimStart().startsWith('{')) {
    const parsed = parseJson(text, (problem) => bad(1, problem), maxLineValues);
    for (const [key, value] of Object.entries(parsed as Record<string, unknown>)) {
      if (typeof value !== 'number') throw bad(1, `${shownPlain(key)} has no weight`);
      bins[key] = value;
    }
    return bins;
  }
  text.split('\n').forEach((raw, i) => {
    const line = raw.trim();
    if (line === '' || line.startsWith('#') || (i === 0 && /^[a-z_]+\s*,/i.test(line))) return;
    const [tokens, weight, ...rest] = line.split(',').map((cell) => cell.trim());
    if (rest.length > 0 || weight === undefined || Number.isNaN(Number(weight)))
      throw bad(i + 1, `${shown(line)} is not a bin`);
    bins[tokens] = (bins[tokens] ?? 0) + Number(weight);
  });
  return bins;
}

const PROCESSES: readonly ArrivalProcess[] = [
  'poisson',
  'gamma',
  'weibull',
  'constant',
  'pareto',
  'periodic',
];
const WEIBULL_CV_MIN = 0.01;
const WEIBULL_CV_MAX = 10.4;

/**
 * Reads an arrival process; `required` says whether it may be left out (then it is poisson and never used).
 */
export function readArrival(node: SpecNode, key: string, required: boolean): ArrivalSpec {
  const section = node.section(key);
  if (section === undefined) {
    if (required) throw node.error(key, 'is missing', `Give it a process: ${PROCESSES.join(', ')}`);
    return { process: 'poisson' };
  }
  const process = section.choice('process', PROCESSES, required ? undefined : 'poisson');
  const cv = section.optionalNumber('cv', { above: 0 });
  const shape = section.optionalNumber('shape', { above: 0 });
  const scale = section.optionalNumber('scale', { above: 0 });
  const jitter = process === 'periodic' ? section.optionalNumber('jitter', { min: 0, max: 1 }) : undefined;
  section.close();
  if (process === 'pareto' && shape !== undefined && shape <= 1) {
    throw section.error('shape', `is ${shape}`, 'A Pareto process has a mean above 1 only; choose 1.2 to 3');
  }
  const explicit = shape !== undefined && scale !== undefined;
  if (
    process === 'weibull' &&
    cv !== undefined &&
    !explicit &&
    (cv < WEIBULL_CV_MIN || cv > WEIBULL_CV_MAX)
  ) {
    throw section.error(
      'cv',
      `is ${cv}`,
      `A Weibull process reaches ${WEIBULL_CV_MIN} to ${WEIBULL_CV_MAX}; choose a value there or use gamma`,
    );
  }
  return {
    process,
    ...(cv === undefined ? {} : { cv }),
    ...(shape === undefined ? {} : { shape }),
    ...(scale === undefined ? {} : { scale }),
    ...(jitter === undefined ? {} : { jitter }),
  };
}
