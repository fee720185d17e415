/**
 * Options that shape a workload, from what the user wrote to what the library takes: a preset, its lengths, its rate, the
 * seed. Every error names the option and says what to write instead.
 */

import type { Command } from 'commander';
import { type Format, type OpenOptions, requireFormat } from '../files/openWorkload.ts';
import { configError } from '../runtime/errors.ts';
import type { WorkloadSpec } from '../sim/description/workloadSpec.ts';
import type { Limits } from '../sim/workload/plan.ts';
import {
  type DistributionOptions,
  distributionSpec,
  type LengthRange,
  parseProfile,
  presetLengths,
  withProfile,
  withTimeout,
} from '../sim/workload/presets.ts';
import { parseColumnMapping } from '../sim/workload/tables.ts';
import { shownPlain } from '../sim/workload/traceLines.ts';

export type WorkloadOptionValues = Readonly<Record<string, string | boolean | undefined>>;

export function numberOption(options: WorkloadOptionValues, name: string, flag: string): number | undefined {
  const text = options[name];
  if (text === undefined || typeof text === 'boolean') return undefined;
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (Number.isFinite(value)) return value;
  throw configError(flag, `is "${shownPlain(text)}", not a number`, `Set ${flag} to a number.`);
}

/** A number from `min` to `max`. */
export function numberWithin(
  options: WorkloadOptionValues,
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

export function seedOption(
  options: WorkloadOptionValues,
  name = 'seed',
  flag = '--seed',
): bigint | undefined {
  const text = options[name];
  if (typeof text !== 'string') return undefined;
  if (/^-?\d+$/.test(text.trim()) && BigInt(text) === BigInt.asIntN(64, BigInt(text))) return BigInt(text);
  throw configError(flag, `is "${text}"`, 'Set it to an integer of 64 bits.');
}

function limitsOf(options: WorkloadOptionValues): Partial<Limits> {
  const maxRequests = numberOption(options, 'numRequests', '--num-requests');
  // as far as upstream's clock goes
  const horizonUs = numberWithin(options, 'horizon', '--horizon', { min: 1, max: 2 ** 63, whole: true });
  if (maxRequests !== undefined && !(Number.isSafeInteger(maxRequests) && maxRequests >= 0)) {
    throw configError('--num-requests', `is ${maxRequests}`, 'Set it to an integer of at least 0.');
  }
  return {
    ...(maxRequests === undefined ? {} : { maxRequests }),
    ...(horizonUs === undefined ? {} : { horizonUs: Number.isSafeInteger(horizonUs) ? horizonUs : Infinity }),
    ...(options.profile === undefined ? {} : { keepInWindows: true }),
  };
}

/** What --profile and --timeout do to a spec. */
export function adjustmentOf(
  options: WorkloadOptionValues,
  synthesized: boolean,
): (spec: WorkloadSpec) => WorkloadSpec {
  const timeoutS = numberOption(options, 'timeout', '--timeout');
  const profile = typeof options.profile === 'string' ? parseProfile(options.profile) : undefined;
  return (spec) => {
    const timed = timeoutS === undefined || synthesized ? spec : withTimeout(spec, timeoutS);
    return profile === undefined ? timed : withProfile(timed, profile);
  };
}

function lengthRange(
  options: WorkloadOptionValues,
  side: 'prompt' | 'output',
  preset: LengthRange | undefined,
): LengthRange {
  const base = preset ?? { mean: 512, stdDev: 256, min: 2, max: 7000 };
  const get = (name: string): number | undefined =>
    numberOption(
      options,
      `${side}Tokens${name}`,
      `--${side}-tokens${name === '' ? '' : `-${name.toLowerCase()}`}`,
    );
  return {
    mean: get('') ?? base.mean,
    stdDev: get('Stdev') ?? base.stdDev,
    min: get('Min') ?? base.min,
    max: get('Max') ?? base.max,
  };
}

export function presetSpec(options: WorkloadOptionValues): WorkloadSpec {
  const preset = presetLengths(typeof options.workload === 'string' ? options.workload : 'distribution');
  const optional = (
    key: keyof DistributionOptions,
    name: string,
    flag: string,
  ): Partial<DistributionOptions> => {
    const value = numberOption(options, name, flag);
    return value === undefined ? {} : { [key]: value };
  };
  const seed = seedOption(options);
  return distributionSpec({
    prompt: lengthRange(options, 'prompt', preset.prompt),
    output: lengthRange(options, 'output', preset.output),
    ...optional('rate', 'rate', '--rate'),
    ...optional('concurrency', 'concurrency', '--concurrency'),
    ...optional('thinkTimeMs', 'thinkTimeMs', '--think-time-ms'),
    ...optional('numRequests', 'numRequests', '--num-requests'),
    ...optional('prefixTokens', 'prefixTokens', '--prefix-tokens'),
    ...optional('timeoutS', 'timeout', '--timeout'),
    ...(seed === undefined ? {} : { seed }),
  });
}

export function openOptions(options: WorkloadOptionValues): OpenOptions {
  const seed = seedOption(options);
  const rate = numberOption(options, 'rate', '--rate');
  const blockTokens = numberWithin(options, 'blockTokens', '--block-tokens', {
    min: 1,
    max: 2 ** 20,
    whole: true,
  });
  const sessionGapS = numberWithin(options, 'sessionGap', '--session-gap', { min: 0, max: 1_000_000 });
  return {
    limits: limitsOf(options),
    adjust: adjustmentOf(options, false),
    ...(typeof options.from === 'string' && options.from !== 'auto'
      ? { format: requireFormat(options.from) }
      : {}),
    ...(seed === undefined ? {} : { seed }),
    ...(rate === undefined ? {} : { rate }),
    ...(blockTokens === undefined ? {} : { blockTokens }),
    ...(sessionGapS === undefined ? {} : { sessionGapS }),
    ...(typeof options.columns === 'string' ? { columns: parseColumnMapping(options.columns) } : {}),
    ...(options.dropEmpty === true ? { dropEmpty: true } : {}),
    ...(options.sort === true ? { sort: true } : {}),
  };
}

/** @throws TKV_CONFIG naming an option on recorded rows where the workload is generated */
export function refuseTraceOptions(options: WorkloadOptionValues, source: string): void {
  const given = { '--columns': options.columns, '--drop-empty': options.dropEmpty, '--sort': options.sort };
  for (const [flag, value] of Object.entries(given)) {
    if (value === undefined) continue;
    throw configError(flag, `is for recorded traces, and ${source} is generated`, 'Leave it out.');
  }
}

/** Options on how a recorded trace is read. */
export function addTraceOptions(command: Command): Command {
  return command
    .option(
      '--columns <mapping>',
      'which columns of a CSV are what: arrival=ts:s,input=prompt_len,output=gen_len',
    )
    .option('--drop-empty', 'leave out rows without prompt or output tokens, and count them')
    .option('--sort', 'sort the rows of a trace by time');
}

/** Options that shape a preset, as fields and as they are written. */
const presetOptions: readonly (readonly [name: string, flag: string])[] = [
  ['workload', '--workload'],
  ['rate', '--rate'],
  ['concurrency', '--concurrency'],
  ['thinkTimeMs', '--think-time-ms'],
  ['prefixTokens', '--prefix-tokens'],
  ...['prompt', 'output'].flatMap((side) =>
    ['', 'Stdev', 'Min', 'Max'].map((part): [string, string] => [
      `${side}Tokens${part}`,
      `--${side}-tokens${part === '' ? '' : `-${part.toLowerCase()}`}`,
    ]),
  ),
];

/**
 * What shapes a preset changes nothing of a workload that is named. @param source that workload
 * @param used options that are of use for it all the same, by field
 * @throws TKV_CONFIG naming the option that would do nothing
 */
export function refusePresetOptions(
  options: WorkloadOptionValues,
  source: string,
  used: readonly string[] = [],
): void {
  for (const [name, flag] of presetOptions) {
    if (options[name] === undefined || used.includes(name)) continue;
    throw configError(
      flag,
      `is for a preset, and ${source} is served as it is`,
      'Leave it out, or change that.',
    );
  }
}

/** @param format of a named workload @returns preset options that shape it too */
export function usedByFormat(format: Format): readonly string[] {
  return format === 'lengths' || format === 'columns' ? ['rate'] : [];
}

export function addPresetOptions(command: Command): Command {
  command.option(
    '--workload <name>',
    'chatbot, contentgen, summarization, multidoc or distribution, instead of a file',
  );
  command
    .option('--rate <n>', 'requests a second')
    .option('--concurrency <n>', 'users in closed loop, instead of --rate');
  command
    .option('--think-time-ms <n>', 'pause of such a user')
    .option('--prefix-tokens <n>', 'length of a shared prefix');
  for (const side of ['prompt', 'output']) {
    command
      .option(`--${side}-tokens <n>`, `mean ${side} length`)
      .option(`--${side}-tokens-stdev <n>`, 'its deviation');
    command.option(`--${side}-tokens-min <n>`, 'its least').option(`--${side}-tokens-max <n>`, 'its most');
  }
  return command;
}
