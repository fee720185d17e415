/**
 * The settings that shape a workload: a preset, its lengths, its rate, the seed. What is wrong is said in the words of the one
 * who wrote it.
 */

import { knobs, type Path, paths } from '../description/knobs.ts';
import {
  type Deployment,
  type FieldPaths,
  fault,
  get,
  isGiven,
  nameOf,
  saidOfSettings,
} from '../description/settings.ts';
import type { WorkloadSpec } from '../description/workloadSpec.ts';
import type { Limits } from '../workload/plan.ts';
import {
  distributionSpec,
  isConversation,
  type LengthRange,
  parseProfile,
  presetLengths,
  withProfile,
  withTimeout,
} from '../workload/presets.ts';
import { parseColumnMapping } from '../workload/tables.ts';
import type { Format, OpenOptions } from './openWorkload.ts';

/** Settings behind the fields that a preset, a profile and the readers of traces check. */
export const workloadField: FieldPaths = (field) => {
  const path = `workload.${field === 'numRequests' ? 'requests' : field}`;
  return Object.hasOwn(knobs, path) ? (path as Path) : undefined;
};

function limitsOf(deployment: Deployment): Partial<Limits> {
  const maxRequests = get(deployment, 'workload.requests');
  const horizonUs = get(deployment, 'horizonUs');
  return {
    ...(maxRequests === undefined ? {} : { maxRequests }),
    ...(horizonUs === undefined ? {} : { horizonUs: Number.isSafeInteger(horizonUs) ? horizonUs : Infinity }),
    ...(isGiven(deployment, 'workload.profile') ? { keepInWindows: true } : {}),
  };
}

/** The changes that a profile and a timeout make to a specification. */
export function adjustmentOf(
  deployment: Deployment,
  synthesized: boolean,
): (spec: WorkloadSpec) => WorkloadSpec {
  const timeoutS = get(deployment, 'workload.timeoutS');
  const text = get(deployment, 'workload.profile');
  const said = <T>(act: () => T): T => saidOfSettings(deployment, workloadField, act);
  const profile = text === undefined ? undefined : said(() => parseProfile(text));
  return (spec) =>
    said(() => {
      const timed = timeoutS === undefined || synthesized ? spec : withTimeout(spec, timeoutS);
      return profile === undefined ? timed : withProfile(timed, profile);
    });
}

const lengthParts = ['mean', 'stdDev', 'min', 'max'] as const;

function lengthRange(
  deployment: Deployment,
  side: 'prompt' | 'output',
  preset: LengthRange | undefined,
): LengthRange {
  const base = preset ?? { mean: 512, stdDev: 256, min: 2, max: 7000 };
  const of = (part: (typeof lengthParts)[number]): number =>
    get(deployment, `workload.${side}.${part}`) ?? base[part];
  const share = get(deployment, 'workload.lengthRange');
  if (share !== undefined) {
    const other = lengthParts.find(
      (part) => part !== 'mean' && isGiven(deployment, `workload.${side}.${part}`),
    );
    if (other !== undefined) {
      const problem = `excludes ${nameOf(deployment, 'workload.lengthRange')}, which draws lengths evenly up to the nominal one`;
      throw fault(deployment, `workload.${side}.${other}`, problem, 'Keep one of them.');
    }
    const most = Math.round(of('mean'));
    return { mean: most, stdDev: 0, min: Math.ceil(share * most), max: most, isEven: true };
  }
  return { mean: of('mean'), stdDev: of('stdDev'), min: of('min'), max: of('max') };
}

