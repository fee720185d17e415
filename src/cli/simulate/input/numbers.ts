/** Numbers out of options, checked with a message that names the option and says what to write instead. */

import { configError } from '../../../runtime/errors.ts';
import { numberWithin } from '../../workload/options.ts';
import type { Options } from './options.ts';

const MOST = Number.MAX_SAFE_INTEGER;

/** The option behind a camel-case name: `maxNumSeqs` is `--max-num-seqs`. */
export function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** A whole number from `min` to `max`, or undefined when the option was not given. */
export function wholeOption(
  options: Options,
  name: string,
  min: number,
  max: number = MOST,
): number | undefined {
  return numberWithin(options, name, flagOf(name), { min, max, whole: true });
}

export function realOption(options: Options, name: string, min: number, max: number): number | undefined {
  return numberWithin(options, name, flagOf(name), { min, max });
}

/** The option's value, which has a default. */
export function whole(options: Options, name: string, min: number, max: number = MOST): number {
  return wholeOption(options, name, min, max) ?? min;
}

export function real(options: Options, name: string, min: number, max: number): number {
  return realOption(options, name, min, max) ?? min;
}

export function textOption(options: Options, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

/** A list of numbers separated by commas. */
export function numbersOption(options: Options, name: string): number[] | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  return text.split(',').map((part) => {
    const value = part.trim() === '' ? Number.NaN : Number(part);
    if (Number.isFinite(value)) return value;
    throw configError(flagOf(name), `holds "${part}", not a number`, 'Separate numbers by commas.');
  });
}
