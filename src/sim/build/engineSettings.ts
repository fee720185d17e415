/** The engine of an instance from its settings: KV tiers, scheduler, and model of time. */

import path from 'node:path';
import { readText } from '../../io/files/inputs.ts';
import {
  type PreemptionMode,
  plainOrderNames,
  preemptionNames,
  RANKED,
  victimRuleNames,
} from '../../runtime/batching/config.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { evictionPolicyNames } from '../../runtime/eviction/registry.ts';
import { squaresOf } from '../../runtime/planning/loadOrRecompute.ts';
import { type TierName, TOP, tierNames } from '../../runtime/tier/tier.ts';
import { readYaml, type SpecNode } from '../description/fields.ts';
import { oneOf } from '../description/kinds.ts';
import type { Path } from '../description/knobs.ts';
import {
  type Deployment,
  type FieldPaths,
  fault,
  get,
  isGiven,
  nameOf,
  saidOfSettings,
} from '../description/settings.ts';
import type { AdapterConfig } from '../instance/adapterSlots.ts';
import type { EngineConfig, LoadTiming } from '../instance/engine.ts';
import type { InstanceLimits } from '../instance/instance.ts';
import { automaticBlockCount, kvBytesPerToken } from '../latency/capacity.ts';
import { type Coefficients, coefficientLists } from '../latency/coefficients.ts';
import {
  adapterBytesOf,
  engineMemory,
  layerKvBytesPerToken,
  localKvBytesPerToken,
} from '../latency/engineMemory.ts';
import { type SideBlocks, sideBlockCount, sideBlocksOf } from '../latency/kvLayout.ts';
import { type LatencyModel, sumBatch } from '../latency/latencyModel.ts';
import {
  type LatencyBackend,
  latencyBackends,
  latencyFacts,
  latencyModelsThat,
  type MoeCommBackend,
  moeCommBackends,
  usualLatency,
} from '../latency/latencyNames.ts';
import { type LatencySetup, newLatencyModel } from '../latency/makeModel.ts';
import {
  type Hardware,
  kvElementBytesOf,
  type ModelConfig,
  parseUpstreamHardware,
} from '../latency/modelConfig.ts';
import { loadedFormats, quantised } from '../latency/quantisation.ts';
import { hostTier, linksDown, linksUp, pcie, sharedTier, sizedTierNames } from '../links/machineTiers.ts';
import { checkSharedServer, instanceLinks, type SharedServerConfig } from '../links/sharedServer.ts';
import {
  type ChosenCoefficients,
  chooseCoefficients,
  loadHardware,
  loadModel,
  loadVouchedModel,
  modelDefaults,
} from './dataFiles.ts';
import { BLOCKS_MAX, blocksOf, offloadTiers, sizedTiers, type Tiers, withDevices } from './offloadTiers.ts';

interface EngineSetup {
  readonly engine: EngineConfig;
  readonly limits: InstanceLimits;
}

/** Blocks of an instance where its GPU memory is unknown; upstream's number. */
const BLOCKS_FALLBACK = 1_000_000;
/** Makes the tiers that a deployment file describes. */
export type MakeTiers = (blockBytes: number) => Tiers;

/** One of the names, or an error with the nearest of them. */
export function chosen<T extends string>(
  deployment: Deployment,
  path: Path,
  name: string,
  names: readonly T[],
): T {
  return oneOf(name, names, (problem, remedy) => fault(deployment, path, problem, remedy));
}

/** Settings behind the fields that the engine, its memory and its model of time check. */
const engineFields: Readonly<Record<string, Path>> = {
  coefficients: 'latency.coefficients',
  latencyModel: 'latency.model',
  GPU: 'hardware',
  draftTokens: 'speculation.draftTokens',
  acceptance: 'speculation.acceptance',
  draftUs: 'speculation.draftUs',
  expertImbalance: 'latency.expertImbalance',
  offload: 'tiers.offload',
  'adapters.slots': 'engine.maxLoras',
  'adapters.loadUs': 'engine.loraLoadUs',
  blockTokens: 'engine.blockTokens',
  memoryUtilization: 'engine.memoryUtilization',
  topBlocks: 'engine.kvBlocks',
  ...Object.fromEntries(sizedTierNames.map((name) => [`${name}.blocks`, `tiers.${name}` as const])),
  maxBatchedTokens: 'engine.maxBatchedTokens',
  quantization: 'engine.quantization',
  maxSequences: 'engine.maxSequences',
  longPrefillTokens: 'engine.longPrefillTokens',
};

