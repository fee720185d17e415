/** The control plane from options and upstream's policy bundle. Options override the bundle. */

import { readText } from '../files/inputs.ts';
import { configError } from '../runtime/errors.ts';
import type { ControlConfig } from '../sim/control/controlPlane.ts';
import { checkControl } from '../sim/control/plane.ts';
import type { ParameterValue, PolicyChoice } from '../sim/control/policy.ts';
import { routingPolicies } from '../sim/control/routing/routing.ts';
import { noTriggers } from '../sim/control/scaling/autoScaler.ts';
import { readYaml, type SpecNode } from '../sim/description/fields.ts';
import type { EngineConfig } from '../sim/instance/engine.ts';
import type { InstanceLimits } from '../sim/instance/instance.ts';
import { shownPlain } from '../sim/workload/traceLines.ts';
import type { PlannedScaling } from './built.ts';
import type { EngineHardware } from './engineOptions.ts';
import { inOptionNames } from './optionNames.ts';
import { realOption, textOption, whole, wholeOption } from './options.ts';
import { flagOf, type OptionValues } from './optionTable.ts';

interface ControlSetup {
  readonly control: ControlConfig;
  /** Null without a gateway queue. */
  readonly gateway: { readonly tickUs: number; readonly ttlUs: number } | null;
  readonly bundle: PolicyFile;
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

export function controlSetup(options: OptionValues): ControlSetup {
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

/** Fields that `--admission-parameters` and similar options set, each with its option. */
function parameterFields(options: OptionValues): Record<string, string> {
  return Object.fromEntries(
    ['admission', 'routing', 'gateway'].flatMap((stage) =>
      Object.keys(parametersOf(options, `${stage}Parameters`)).map((name) => {
        return [`${stage}.${name}`, `--${stage}-parameters ${name}`];
      }),
    ),
  );
}

/** `name=value` separated by commas: numbers, true and false, or names. */
function parametersOf(options: OptionValues, name: string): Record<string, ParameterValue> {
  const parameters = new Map<string, ParameterValue>();
  for (const entry of textOption(options, name)?.split(',') ?? []) {
    const [parameter, value = '', ...rest] = entry.split('=').map((part) => part.trim());
    if (parameter === '' || value === '' || rest.length > 0 || parameters.has(parameter)) {
      throw configError(flagOf(name), `holds "${entry}"`, 'Write each parameter once, as name=value.');
    }
    if (parameter === 'policy') throw configError(flagOf(name), 'names a policy', 'Use the option for it.');
    const number = Number(value);
    parameters.set(
      parameter,
      value === 'true' || value === 'false' ? value === 'true' : Number.isNaN(number) ? value : number,
    );
  }
  return Object.fromEntries(parameters);
}

function admissionOf(options: OptionValues, bundle: PolicyFile): PolicyChoice {
  const named = textOption(options, 'admissionPolicy');
  // upstream's gateway queue replaces the admission policy
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

function routingOf(options: OptionValues, bundle: PolicyFile): PolicyChoice {
  const policy = textOption(options, 'routingPolicy') ?? bundle.routing ?? 'round-robin';
  const scorers = scorersOf(options, 'routingScorers') ?? bundle.scorers;
  // an unknown name is refused where the choice is checked, which knows the field that the user wrote
  const parameters = routingPolicies.names.includes(policy)
    ? routingPolicies.describe(policy).parameters
    : {};
  // upstream draws among equal instances, except that `always-busiest` takes the first
  const ties = 'ties' in parameters && policy !== 'always-busiest' ? { ties: 'random' } : {};
  return { policy, ...ties, ...(scorers === undefined || policy !== 'weighted' ? {} : { scorers }) };
}

function poolRouting(
  options: OptionValues,
  field: 'prefillRouting' | 'decodeRouting',
): Partial<Pick<ControlConfig, 'prefillRouting' | 'decodeRouting'>> {
  const scorers = scorersOf(options, `${field}Scorers`);
  return scorers === undefined ? {} : { [field]: { policy: 'weighted', ties: 'random', scorers } };
}

/** `name:weight` separated by commas; without a weight it is 1. */
function scorersOf(options: OptionValues, name: string): Record<string, number> | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  const scorers = new Map<string, number>();
  for (const entry of text.split(',')) {
    const [scorer, weight = '1', ...rest] = entry.split(':').map((part) => part.trim());
    const value = weight === '' ? Number.NaN : Number(weight);
    if (!(value > 0) || rest.length > 0 || scorers.has(scorer)) {
      throw configError(flagOf(name), `holds "${entry}"`, 'Write each scorer once, as name:weight.');
    }
    scorers.set(scorer, value);
  }
  return Object.fromEntries(scorers);
}

function deciderOf(options: OptionValues): PolicyChoice {
  const policy = textOption(options, 'pdDecider') ?? 'never';
  const tokens = wholeOption(options, 'pdPrefixThreshold', 0);
  return { policy, ...(policy === 'prefix-threshold' && tokens !== undefined ? { tokens } : {}) };
}

function gatewayOf(options: OptionValues, bundle: PolicyFile): PolicyChoice {
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
function targetsOf(options: OptionValues): Record<string, number> | undefined {
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

//  Upstream's policy bundle (`--policy-config`), read strictly: a key that it does not have is an error.

/** Values of a bundle; fields that it leaves out are absent. */
export interface PolicyFile {
  readonly admission?: string;
  readonly bucketCapacity?: number;
  readonly bucketRefillRate?: number;
  readonly shedThreshold?: number;
  readonly shedMinPriority?: number;
  readonly queueThreshold?: number;
  readonly kvThreshold?: number;
  readonly priorities?: Readonly<Record<string, number>>;
  readonly sloTargetsUs?: Readonly<Record<string, number>>;
  readonly routing?: string;
  readonly scorers?: Readonly<Record<string, number>>;
  readonly scheduler?: string;
  readonly preemption?: string;
  readonly tenantBudgets?: Readonly<Record<string, number>>;
  readonly autoscaler?: BundleAutoscaler;
  /** Nodes of the cluster, where the bundle names node pools. */
  readonly nodePools?: readonly NodePool[];
  /** Mean and deviation in seconds. */
  readonly loadingDelayS?: readonly [mean: number, stddev: number];
  /** Whether instances of the start have their model loaded; only beside node pools. */
  readonly warmStart?: boolean;
}

/** Nodes of one kind. All are there from the start: upstream adds none later. */
interface NodePool {
  readonly name: string;
  readonly gpuType: string;
  readonly nodes: number;
  readonly gpusPerNode: number;
}

interface BundleAutoscaler {
  readonly intervalUs: number;
  readonly upWindowUs: number;
  readonly downWindowUs: number;
  readonly delayS: readonly [mean: number, stddev: number];
  readonly kvThreshold: number;
  readonly upThreshold: number;
  readonly downBoundary: number;
  readonly inputTokens: number;
}

/** The fields whose values are known. */
function given<T extends object>(fields: { [K in keyof T]: T[K] | undefined }): Partial<T> {
  // entries that are undefined are left out, so the rest has its type
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

function textOf(node: SpecNode | undefined, key: string): string | undefined {
  const text = node?.text(key) ?? '';
  return text === '' ? undefined : text;
}

function numbersOf(
  node: SpecNode | undefined,
  key: string,
  range: { min?: number; max?: number; above?: number },
): Record<string, number> | undefined {
  const section = node?.section(key);
  if (section === undefined) return undefined;
  const numbers = Object.fromEntries(section.keys().map((name) => [name, section.number(name, range, 0)]));
  section.close();
  return numbers;
}

function readBundle(file: string | undefined): PolicyFile {
  if (file === undefined) return {};
  const root = readYaml(readText(file), file);
  const bundle: PolicyFile = {
    ...bundledAdmission(root.section('admission')),
    ...bundledRouting(root.section('routing')),
    ...given<PolicyFile>({
      scheduler: textOf(root, 'scheduler'),
      preemption: policyOf(root.section('preemption')),
      tenantBudgets: numbersOf(root, 'tenant_budgets', { min: 0, max: 1 }),
      autoscaler: autoscalerOf(root.section('autoscaler')),
      nodePools: nodePoolsOf(root.list('node_pools')),
    }),
    ...lifecycleOf(root.section('instance_lifecycle')),
  };
  const priority = root.section('priority');
  const ranks = policyOf(priority) ?? 'constant';
  if (priority !== undefined && ranks !== 'constant') {
    const problem = `is "${shownPlain(ranks)}", which changes nothing, here as upstream`;
    throw priority.error('policy', problem, 'Drop it; scheduler: priority-fcfs orders requests by class');
  }
  root.close();
  return bundle;
}

function delayOf(node: SpecNode | undefined, key: string): [number, number] {
  const delay = node?.section(key);
  const range = { min: 0, max: 1e6 };
  const found: [number, number] = [
    delay?.number('mean', range, 0) ?? 0,
    delay?.number('stddev', range, 0) ?? 0,
  ];
  delay?.close();
  return found;
}

function autoscalerOf(node: SpecNode | undefined): BundleAutoscaler | undefined {
  if (node === undefined) return undefined;
  const analyzer = node.section('analyzer');
  const time = { min: 0, max: 1e15 };
  const found: BundleAutoscaler = {
    intervalUs: node.number('interval_us', time, 0),
    upWindowUs: node.number('scale_up_stabilization_window_us', time, 0),
    downWindowUs: node.number('scale_down_stabilization_window_us', time, 0),
    delayS: delayOf(node, 'hpa_scrape_delay'),
    kvThreshold: analyzer?.number('kv_cache_threshold', { above: 0, max: 1 }, 0.8) ?? 0.8,
    upThreshold: analyzer?.number('scale_up_threshold', { above: 0 }, 0.8) ?? 0.8,
    downBoundary: analyzer?.number('scale_down_boundary', { above: 0 }, 0.4) ?? 0.4,
    inputTokens: analyzer?.number('avg_input_tokens', { above: 0 }, 512) ?? 512,
  };
  analyzer?.close();
  node.close();
  return found;
}

function nodePoolsOf(pools: readonly SpecNode[]): NodePool[] | undefined {
  if (pools.length === 0) return undefined;
  return pools.map((pool) => {
    const count = { min: 0, max: 1024 };
    const found: NodePool = {
      name: pool.text('name'),
      gpuType: pool.text('gpu_type'),
      nodes: pool.integer('initial_nodes', count, 0),
      gpusPerNode: pool.integer('gpus_per_node', { min: 1, max: 1024 }, 1),
    };
    for (const key of ['min_nodes', 'max_nodes']) pool.integer(key, count, 0);
    for (const key of ['gpu_memory_gib', 'cost_per_hour']) pool.number(key, { min: 0 }, 0);
    delayOf(pool, 'provisioning_delay');
    pool.close();
    return found;
  });
}

function lifecycleOf(node: SpecNode | undefined): Partial<PolicyFile> {
  if (node === undefined) return {};
  const found = { loadingDelayS: delayOf(node, 'loading_delay') };
  const warmStart = node.flag('warm_start_initial_instances');
  node.close();
  return warmStart === undefined ? found : { ...found, warmStart };
}

function policyOf(node: SpecNode | undefined): string | undefined {
  const policy = textOf(node, 'policy');
  node?.close();
  return policy;
}

function bundledAdmission(node: SpecNode | undefined): Partial<PolicyFile> {
  if (node === undefined) return {};
  const fields = given<PolicyFile>({
    admission: textOf(node, 'policy'),
    bucketCapacity: node.optionalNumber('token_bucket_capacity', { above: 0 }),
    bucketRefillRate: node.optionalNumber('token_bucket_refill_rate', { above: 0 }),
    shedThreshold: node.optionalInteger('tier_shed_threshold', { min: 0 }),
    shedMinPriority: node.optionalInteger('tier_shed_min_priority', { min: -100, max: 100 }),
    queueThreshold: node.optionalNumber('gaie_qd_threshold', { above: 0 }),
    kvThreshold: node.optionalNumber('gaie_kv_threshold', { above: 0, max: 1 }),
    priorities: numbersOf(node, 'slo_priorities', { min: -100, max: 100 }),
    sloTargetsUs: numbersOf(node, 'slo_targets', { above: 0 }),
  });
  node.close();
  return fields;
}

function bundledRouting(node: SpecNode | undefined): Partial<PolicyFile> {
  if (node === undefined) return {};
  const scorers = new Map<string, number>();
  for (const entry of node.list('scorers')) {
    scorers.set(entry.text('name'), entry.number('weight', { above: 0 }, 1));
    entry.close();
  }
  const fields = given<PolicyFile>({
    routing: textOf(node, 'policy'),
    scorers: scorers.size === 0 ? undefined : Object.fromEntries(scorers),
  });
  node.close();
  return fields;
}

//  The autoscaler of a policy bundle, with the options that change it.

/** Most replicas where no node pool bounds them. */
const REPLICAS_MAX = 64;

/** Instances that the nodes can hold. An instance lies on one node with its kind of GPU. */
function roomOf(nodePools: readonly NodePool[], machine: EngineHardware): number {
  const { name, aliases } = machine.hardware;
  const names = [name, ...aliases].map((each) => each.toLowerCase());
  let room = 0;
  for (const { gpuType, nodes, gpusPerNode } of nodePools) {
    if (gpuType !== '' && !names.includes(gpuType.toLowerCase())) continue;
    room += nodes * Math.floor(gpusPerNode / (machine.tp * machine.dp));
  }
  return room;
}

/**
 * How replicas come and go: with an autoscaler, and where instances of the start have to load their model.
 * @returns undefined without an autoscaler, or with an interval of 0, where all are ready from the start
 */
export function planScaling(
  options: OptionValues,
  bundle: PolicyFile,
  machine: EngineHardware,
  engine: EngineConfig,
  limits: InstanceLimits,
  replicas: number,
): PlannedScaling | undefined {
  const { autoscaler, nodePools, loadingDelayS = [0, 0] } = bundle;
  const pollIntervalUs = wholeOption(options, 'modelAutoscalerIntervalUs', 0) ?? autoscaler?.intervalUs ?? 0;
  const scales = pollIntervalUs > 0;
  // upstream's instances load their model where nodes are named
  const isCold = nodePools !== undefined && bundle.warmStart !== true && loadingDelayS.some((s) => s > 0);
  const most = nodePools === undefined ? REPLICAS_MAX : roomOf(nodePools, machine);
  if (replicas > most && (scales || nodePools !== undefined)) {
    const count = machine.tp * machine.dp;
    const each = `${count} ${count === 1 ? 'GPU' : 'GPUs'} of ${machine.hardware.name} on one node each`;
    const holders = nodePools === undefined ? 'an autoscaler keeps' : `the node pools (${each}) hold`;
    const problem = `is ${replicas}, and ${holders} ${most} of them`;
    throw configError('--num-instances', problem, 'Lower it, or give node_pools more initial_nodes.');
  }
  if (!scales && !isCold) return undefined;
  if (whole(options, 'prefillInstances', 0) + whole(options, 'decodeInstances', 0) > 0) {
    const option = scales && autoscaler === undefined ? '--model-autoscaler-interval-us' : '--policy-config';
    const problem = scales
      ? 'asks for an autoscaler and does not say which role it scales'
      : 'has instances load their model (instance_lifecycle), and there are roles';
    const pools =
      'pools with role, replicas: {min: 1, max: 4} and autoscaling, and pass it with --deployment';
    throw configError(option, problem, `Write a YAML file with ${pools}, or leave out the roles.`);
  }
  const { kvThreshold = 0.8, upThreshold = 0.8, downBoundary = 0.4, inputTokens = 512 } = autoscaler ?? {};
  const ofBundle = {
    policy: 'token-capacity',
    kvThreshold,
    upThreshold,
    downBoundary,
    promptTokens: inputTokens,
  };
  const bounds = scales ? { min: 1, max: most } : { min: replicas, max: replicas };
  const seconds = ([mean, stddev]: readonly [number, number]): { meanUs: number; stddevUs: number } => ({
    meanUs: mean * 1e6,
    stddevUs: stddev * 1e6,
  });
  const actuation = {
    decisionDelay: seconds(autoscaler?.delayS ?? [0, 0]),
    provisioningDelay: { meanUs: 0, stddevUs: 0 },
    modelLoadTime: seconds(loadingDelayS),
    warmup: { durationUs: 0, curve: 'step', initialPenaltyFactor: 1 },
    drain: { mode: 'wait', drainTimeoutUs: 0 },
  } as const;
  return {
    configId: 'default',
    scaler: {
      policy: ofBundle,
      mode: 'periodic',
      pollIntervalUs: scales ? pollIntervalUs : 1,
      minReplicas: bounds.min,
      maxReplicas: bounds.max,
      upWindowUs: autoscaler?.upWindowUs ?? 0,
      downWindowUs: autoscaler?.downWindowUs ?? 0,
      triggers: noTriggers,
    },
    actuation,
    bounds,
    replicas,
    start: isCold ? 'cold' : 'warm',
    capacityTokens: engine.topBlocks * engine.blockTokens,
    blockTokens: engine.blockTokens,
    maxSequences: limits.maxSequences,
    suffix: '',
  };
}
