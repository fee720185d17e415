/** Reads and checks option values. An error names the option and says what to write instead. */

import { formatBytes, formatCount, parseBlocks } from '../printing/text.ts';
import { configError, nearestName } from '../runtime/errors.ts';
import { SLO_CLASSES, type WorkloadSpec } from '../sim/description/workloadSpec.ts';
import type { Targets, TargetsByClass } from '../sim/metrics/statistics.ts';
import { numberWithin } from './numberOptions.ts';
import { flagOf, type OptionValues } from './optionTable.ts';

const MOST = Number.MAX_SAFE_INTEGER;

/** A whole number from `min` to `max`, or undefined when the option was not given. */
export function wholeOption(
  options: OptionValues,
  name: string,
  min: number,
  max: number = MOST,
): number | undefined {
  return numberWithin(options, name, flagOf(name), { min, max, whole: true });
}

export function realOption(
  options: OptionValues,
  name: string,
  min: number,
  max: number,
): number | undefined {
  return numberWithin(options, name, flagOf(name), { min, max });
}

/** The option's value, which has a default. */
export function whole(options: OptionValues, name: string, min: number, max: number = MOST): number {
  return wholeOption(options, name, min, max) ?? min;
}

export function real(options: OptionValues, name: string, min: number, max: number): number {
  return realOption(options, name, min, max) ?? min;
}

export function textOption(options: OptionValues, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

/**
 * The size of a tier in blocks, or undefined when the option was not given.
 * @param bytesPerBlock of an instance, which a size in bytes is divided by
 */
export function blocksOption(
  options: OptionValues,
  name: string,
  bytesPerBlock: number,
  min: number,
  max: number,
): number | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  const flag = flagOf(name);
  const blocks = parseBlocks(text, bytesPerBlock);
  if (Number.isNaN(blocks)) {
    throw configError(flag, `is "${text}", not a size`, 'Write a number of blocks, or bytes as 64GiB.');
  }
  if (blocks >= min && blocks <= max) return blocks;
  const each = `${formatCount(blocks)} blocks of ${formatBytes(bytesPerBlock)}`;
  throw configError(
    flag,
    `is ${text}${String(blocks) === text.trim() ? '' : `, which is ${each}`}`,
    `Set it to an integer from ${min} to ${max} blocks, or to as many bytes.`,
  );
}

/** A list of numbers separated by commas. */
export function numbersOption(options: OptionValues, name: string): number[] | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  return text.split(',').map((part) => {
    const value = part.trim() === '' ? Number.NaN : Number(part);
    if (Number.isFinite(value)) return value;
    throw configError(flagOf(name), `holds "${part}", not a number`, 'Separate numbers by commas.');
  });
}

// Targets of goodput: `--slo-ttft critical=100ms,standard=500ms` and similar options, and those of a specification.

const unitsUs: Readonly<Record<string, number>> = { us: 1, µs: 1, ms: 1e3, s: 1e6, m: 60e6, h: 3600e6 };

/** A duration such as `1.5s` or `1m30s`, in microseconds. */
function durationUs(flag: string, text: string): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(us|µs|ms|s|m|h)/g)];
  const sum = parts.reduce((total, [, digits, unit]) => total + Number(digits) * unitsUs[unit], 0);
  if (parts.map(([part]) => part).join('') === text && sum > 0) return sum;
  throw configError(flag, `holds "${text}", not a duration`, 'Write class=100ms, with us, ms, s, m or h.');
}

function classTargets(options: OptionValues, name: string): Record<string, number> {
  const text = textOption(options, name);
  if (text === undefined) return {};
  const flag = flagOf(name);
  return Object.fromEntries(
    text.split(',').map((entry) => {
      const [sloClass, duration, ...rest] = entry.split('=');
      if (duration === undefined || rest.length > 0) {
        throw configError(flag, `holds "${entry}"`, 'Write class=duration, separated by commas.');
      }
      return [sloClass, durationUs(flag, duration)];
    }),
  );
}

/** Classes that a generated request can have; one without a class is `default`. */
const knownClasses: readonly string[] = [...SLO_CLASSES.filter((name) => name !== ''), 'default'];

/**
 * Refuses classes that no request has by their names. @param field option or key that names them
 * @param recorded classes of a recorded trace, which may be any
 */
export function requireKnownClasses(
  field: string,
  names: readonly string[],
  recorded: Iterable<string> = [],
): void {
  const known = [...new Set([...knownClasses, ...recorded])];
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const near = nearestName(unknown, known);
  const meant = near === undefined ? '' : `Did you mean "${near}"? `;
  const problem = `names the class "${unknown}", which no request has`;
  throw configError(field, problem, `${meant}Classes: ${known.join(', ')}.`);
}

/** Refuses targets of classes that no request has. */
export function requireKnownTargets(options: OptionValues, recorded: Iterable<string> = []): void {
  for (const name of ['sloTtft', 'sloItl', 'sloE2e']) {
    requireKnownClasses(flagOf(name), Object.keys(classTargets(options, name)), recorded);
  }
}

/** Targets of the options and of the specification; an option overrides the same figure of a class. */
export function goodputTargets(options: OptionValues, spec: WorkloadSpec | undefined): TargetsByClass {
  const targets = new Map<string, Targets>();
  for (const [name, { ttftMs, itlMs, e2eMs }] of Object.entries(spec?.goodputSloTargets ?? {})) {
    targets.set(name, {
      ...(ttftMs === undefined ? {} : { ttftUs: 1000 * ttftMs }),
      ...(itlMs === undefined ? {} : { itlUs: 1000 * itlMs }),
      ...(e2eMs === undefined ? {} : { e2eUs: 1000 * e2eMs }),
    });
  }
  for (const [name, field] of [
    ['sloTtft', 'ttftUs'],
    ['sloItl', 'itlUs'],
    ['sloE2e', 'e2eUs'],
  ] as const) {
    for (const [sloClass, us] of Object.entries(classTargets(options, name))) {
      targets.set(sloClass, { ...targets.get(sloClass), [field]: us });
    }
  }
  return Object.fromEntries(targets);
}