/** The setting behind a field of an engine. */
export const engineField: FieldPaths = (field) =>
  Object.hasOwn(engineFields, field) ? engineFields[field] : undefined;

/**
 * @param fallback policies of a bundle, for settings that were not given
 * @param makeTiers the lower tiers, where settings do not say them
 * @throws {TierKVError} about a setting, in the words of the one who wrote it
 */
export function engineSetup(
  deployment: Deployment,
  machine: EngineHardware,
  fallback: { readonly scheduler?: string; readonly preemption?: string } = {},
  makeTiers?: MakeTiers,
): EngineSetup {
  return saidOfSettings(deployment, engineField, () => setupOf(deployment, machine, fallback, makeTiers));
}

function setupOf(
  deployment: Deployment,
  machine: EngineHardware,
  fallback: { readonly scheduler?: string; readonly preemption?: string },
  makeTiers: MakeTiers | undefined,
): EngineSetup {
  const of = <P extends Path>(path: P): ReturnType<typeof get<P>> => get(deployment, path);
  const named = <T extends string>(path: Path, name: string, names: readonly T[]): T =>
    chosen(deployment, path, name, names);
  const scheduler = of('engine.scheduler') ?? fallback.scheduler ?? 'fcfs';
  const victimRule = of('engine.preemptionPolicy') ?? fallback.preemption ?? 'fcfs';
  const blockTokens = of('engine.blockTokens');
  const blockBytes = blockBytesOf(deployment, machine, blockTokens);
  const topBlocks =
    blocksOf(deployment, 'engine.kvBlocks', blockBytes * machine.tp, 1) ??
    fittingBlocks(deployment, machine, blockTokens);
  const made = makeTiers?.(blockBytes) ?? tiersOf(deployment, blockTokens, blockBytes, machine.tp);
  const own = withDevices(deployment, made);
  const { lowerTiers, loads, shared } = withShared(deployment, own, blockBytes, machine.tp);
  const always = of('tiers.load') === 'always';
  const batch = batchLimits(deployment, machine);
  const offload = of('tiers.offload');
  const isShareGiven = offload === 'threshold' && isGiven(deployment, 'tiers.offloadThreshold');
  const share = isShareGiven ? { share: of('tiers.offloadThreshold') } : {};
  const preemption = named('engine.preemptionMode', of('engine.preemptionMode'), preemptionNames);
  if (preemption === 'offload' && lowerTiers.length === 0) {
    const problem = 'is offload, and no tier lies below';
    throw fault(deployment, 'engine.preemptionMode', problem, 'Use recompute.');
  }
  const side = of('asUpstream') === true ? undefined : sideBlocks(machine, blockTokens);
  const spare =
    side === undefined
      ? 0
      : sideBlockCount(side, topBlocks, Math.ceil(of('engine.maxBatchedTokens') / blockTokens), blockTokens);
  if (spare >= topBlocks) {
    const problem = `is ${topBlocks} blocks, and windows and states of one request of ${machine.model.name} take ${spare}`;
    const remedy = `Give more memory, or a smaller ${nameOf(deployment, 'engine.maxBatchedTokens')}.`;
    throw fault(deployment, 'engine.kvBlocks', problem, remedy);
  }
  const capacityTokens = (topBlocks - spare) * blockTokens;
  const asked = modelTokens(deployment, machine, capacityTokens);
  const adapters = adaptersOf(deployment, machine);
  const maxModelTokens = side === undefined ? asked : Math.min(asked || capacityTokens, capacityTokens);
  return {
    engine: {
      blockTokens,
      ...(side === undefined ? {} : { side }),
      ...(adapters === undefined ? {} : { adapters }),
      blockBytes,
      topBlocks,
      lowerTiers,
      loads,
      ...(shared === undefined ? {} : { shared, ranks: machine.tp }),
      ...(always ? { computeUsPerToken: Infinity } : computeCost(machine.latency)),
      eviction: { policy: named('engine.eviction', of('engine.eviction'), evictionPolicyNames) },
      offloadThreshold: lowerTiers.length === 0 ? 1 : of('tiers.offloadThreshold'),
      ...(offload === undefined || lowerTiers.length === 0 ? {} : { offload: { policy: offload, ...share } }),
      lowerCopy: 'keep',
      scheduler: {
        ...batch,
        maxModelTokens,
        queueOrder: named('engine.scheduler', scheduler, plainOrderNames),
        victimRule: named(
          'engine.preemptionPolicy',
          victimRule,
          victimRuleNames.filter((name) => name !== RANKED),
        ),
        preemption,
        publish: 'whenPlanned',
      },
    },
    limits: { maxModelTokens, maxSequences: batch.maxSequences, preemption: preemption as PreemptionMode },
  };
}

