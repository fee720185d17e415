/** Presets of admission: verdicts worked out by hand from the formulas. */

import { describe, expect, test } from 'vitest';
import { admissionPolicies } from '../../../src/sim/control/admission.ts';
import type { InstanceSnapshot } from '../../../src/sim/control/policy.ts';
import { SloPriorities } from '../../../src/sim/control/priority.ts';
import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { cluster, instance, request, router, world } from '../../sim/control/fixtures.ts';
import { choiceOf, eachPresetHasARow } from './rows.ts';

/** What is asked: a request of a class at a time, with the instances as they are, and the verdict. */
interface Asked {
  readonly sloClass?: string;
  readonly tokens?: number;
  readonly tenant?: string;
  readonly atS?: number;
  readonly targetUs?: number;
  readonly instances?: readonly InstanceSnapshot[];
  readonly verdict: 'admit' | 'reject';
}

interface Row {
  readonly template: string;
  readonly formula: string;
  readonly asked: readonly Asked[];
}

const priorities = new SloPriorities();

function ask(
  template: string,
  asked: readonly Asked[],
  parameters: Readonly<Record<string, number | string>> = {},
): string[] {
  const policy = admissionPolicies.make({ ...choiceOf('admission', template), ...parameters }, world());
  return asked.map((each) => {
    const {
      sloClass = '',
      tokens = 160,
      tenant = '',
      atS = 0,
      targetUs = 0,
      instances = [instance(0)],
    } = each;
    const nowUs = atS * 1e6;
    const score = priorities.of(sloClass);
    const priority = { score, rank: 0, hints: { sheddable: score < 0, dueUs: 0 } };
    const view = request({ sloClass, promptTokens: tokens, tenantId: tenant, sloTargetUs: targetUs });
    return policy.decide(view, priority, router({ nowUs }), cluster(instances, nowUs)).verdict;
  });
}

const many = [instance(0, { queueDepth: 100, batchSize: 256, inFlight: 356, used: 1000 })];
/** Saturation of each: max(q / 5, kv / 0.8). */
const full = [instance(0, { queueDepth: 5 }), instance(1, { used: 800 })]; // 1 and 1
const nearlyFull = [instance(0, { queueDepth: 5 }), instance(1, { used: 720 })]; // 1 and 0.9
const threeQuarters = [instance(0, { used: 600 })]; // 0.6 / 0.8
const inFlight = (...each: readonly number[]): InstanceSnapshot[] =>
  each.map((count, i) => instance(i, { inFlight: count }));

/** With the given uncached tokens before it, one in flight, and half of its KV held. */
const ahead = (inFlightTokens: number, fields: Parameters<typeof instance>[1] = {}): InstanceSnapshot =>
  instance(0, { inFlight: 1, used: 500, inFlightTokens, ...fields });

