/**
 * Reads the options that shape a workload: a preset, its lengths, its rate, the seed. Every error names the option and says
 * what to write instead.
 */

import { type Format, type OpenOptions, requireFormat } from '../files/openWorkload.ts';
import { configError } from '../runtime/errors.ts';
import type { WorkloadSpec } from '../sim/description/workloadSpec.ts';
import type { Limits } from '../sim/workload/plan.ts';
import {
  type DistributionOptions,
  distributionSpec,
  isConversation,
  type LengthRange,
  parseProfile,
  presetLengths,
  withProfile,
  withTimeout,
} from '../sim/workload/presets.ts';
import { parseColumnMapping } from '../sim/workload/tables.ts';
import { numberOption, numberWithin, seedOption } from './numberOptions.ts';
import { flagOf, type OptionValues, optionNameOf, presetRows } from './optionTable.ts';

function limitsOf(options: OptionValues): Partial<Limits> {
  const maxRequests = numberOption(options, 'numRequests', '--num-requests');
  // the end of upstream's clock
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

/** The changes that --profile and --timeout make to a specification. */
export function adjustmentOf(
  options: OptionValues,
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
  options: OptionValues,
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

export function presetSpec(options: OptionValues): WorkloadSpec {
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
  const isEndless = options.horizon === undefined && options.profile === undefined; // a profile has a duration
  if (isEndless && numberOption(options, 'numRequests', '--num-requests') === 0) {
    const problem = 'is 0, which means no limit, and without --horizon the workload has no end';
    throw configError('--num-requests', problem, 'Set it to 1 or more, or set --horizon.');
  }
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
    ...(preset.conversation === undefined ? {} : { conversation: preset.conversation }),
  });
}

export function openOptions(options: OptionValues): OpenOptions {
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
export function refuseTraceOptions(options: OptionValues, source: string): void {
  const given = { '--columns': options.columns, '--drop-empty': options.dropEmpty, '--sort': options.sort };
  for (const [flag, value] of Object.entries(given)) {
    if (value === undefined) continue;
    throw configError(flag, `is for recorded traces, and ${source} is generated`, 'Leave it out.');
  }
}

/**
 * What shapes a preset changes nothing of a workload that is named. @param source that workload
 * @param used options that are of use for it all the same, by field
 * @throws TKV_CONFIG naming the option that would do nothing
 */
export function refusePresetOptions(
  options: OptionValues,
  source: string,
  used: readonly string[] = [],
): void {
  for (const [flags] of presetRows) {
    const name = optionNameOf(flags);
    const flag = flagOf(name);
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

/** Share of the asked rate below which a run of conversations was too short to reach it. */
const RATE_SHARE = 0.8;

/**
 * Of conversations all rounds count in a rate, and later rounds come minutes after the first: a short run never comes to the
 * rate that it was asked for. Undefined where it did, or where there are no conversations.
 * @param preset of the workload
 * @param requests that came
 * @param cameS the time in which they came, in seconds
 */
export function rateNotice(
  preset: unknown,
  rate: number | undefined,
  requests: number,
  cameS: number,
): string | undefined {
  if (!isConversation(preset) || rate === undefined || requests < 2 || cameS <= 0) return undefined;
  const mean = requests / cameS;
  if (mean >= RATE_SHARE * rate) return undefined;
  // n requests begin over n / rate seconds and end later by the length of a conversation
  const enough = (requests * (rate / mean - 1)) / (1 / RATE_SHARE - 1);
  const [step] = [10 ** Math.floor(Math.log10(enough))];
  return (
    `${Number(mean.toPrecision(3))} requests a second came on average, not ${rate}: conversations last longer than new ones begin. ` +
    `Give --num-requests ${Math.ceil(enough / step) * step} or more for the whole rate, or shorter pauses (--think-time-ms)`
  );
}