/** Most requests of a batch that a scheduler has seats for. */
const SEQUENCES_MAX = 2 ** 20;

/**
 * Limits of the one batch over all ranks. The settings are of a rank, as vLLM counts them; upstream's are of the engine. A
 * prompt lies on one rank, so that a step computes no more of it than a rank takes.
 */
function batchLimits(
  deployment: Deployment,
  { dp }: EngineHardware,
): Readonly<Record<'maxBatchedTokens' | 'maxSequences' | 'longPrefillTokens', number>> {
  const maxBatchedTokens = get(deployment, 'engine.maxBatchedTokens');
  const maxSequences = get(deployment, 'engine.maxSequences');
  const longPrefillTokens = get(deployment, 'engine.longPrefillTokens');
  if (dp === 1 || get(deployment, 'asUpstream') === true) {
    return { maxBatchedTokens, maxSequences, longPrefillTokens };
  }
  if (dp * maxSequences > SEQUENCES_MAX) {
    const problem = `is ${maxSequences}, and ${dp} ranks take ${dp * maxSequences} together`;
    throw fault(
      deployment,
      'engine.maxSequences',
      problem,
      `Set it to at most ${Math.floor(SEQUENCES_MAX / dp)}.`,
    );
  }
  return {
    maxBatchedTokens: dp * maxBatchedTokens,
    maxSequences: dp * maxSequences,
    longPrefillTokens: Math.min(longPrefillTokens || maxBatchedTokens, maxBatchedTokens),
  };
}

/** Prompt tokens of a step that is long enough for every model of time to charge more than reading the weights. */
const FULL_STEP_TOKENS = 1024;

/**
 * Cost of prompt tokens in a full step, a t + b t^2, from two lengths and two places. Shorter steps say less: up to
 * some hundred tokens they take as long as one, since the weights are read in any case, and later steps pay for it.
 */
function computeCost(latency: LatencyModel): { computeUsPerToken: number; computeUsPerTokenSquared: number } {
  const stepUs = (from: number, to: number): number =>
    latency.stepTimeUs(
      sumBatch(
        [{ promptTokens: to, progressTokens: from, newTokens: to - from, outputTokens: 1 }],
        latency.windowTokens,
      ),
    );
  const [half, whole] = [FULL_STEP_TOKENS, 2 * FULL_STEP_TOKENS];
  const wholeUs = stepUs(0, whole);
  const laterUs = stepUs(whole, 2 * whole) - wholeUs;
  const squared = Math.max(0, laterUs / (squaresOf(whole, 2 * whole) - squaresOf(0, whole)));
  const alikeUs = wholeUs - stepUs(0, half) - squared * squaresOf(half, whole);
  return {
    computeUsPerToken: Math.max(0, alikeUs / (whole - half)),
    computeUsPerTokenSquared: squared,
  };
}

/**
 * LoRA adapters in GPU memory, loaded one after the other over PCIe unless their time is said. Each rank has slots of its own,
 * as in vLLM, so that all together hold as many times more; upstream has no adapters to differ from.
 */