const rows: readonly Row[] = [
  {
    template: 'always-admit',
    formula: 'admit',
    asked: [
      { sloClass: 'background', instances: many, verdict: 'admit' },
      { sloClass: 'critical', verdict: 'admit' },
    ],
  },
  {
    template: 'reject-all',
    formula: 'reject',
    asked: [
      { sloClass: 'critical', verdict: 'reject' },
      { sloClass: 'background', verdict: 'reject' },
    ],
  },
  {
    template: 'token-bucket',
    formula: 'tokens = min(10000, tokens + 1000 x s); admit and take the prompt where it fits',
    asked: [
      { tokens: 6000, verdict: 'admit' }, // 4000 are left
      { tokens: 5000, verdict: 'reject' },
      { tokens: 5000, atS: 1, verdict: 'admit' }, // 4000 + 1000 - 5000
      { tokens: 1, atS: 1, verdict: 'reject' },
      { tokens: 10_001, atS: 100, verdict: 'reject' }, // no more than 10000 ever
      { tokens: 10_000, atS: 100, verdict: 'admit' },
    ],
  },
  {
    template: 'tier-shed',
    formula: 'reject where max(q + r + f) > 0 and priority < 0',
    asked: [
      { sloClass: 'batch', instances: inFlight(0, 0), verdict: 'admit' },
      { sloClass: 'batch', instances: inFlight(0, 1), verdict: 'reject' },
      { sloClass: 'standard', instances: inFlight(0, 1), verdict: 'admit' },
    ],
  },
  {
    template: 'gaie-legacy',
    formula: 'reject where priority < 0 and mean max(q / 5, kv / 0.8) >= 1',
    asked: [
      { sloClass: 'sheddable', instances: full, verdict: 'reject' },
      { sloClass: 'sheddable', instances: nearlyFull, verdict: 'admit' },
      { sloClass: 'standard', instances: full, verdict: 'admit' },
    ],
  },
  {
    template: 'probabilistic',
    formula: 'reject where priority < 0 with a chance of min(1, 300 x saturation^5)',
    asked: [
      // saturation 0.8 and 0: 300 x 0.4^5 is above 1
      { sloClass: 'batch', instances: [instance(0, { queueDepth: 4 }), instance(1)], verdict: 'reject' },
      { sloClass: 'batch', instances: [instance(0)], verdict: 'admit' }, // a chance of 0
      { sloClass: 'standard', instances: full, verdict: 'admit' },
    ],
  },
  {
    template: 'soft-reflective',
    formula: 'held from a ceiling of 1 - i x s / (N - 1) on, where one in round(s / (1 - s)) comes in',
    asked: [
      // at s = 0 each class is seen once
      { sloClass: 'critical', verdict: 'admit' },
      { sloClass: 'standard', verdict: 'admit' },
      { sloClass: 'batch', verdict: 'admit' },
      // s = 0.75: ceilings 1, 0.625 and 0.25; one in 3
      { sloClass: 'critical', instances: threeQuarters, verdict: 'admit' },
      { sloClass: 'standard', instances: threeQuarters, verdict: 'reject' },
      { sloClass: 'batch', instances: threeQuarters, verdict: 'reject' },
      { sloClass: 'standard', instances: threeQuarters, verdict: 'reject' },
      { sloClass: 'standard', instances: threeQuarters, verdict: 'admit' },
      { sloClass: 'batch', instances: threeQuarters, verdict: 'reject' },
      { sloClass: 'batch', instances: threeQuarters, verdict: 'admit' },
      { sloClass: 'batch', instances: threeQuarters, verdict: 'reject' },
      // s = 0.4: ceilings 1, 0.8, 0.6
      { sloClass: 'batch', instances: [instance(0, { queueDepth: 2 })], verdict: 'admit' },
      // s = 1: none but what is above all ceilings
      { sloClass: 'batch', instances: full, verdict: 'reject' },
    ],
  },
  {
    template: 'latency-slo',
    formula:
      'reject where priority < 0 and none has head room, nothing in flight, or less than 0.02 of KV held',
    asked: [
      // 1991 tokens at 15928 a second are 125 ms
      { sloClass: 'batch', tokens: 1000, targetUs: 125_000, instances: [ahead(991)], verdict: 'admit' },
      { sloClass: 'batch', tokens: 1000, targetUs: 125_000, instances: [ahead(992)], verdict: 'reject' },
      { sloClass: 'critical', tokens: 1000, targetUs: 125_000, instances: [ahead(992)], verdict: 'admit' },
      // without a target the time between tokens alone: 50 ms
      { sloClass: 'batch', instances: [ahead(1e6, { recentTpotUs: 50_000 })], verdict: 'admit' },
      { sloClass: 'batch', instances: [ahead(0, { recentTpotUs: 50_001 })], verdict: 'reject' },
      { sloClass: 'batch', instances: [ahead(0, { recentTpotUs: 60_000, inFlight: 0 })], verdict: 'admit' },
      { sloClass: 'batch', instances: [ahead(0, { recentTpotUs: 60_000, used: 19 })], verdict: 'admit' },
      { sloClass: 'batch', instances: [ahead(0, { recentTpotUs: 60_000, used: 20 })], verdict: 'reject' },
    ],
  },
  {
    template: 'concurrency',
    formula: 'reject where priority < 0 and the sum of f >= 100 n',
    asked: [
      { sloClass: 'batch', instances: inFlight(150, 50), verdict: 'reject' },
      { sloClass: 'batch', instances: inFlight(150, 49), verdict: 'admit' },
      { sloClass: 'standard', instances: inFlight(150, 50), verdict: 'admit' },
    ],
  },
  {
    template: 'evolved',
    formula: 'f a instance: batch up to 12, or 20 for a tenant below 0.4; sheddable up to 25, or 35',
    asked: [
      { sloClass: 'batch', tenant: 'a', instances: inFlight(12, 12), verdict: 'admit' },
      { sloClass: 'batch', tenant: 'b', instances: inFlight(12, 13), verdict: 'reject' },
      { sloClass: 'batch', tenant: 'b', instances: inFlight(20, 20), verdict: 'reject' },
      { sloClass: 'batch', tenant: 'b', instances: inFlight(20, 20), verdict: 'reject' },
      { sloClass: 'batch', tenant: 'b', instances: inFlight(20, 20), verdict: 'reject' },
      { sloClass: 'batch', tenant: 'b', instances: inFlight(20, 20), verdict: 'reject' },
      // its 6th request, of which none came in: 20 hold
      { sloClass: 'batch', tenant: 'b', instances: inFlight(20, 20), verdict: 'admit' },
      { sloClass: 'batch', tenant: 'b', instances: inFlight(20, 21), verdict: 'reject' },
      { sloClass: 'sheddable', tenant: 'b', instances: inFlight(35, 35), verdict: 'admit' },
      { sloClass: 'sheddable', tenant: 'b', instances: inFlight(35, 36), verdict: 'reject' },
      { sloClass: 'sheddable', tenant: 'c', instances: inFlight(25, 25), verdict: 'admit' },
      { sloClass: 'sheddable', tenant: 'c', instances: inFlight(25, 26), verdict: 'reject' },
      { sloClass: 'critical', tenant: 'c', instances: inFlight(500), verdict: 'admit' },
    ],
  },
];

