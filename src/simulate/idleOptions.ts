/**
 * Refuses options of `tierkv simulate`, and keys of a policy bundle, that would have no effect beside the others. The error
 * says what is missing. An option with the value of its default is accepted.
 */

import { configError } from '../runtime/errors.ts';
import { sizedTierNames } from '../sim/links/machineTiers.ts';
import { isConversation } from '../sim/workload/presets.ts';
import type { PolicyFile } from './controlOptions.ts';
import { requireKnownClasses, textOption } from './options.ts';
import { type AskedSimulation, flagOf, type OptionValues, outputNames, withDefaults } from './optionTable.ts';

/** The parts of a run that decide whether an option has an effect. */
interface Asked {
  readonly options: OptionValues;
  readonly bundle: PolicyFile;
  readonly admission: string;
  readonly routing: string;
  readonly decider: string;
  readonly detector: string;
  readonly counts: string;
  readonly hasRoles: boolean;
  readonly hasLowerTiers: boolean;
  readonly scales: boolean;
  readonly isFlag: (name: string) => boolean;
}

function positive(options: OptionValues, name: string): boolean {
  return Number(options[name] ?? 0) > 0;
}

function askedOf(options: OptionValues, bundle: PolicyFile): Asked {
  const interval = options.modelAutoscalerIntervalUs;
  return {
    options,
    bundle,
    admission: textOption(options, 'admissionPolicy') ?? bundle.admission ?? 'always-admit',
    routing: textOption(options, 'routingPolicy') ?? bundle.routing ?? 'round-robin',
    decider: textOption(options, 'pdDecider') ?? 'never',
    detector: textOption(options, 'saturationDetector') ?? 'never',
    counts: textOption(options, 'concurrencyKind') ?? 'requests',
    hasRoles: ['prefillInstances', 'decodeInstances'].some((name) => positive(options, name)),
    hasLowerTiers: ['kvCpuBlocks', 'kvOffloadConfig', 'sharedTier', ...sizedTierNames].some(
      (name) => options[name] !== undefined && Number(options[name]) !== 0,
    ),
    scales: interval === undefined ? (bundle.autoscaler?.intervalUs ?? 0) > 0 : Number(interval) > 0,
    isFlag: (name) => options[name] !== undefined,
  };
}

/** Whether a policy looks at how loaded the instances are. */
function readsLoads(asked: Asked): boolean {
  return (
    asked.routing !== 'round-robin' ||
    !['always-admit', 'reject-all', 'token-bucket'].includes(asked.admission) ||
    asked.options.flowControl === true ||
    asked.hasRoles ||
    asked.scales
  );
}

/** Whether a policy looks at what the caches of the instances hold. */
function readsCaches({ routing, hasRoles }: Asked): boolean {
  return !['round-robin', 'least-loaded', 'always-busiest'].includes(routing) || hasRoles;
}

type Rule = readonly [
  names: readonly string[],
  acts: (asked: Asked) => boolean,
  lacks: string,
  remedy: string,
];

const whatever = 'or leave it out.';