function adaptersOf(deployment: Deployment, machine: EngineHardware): AdapterConfig | undefined {
  const slots = get(deployment, 'engine.maxLoras');
  if (slots === 0) return undefined;
  const bytes = adapterBytes(deployment, machine);
  const overPcie = pcie.baseLatencyUs + (bytes * 1e6) / pcie.bandwidthBytesPerS;
  return { slots: machine.dp * slots, loadUs: Math.round(get(deployment, 'engine.loraLoadUs') ?? overPcie) };
}

/** Bytes of one adapter on one GPU. */
function adapterBytes(deployment: Deployment, { model, tp }: EngineHardware): number {
  return adapterBytesOf(model, get(deployment, 'engine.maxLoraRank') ?? 16, tp);
}

/** Blocks that requests hold beside the blocks of their tokens. */
function sideBlocks({ model, tp }: EngineHardware, blockTokens: number): SideBlocks | undefined {
  return sideBlocksOf(model, tp, blockTokens, layerKvBytesPerToken(model, tp, kvElementBytesOf(model)));
}

/** Bytes of a block on one GPU. */
function blockBytesOf(
  deployment: Deployment,
  { model, tp, speculation }: EngineHardware,
  blockTokens: number,
): number {
  // upstream divides heads evenly, even over more GPUs than heads
  const tokenBytes =
    get(deployment, 'asUpstream') === true
      ? kvBytesPerToken(model, tp)
      : localKvBytesPerToken(model, tp, kvElementBytesOf(model));
  const draft = speculation?.draftModel;
  const draftBytes = draft === undefined ? 0 : localKvBytesPerToken(draft, tp, kvElementBytesOf(model));
  return Math.trunc((tokenBytes + draftBytes) * blockTokens);
}

function fittingBlocks(deployment: Deployment, machine: EngineHardware, blockTokens: number): number {
  const { model, hardware, tp, dp } = machine;
  const memoryUtilization = get(deployment, 'engine.memoryUtilization');
  if (get(deployment, 'asUpstream') !== true) {
    const maxSequences = get(deployment, 'engine.maxSequences');
    const maxBatchedTokens = get(deployment, 'engine.maxBatchedTokens');
    const draft = machine.speculation?.draftModel;
    const shape = {
      ...{ tp, dp, blockTokens, memoryUtilization, maxSequences, maxBatchedTokens },
      adapterBytes: get(deployment, 'engine.maxLoras') * adapterBytes(deployment, machine),
      ...(draft === undefined ? {} : { draft }),
    };
    return Math.min(engineMemory(model, hardware, shape).blocks, BLOCKS_MAX);
  }
  try {
    return automaticBlockCount(model, hardware, { tp, dp, blockTokens, memoryUtilization, adapterBytes: 0 });
  } catch (error) {
    // the user must know when a model does not fit, but not when the formula has no term for its activation
    if (error instanceof TierKVError && error.field === 'hidden_act') return BLOCKS_FALLBACK;
    throw error;
  }
}

/** Most tokens of a request: what was asked for, or the model's length as far as it fits. */
function modelTokens(deployment: Deployment, { model }: EngineHardware, capacityTokens: number): number {
  const asked = get(deployment, 'engine.maxModelTokens') ?? 0;
  if (asked > 0) return asked;
  return model.maxModelTokens === 0 ? 0 : Math.min(model.maxModelTokens, capacityTokens);
}

// The file of `tiers.sharedTier`, and `shared_tier` of a deployment file: a server that instances share, in the words of what
// `tierkv calibrate` writes of a server.

/** Most blocks of the shared tier that an instance remembers. */
const SHARED_BLOCKS_MAX = 2 ** 20;

/** @throws TKV_INPUT naming file and field */
export function readSharedTier(file: string): SharedServerConfig {
  const root = readYaml(readText(file), file);
  const shared = sharedTierOf(root);
  root.close();
  return shared;
}

