/** The control plane from options and upstream's policy bundle. Options override the bundle. */

import { readText } from '../../io/files/inputs.ts';
import { admissionPolicies } from '../control/admission.ts';
import type { ControlConfig } from '../control/controlPlane.ts';
import { checkControl } from '../control/plane.ts';
import type { ParameterValue, PolicyChoice } from '../control/policy.ts';
import { routingPolicies } from '../control/routing/routing.ts';
import { noTriggers } from '../control/scaling/autoScaler.ts';
import { readYaml, type SpecNode } from '../description/fields.ts';
import type { Path } from '../description/knobs.ts';
import {
  type Deployment,
  type FieldPaths,
  fault,
  get,
  nameOf,
  saidOfSettings,
} from '../description/settings.ts';
import type { EngineConfig } from '../instance/engine.ts';
import type { InstanceLimits } from '../instance/instance.ts';
import { shownPlain } from '../workload/traceLines.ts';
import type { PlannedScaling } from './built.ts';
import type { EngineHardware } from './engineSettings.ts';

interface ControlSetup {
  readonly control: ControlConfig;
  /** Null without a gateway queue. */
  readonly gateway: { readonly tickUs: number; readonly ttlUs: number } | null;
  readonly bundle: PolicyFile;
}

/** Settings behind the fields that the control plane checks. */
const fields: Readonly<Record<string, Path>> = {
  'admission.policy': 'control.admission.policy',
  'admission.capacity': 'control.tokenBucket.capacity',
  'admission.refillRate': 'control.tokenBucket.refillRate',
  'routing.policy': 'control.routing.policy',
  'routing.scorers': 'control.routing.scorers',
  'decider.policy': 'pools.decider',
  'decider.tokens': 'handoff.prefixThreshold',
  'gateway.detector': 'gateway.detector',
  'gateway.concurrencyKind': 'gateway.concurrencyKind',
  'gateway.order': 'gateway.order',
  'gateway.fairness': 'gateway.fairness',
  'shadow.model': 'control.shadow',
};

/** Parameters of the policies of a stage. */
const parametersOf = {
  admission: 'control.admission.parameters',
  routing: 'control.routing.parameters',
  gateway: 'gateway.parameters',
} as const;

/** The setting behind a field of the control plane: a parameter that was given by name is an entry. */
function controlField(deployment: Deployment): FieldPaths {
  return (field) => {
    const [stage, ...rest] = field.split('.');
    const entry = rest.join('.');
    if (Object.hasOwn(parametersOf, stage)) {
      const path = parametersOf[stage as keyof typeof parametersOf];
      if (Object.hasOwn(get(deployment, path) ?? {}, entry)) return [path, entry];
    }
    return Object.hasOwn(fields, field) ? fields[field] : undefined;
  };
}

/** The parameters that are given by name. */
function given(deployment: Deployment, stage: keyof typeof parametersOf): Record<string, ParameterValue> {
  const path = parametersOf[stage];
  const parameters = get(deployment, path) ?? {};
  if (!Object.hasOwn(parameters, 'policy')) return parameters;
  const remedy =
    stage === 'gateway' ? 'Leave it out.' : `Use ${nameOf(deployment, `control.${stage}.policy`)}.`;
  throw fault(deployment, path, 'names a policy', remedy);
}

/** @throws {TierKVError} about a setting, in the words of the one who wrote it */
export function controlSetup(deployment: Deployment): ControlSetup {
  const bundle = readBundle(get(deployment, 'control.policyFile'));
  return saidOfSettings(deployment, controlField(deployment), () => setupOf(deployment, bundle));
}

