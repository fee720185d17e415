/** The control plane from options and upstream's policy bundle; options go before the bundle. */

import { configError } from '../../../runtime/errors.ts';
import {
  type ControlConfig,
  checkControl,
  type ParameterValue,
  type PolicyChoice,
} from '../../../sim/control/index.ts';
import { inOptionNames } from '../../process/index.ts';
import { type Bundle, readBundle } from './bundle.ts';
import { flagOf, realOption, textOption, whole, wholeOption } from './numbers.ts';
import type { Options } from './options.ts';

export interface ControlSetup {
  readonly control: ControlConfig;
  /** Null without a gateway queue. */
  readonly gateway: { readonly tickUs: number; readonly ttlUs: number } | null;
  readonly bundle: Bundle;
}

/** Options by the fields of the control plane. */
const fields: Readonly<Record<string, string>> = {
  'admission.policy': '--admission-policy',
  'admission.capacity': '--token-bucket-capacity',
  'admission.refillRate': '--token-bucket-refill-rate',
  'routing.policy': '--routing-policy',
  'routing.scorers': '--routing-scorers',
  'decider.policy': '--pd-decider',
  'decider.tokens': '--pd-prefix-threshold',
  'gateway.detector': '--saturation-detector',
  'gateway.concurrencyKind': '--concurrency-kind',
  'gateway.order': '--dispatch-order',
  'gateway.fairness': '--fairness-policy',
  'shadow.model': '--shadow-kv',
};

export function controlSetup(options: Options): ControlSetup {
  const bundle = readBundle(textOption(options, 'policyConfig'));
  const signals = {
    snapshotIntervalUs: whole(options, 'snapshotRefreshInterval', 0, 1e12),
    cacheSignalUs: whole(options, 'cacheSignalDelay', 0, 1e12),
  };
  const config: Partial<ControlConfig> = {
    admission: { ...admissionOf(options, bundle), ...parametersOf(options, 'admissionParameters') },
    priority: { policy: 'slo-class', ...(bundle.priorities && { priorities: bundle.priorities }) },
    routing: { ...routingOf(options, bundle), ...parametersOf(options, 'routingParameters') },
    ...poolRouting(options, 'prefillRouting'),
    ...poolRouting(options, 'decodeRouting'),
    decider: deciderOf(options),
    gateway: options.flowControl === true ? gatewayOf(options, bundle) : null,
    signals,
    shadow: {
      model: (textOption(options, 'shadowKv') ?? 'none') as ControlConfig['shadow']['model'],
      blocks: 0,
      eventDelayUs: signals.cacheSignalUs,
      speculativeTtlUs: 2_000_000,
    },
    topK: whole(options, 'counterfactualK', 0, 10_000),
  };
  try {
    const gateway =
      config.gateway === null
        ? null
        : {
            tickUs: whole(options, 'dispatchTickInterval', 1, 1e12),
            ttlUs: whole(options, 'requestTtl', 0, 1e15),
          };
    return { control: checkControl(config), gateway, bundle };
  } catch (error) {
    throw inOptionNames({ ...fields, ...parameterFields(options) }, error);
  }
}

/** Fields that `--admission-parameters` and its like set, with where each is said. */
function parameterFields(options: Options): Record<string, string> {
  return Object.fromEntries(
    ['admission', 'routing', 'gateway'].flatMap((stage) =>
      Object.keys(parametersOf(options, `${stage}Parameters`)).map((name) => {
        return [`${stage}.${name}`, `--${stage}-parameters ${name}`];
      }),
    ),
  );
}

/** `name=value` separated by commas: numbers, true and false, or names. */
function parametersOf(options: Options, name: string): Record<string, ParameterValue> {
  const parameters: Record<string, ParameterValue> = {};
  for (const entry of textOption(options, name)?.split(',') ?? []) {
    const [parameter, value = '', ...rest] = entry.split('=').map((part) => part.trim());
    if (parameter === '' || value === '' || rest.length > 0 || parameter in parameters) {
      throw configError(flagOf(name), `holds "${entry}"`, 'Write each parameter once, as name=value.');
    }
    if (parameter === 'policy') throw configError(flagOf(name), 'names a policy', 'Use the option for it.');
    const number = Number(value);
    parameters[parameter] =
      value === 'true' || value === 'false' ? value === 'true' : Number.isNaN(number) ? value : number;
  }
  return parameters;
}