/** @param node a whole file, or the section `shared_tier` of one */
export function sharedTierOf(node: SpecNode): SharedServerConfig {
  for (const key of ['schema', 'date', 'server']) node.has(key);
  if (!node.has('capacity_bytes')) {
    throw node.error('capacity_bytes', 'is missing', 'Give the bytes of blocks that the server holds');
  }
  const rate = (key: string): number => {
    const given = node.optionalNumber(key, { above: 0, max: 1e6 });
    if (given === undefined) throw node.error(key, 'is missing', 'Give the rate of the server in GB/s');
    return given * 1e9;
  };
  const time = { min: 0, max: 1e9 };
  const instanceGb = node.optionalNumber('instance_gb_per_s', { above: 0, max: 1e6 });
  return {
    capacityBytes: node.integer('capacity_bytes', { min: 1 }, 1),
    readBytesPerS: rate('read_gb_per_s'),
    writeBytesPerS: rate('write_gb_per_s'),
    lookupUs: node.number('lookup_us', time, 300),
    delayUs: node.number('delay_us', time, 200),
    ...(instanceGb === undefined ? {} : { instanceBytesPerS: instanceGb * 1e9 }),
  };
}

/**
 * The tiers of an instance with the shared one below them.
 * @param blockBytes of one of the instance's `tp` GPUs
 */
function withShared(deployment: Deployment, own: Tiers, blockBytes: number, tp: number): Tiers {
  const file = get(deployment, 'tiers.sharedTier');
  const shared = file === undefined ? own.shared : readSharedTier(file);
  if (shared === undefined) return own;
  const { lowerTiers, loads } = own;
  if (loads.kind === 'billed' && lowerTiers.length > 0) {
    const problem = 'goes with loads that requests wait for, not with billed ones';
    const remedy = `Say the tiers with ${nameOf(deployment, 'tiers.offloadConfig')}.`;
    throw fault(deployment, 'tiers.sharedTier', problem, remedy);
  }
  if (lowerTiers.some(({ tier }) => tier === sharedTier)) {
    const problem = 'takes the place of a tier that the instances have';
    throw fault(deployment, 'tiers.sharedTier', problem, 'Leave out the second secondary tier.');
  }
  const wholeBytes = blockBytes * tp;
  checkSharedServer(shared, wholeBytes);
  const links = loads.kind === 'deferred' ? loads.links : {};
  const { read, write } = instanceLinks(shared, tp);
  const above: TierName[] = [tierNames[TOP], ...lowerTiers.map(({ tier }) => tier)];
  return {
    lowerTiers: [
      ...lowerTiers,
      {
        tier: sharedTier,
        blocks: Math.min(SHARED_BLOCKS_MAX, Math.floor(shared.capacityBytes / wholeBytes)),
      },
    ],
    loads: {
      kind: 'deferred',
      prefetch: true,
      links: {
        ...linksDown(above, sharedTier, write),
        ...linksUp(sharedTier, read),
        ...links,
      },
    },
    shared,
  };
}

function tiersOf(deployment: Deployment, blockTokens: number, blockBytes: number, tp: number): Tiers {
  const sized = sizedTiers(deployment, blockBytes * tp);
  const cpuBlocks = get(deployment, 'tiers.hostBlocks');
  const file = get(deployment, 'tiers.offloadConfig');
  const name = (path: Path): string => nameOf(deployment, path);
  if (sized !== undefined) {
    const other = file !== undefined ? 'tiers.offloadConfig' : cpuBlocks > 0 ? 'tiers.hostBlocks' : undefined;
    if (other === undefined) return sized;
    const sizes = sizedTierNames.map((tier) => name(`tiers.${tier}`)).join(' and ');
    throw fault(deployment, other, `excludes ${sizes}`, 'Say tiers in one way.');
  }
  if (file !== undefined) {
    if (cpuBlocks > 0) {
      const problem = `excludes ${name('tiers.offloadConfig')}`;
      throw fault(deployment, 'tiers.hostBlocks', problem, 'Keep one of them.');
    }
    return offloadTiers(file, blockBytes);
  }
  const usPerBlock = Math.ceil(blockTokens / get(deployment, 'tiers.loadTokensPerUs'));
  const loads: LoadTiming = { kind: 'billed', baseUs: get(deployment, 'tiers.loadBaseUs'), usPerBlock };
  return { lowerTiers: cpuBlocks === 0 ? [] : [{ tier: hostTier, blocks: cpuBlocks }], loads };
}

