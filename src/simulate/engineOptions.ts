/** The engine of an instance from options: KV tiers, scheduler, and model of time. */

import path from 'node:path';
import {
  type ChosenCoefficients,
  chooseCoefficients,
  loadHardware,
  loadModel,
  modelDefaults,
} from '../files/dataFiles.ts';
import { readText } from '../files/inputs.ts';
import {
  type PreemptionMode,
  preemptionNames,
  queueOrderNames,
  RANKED,
  victimRuleNames,
} from '../runtime/batching/config.ts';
import { configError, nearestName, TierKVError } from '../runtime/errors.ts';
import { evictionPolicyNames } from '../runtime/eviction/registry.ts';
import { squaresOf } from '../runtime/planning/loadOrRecompute.ts';
import { type TierName, TOP, tierNames } from '../runtime/tier/tier.ts';
import { readYaml, type SpecNode } from '../sim/description/fields.ts';
import type { AdapterConfig } from '../sim/instance/adapterSlots.ts';
import type { EngineConfig, LoadTiming } from '../sim/instance/engine.ts';
import type { InstanceLimits } from '../sim/instance/instance.ts';
import { automaticBlockCount, kvBytesPerToken } from '../sim/latency/capacity.ts';
import type { Coefficients } from '../sim/latency/coefficients.ts';
import {
  adapterBytesOf,
  engineMemory,
  layerKvBytesPerToken,
  localKvBytesPerToken,
} from '../sim/latency/engineMemory.ts';
import { type SideBlocks, sideBlockCount, sideBlocksOf } from '../sim/latency/kvLayout.ts';
import { type LatencyModel, sumBatch } from '../sim/latency/latencyModel.ts';
import {
  type LatencyBackend,
  latencyBackends,
  type MoeCommBackend,
  moeCommBackends,
} from '../sim/latency/latencyNames.ts';
import { type LatencySetup, newLatencyModel } from '../sim/latency/makeModel.ts';
import {
  type Hardware,
  kvElementBytesOf,
  type ModelConfig,
  parseUpstreamHardware,
} from '../sim/latency/modelConfig.ts';
import { hostTier, linksDown, linksUp, pcie, sharedTier, sizedTierNames } from '../sim/links/machineTiers.ts';
import { checkSharedServer, instanceLinks, type SharedServerConfig } from '../sim/links/sharedServer.ts';
import { BLOCKS_MAX, offloadTiers, sizedTiers, type Tiers } from './offloadTiers.ts';
import { blocksOption, numbersOption, real, realOption, textOption, whole, wholeOption } from './options.ts';
import { flagOf, type OptionValues } from './optionTable.ts';

interface EngineSetup {
  readonly engine: EngineConfig;
  readonly limits: InstanceLimits;
}

/** Blocks of an instance where its GPU memory is unknown; upstream's number. */
const BLOCKS_FALLBACK = 1_000_000;
/** Makes the tiers that a deployment file describes. */
export type MakeTiers = (blockBytes: number) => Tiers;

/**
 * @param fallback policies of a bundle, for options that were not given
 * @param makeTiers the lower tiers, where options do not say them
 */
export function engineSetup(
  options: OptionValues,
  machine: EngineHardware,
  fallback: { readonly scheduler?: string; readonly preemption?: string } = {},
  makeTiers?: MakeTiers,
): EngineSetup {
  const scheduler = textOption(options, 'scheduler') ?? fallback.scheduler ?? 'fcfs';
  const victimRule = textOption(options, 'preemptionPolicy') ?? fallback.preemption ?? 'fcfs';
  const blockTokens = whole(options, 'blockSizeInTokens', 1, 2 ** 20);
  const blockBytes = blockBytesOf(options, machine, blockTokens);
  const topBlocks =
    blocksOption(options, 'totalKvBlocks', blockBytes * machine.tp, 1, BLOCKS_MAX) ??
    fittingBlocks(options, machine, blockTokens);
  const own = makeTiers?.(blockBytes) ?? tiersOf(options, blockTokens, blockBytes, machine.tp);
  const { lowerTiers, loads, shared } = withShared(own, sharedFile(options), blockBytes, machine.tp);
  const always = oneOf('--kv-load', String(options.kvLoad), ['when-faster', 'always']) === 'always';
  const maxSequences = whole(options, 'maxNumSeqs', 1, 2 ** 20);
  const batchedTokens = whole(options, 'maxNumBatchedTokens', 1);
  const preemption = oneOf('--preemption-mode', String(options.preemptionMode), preemptionNames);
  if (preemption === 'offload' && lowerTiers.length === 0) {
    throw configError('--preemption-mode', 'is offload, and no tier lies below', 'Use recompute.');
  }
  const side = options.asUpstream === true ? undefined : sideBlocks(machine, blockTokens);
  const spare =
    side === undefined
      ? 0
      : sideBlockCount(side, topBlocks, Math.ceil(batchedTokens / blockTokens), blockTokens);
  if (spare >= topBlocks) {
    const problem = `is ${topBlocks} blocks, and windows and states of one request of ${machine.model.name} take ${spare}`;
    throw configError('--hbm', problem, 'Give more memory, or a smaller --max-num-batched-tokens.');
  }
  const capacityTokens = (topBlocks - spare) * blockTokens;
  const asked = modelTokens(options, machine, capacityTokens);
  const adapters = adaptersOf(options, machine);
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
      eviction: { policy: oneOf('--eviction', String(options.eviction), evictionPolicyNames) },
      offloadThreshold: lowerTiers.length === 0 ? 1 : real(options, 'kvOffloadThreshold', 0, 1),
      lowerCopy: 'keep',
      scheduler: {
        maxBatchedTokens: batchedTokens,
        maxSequences,
        longPrefillTokens: whole(options, 'longPrefillTokenThreshold', 0),
        maxModelTokens,
        queueOrder: oneOf('--scheduler', scheduler, byItself(queueOrderNames)),
        victimRule: oneOf('--preemption-policy', victimRule, byItself(victimRuleNames)),
        preemption,
        publish: 'whenPlanned',
      },
    },
    limits: { maxModelTokens, maxSequences, preemption: preemption as PreemptionMode },
  };
}