export function presetSpec(deployment: Deployment): WorkloadSpec {
  return saidOfSettings(deployment, workloadField, () => {
    const preset = presetLengths(get(deployment, 'workload.preset') ?? 'distribution');
    const given = <Key extends string, Value>(key: Key, value: Value | undefined): { [K in Key]?: Value } =>
      value === undefined ? {} : ({ [key]: value } as { [K in Key]?: Value });
    // a profile has a duration
    const isEndless = !isGiven(deployment, 'horizonUs') && !isGiven(deployment, 'workload.profile');
    if (isEndless && get(deployment, 'workload.requests') === 0) {
      const horizon = nameOf(deployment, 'horizonUs');
      const problem = `is 0, which means no limit, and without ${horizon} the workload has no end`;
      throw fault(deployment, 'workload.requests', problem, `Set it to 1 or more, or set ${horizon}.`);
    }
    return distributionSpec({
      prompt: lengthRange(deployment, 'prompt', preset.prompt),
      output: lengthRange(deployment, 'output', preset.output),
      ...given('rate', get(deployment, 'workload.rate')),
      ...given('concurrency', get(deployment, 'workload.concurrency')),
      ...given('thinkTimeMs', get(deployment, 'workload.thinkTimeMs')),
      ...given('numRequests', get(deployment, 'workload.requests')),
      ...given('prefixTokens', get(deployment, 'workload.prefixTokens')),
      ...given('timeoutS', get(deployment, 'workload.timeoutS')),
      ...given('seed', get(deployment, 'seed')),
      ...given('conversation', preset.conversation),
    });
  });
}

export function openOptions(deployment: Deployment): OpenOptions {
  const seed = get(deployment, 'seed');
  const rate = get(deployment, 'workload.rate');
  const columns = get(deployment, 'workload.columns');
  return {
    limits: limitsOf(deployment),
    adjust: adjustmentOf(deployment, false),
    ...(seed === undefined ? {} : { seed }),
    ...(rate === undefined ? {} : { rate }),
    ...(columns === undefined
      ? {}
      : { columns: saidOfSettings(deployment, workloadField, () => parseColumnMapping(columns)) }),
    ...(get(deployment, 'workload.dropEmpty') === true ? { dropEmpty: true } : {}),
    ...(get(deployment, 'workload.sort') === true ? { sort: true } : {}),
  };
}

/** @throws TKV_CONFIG naming a setting on recorded rows where the workload is generated */
export function refuseTraceSettings(deployment: Deployment, source: string): void {
  for (const path of ['workload.columns', 'workload.dropEmpty', 'workload.sort'] as const) {
    if (!isGiven(deployment, path)) continue;
    throw fault(deployment, path, `is for recorded traces, and ${source} is generated`, 'Leave it out.');
  }
}

/**
 * Refuses settings that shape a preset and change nothing of a named workload.
 * @param source that workload
 * @param used settings that apply to it all the same
 * @throws TKV_CONFIG naming the setting that would do nothing
 */
export function refusePresetSettings(
  deployment: Deployment,
  source: string,
  used: readonly Path[] = [],
): void {
  for (const path of paths) {
    if (!knobs[path].shapesPreset || !isGiven(deployment, path) || used.includes(path)) continue;
    const problem = `is for a preset, and ${source} is served as it is`;
    throw fault(deployment, path, problem, 'Leave it out, or change that.');
  }
}

/** @param format of a named workload @returns settings of a preset that shape it too */
export function usedByFormat(format: Format): readonly Path[] {
  return format === 'lengths' || format === 'columns' ? ['workload.rate'] : [];
}

/** Share of the asked rate below which a run of conversations was too short to reach it. */
const RATE_SHARE = 0.8;

/**
 * A notice for conversations that ran too short to reach the asked rate: all rounds count in it, and later rounds come
 * minutes after the first. Undefined where the rate was reached, or without conversations.
 * @param preset of the workload
 * @param requests that came
 * @param cameS the time in which they came, in seconds
 * @param name what settings are called
 */
export function rateNotice(
  preset: unknown,
  rate: number | undefined,
  requests: number,
  cameS: number,
  name: (path: Path) => string,
): string | undefined {
  if (!isConversation(preset) || rate === undefined || requests < 2 || cameS <= 0) return undefined;
  const mean = requests / cameS;
  if (mean >= RATE_SHARE * rate) return undefined;
  // n requests begin over n / rate seconds and end later by the length of a conversation
  const enough = (requests * (rate / mean - 1)) / (1 / RATE_SHARE - 1);
  const [step] = [10 ** Math.floor(Math.log10(enough))];
  return (
    `${Number(mean.toPrecision(3))} requests a second came on average, not ${rate}: conversations last longer than new ones begin. ` +
    `Give ${name('workload.requests')} ${Math.ceil(enough / step) * step} or more for the whole rate, or shorter pauses (${name('workload.thinkTimeMs')})`
  );
}