//  The model of time of an instance, from its model, its GPU and how it is split.

/** Model and machine of the engines of one pool, as plain data. */
export interface PlannedMachine {
  readonly model: ModelConfig;
  readonly hardware: Hardware;
  readonly tp: number;
  readonly dp: number;
  /** Whether no step is shorter than the hardware needs. */
  readonly floor: boolean;
  readonly coefficients: Coefficients;
  /** Whether the model of time stands in because the GPU has no calibrated one. */
  readonly standsIn: boolean;
  /** How experts exchange tokens, where it was said. */
  readonly moeCommBackend?: MoeCommBackend;
  readonly speculation?: NonNullable<LatencySetup['speculation']>;
  readonly expertImbalance?: number;
}

/** Model and machine, with their model of time. */
export interface EngineHardware extends PlannedMachine {
  readonly latency: LatencyModel;
}

export function withLatency(machine: PlannedMachine): EngineHardware {
  const { standsIn: _, ...setup } = machine;
  return { ...machine, latency: newLatencyModel(setup) };
}

/** @throws {TierKVError} about a setting, in the words of the one who wrote it */
export function engineHardware(deployment: Deployment): EngineHardware {
  return saidOfSettings(deployment, engineField, () => hardwareSetup(deployment));
}

function hardwareSetup(deployment: Deployment): EngineHardware {
  const model = loadModelOf(deployment);
  const defaults = modelDefaults(model.name);
  const hardware = hardwareOf(deployment, defaults?.gpu ?? 'H100');
  const tp = get(deployment, 'tp') ?? defaults?.tp ?? 1;
  const dp = get(deployment, 'dp') ?? 1;
  const { coefficients, standsIn } = coefficientsOf(deployment, hardware);
  const comm = get(deployment, 'latency.moeCommBackend');
  const moeCommBackend: MoeCommBackend | undefined =
    comm === undefined ? undefined : chosen(deployment, 'latency.moeCommBackend', comm, moeCommBackends);
  refuseIdleParallelism(deployment, model, dp, coefficients.backend, comm);
  const imbalance = get(deployment, 'latency.expertImbalance');
  const comms = {
    ...(moeCommBackend === undefined ? {} : { moeCommBackend }),
    ...speculationOf(deployment),
    ...(imbalance === undefined ? {} : { expertImbalance: imbalance }),
  };
  const floor = get(deployment, 'latency.floor');
  return withLatency({ model, hardware, tp, dp, floor, coefficients, standsIn, ...comms });
}

/** Speculative decoding, where it is asked for. */
function speculationOf(deployment: Deployment): Pick<PlannedMachine, 'speculation'> {
  const draftTokens = get(deployment, 'speculation.draftTokens');
  if (draftTokens === 0) return {};
  const acceptance = get(deployment, 'speculation.acceptance');
  if (acceptance === undefined) {
    const remedy =
      'Give the chance that a proposed token is accepted where all before it were: (1 - a^(k+1)) / (1 - a) is the mean ' +
      'acceptance length that vLLM logs.';
    const problem = `is ${draftTokens}, and ${nameOf(deployment, 'speculation.acceptance')} is missing`;
    throw fault(deployment, 'speculation.draftTokens', problem, remedy);
  }
  const name = get(deployment, 'speculation.draftModel');
  const draftUs = get(deployment, 'speculation.draftUs') ?? 0;
  const asDraft: FieldPaths = (field) => (field === 'model' ? 'speculation.draftModel' : undefined);
  const draft =
    name === undefined ? {} : { draftModel: saidOfSettings(deployment, asDraft, () => loadModel(name)) };
  const seed = get(deployment, 'seed');
  return {
    speculation: { draftTokens, acceptance, draftUs, seed: seed === undefined ? '' : String(seed), ...draft },
  };
}

