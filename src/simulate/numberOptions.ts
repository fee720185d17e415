/**
 * Reads options that are numbers, times or seeds. This file is apart from `options.ts`, so that the help of a command loads
 * no simulator.
 */

import { configError } from '../runtime/errors.ts';
import { shownPlain } from '../sim/workload/traceLines.ts';
import type { OptionValues } from './optionTable.ts';

const units: Readonly<Record<string, number>> = {
  us: 1,
  µs: 1,
  ms: 1e3,
  s: 1e6,
  m: 60e6,
  min: 60e6,
  h: 3600e6,
};

/** Options that are times, each with the microseconds that its plain number counts. All take units, as `500ms`. */
const times: Readonly<Record<string, number>> = {
  ...Object.fromEntries(
    [
      ...['horizon', 'admissionLatency', 'routingLatency', 'snapshotRefreshInterval', 'cacheSignalDelay'],
      ...['modelAutoscalerIntervalUs', 'requestTtl', 'dispatchTickInterval', 'kvTransferBaseLatency'],
    ].map((name) => [name, 1]),
  ),
  ...Object.fromEntries(
    ['thinkTimeMs', 'pdTransferBaseLatency', 'targetTtft', 'targetItl', 'targetE2e'].map((name) => [
      name,
      1e3,
    ]),
  ),
  timeout: 1e6,
  sessionGap: 1e6,
  budget: 1e6,
  limit: 1e6,
  wallMs: 1e3,
};

/** A number, or a time in the unit of a plain number. */
function readNumber(name: string, text: string): number {
  const [, digits, unit] = /^(-?\d+(?:\.\d+)?)\s*(us|µs|ms|s|min|m|h)$/.exec(text.trim()) ?? [];
  const countsUs = Object.hasOwn(times, name) ? times[name] : undefined;
  if (unit !== undefined && countsUs !== undefined) return (Number(digits) * units[unit]) / countsUs;
  return text.trim() === '' ? Number.NaN : Number(text);
}

export function numberOption(options: OptionValues, name: string, flag: string): number | undefined {
  const text = options[name];
  if (text === undefined || typeof text === 'boolean') return undefined;
  const value = readNumber(name, text);
  if (Number.isFinite(value)) return value;
  const isTime = Object.hasOwn(times, name);
  throw configError(
    flag,
    `is "${shownPlain(text)}", not a ${isTime ? 'time' : 'number'}`,
    `Set ${flag} to a ${isTime ? 'time, as 500ms' : 'number'}.`,
  );
}

/** A number from `min` to `max`. */
export function numberWithin(
  options: OptionValues,
  name: string,
  flag: string,
  { min, max, whole = false }: { readonly min: number; readonly max: number; readonly whole?: boolean },
): number | undefined {
  const value = numberOption(options, name, flag);
  if (value === undefined) return undefined;
  if (value >= min && value <= max && (!whole || Number.isInteger(value))) return value;
  const wanted = `${whole ? 'an integer' : 'a number'} from ${min} to ${max}`;
  throw configError(flag, `is ${value}`, `Set it to ${wanted}.`);
}

export function seedOption(options: OptionValues, name = 'seed', flag = '--seed'): bigint | undefined {
  const text = options[name];
  if (typeof text !== 'string') return undefined;
  if (/^-?\d+$/.test(text.trim()) && BigInt(text) === BigInt.asIntN(64, BigInt(text))) return BigInt(text);
  throw configError(flag, `is "${text}"`, 'Set it to an integer of 64 bits.');
}