describe('admission', () => {
  test.each(rows)('$template: $formula', ({ template, asked }) => {
    expect(ask(template, asked)).toEqual(asked.map(({ verdict }) => verdict));
  });

  test('probabilistic: 300 x 0.15^5 is 2.3%, by the draws of its stream', () => {
    const saturated = [instance(0, { used: 120 })];
    const asked = Array.from(
      { length: 2000 },
      (): Asked => ({
        sloClass: 'batch',
        instances: saturated,
        verdict: 'reject',
      }),
    );
    const draws = new PartitionedRandom(42n).stream('admission');
    const expected = asked.map(() => (draws.float64() < 300 * 0.15 ** 5 ? 'reject' : 'admit'));
    expect(ask('probabilistic', asked)).toEqual(expected);
    const share = expected.filter((verdict) => verdict === 'reject').length / expected.length;
    expect(share).toBeGreaterThan(0.012);
    expect(share).toBeLessThan(0.034);
  });

  test('concurrency may count uncached tokens, n x 1000000, or be at the larger of both shares', () => {
    const each = (requests: number, tokens: number): InstanceSnapshot[] =>
      [0, 1].map((i) => instance(i, { inFlight: requests, inFlightTokens: i === 0 ? tokens : 0 }));
    const loads = [each(100, 0), each(99, 1_999_999), each(99, 2_000_000), each(100, 2_000_000)];
    const verdicts = (parameters: Readonly<Record<string, number | string>>): string =>
      loads
        .flatMap((instances) =>
          ask('concurrency', [{ sloClass: 'batch', instances, verdict: 'admit' }], parameters),
        )
        .join(' ');
    expect(verdicts({})).toBe('reject admit admit reject');
    expect(verdicts({ kind: 'tokens' })).toBe('admit admit reject reject');
    expect(verdicts({ kind: 'hybrid' })).toBe('reject admit reject reject');
    expect(verdicts({ kind: 'hybrid', perInstance: 101 })).toBe('admit admit reject reject');
    // twice that is 1999999
    expect(verdicts({ kind: 'tokens', tokensPerInstance: 999_999.5 })).toBe('admit reject reject reject');
    expect(() => verdicts({ kind: 'token' })).toThrow(/admission\.kind.*tokens/);
  });

  eachPresetHasARow('admission', rows);
});