function admissionOf(options: Options, bundle: Bundle): PolicyChoice {
  const named = textOption(options, 'admissionPolicy');
  // upstream's gateway queue stands in the place of the admission policy
  if (options.asUpstream === true && options.flowControl === true) return { policy: 'always-admit' };
  const policy = named ?? bundle.admission ?? 'always-admit';
  const budgets = bundle.tenantBudgets === undefined ? {} : { tenantBudgets: bundle.tenantBudgets };
  if (policy === 'token-bucket') {
    const capacity = realOption(options, 'tokenBucketCapacity', 0, 1e15) ?? bundle.bucketCapacity;
    const refillRate = realOption(options, 'tokenBucketRefillRate', 0, 1e15) ?? bundle.bucketRefillRate;
    return {
      policy,
      ...budgets,
      ...(capacity === undefined ? {} : { capacity }),
      ...(refillRate === undefined ? {} : { refillRate }),
    };
  }
  if (policy === 'tier-shed') {
    // upstream's bundle and its option have different defaults
    const least = named === undefined ? 3 : 0;
    const threshold = bundle.shedThreshold ?? 0;
    return { policy, ...budgets, threshold, minPriority: bundle.shedMinPriority ?? least };
  }
  if (policy === 'gaie-legacy') {
    const { queueThreshold = 5, kvThreshold = 0.8 } = bundle;
    return { policy, ...budgets, queueThreshold, kvThreshold };
  }
  return { policy, ...budgets };
}

function routingOf(options: Options, bundle: Bundle): PolicyChoice {
  const policy = textOption(options, 'routingPolicy') ?? bundle.routing ?? 'round-robin';
  const scorers = scorersOf(options, 'routingScorers') ?? bundle.scorers;
  // upstream draws among equals, but for the busiest, of which it takes the first
  const ties = policy === 'round-robin' || policy === 'always-busiest' ? {} : { ties: 'random' };
  return { policy, ...ties, ...(scorers === undefined || policy !== 'weighted' ? {} : { scorers }) };
}

function poolRouting(
  options: Options,
  field: 'prefillRouting' | 'decodeRouting',
): Partial<Pick<ControlConfig, 'prefillRouting' | 'decodeRouting'>> {
  const scorers = scorersOf(options, `${field}Scorers`);
  return scorers === undefined ? {} : { [field]: { policy: 'weighted', ties: 'random', scorers } };
}

/** `name:weight` separated by commas; without a weight it is 1. */
function scorersOf(options: Options, name: string): Record<string, number> | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  const scorers: Record<string, number> = {};
  for (const entry of text.split(',')) {
    const [scorer, weight = '1', ...rest] = entry.split(':');
    const value = weight.trim() === '' ? Number.NaN : Number(weight);
    if (!(value > 0) || rest.length > 0 || scorer in scorers) {
      throw configError(flagOf(name), `holds "${entry}"`, 'Write each scorer once, as name:weight.');
    }
    scorers[scorer.trim()] = value;
  }
  return scorers;
}

function deciderOf(options: Options): PolicyChoice {
  const policy = textOption(options, 'pdDecider') ?? 'never';
  const tokens = wholeOption(options, 'pdPrefixThreshold', 0);
  return { policy, ...(policy === 'prefix-threshold' && tokens !== undefined ? { tokens } : {}) };
}

function gatewayOf(options: Options, bundle: Bundle): PolicyChoice {
  const targetsUs = targetsOf(options) ?? bundle.sloTargetsUs;
  return {
    policy: 'banded',
    detector: textOption(options, 'saturationDetector') ?? 'never',
    queueThreshold: realOption(options, 'queueDepthThreshold', 1e-9, 1e9) ?? 5,
    kvThreshold: realOption(options, 'kvCacheUtilThreshold', 1e-9, 1) ?? 0.8,
    concurrencyKind: textOption(options, 'concurrencyKind') ?? 'requests',
    maxConcurrency: wholeOption(options, 'maxConcurrency', 1) ?? 100,
    maxTokenConcurrency: wholeOption(options, 'maxTokenConcurrency', 1) ?? 1_000_000,
    order: textOption(options, 'dispatchOrder') ?? 'fifo',
    fairness: textOption(options, 'fairnessPolicy') ?? 'global-strict',
    maxDepth: whole(options, 'maxGatewayQueueDepth', 0),
    perBandCapacity: whole(options, 'perBandCapacity', 0),
    usageLimit: realOption(options, 'usageLimitThreshold', 1e-9, 1) ?? 1,
    shedding: options.queueShedding === true,
    ...(targetsUs === undefined ? {} : { targetsUs }),
    ...parametersOf(options, 'gatewayParameters'),
  };
}

/** `--slo-targets class=µs,...`. */
function targetsOf(options: Options): Record<string, number> | undefined {
  const text = textOption(options, 'sloTargets');
  if (text === undefined) return undefined;
  return Object.fromEntries(
    text.split(',').map((entry) => {
      const [sloClass, us] = entry.split('=');
      if (!(Number(us) > 0)) {
        throw configError('--slo-targets', `holds "${entry}"`, 'Write class=microseconds.');
      }
      return [sloClass, Number(us)];
    }),
  );
}
