/** Admission policies by name. Each of them may have tenant budgets around it. */

import { PREFILL_TOKENS_PER_S } from '../prediction.ts';
import type { PolicyEntry } from '../registry/index.ts';
import { type NumberRule, type ParameterRules, PolicyRegistry } from '../registry/index.ts';
import type { AdmissionPolicy } from './admissionPolicy.ts';
import { ProbabilisticShed, SoftReflective } from './randomShedding.ts';
import {
  concurrencyKindOf,
  concurrencyKinds,
  concurrencySaturation,
  utilizationSaturation,
} from './saturation.ts';
import { LatencySlo, SaturationShed, TierShed } from './shedding.ts';
import { AlwaysAdmit, RejectAll, TokenBucket } from './simple.ts';
import { EvolvedAdmission, TenantBudgets } from './tenants.ts';

export type { AdmissionPolicy } from './admissionPolicy.ts';
export {
  type ConcurrencyCaps,
  concurrencyKindOf,
  concurrencyKinds,
  concurrencySaturation,
  kvUtilization,
  utilizationSaturation,
} from './saturation.ts';

const shareRule: NumberRule = { kind: 'number', default: 1, min: 0, max: 1 };
const queueThreshold: NumberRule = { kind: 'number', default: 5, above: 0 };
const kvThreshold: NumberRule = { kind: 'number', default: 0.8, above: 0, max: 1 };

/** The entry with the parameter `tenantBudgets`: a share of all batch slots for each tenant that has one. */
function budgeted(entry: PolicyEntry<AdmissionPolicy>): PolicyEntry<AdmissionPolicy> {
  const parameters: ParameterRules = {
    ...entry.parameters,
    tenantBudgets: { kind: 'numbers', default: {}, each: shareRule },
  };
  return {
    about: entry.about,
    parameters,
    make: (p, world) => {
      const inner = entry.make(p, world);
      const shares = p.numbers('tenantBudgets');
      if (Object.keys(shares).length === 0) return inner;
      return new TenantBudgets(inner, shares, world.maxSequences);
    },
  };
}

export const admissionPolicies: PolicyRegistry<AdmissionPolicy> = new PolicyRegistry<AdmissionPolicy>(
  'admission',
  {
    'always-admit': budgeted({ about: 'all requests', parameters: {}, make: () => new AlwaysAdmit() }),
    'token-bucket': budgeted({
      about: 'as many prompt tokens as a bucket holds and flow into it',
      parameters: {
        capacity: { kind: 'number', default: 10000, above: 0 },
        refillRate: { kind: 'number', default: 1000, above: 0 },
        onEmpty: { kind: 'choice', default: 'reject', names: ['reject', 'delay'] },
      },
      make: (p) =>
        new TokenBucket(p.number('capacity'), p.number('refillRate'), p.text('onEmpty') === 'delay'),
    }),
    'reject-all': budgeted({ about: 'none', parameters: {}, make: () => new RejectAll() }),
    'tier-shed': budgeted({
      about: 'only urgent classes while an instance is loaded',
      parameters: {
        threshold: { kind: 'number', default: 0, min: 0, integer: true },
        minPriority: { kind: 'number', default: 0, min: -100, max: 100, integer: true },
      },
      make: (p) => new TierShed(p.number('threshold'), p.number('minPriority')),
    }),
    'gaie-legacy': budgeted({
      about: 'no sheddable classes while instances are saturated',
      parameters: { queueThreshold, kvThreshold },
      make: (p) => {
        const [queue, kv] = [p.number('queueThreshold'), p.number('kvThreshold')];
        return new SaturationShed('gaie-legacy', (cluster) => utilizationSaturation(cluster, queue, kv));
      },
    }),
    probabilistic: budgeted({
      about: 'sheds sheddable classes with a chance that grows with the fifth power of saturation',
      parameters: { factor: { kind: 'number', default: 300, above: 0 }, queueThreshold, kvThreshold },
      make: (p, world) =>
        new ProbabilisticShed(
          p.number('factor'),
          p.number('queueThreshold'),
          p.number('kvThreshold'),
          world.stream('admission'),
        ),
    }),
    'soft-reflective': budgeted({
      about: 'ceilings for less urgent classes that sink as load grows, with a trickle above them',
      parameters: {
        queueThreshold,
        kvThreshold,
        retryUs: { kind: 'number', default: 0, min: 0, max: 1e12, integer: true },
      },
      make: (p) =>
        new SoftReflective(p.number('queueThreshold'), p.number('kvThreshold'), p.number('retryUs')),
    }),
    'latency-slo': budgeted({
      about: 'no sheddable classes where no instance has head room, is idle or is nearly empty',
      parameters: {
        ttftUs: { kind: 'number', default: 0, min: 0 },
        tpotUs: { kind: 'number', default: 50_000, min: 0 },
        nearlyEmpty: { kind: 'number', default: 0.02, min: 0, max: 1 },
        tokensPerS: { kind: 'number', default: PREFILL_TOKENS_PER_S, above: 0 },
      },
      make: (p) =>
        new LatencySlo({
          ttftUs: p.number('ttftUs'),
          tpotUs: p.number('tpotUs'),
          nearlyEmpty: p.number('nearlyEmpty'),
          tokensPerS: p.number('tokensPerS'),
        }),
    }),
    concurrency: budgeted({
      about: 'no sheddable classes while as much is in flight as all instances should have',
      parameters: {
        kind: { kind: 'choice', default: 'requests', names: concurrencyKinds },
        perInstance: { kind: 'number', default: 100, above: 0 },
        tokensPerInstance: { kind: 'number', default: 1_000_000, above: 0, with: ['kind'] },
      },
      make: (p) => {
        const caps = {
          kind: concurrencyKindOf(p.text('kind')) ?? 'requests',
          requests: p.number('perInstance'),
          tokens: p.number('tokensPerInstance'),
        };
        return new SaturationShed('concurrency', (cluster) => concurrencySaturation(cluster, caps));
      },
    }),
    evolved: budgeted({
      about: 'the published evolved rule for an overloaded cluster',
      parameters: {},
      make: () => new EvolvedAdmission(),
    }),
  },
);