const rules: readonly Rule[] = [
  [
    [
      ...['saturationDetector', 'queueDepthThreshold', 'kvCacheUtilThreshold', 'maxConcurrency'],
      ...['concurrencyKind', 'maxTokenConcurrency', 'dispatchOrder', 'sloTargets', 'fairnessPolicy'],
      ...['gatewayParameters', 'maxGatewayQueueDepth', 'perBandCapacity', 'usageLimitThreshold'],
      ...['requestTtl', 'dispatchTickInterval', 'queueShedding'],
    ],
    ({ options }) => options.flowControl === true,
    'is of the gateway queue, and this run has none',
    `Add --flow-control, ${whatever}`,
  ],
  [
    ['flowControl'],
    ({ detector }) => detector !== 'never',
    'holds requests while instances are saturated, and with --saturation-detector never none is',
    `Add --saturation-detector utilization or concurrency, ${whatever}`,
  ],
  [
    ['queueDepthThreshold', 'kvCacheUtilThreshold'],
    ({ detector }) => detector === 'utilization',
    'is of the utilization detector',
    `Add --saturation-detector utilization, ${whatever}`,
  ],
  [
    ['maxConcurrency', 'maxTokenConcurrency', 'concurrencyKind'],
    ({ detector }) => detector === 'concurrency',
    'is of the concurrency detector',
    `Add --saturation-detector concurrency, ${whatever}`,
  ],
  [
    ['maxConcurrency'],
    ({ counts }) => counts !== 'tokens',
    'counts requests, and --concurrency-kind is tokens',
    `Set that to requests or hybrid, ${whatever}`,
  ],
  [
    ['maxTokenConcurrency'],
    ({ counts }) => counts !== 'requests',
    'counts tokens, and --concurrency-kind is requests',
    `Set that to tokens or hybrid, ${whatever}`,
  ],
  [
    ['maxGatewayQueueDepth', 'perBandCapacity', 'usageLimitThreshold', 'requestTtl', 'queueShedding'],
    ({ detector }) => detector !== 'never',
    'is for requests that wait, and with --saturation-detector never none does',
    `Set that to utilization or concurrency, ${whatever}`,
  ],
  [
    ['queueShedding'],
    ({ options }) => positive(options, 'maxGatewayQueueDepth') || positive(options, 'perBandCapacity'),
    'is for a full queue, and this one is never full',
    `Add --max-gateway-queue-depth or --per-band-capacity, ${whatever}`,
  ],
  [
    ['sloTargets'],
    ({ options }) => options.dispatchOrder === 'slo-deadline',
    'is for --dispatch-order slo-deadline',
    `Add that, ${whatever}`,
  ],
  [
    ['tokenBucketCapacity', 'tokenBucketRefillRate'],
    ({ admission }) => admission === 'token-bucket',
    'is of the admission policy token-bucket',
    `Add --admission-policy token-bucket, ${whatever}`,
  ],
  [
    ['routingScorers'],
    ({ routing }) => routing === 'weighted',
    'is of the routing policy weighted',
    `Add --routing-policy weighted, ${whatever}`,
  ],
  [
    ['snapshotRefreshInterval'],
    readsLoads,
    'is the age of reports that no policy of this run reads',
    `Choose another routing or admission policy, ${whatever}`,
  ],
  [
    ['cacheSignalDelay', 'shadowKv'],
    readsCaches,
    'is about what routers know of caches, and this routing reads none',
    `Add --routing-policy weighted, ${whatever}`,
  ],
  [
    [
      ...['pdDecider', 'pdPrefixThreshold', 'prefillRoutingScorers', 'decodeRoutingScorers'],
      ...['pdTransferBandwidth', 'pdTransferBaseLatency', 'pdTransferGranularity'],
    ],
    ({ hasRoles }) => hasRoles,
    'is for instances with roles, and this run has none',
    `Add --prefill-instances and --decode-instances, ${whatever}`,
  ],
  [
    ['prefillDecodeInstances'],
    ({ hasRoles }) => hasRoles,
    'counts instances beside those with one role, and this run has none',
    'Add --prefill-instances or --decode-instances, or use --num-instances alone.',
  ],
  [
    ['thinkTimeMs'],
    ({ options }) =>
      positive(options, 'concurrency') ||
      options.sessionMode === 'closed-loop' ||
      isConversation(options.workload),
    'is the pause of users in closed loop, and this run has none',
    `Add --workload chat or --concurrency, ${whatever}`,
  ],
  [
    ['pdPrefixThreshold'],
    ({ decider }) => decider === 'prefix-threshold',
    'is of the decider prefix-threshold',
    `Add --pd-decider prefix-threshold, ${whatever}`,
  ],
  [
    [
      ...['prefillRoutingScorers', 'pdTransferBandwidth', 'pdTransferBaseLatency'],
      ...['pdTransferGranularity', 'pdTransferPipelined', 'pdTransferMissing'],
    ],
    ({ decider }) => decider !== 'never',
    'is for hand-offs, and with --pd-decider never this run has none',
    `Add --pd-decider always or prefix-threshold, ${whatever}`,
  ],
  [
    ['kvTransferBandwidth', 'kvTransferBaseLatency'],
    ({ options }) => positive(options, 'kvCpuBlocks'),
    'is of the blocks in host memory that --kv-cpu-blocks asks for',
    `Add that, ${whatever}`,
  ],
  [
    ['kvOffloadThreshold', 'kvLoad'],
    ({ hasLowerTiers }) => hasLowerTiers,
    'is for tiers below GPU memory, and this run has none',
    `Add --ddr, --nvme or --kv-offload-config, ${whatever}`,
  ],
  [
    ['gpuMemoryUtilization'],
    ({ isFlag }) => !isFlag('totalKvBlocks'),
    'says how many blocks fit, and --hbm says it already',
    'Leave one of them out.',
  ],
  [
    ['speculativeAcceptance', 'speculativeDraftModel', 'speculativeDraftUs'],
    ({ options }) => positive(options, 'numSpeculativeTokens'),
    'is of speculative decoding, and this run has none',
    `Add --num-speculative-tokens, ${whatever}`,
  ],
  [
    ['speculativeDraftUs'],
    ({ isFlag }) => !isFlag('speculativeDraftModel'),
    'says how long a draft takes, and --speculative-draft-model says it already',
    'Leave one of them out.',
  ],
  [
    ['maxLoraRank', 'loraLoadUs'],
    ({ options }) => positive(options, 'maxLoras'),
    'is of LoRA adapters in GPU memory, and this run has none',
    `Add --max-loras, ${whatever}`,
  ],
  [
    ['coefficients'],
    ({ isFlag }) => !isFlag('alphaCoeffs'),
    'gives coefficients, and so do --alpha-coeffs and --beta-coeffs',
    'Leave one of them out.',
  ],
  [
    ['jitterSeed'],
    ({ scales }) => scales,
    'is for machines that come, and this run has no autoscaler',
    `Add --model-autoscaler-interval-us or a bundle with autoscaler, ${whatever}`,
  ],
  [
    ['counterfactualK'],
    ({ isFlag }) => isFlag('decisions') || isFlag('summarizeTrace'),
    'is for the record of decisions, and none is kept',
    `Add --decisions or --summarize-trace, ${whatever}`,
  ],
  [
    ['chromeTraceEvents'],
    ({ isFlag }) => isFlag('chromeTrace'),
    'is given without --chrome-trace',
    `Add that, ${whatever}`,
  ],
  [
    ['traceLevel'],
    ({ options, isFlag }) => options.traceLevel === 'none' || isFlag('decisions') || isFlag('summarizeTrace'),
    'records decisions, and nothing asks for them',
    `Add --decisions or --summarize-trace, ${whatever}`,
  ],
];