/** Names of orders that need no policy that ranks requests. */
function byItself(names: readonly string[]): string[] {
  return names.filter((name) => name !== RANKED);
}

/** Prompt tokens of a step that is long enough for every model of time to charge more than reading the weights. */
const FULL_STEP_TOKENS = 1024;

/**
 * What prompt tokens cost in a full step, a t + b t^2, from two lengths and two places. Shorter steps say less: up to
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

/** LoRA adapters in GPU memory, loaded one after the other over PCIe unless their time is said. */
function adaptersOf(options: OptionValues, machine: EngineHardware): AdapterConfig | undefined {
  const slots = whole(options, 'maxLoras', 0, 4096);
  if (slots === 0) return undefined;
  const bytes = adapterBytes(options, machine);
  const overPcie = pcie.baseLatencyUs + (bytes * 1e6) / pcie.bandwidthBytesPerS;
  return { slots, loadUs: Math.round(realOption(options, 'loraLoadUs', 0, 1e9) ?? overPcie) };
}

/** Of one adapter, on one GPU. */
function adapterBytes(options: OptionValues, { model, tp }: EngineHardware): number {
  return adapterBytesOf(model, wholeOption(options, 'maxLoraRank', 1, 4096) ?? 16, tp);
}

/** Blocks that requests hold beside the blocks of their tokens. */
function sideBlocks({ model, tp }: EngineHardware, blockTokens: number): SideBlocks | undefined {
  return sideBlocksOf(model, tp, blockTokens, layerKvBytesPerToken(model, tp, kvElementBytesOf(model)));
}

/** Bytes of a block on one GPU. */
function blockBytesOf(
  options: OptionValues,
  { model, tp, speculation }: EngineHardware,
  blockTokens: number,
): number {
  // upstream divides heads evenly, even over more GPUs than heads
  const tokenBytes =
    options.asUpstream === true
      ? kvBytesPerToken(model, tp)
      : localKvBytesPerToken(model, tp, kvElementBytesOf(model));
  const draft = speculation?.draftModel;
  const draftBytes = draft === undefined ? 0 : localKvBytesPerToken(draft, tp, kvElementBytesOf(model));
  return Math.trunc((tokenBytes + draftBytes) * blockTokens);
}

