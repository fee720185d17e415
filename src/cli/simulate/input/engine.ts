/** The engine of an instance from options: its KV tiers, and how its scheduler forms batches. */

import type { PreemptionMode } from '../../../runtime/batching/index.ts';
import {
  preemptionNames,
  queueOrderNames,
  RANKED,
  victimRuleNames,
} from '../../../runtime/batching/index.ts';
import { configError, TierKVError } from '../../../runtime/errors.ts';
import { evictionPolicyNames } from '../../../runtime/policy/index.ts';
import type { EngineConfig, InstanceLimits, LoadTiming, LowerTier } from '../../../sim/instance/index.ts';
import {
  automaticBlockCount,
  kvBytesPerToken,
  type LatencyModel,
  sumBatch,
} from '../../../sim/latency/index.ts';
import { type EngineHardware, oneOf } from './latency.ts';
import { real, textOption, whole, wholeOption } from './numbers.ts';
import { offloadTiers } from './offloadConfig.ts';
import type { Options } from './options.ts';

export interface EngineSetup {
  readonly engine: EngineConfig;
  readonly limits: InstanceLimits;
}

/** Blocks where the memory of the machine does not tell how many fit, as upstream has it. */
const BLOCKS_FALLBACK = 1_000_000;

/** Where a deployment file has tiers of its own. */
export type MakeTiers = (blockBytes: number) => Tiers;

/**
 * @param fallback policies of a bundle, for options that were not given
 * @param makeTiers the lower tiers, where options do not say them
 */
export function engineSetup(
  options: Options,
  machine: EngineHardware,
  fallback: { readonly scheduler?: string; readonly preemption?: string } = {},
  makeTiers?: MakeTiers,
): EngineSetup {
  const scheduler = textOption(options, 'scheduler') ?? fallback.scheduler ?? 'fcfs';
  const victimRule = textOption(options, 'preemptionPolicy') ?? fallback.preemption ?? 'fcfs';
  const blockTokens = whole(options, 'blockSizeInTokens', 1, 2 ** 20);
  const blockBytes = Math.trunc(kvBytesPerToken(machine.model, machine.tp) * blockTokens);
  const hbmBlocks =
    wholeOption(options, 'totalKvBlocks', 1, 2 ** 24) ?? fittingBlocks(options, machine, blockTokens);
  const { lowerTiers, loads } = makeTiers?.(blockBytes) ?? tiersOf(options, blockTokens, blockBytes);
  const always = oneOf('--kv-load', String(options.kvLoad), ['when-faster', 'always']) === 'always';
  const maxSequences = whole(options, 'maxNumSeqs', 1, 2 ** 20);
  const preemption = oneOf('--preemption-mode', String(options.preemptionMode), preemptionNames);
  if (preemption === 'offload' && lowerTiers.length === 0) {
    throw configError('--preemption-mode', 'is offload, and there is no tier below', 'Use recompute.');
  }
  const maxModelTokens = modelTokens(options, machine, hbmBlocks * blockTokens);
  return {
    engine: {
      blockTokens,
      blockBytes,
      hbmBlocks,
      lowerTiers,
      loads,
      computeUsPerToken: always ? Infinity : computeUsPerToken(machine.latency),
      eviction: { policy: oneOf('--eviction', String(options.eviction), evictionPolicyNames) },
      offloadThreshold: lowerTiers.length === 0 ? 1 : real(options, 'kvOffloadThreshold', 0, 1),
      lowerCopy: 'keep',
      scheduler: {
        maxBatchedTokens: whole(options, 'maxNumBatchedTokens', 1),
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

/** Those that need nobody to rank requests. */
function byItself(names: readonly string[]): string[] {
  return names.filter((name) => name !== RANKED);
}

/** What one prompt token more costs in a step, from prompts of one and of 1024 tokens. */
function computeUsPerToken(latency: LatencyModel): number {
  const stepUs = (promptTokens: number): number =>
    latency.stepTimeUs(
      sumBatch([{ promptTokens, progressTokens: 0, newTokens: promptTokens, outputTokens: 1 }]),
    );
  return (stepUs(1024) - stepUs(1)) / 1023;
}

function fittingBlocks(options: Options, machine: EngineHardware, blockTokens: number): number {
  const { model, hardware, tp, dp } = machine;
  const memoryUtilization = real(options, 'gpuMemoryUtilization', 1e-6, 1);
  try {
    return automaticBlockCount(model, hardware, { tp, dp, blockTokens, memoryUtilization, adapterBytes: 0 });
  } catch (error) {
    // a model that does not fit is the user's to know; one that the formula does not describe is not
    if (error instanceof TierKVError && error.field === 'hidden_act') return BLOCKS_FALLBACK;
    throw error;
  }
}

/** Most tokens of a request: what was asked for, or the model's length as far as it fits. */
function modelTokens(options: Options, { model }: EngineHardware, capacityTokens: number): number {
  const asked = wholeOption(options, 'maxModelLen', 0) ?? 0;
  if (asked > 0) return asked;
  return model.maxModelTokens === 0 ? 0 : Math.min(model.maxModelTokens, capacityTokens);
}

export interface Tiers {
  readonly lowerTiers: readonly LowerTier[];
  readonly loads: LoadTiming;
}

function tiersOf(options: Options, blockTokens: number, blockBytes: number): Tiers {
  const cpuBlocks = whole(options, 'kvCpuBlocks', 0, 2 ** 24);
  const file = textOption(options, 'kvOffloadConfig');
  if (file !== undefined) {
    if (cpuBlocks > 0) {
      throw configError('--kv-cpu-blocks', 'excludes --kv-offload-config', 'Keep one of them.');
    }
    return offloadTiers(file, blockBytes);
  }
  const bandwidth = real(options, 'kvTransferBandwidth', 1e-9, 1e12);
  const baseUs = whole(options, 'kvTransferBaseLatency', 0, 1e9);
  const loads: LoadTiming = { kind: 'billed', baseUs, usPerBlock: Math.ceil(blockTokens / bandwidth) };
  return { lowerTiers: cpuBlocks === 0 ? [] : [{ tier: 'ddr', blocks: cpuBlocks }], loads };
}
