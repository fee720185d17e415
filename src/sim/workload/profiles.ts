/**
 * Load profiles: how the rate of a workload changes over time, as windows that carry their own rates. A
 * profile turns any spec into one whose aggregate follows it, in upstream's terms only, so the result can be
 * written as a v2 spec.
 */

import { configError } from '../../runtime/errors.ts';
import { nearestName } from '../../runtime/nearestName.ts';
import { elementary } from '../random/index.ts';
import type { ActiveWindow, WorkloadSpec } from './spec/types.ts';

/** Rates in requests per second, times in seconds. */
export type LoadProfile =
  | { kind: 'constant'; rate: number; durationS: number }
  | { kind: 'step'; from: number; to: number; atS: number; durationS: number }
  | { kind: 'ramp'; from: number; to: number; durationS: number; segments: number }
  | { kind: 'diurnal'; peak: number; trough: number; periodS: number; durationS: number; segments: number }
  | { kind: 'spike'; rate: number; peak: number; atS: number; spikeS: number; durationS: number };

interface Segment {
  readonly startS: number;
  readonly endS: number;
  readonly rate: number;
}

function segmentsOf(profile: LoadProfile): Segment[] {
  const { durationS } = profile;
  const equal = (count: number, rate: (middleS: number) => number): Segment[] =>
    Array.from({ length: count }, (_, i) => {
      const startS = (durationS * i) / count;
      const endS = (durationS * (i + 1)) / count;
      return { startS, endS, rate: rate((startS + endS) / 2) };
    });
  switch (profile.kind) {
    case 'constant':
      return [{ startS: 0, endS: durationS, rate: profile.rate }];
    case 'step':
      return [
        { startS: 0, endS: profile.atS, rate: profile.from },
        { startS: profile.atS, endS: durationS, rate: profile.to },
      ];
    case 'ramp':
      return equal(profile.segments, (s) => profile.from + ((profile.to - profile.from) * s) / durationS);
    case 'diurnal':
      return equal(profile.segments, (s) => {
        const phase = elementary.cos((2 * Math.PI * (s % profile.periodS)) / profile.periodS);
        return profile.trough + ((profile.peak - profile.trough) * (1 - phase)) / 2;
      });
    case 'spike':
      return [
        { startS: 0, endS: profile.atS, rate: profile.rate },
        { startS: profile.atS, endS: profile.atS + profile.spikeS, rate: profile.peak },
        { startS: profile.atS + profile.spikeS, endS: durationS, rate: profile.rate },
      ];
  }
}

/**
 * The windows of a profile for a client with a share of its rate. Empty segments and rates of 0 give none.
 */
export function profileWindows(profile: LoadProfile, share: number = 1): ActiveWindow[] {
  return segmentsOf(profile)
    .map(({ startS, endS, rate }) => ({
      startUs: Math.round(startS * 1e6),
      endUs: Math.round(endS * 1e6),
      traceRate: rate * share,
    }))
    .filter((window) => window.endUs > window.startUs && window.traceRate > 0);
}

/**
 * The spec with its aggregate rate replaced by a profile; shares between clients stay, their own windows go.
 */
export function withProfile(spec: WorkloadSpec, profile: LoadProfile): WorkloadSpec {
  if (spec.cohorts.length > 0 || spec.inferencePerf !== undefined || spec.servegen !== undefined) {
    throw configError(
      '--profile',
      'applies to clients only',
      'Leave cohorts, inference_perf and servegen_data out.',
    );
  }
  const total = spec.clients.reduce((sum, client) => sum + client.rateFraction, 0);
  return {
    ...spec,
    aggregateRate: 0,
    clients: spec.clients.map((client) =>
      client.concurrency > 0
        ? client
        : { ...client, windows: profileWindows(profile, client.rateFraction / total) },
    ),
  };
}