function fittingBlocks(options: OptionValues, machine: EngineHardware, blockTokens: number): number {
  const { model, hardware, tp, dp } = machine;
  const memoryUtilization = real(options, 'gpuMemoryUtilization', 1e-6, 1);
  if (options.asUpstream !== true) {
    const maxSequences = whole(options, 'maxNumSeqs', 1, 2 ** 20);
    const maxBatchedTokens = whole(options, 'maxNumBatchedTokens', 1);
    const draft = machine.speculation?.draftModel;
    const shape = {
      ...{ tp, dp, blockTokens, memoryUtilization, maxSequences, maxBatchedTokens },
      adapterBytes: whole(options, 'maxLoras', 0, 4096) * adapterBytes(options, machine),
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
function modelTokens(options: OptionValues, { model }: EngineHardware, capacityTokens: number): number {
  const asked = wholeOption(options, 'maxModelLen', 0) ?? 0;
  if (asked > 0) return asked;
  return model.maxModelTokens === 0 ? 0 : Math.min(model.maxModelTokens, capacityTokens);
}

// `--shared-tier FILE`, and `shared_tier` of a deployment file: a server that instances share, in the words of what
// `tierkv calibrate --remote` writes.

/** Most blocks of the shared tier that an instance remembers. */
const SHARED_BLOCKS_MAX = 2 ** 20;

function sharedFile(options: OptionValues): SharedServerConfig | undefined {
  const file = textOption(options, 'sharedTier');
  if (file === undefined) return undefined;
  return readSharedTier(file);
}

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
function withShared(
  own: Tiers,
  asked: SharedServerConfig | undefined,
  blockBytes: number,
  tp: number,
): Tiers {
  const shared = asked ?? own.shared;
  if (shared === undefined) return own;
  const { lowerTiers, loads } = own;
  if (loads.kind === 'billed' && lowerTiers.length > 0) {
    const remedy = 'Say the tiers with --kv-offload-config.';
    throw configError(
      '--shared-tier',
      'goes with loads that requests wait for, not with billed ones',
      remedy,
    );
  }
  if (lowerTiers.some(({ tier }) => tier === sharedTier)) {
    const remedy = 'Leave out the second secondary tier.';
    throw configError('--shared-tier', 'takes the place of a tier that the instances have', remedy);
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

function tiersOf(options: OptionValues, blockTokens: number, blockBytes: number, tp: number): Tiers {
  const sized = sizedTiers(options, blockBytes * tp);
  const cpuBlocks = whole(options, 'kvCpuBlocks', 0, BLOCKS_MAX);
  const file = textOption(options, 'kvOffloadConfig');
  if (sized !== undefined) {
    const other = file !== undefined ? 'kvOffloadConfig' : cpuBlocks > 0 ? 'kvCpuBlocks' : undefined;
    if (other === undefined) return sized;
    throw configError(
      flagOf(other),
      `excludes ${sizedTierNames.map((name) => flagOf(name)).join(' and ')}`,
      'Say tiers in one way.',
    );
  }
  if (file !== undefined) {
    if (cpuBlocks > 0) {
      throw configError('--kv-cpu-blocks', 'excludes --kv-offload-config', 'Keep one of them.');
    }
    return offloadTiers(file, blockBytes);
  }
  const bandwidth = real(options, 'kvTransferBandwidth', 1e-9, 1e12);
  const baseUs = whole(options, 'kvTransferBaseLatency', 0, 1e9);
  const loads: LoadTiming = { kind: 'billed', baseUs, usPerBlock: Math.ceil(blockTokens / bandwidth) };
  return { lowerTiers: cpuBlocks === 0 ? [] : [{ tier: hostTier, blocks: cpuBlocks }], loads };
}

//  The model of time of an instance, from `--model`, `--gpu`, `--tp` and related options.

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

/** One of the names, or an error with the nearest of them. */
export function oneOf<T extends string>(field: string, name: string, names: readonly T[]): T {
  const found = names.find((known) => known === name);
  if (found !== undefined) return found;
  const near = nearestName(name, names);
  const remedy = near === undefined ? `Use one of ${names.join(', ')}.` : `Did you mean '${near}'?`;
  throw configError(field, `is "${name}", which does not exist`, remedy);
}

export function engineHardware(options: OptionValues): EngineHardware {
  const model = loadModelOf(options);
  const defaults = modelDefaults(model.name);
  const hardware = hardwareOf(options, defaults?.gpu ?? 'H100');
  const tp = wholeOption(options, 'tp', 1, 1024) ?? defaults?.tp ?? 1;
  const dp = wholeOption(options, 'dp', 1, 1024) ?? 1;
  const { coefficients, standsIn } = coefficientsOf(options, hardware);
  const comm = textOption(options, 'moeCommBackend');
  const moeCommBackend: MoeCommBackend | undefined =
    comm === undefined ? undefined : oneOf('--moe-comm-backend', comm, moeCommBackends);
  refuseIdleParallelism(model, dp, coefficients.backend, comm);
  const floor = options.floor === undefined ? options.asUpstream !== true : options.floor === true;
  const imbalance = realOption(options, 'expertImbalance', 1, 1024);
  const comms = {
    ...(moeCommBackend === undefined ? {} : { moeCommBackend }),
    ...speculationOf(options),
    ...(imbalance === undefined ? {} : { expertImbalance: imbalance }),
  };
  return withLatency({ model, hardware, tp, dp, floor, coefficients, standsIn, ...comms });
}

/** Speculative decoding, where it is asked for. */
function speculationOf(options: OptionValues): Pick<PlannedMachine, 'speculation'> {
  const draftTokens = whole(options, 'numSpeculativeTokens', 0, 64);
  if (draftTokens === 0) return {};
  const acceptance = realOption(options, 'speculativeAcceptance', 0, 1);
  if (acceptance === undefined) {
    const remedy =
      'Give the chance that a proposed token is accepted where all before it were: (1 - a^(k+1)) / (1 - a) is the mean ' +
      'acceptance length that vLLM logs.';
    const problem = `is ${draftTokens}, and --speculative-acceptance is missing`;
    throw configError('--num-speculative-tokens', problem, remedy);
  }
  const name = textOption(options, 'speculativeDraftModel');
  const draftUs = realOption(options, 'speculativeDraftUs', 0, 1e9) ?? 0;
  const draft = name === undefined ? {} : { draftModel: loadModel(name) };
  return { speculation: { draftTokens, acceptance, draftUs, seed: String(options.seed ?? ''), ...draft } };
}

/** Experts and data parallel ranks are in the times of some backends only. */
function refuseIdleParallelism(
  model: ModelConfig,
  dp: number,
  backend: LatencyBackend,
  comm: string | undefined,
): void {
  if (dp > 1 && backend !== 'trained-physics' && backend !== 'calibrated') {
    const problem = `is ${dp}, and the latency model ${backend} has no part for it`;
    throw configError('dp', problem, 'Use trained-physics or calibrated, or leave it out.');
  }
  if (comm === undefined) return;
  if (backend !== 'trained-physics' || model.experts === 0) {
    const problem = `is ${comm}, which is for experts under trained-physics`;
    throw configError('--moe-comm-backend', problem, 'Leave it out, or choose such a model.');
  }
}

/** A model whose unknown keys about layers change nothing, as its user says. */
function vouchedModel(file: string): ModelConfig {
  const model = loadModel(file, true);
  let isKnown = true;
  try {
    loadModel(file);
  } catch {
    isKnown = false;
  }
  if (!isKnown) return model;
  const problem = `is about keys of a config.json that are not known, and ${model.name} has none`;
  throw configError('--assume-plain-attention', problem, 'Leave it out.');
}

function loadModelOf(options: OptionValues): ModelConfig {
  const folder = textOption(options, 'modelConfigFolder');
  const file = folder === undefined ? String(options.model) : path.join(folder, 'config.json');
  const model = options.assumePlainAttention === true ? vouchedModel(file) : loadModel(file);
  const kept = oneOf('--kv-cache-dtype', String(options.kvCacheDtype ?? 'auto'), ['auto', 'fp8']);
  const element = kept === 'fp8' ? { kvElementBytes: 1 } : {};
  const keepsWhole = options.disableHybridKvCacheManager === true;
  if (keepsWhole && (model.hybrid?.windowLayers ?? 0) === 0) {
    const problem = `is about layers of a sliding window beside others, and ${model.name} has none`;
    throw configError('--disable-hybrid-kv-cache-manager', problem, 'Leave it out.');
  }
  const hybrid = model.hybrid === undefined || !keepsWhole ? {} : { hybrid: { ...model.hybrid, keepsWhole } };
  return { ...model, ...element, ...hybrid };
}

function hardwareOf(options: OptionValues, fallback: string): Hardware {
  const asked = textOption(options, 'hardware') ?? fallback;
  const file = textOption(options, 'hardwareConfig');
  if (file === undefined) return loadHardware(asked);
  const all = parseUpstreamHardware(readText(file), file);
  const name = oneOf(
    '--gpu',
    asked,
    all.map((hardware) => hardware.name),
  );
  return all.find((hardware) => hardware.name === name) as Hardware;
}

/** Of the model of time that is named; else of the one in the file that is named; else the calibrated ones of the GPU. */
function coefficientsOf(options: OptionValues, hardware: Hardware): ChosenCoefficients {
  const named = textOption(options, 'latencyModel');
  const backend = named === undefined ? undefined : oneOf('--latency-model', named, latencyBackends);
  const alpha = numbersOption(options, 'alphaCoeffs');
  const beta = numbersOption(options, 'betaCoeffs');
  const file = textOption(options, 'coefficients');
  if (alpha !== undefined || beta !== undefined) {
    if (alpha === undefined || beta === undefined || (backend ?? 'trained-physics') !== 'trained-physics') {
      const message = '--alpha-coeffs and --beta-coeffs go together, with --latency-model trained-physics.';
      throw new TierKVError('TKV_CONFIG', `${message} Give both, or neither.`, { field: '--alpha-coeffs' });
    }
    return { coefficients: { backend: 'trained-physics', values: { alpha, beta } }, standsIn: false };
  }
  return chooseCoefficients(backend ?? 'calibrated', hardware, file);
}
