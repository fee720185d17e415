/** Options of commands: their values by kind, the settings among them, and errors of the library under their names. */

import { configError, renamed } from '../runtime/errors.ts';
import { oneOf as chosenOf, readOption, type SettingKind } from '../sim/description/kinds.ts';
import { outputFlag as flagOfName, fromOptions } from '../sim/description/readers.ts';
import type { Deployment } from '../sim/description/settings.ts';

/** Options by camel-case name as they were written; absent ones are undefined. */
export type OptionValues = Readonly<Record<string, string | boolean | undefined>>;

/** A number from `min` to `max`, or a time with `counts`, the unit of a plain number. */
export function numberWithin(
  options: OptionValues,
  name: string,
  flag: string,
  {
    whole = false,
    counts,
    ...range
  }: { readonly min: number; readonly max: number; readonly whole?: boolean } & Pick<SettingKind, 'counts'>,
): number | undefined {
  const text = options[name];
  if (typeof text !== 'string') return undefined;
  if (counts !== undefined) return readOption({ kind: 'time', counts, whole, ...range }, flag, text);
  return readOption({ kind: whole ? 'integer' : 'number', ...range }, flag, text);
}

/** One of the names that an option takes. @throws with the nearest of them */
export function oneOf<T extends string>(flag: string, name: string, names: readonly T[]): T {
  return chosenOf(name, names, (problem, remedy) => configError(flag, problem, remedy));
}

export function textOption(options: OptionValues, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

/** The settings of a deployment among the options of a command, under the names that they have everywhere. */
export function settingsOf(options: OptionValues): Deployment {
  return fromOptions(
    Object.entries(options).flatMap(([name, value]): [string, string | boolean][] =>
      value === undefined ? [] : [[flagOfName(name), value]],
    ),
  );
}

/** Runs `act`. Its errors about fields that are in `names` are about those options. */
export function inFlags<T>(names: Readonly<Record<string, string>>, act: () => T): T {
  const told = (error: unknown): never => {
    throw renamed(names, error);
  };
  try {
    const made = act();
    return made instanceof Promise ? (made.catch(told) as T) : made;
  } catch (error) {
    return told(error);
  }
}

/** Options by the fields of a workload that is opened. */
export const workloadFlags: Readonly<Record<string, string>> = {
  format: '--from',
  columns: '--columns',
  rate: '--rate',
};

/** Options of `tierkv latency` by the fields that the library checks. */
export const latencyFlags: Readonly<Record<string, string>> = {
  tp: '--tp',
  dp: '--dp',
  blockTokens: '--block-tokens',
  memoryUtilization: '--gpu-memory-utilization',
  model: '--model',
  GPU: '--gpu',
  coefficients: '--coefficients',
  latencyModel: '--latency-model',
};

/** The same where steps were measured, whose log names the models. */
export const stepsFlags: Readonly<Record<string, string>> = {
  ...latencyFlags,
  records: '--steps',
  model: '--steps',
};