const FIELDS: Readonly<Record<LoadProfile['kind'], Readonly<Record<string, number | undefined>>>> = {
  constant: { rate: undefined, duration: undefined },
  step: { from: undefined, to: undefined, at: undefined, duration: undefined },
  ramp: { from: undefined, to: undefined, duration: undefined, segments: 20 },
  diurnal: { peak: undefined, trough: undefined, period: 86_400, duration: 86_400, segments: 48 },
  spike: { rate: undefined, peak: undefined, at: undefined, spike: undefined, duration: undefined },
};

const rates: readonly string[] = ['rate', 'from', 'to', 'peak', 'trough'];
/** Arrivals lie at least a microsecond apart. */
const maxRatePerS = 1e6;
/** Thirty years. */
const maxSeconds = 1e9;

/**
 * Reads `kind:key=value,…`, rates in requests per second and times in seconds, as
 * `ramp:from=2,to=20,duration=600`.
 * @throws {TierKVError} TKV_CONFIG naming the key, with the nearest valid one.
 */
export function parseProfile(text: string): LoadProfile {
  const [kindText, list = ''] = text.split(':', 2);
  const kinds = Object.keys(FIELDS);
  if (!kinds.includes(kindText)) {
    const near = nearestName(kindText, kinds);
    throw configError(
      '--profile',
      `names "${kindText}"`,
      `${near === undefined ? '' : `Did you mean "${near}"? `}Valid: ${kinds.join(', ')}.`,
    );
  }
  const kind = kindText as LoadProfile['kind'];
  const known = FIELDS[kind];
  const values: Record<string, number> = {};
  for (const pair of list.split(',').filter((part) => part.trim() !== '')) {
    const [key, value = ''] = pair.split('=', 2).map((part) => part.trim());
    if (!Object.hasOwn(known, key)) {
      const near = nearestName(key, Object.keys(known));
      throw configError(
        '--profile',
        `has the key "${key}"`,
        `${near === undefined ? '' : `Did you mean "${near}"? `}${kind} takes: ` +
          `${Object.keys(known).join(', ')}.`,
      );
    }
    const number = value === '' ? Number.NaN : Number(value);
    const most = rates.includes(key) ? maxRatePerS : maxSeconds;
    if (!(number >= 0 && number <= most))
      throw configError('--profile', `has ${key}=${value}`, `Set ${key} to a number from 0 to ${most}.`);
    values[key] = number;
  }
  const get = (key: string): number => {
    const value = values[key] ?? known[key];
    if (value === undefined)
      throw configError('--profile', `lacks ${key}`, `${kind} takes: ${Object.keys(known).join(', ')}.`);
    return value;
  };
  const durationS = get('duration');
  const inside = (key: string, atS: number): number => {
    if (atS <= durationS) return atS;
    throw configError(
      '--profile',
      `has ${key} at ${atS} s, after the end at ${durationS} s`,
      'Let the profile last longer.',
    );
  };
  if (durationS <= 0) throw configError('--profile', 'has duration=0', 'Set duration to seconds above 0.');
  switch (kind) {
    case 'constant':
      return { kind, rate: get('rate'), durationS };
    case 'step':
      return { kind, from: get('from'), to: get('to'), atS: inside('at', get('at')), durationS };
    case 'ramp':
      return { kind, from: get('from'), to: get('to'), durationS, segments: wholeSegments(get('segments')) };
    case 'diurnal':
      return {
        kind,
        peak: get('peak'),
        trough: get('trough'),
        periodS: get('period') || durationS,
        durationS,
        segments: wholeSegments(get('segments')),
      };
    case 'spike': {
      inside('spike', get('at') + get('spike'));
      return { kind, rate: get('rate'), peak: get('peak'), atS: get('at'), spikeS: get('spike'), durationS };
    }
  }
}

function wholeSegments(value: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= 100_000) return value;
  throw configError('--profile', `has segments=${value}`, 'Set segments to an integer from 1 to 100000.');
}
