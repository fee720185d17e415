/**
 * Reads `behavior`, `prefixes`, `correlation` and `archetype`: how tenants differ from the normal one. An
 * archetype is shorthand: it stands for keys that are not given.
 */

import type { LengthSpec } from '../../../random/index.ts';
import { maxRequestTokens } from '../../request.ts';
import type { SpecNode } from '../reader.ts';
import type { AdditionsSpec, BehaviorSpec, CorrelationSpec, PrefixChoiceSpec } from './types.ts';

const tokens = { min: 1, max: maxRequestTokens };
const time = { min: 1, max: 1e12 };
const count = { min: 1, max: 1_000_000 };
const share = { min: 0, max: 1 };

const KINDS = ['normal', 'bursty', 'abusive', 'adversarial'] as const;

function readBurst(node: SpecNode | undefined): BehaviorSpec['burst'] {
  if (node === undefined) return undefined;
  const burst = {
    probability: node.number('probability', share, 0.1),
    size: node.integer('size', count, 10),
    intervalUs: node.integer('interval_us', time, 10_000),
  };
  node.close();
  return burst;
}

/** What a kind does where its parts are not given. */
const usual: Readonly<Record<(typeof KINDS)[number], BehaviorSpec>> = {
  normal: {},
  bursty: { burst: { probability: 0.1, size: 10, intervalUs: 10_000 } },
  abusive: {
    burst: { probability: 0.2, size: 50, intervalUs: 1000 },
    oversized: { share: 0.25, tokens: 16_000 },
  },
  adversarial: {
    synchronised: { everyUs: 10_000_000, size: 32 },
    oversized: { share: 1, tokens: 32_000 },
  },
};

export function readBehavior(node: SpecNode): BehaviorSpec | undefined {
  const section = node.section('behavior');
  if (section === undefined) return undefined;
  const kind = section.choice('type', KINDS, 'normal');
  const burst = readBurst(section.section('burst')) ?? readBurst(section.section('rapid_fire'));
  const oversizedNode = section.section('oversized');
  const oversized =
    oversizedNode === undefined
      ? undefined
      : {
          share: oversizedNode.number('share', share, 1),
          tokens: oversizedNode.integer('tokens', tokens, 16_000),
        };
  oversizedNode?.close();
  // prompts of so many tokens that nobody else has, all of them: the cache fills with what never comes back
  const exhausted = section.has('exhaust_cache_tokens')
    ? { share: 1, tokens: section.integer('exhaust_cache_tokens', tokens, 1) }
    : undefined;
  if (exhausted !== undefined && oversized !== undefined) {
    throw section.error('exhaust_cache_tokens', 'excludes oversized', 'Keep one of them');
  }
  const syncNode = section.section('synchronised');
  const synchronised =
    syncNode === undefined
      ? undefined
      : {
          everyUs: syncNode.integer('every_us', time, 10_000_000),
          size: syncNode.integer('size', count, 32),
        };
  syncNode?.close();
  section.close();
  const oversizes = oversized ?? exhausted;
  const behavior: BehaviorSpec = {
    ...usual[kind],
    ...(burst === undefined ? {} : { burst }),
    ...(oversizes === undefined ? {} : { oversized: oversizes }),
    ...(synchronised === undefined ? {} : { synchronised }),
  };
  if (behavior.burst !== undefined && behavior.synchronised !== undefined) {
    throw node.error('behavior', 'has bursts and synchronised arrivals', 'Keep one of them');
  }
  return Object.keys(behavior).length === 0 ? undefined : behavior;
}

export function readPrefixes(node: SpecNode): PrefixChoiceSpec | undefined {
  const section = node.section('prefixes');
  if (section === undefined) return undefined;
  const groups = section.list('groups').map((group) => {
    const id = group.text('id');
    if (id === '') throw group.error('id', 'is missing', 'Name the group');
    const found = {
      id,
      tokens: group.integer('length', tokens, 50),
      popularity: group.number('popularity', { above: 0, max: 1e9 }, 1),
    };
    group.close();
    return found;
  });
  if (groups.length === 0) throw section.error('groups', 'is empty', 'Give a group with id and length');
  const choice = { reuseProbability: section.number('reuse_probability', share, 1), groups };
  section.close();
  return choice;
}

export interface Correlations {
  readonly correlation: CorrelationSpec | undefined;
  /** Of `intra_tenant_prefix`: the prefix that requests of a tenant share. */
  readonly prefixes: PrefixChoiceSpec | undefined;
}

export function readCorrelation(node: SpecNode, tenantId: string): Correlations {
  const section = node.section('correlation');
  if (section === undefined) return { correlation: undefined, prefixes: undefined };
  const burstSize = section.number('burst_size', { min: -1, max: 1 }, 0);
  const reuseProbability = section.number('intra_tenant_prefix', share, 0);
  const length = section.integer('prefix_length', tokens, 256);
  section.close();
  const group = { id: `tenant/${tenantId}`, tokens: length, popularity: 1 };
  return {
    correlation: burstSize === 0 ? undefined : { burstSize },
    prefixes: reuseProbability === 0 ? undefined : { reuseProbability, groups: [group] },
  };
}

/** Medians of prompts in tokens, and their logarithms; the deviation of the logarithm is 0.6. */
const prompts = {
  small: { median: 200, mu: 5.298317 },
  medium: { median: 1000, mu: 6.907755 },
  large: { median: 4000, mu: 8.29405 },
  elephant: { median: 32_000, mu: 10.373491 },
} as const;
const sizes = ['small', 'medium', 'large', 'elephant'] as const;

/** What an archetype stands for. */
export interface Archetype extends AdditionsSpec {
  readonly inputLength: LengthSpec;
  /** Rounds of a session; 1 for none. */
  readonly sessionLength: number;
}

export function readArchetype(node: SpecNode, tenantId: string): Archetype | undefined {
  const section = node.section('archetype');
  if (section === undefined) return undefined;
  const size = section.choice('typical_prompt_size', sizes, 'medium');
  const affinity = section.number('prefix_reuse_affinity', share, 0);
  const propensity = section.number('burst_propensity', share, 0);
  const sessionLength = section.integer('session_length', { min: 1, max: 10_000 }, 1);
  section.close();
  const { median, mu } = prompts[size];
  const group = { id: `tenant/${tenantId}`, tokens: Math.ceil(median / 2), popularity: 1 };
  return {
    inputLength: {
      type: 'lognormal',
      mu,
      sigma: 0.6,
      min: 1,
      max: 8 * median,
    },
    sessionLength,
    ...(affinity === 0 ? {} : { prefixes: { reuseProbability: affinity, groups: [group] } }),
    ...(propensity === 0
      ? {}
      : { behavior: { burst: { probability: propensity, size: 10, intervalUs: 10_000 } } }),
  };
}