function setupOf(deployment: Deployment, bundle: PolicyFile): ControlSetup {
  const signals = {
    snapshotIntervalUs: get(deployment, 'control.snapshotUs'),
    cacheSignalUs: get(deployment, 'control.cacheSignalUs'),
  };
  const hasGateway = get(deployment, 'gateway.flowControl') === true;
  const config: Partial<ControlConfig> = {
    admission: { ...admissionOf(deployment, bundle), ...given(deployment, 'admission') },
    priority: { policy: 'slo-class', ...(bundle.priorities && { priorities: bundle.priorities }) },
    routing: { ...routingOf(deployment, bundle), ...given(deployment, 'routing') },
    ...poolRouting(deployment, 'prefillRouting', 'handoff.prefillScorers'),
    ...poolRouting(deployment, 'decodeRouting', 'handoff.decodeScorers'),
    decider: deciderOf(deployment),
    gateway: hasGateway ? gatewayOf(deployment, bundle) : null,
    signals,
    shadow: {
      model: (get(deployment, 'control.shadow') ?? 'none') as ControlConfig['shadow']['model'],
      blocks: 0,
      eventDelayUs: signals.cacheSignalUs,
      speculativeTtlUs: 2_000_000,
    },
    topK: get(deployment, 'control.topK'),
  };
  const gateway = hasGateway
    ? { tickUs: get(deployment, 'gateway.tickUs'), ttlUs: get(deployment, 'gateway.ttlUs') }
    : null;
  return { control: checkControl(config), gateway, bundle };
}