/** Experts and data parallel ranks are in the times of some backends only. */
function refuseIdleParallelism(
  deployment: Deployment,
  model: ModelConfig,
  dp: number,
  backend: LatencyBackend,
  comm: string | undefined,
): void {
  const facts = latencyFacts[backend];
  if (dp > 1 && facts.dividesRanks !== true) {
    const problem = `is ${dp}, and the latency model ${backend} has no part for it`;
    const models = latencyModelsThat('dividesRanks').join(' or ');
    throw fault(deployment, 'dp', problem, `Use ${models}, or leave it out.`);
  }
  if (comm === undefined) return;
  if (facts.sendsExperts !== true || model.experts === 0) {
    const problem = `is ${comm}, which is for experts under ${latencyModelsThat('sendsExperts').join(' or ')}`;
    throw fault(deployment, 'latency.moeCommBackend', problem, 'Leave it out, or choose such a model.');
  }
}

function loadModelOf(deployment: Deployment): ModelConfig {
  const folder = get(deployment, 'modelConfigFolder');
  const file = folder === undefined ? String(get(deployment, 'model')) : path.join(folder, 'config.json');
  const isVouched = get(deployment, 'engine.assumePlainAttention') === true;
  const model = isVouched ? loadVouchedModel(file) : loadModel(file);
  if (model === undefined) {
    const problem = `is about keys of a config.json that are not known, and ${loadModel(file).name} has none`;
    throw fault(deployment, 'engine.assumePlainAttention', problem, 'Leave it out.');
  }
  const dtype = get(deployment, 'engine.kvCacheDtype');
  const bytes = { auto: undefined, fp8: 1, bfloat16: model.activationBytes }[dtype];
  const element = bytes === undefined ? {} : { kvElementBytes: bytes };
  const keepsWhole = get(deployment, 'engine.disableHybridKvCacheManager') === true;
  if (keepsWhole && (model.hybrid?.windowLayers ?? 0) === 0) {
    const problem = `is about layers of a sliding window beside others, and ${model.name} has none`;
    throw fault(deployment, 'engine.disableHybridKvCacheManager', problem, 'Leave it out.');
  }
  const hybrid = model.hybrid === undefined || !keepsWhole ? {} : { hybrid: { ...model.hybrid, keepsWhole } };
  const format = get(deployment, 'engine.quantization');
  const whole = { ...model, ...element, ...hybrid };
  return format === undefined
    ? whole
    : quantised(whole, chosen(deployment, 'engine.quantization', format, loadedFormats));
}

function hardwareOf(deployment: Deployment, fallback: string): Hardware {
  const asked = get(deployment, 'hardware') ?? fallback;
  const file = get(deployment, 'hardwareConfig');
  if (file === undefined) return loadHardware(asked);
  const all = parseUpstreamHardware(readText(file), file);
  const name = chosen(
    deployment,
    'hardware',
    asked,
    all.map((hardware) => hardware.name),
  );
  return all.find((hardware) => hardware.name === name) as Hardware;
}

/** Coefficients of the named model of time; else of the named file; else the calibrated ones of the GPU. */
function coefficientsOf(deployment: Deployment, hardware: Hardware): ChosenCoefficients {
  const named = get(deployment, 'latency.model');
  const backend =
    named === undefined ? undefined : chosen(deployment, 'latency.model', named, latencyBackends);
  const alpha = get(deployment, 'latency.alpha');
  const beta = get(deployment, 'latency.beta');
  if (alpha !== undefined || beta !== undefined) {
    const [model] = latencyModelsThat('takesLists');
    if (alpha === undefined || beta === undefined || (backend ?? model) !== model) {
      const [ofBeta, ofModel] = (['latency.beta', 'latency.model'] as const).map((each) =>
        nameOf(deployment, each),
      );
      const problem = `and ${ofBeta} go together, with ${ofModel} ${model}`;
      throw fault(deployment, 'latency.alpha', problem, `Give both, or neither.`);
    }
    return { coefficients: coefficientLists(alpha, beta), standsIn: false };
  }
  return chooseCoefficients(backend ?? usualLatency, hardware, get(deployment, 'latency.coefficients'));
}