/** Refuses keys of a bundle that belong to a policy which the run does not have. */
function refuseIdleKeys(asked: Asked): void {
  const { bundle, admission, routing, options } = asked;
  const file = textOption(options, 'policyConfig');
  const keys: readonly (readonly [key: string, value: unknown, acts: boolean, of: string])[] = [
    ['admission.token_bucket_capacity', bundle.bucketCapacity, admission === 'token-bucket', 'token-bucket'],
    [
      'admission.token_bucket_refill_rate',
      bundle.bucketRefillRate,
      admission === 'token-bucket',
      'token-bucket',
    ],
    ['admission.tier_shed_threshold', bundle.shedThreshold, admission === 'tier-shed', 'tier-shed'],
    ['admission.tier_shed_min_priority', bundle.shedMinPriority, admission === 'tier-shed', 'tier-shed'],
    ['admission.gaie_qd_threshold', bundle.queueThreshold, admission === 'gaie-legacy', 'gaie-legacy'],
    ['admission.gaie_kv_threshold', bundle.kvThreshold, admission === 'gaie-legacy', 'gaie-legacy'],
    [
      'admission.slo_targets',
      bundle.sloTargetsUs,
      options.flowControl === true && options.dispatchOrder === 'slo-deadline',
      '--flow-control with --dispatch-order slo-deadline',
    ],
    ['routing.scorers', bundle.scorers, routing === 'weighted', 'the routing policy weighted'],
  ];
  for (const [key, value, acts, of] of keys) {
    if (value === undefined || acts) continue;
    const where = key.startsWith('admission.') && !of.startsWith('--') ? `the admission policy ${of}` : of;
    throw configError(
      key,
      `of ${file} is of ${where}, which this run has not`,
      'Choose that, or drop the key.',
    );
  }
}

/**
 * To be called once everything was read, so that a wrong value is told before a needless option.
 * @param isRecorded whether the workload was recorded, not generated
 * @throws TKV_CONFIG with the first option or key that would do nothing
 */
export function refuseIdleOptions(
  { options, given }: AskedSimulation,
  policyFile: PolicyFile,
  isRecorded: boolean,
): void {
  const isGiven = (name: string): boolean => given.has(name);
  for (const name of ['timeout', 'profile']) {
    if (!isRecorded || !isGiven(name)) continue;
    throw configError(
      flagOf(name),
      'changes a specification, and this workload was recorded',
      'Leave it out.',
    );
  }
  const defaults = withDefaults(options.asUpstream === true ? { asUpstream: true } : {});
  const refuse = (asked: Asked, ofDeployment: boolean): void => {
    for (const [names, acts, lacks, remedy] of rules) {
      for (const name of names) {
        if (!isGiven(name) || asked.options[name] === defaults[name]) continue;
        // 0 asks for live signals, which changes nothing where policies read none
        if (liveAtZero.includes(name) && Number(asked.options[name]) === 0) continue;
        if (ofDeployment && !besideDeployment.includes(name)) continue;
        if (!acts(asked)) throw configError(flagOf(name), lacks, remedy);
      }
    }
  };
  if (options.deployment !== undefined) {
    refuse(askedOf(options, {}), true);
    return;
  }
  const asked = askedOf(options, policyFile);
  if (!isRecorded) {
    const targets = textOption(options, 'sloTargets') ?? '';
    const names = targets === '' ? [] : targets.split(',').map((entry) => entry.split('=')[0]);
    requireKnownClasses('--slo-targets', names);
    requireKnownClasses('admission.slo_priorities', Object.keys(asked.bundle.priorities ?? {}));
    requireKnownClasses('admission.slo_targets', Object.keys(asked.bundle.sloTargetsUs ?? {}));
  }
  refuse(asked, false);
  refuseIdleKeys(asked);
}

/**
 * Refuses options that say what a run writes, of a run that writes nothing.
 * @param what the run: it stands in the sentence
 * @throws TKV_CONFIG with the first of them that was given
 */
export function refuseOutputs({ given }: AskedSimulation, what: string, remedy: string): void {
  const name = outputNames.find((each) => each !== 'log' && given.has(each));
  if (name === undefined) return;
  throw configError(
    flagOf(name),
    `says what a run of tierkv simulate writes, and ${what} writes nothing`,
    remedy,
  );
}

const liveAtZero = ['snapshotRefreshInterval', 'cacheSignalDelay'];

/** Options of these rules that may be given beside a deployment file. */
const besideDeployment = ['counterfactualK', 'chromeTraceEvents', 'traceLevel', 'thinkTimeMs'];