function admissionOf(deployment: Deployment, bundle: PolicyFile): PolicyChoice {
  const named = get(deployment, 'control.admission.policy');
  // upstream's gateway queue replaces the admission policy
  if (get(deployment, 'asUpstream') === true && get(deployment, 'gateway.flowControl') === true) {
    return { policy: admissionPolicies.nameOf('isUsual') };
  }
  const policy = named ?? bundle.admission ?? admissionPolicies.nameOf('isUsual');
  const budgets = bundle.tenantBudgets === undefined ? {} : { tenantBudgets: bundle.tenantBudgets };
  if (policy === 'token-bucket') {
    const capacity = get(deployment, 'control.tokenBucket.capacity') ?? bundle.bucketCapacity;
    const refillRate = get(deployment, 'control.tokenBucket.refillRate') ?? bundle.bucketRefillRate;
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

function routingOf(deployment: Deployment, bundle: PolicyFile): PolicyChoice {
  const policy =
    get(deployment, 'control.routing.policy') ?? bundle.routing ?? routingPolicies.nameOf('isUsual');
  const scorers = get(deployment, 'control.routing.scorers') ?? bundle.scorers;
  return drawingTies({
    policy,
    ...(scorers === undefined || policy !== routingPolicies.nameOf('isOfScorers') ? {} : { scorers }),
  });
}

/**
 * The rule for instances that a routing policy finds equal, unless the choice says another: upstream draws among them, except
 * that `always-busiest` takes the first.
 */
export function drawingTies(choice: PolicyChoice): PolicyChoice {
  const { policy } = choice;
  // an unknown name is refused where the choice is checked
  if (policy === 'always-busiest' || !routingPolicies.names.includes(policy)) return choice;
  return 'ties' in routingPolicies.describe(policy).parameters ? { ties: 'random', ...choice } : choice;
}

function poolRouting(
  deployment: Deployment,
  field: 'prefillRouting' | 'decodeRouting',
  path: 'handoff.prefillScorers' | 'handoff.decodeScorers',
): Partial<Pick<ControlConfig, 'prefillRouting' | 'decodeRouting'>> {
  const scorers = get(deployment, path);
  if (scorers === undefined) return {};
  const choice = drawingTies({ policy: routingPolicies.nameOf('isOfScorers'), scorers });
  // the registry names its fields as those of any routing
  const pathOf = (field: string): readonly [Path, string] | undefined => {
    const [, entry] = /^routing\.scorers\.(.*)$/.exec(field) ?? [];
    return entry === undefined ? undefined : [path, entry];
  };
  return { [field]: saidOfSettings(deployment, pathOf, () => routingPolicies.resolve(choice)) };
}

function deciderOf(deployment: Deployment): PolicyChoice {
  const policy = get(deployment, 'pools.decider') ?? 'never';
  const tokens = get(deployment, 'handoff.prefixThreshold');
  return { policy, ...(policy === 'prefix-threshold' && tokens !== undefined ? { tokens } : {}) };
}

function gatewayOf(deployment: Deployment, bundle: PolicyFile): PolicyChoice {
  const targetsUs = get(deployment, 'gateway.targetsUs') ?? bundle.sloTargetsUs;
  return {
    policy: 'banded',
    detector: get(deployment, 'gateway.detector') ?? 'never',
    queueThreshold: get(deployment, 'gateway.queueThreshold') ?? 5,
    kvThreshold: get(deployment, 'gateway.kvThreshold') ?? 0.8,
    concurrencyKind: get(deployment, 'gateway.concurrencyKind') ?? 'requests',
    maxConcurrency: get(deployment, 'gateway.maxConcurrency') ?? 100,
    maxTokenConcurrency: get(deployment, 'gateway.maxTokenConcurrency') ?? 1_000_000,
    order: get(deployment, 'gateway.order') ?? 'fifo',
    fairness: get(deployment, 'gateway.fairness') ?? 'global-strict',
    maxDepth: get(deployment, 'gateway.maxDepth'),
    perBandCapacity: get(deployment, 'gateway.perBandCapacity'),
    usageLimit: get(deployment, 'gateway.usageLimit') ?? 1,
    shedding: get(deployment, 'gateway.shedding') === true,
    ...(targetsUs === undefined ? {} : { targetsUs }),
    ...given(deployment, 'gateway'),
  };
}

//  Upstream's policy bundle (`control.policyFile`), read strictly: a key that it does not have is an error.

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
function known<T extends object>(fields: { [K in keyof T]: T[K] | undefined }): Partial<T> {
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
    ...known<PolicyFile>({
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
  const fields = known<PolicyFile>({
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
  const fields = known<PolicyFile>({
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
  deployment: Deployment,
  bundle: PolicyFile,
  machine: EngineHardware,
  engine: EngineConfig,
  limits: InstanceLimits,
  replicas: number,
): PlannedScaling | undefined {
  const { autoscaler, nodePools, loadingDelayS = [0, 0] } = bundle;
  const pollIntervalUs = get(deployment, 'control.autoscalerIntervalUs') ?? autoscaler?.intervalUs ?? 0;
  const scales = pollIntervalUs > 0;
  // upstream's instances load their model where nodes are named
  const isCold = nodePools !== undefined && bundle.warmStart !== true && loadingDelayS.some((s) => s > 0);
  const most = nodePools === undefined ? REPLICAS_MAX : roomOf(nodePools, machine);
  if (replicas > most && (scales || nodePools !== undefined)) {
    const count = machine.tp * machine.dp;
    const each = `${count} ${count === 1 ? 'GPU' : 'GPUs'} of ${machine.hardware.name} on one node each`;
    const holders = nodePools === undefined ? 'an autoscaler keeps' : `the node pools (${each}) hold`;
    const problem = `is ${replicas}, and ${holders} ${most} of them`;
    throw fault(deployment, 'pools.total', problem, 'Lower it, or give node_pools more initial_nodes.');
  }
  if (!scales && !isCold) return undefined;
  if (get(deployment, 'pools.prefill') + get(deployment, 'pools.decode') > 0) {
    const path = scales && autoscaler === undefined ? 'control.autoscalerIntervalUs' : 'control.policyFile';
    const problem = scales
      ? 'asks for an autoscaler and does not say which role it scales'
      : 'has instances load their model (instance_lifecycle), and there are roles';
    const pools = `pools with role, replicas: {min: 1, max: 4} and autoscaling, and pass it with ${nameOf(deployment, 'file')}`;
    throw fault(deployment, path, problem, `Write a YAML file with ${pools}, or leave out the roles.`);
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
