/**
 * Bounds that need no run: which instances hold the model, and how many of them the traffic needs at least. They are safe:
 * a run by the same model of time would miss the targets on whatever they exclude.
 */

import { TierKVError } from '../../runtime/errors.ts';
import { withLatency } from '../../sim/build/engineSettings.ts';
import { prefixNotice } from '../../sim/build/openWorkload.ts';
import type { SimulationPlan } from '../../sim/build/plan.ts';
import { openPlanned } from '../../sim/build/workloadSettings.ts';
import type { WorkloadSpec } from '../../sim/description/workloadSpec.ts';
import { BatchSums, type LatencyModel } from '../../sim/latency/latencyModel.ts';
import { percentile } from '../../sim/metrics/statistics.ts';
import { requestsOf } from '../../sim/workload/request.ts';
import { type FigureName, type PlanTargets, statisticOf } from './targets.ts';

/** Lengths of prompts or answers in tokens, over all requests that were read. */
interface Lengths {
  readonly count: number;
  readonly mean: number;
  at(percentile: number): number;
}

function lengthsOf(values: readonly number[]): Lengths {
  const sorted = Float64Array.from(values).sort();
  const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  return { count: values.length, mean, at: (p) => percentile(sorted, p) };
}

/** The traffic, as its first requests show it. */
export interface Traffic {
  readonly requests: number;
  readonly perS: number;
  readonly prompts: Lengths;
  readonly outputs: Lengths;
  /** Whether no two requests have a prefix in common. */
  readonly sharesNothing: boolean;
  /** A notice of what cannot be learned from the workload. */
  readonly notice: string | undefined;
  /** The pauses of a conversation in seconds, all together; 0 where requests do not wait, or where nothing says for how long. */
  readonly pausesS: number;
  /** Whether rounds of conversations wait for the round before; their rate follows the deployment, so it bounds nothing. */
  readonly hasSessions: boolean;
  readonly isGenerated: boolean;
  /** Whether the time was enough to read all requests that are looked at. */
  readonly isWhole: boolean;
}

/** Requests that are read to know the traffic: as many as a full run has, unless more are asked for. */
const LOOKED_AT = 6000;

/** Requests between two looks at the time. */
const REQUESTS_A_LOOK = 64;

/** @param isLate whether the time to read is over; the first requests are read in any case */
export function trafficOf({ workload, deployment }: SimulationPlan, isLate: () => boolean): Traffic {
  const opened = openPlanned(workload, deployment);
  let firstUs: number | undefined;
  let lastUs = 0;
  let isWhole = true;
  const prompts: number[] = [];
  const outputs: number[] = [];
  for (const { arrivalUs, inputTokens, outputTokens } of requestsOf(opened.workload.stream)) {
    // a part of a longer trace begins after time 0
    firstUs ??= workload.kind === 'trace' ? arrivalUs : 0;
    lastUs = arrivalUs;
    prompts.push(inputTokens);
    outputs.push(outputTokens);
    if (prompts.length === LOOKED_AT) break;
    if (prompts.length % REQUESTS_A_LOOK === 0 && isLate()) {
      isWhole = false;
      break;
    }
  }
  const lastedUs = lastUs - (firstUs ?? 0);
  return {
    // the stream has only the first round of each session
    requests: isWhole && Number.isFinite(opened.expected) ? opened.expected : prompts.length,
    perS: lastedUs > 0 ? prompts.length / (lastedUs / 1e6) : 0,
    prompts: lengthsOf(prompts),
    outputs: lengthsOf(outputs),
    sharesNothing: opened.workload.sharesNothing === true,
    notice: prefixNotice(opened.source.format),
    pausesS: workload.kind === 'preset' ? pausesS(opened.spec) : 0,
    hasSessions: opened.workload.sessions !== undefined,
    isGenerated: workload.kind !== 'trace',
    isWhole,
  };
}

function pausesS(spec: WorkloadSpec | undefined): number {
  const pausesUs = (spec?.clients ?? []).map(({ reasoning }) => {
    const { maxRounds = 1, thinkTimeUs = 0 } = reasoning?.multiTurn ?? {};
    return (maxRounds - 1) * thinkTimeUs;
  });
  return Math.max(0, ...pausesUs) / 1e6;
}

/** Why a machine is left out. */
export interface Excluded {
  readonly why: 'does not fit' | 'too slow' | 'too few GPUs' | 'too much traffic';
  readonly reason: string;
}

/** Bounds from the memory and the peaks of one kind of instance. */
interface MachineBounds {
  /** Why the machine cannot meet the targets; undefined where it may. */
  readonly excluded: Excluded | undefined;
  /** Fewest instances that could keep up; undefined where the model does not fit. */
  readonly instances: number | undefined;
}

/**
 * @param plan makes the plan of one such instance; what it throws for want of memory excludes the machine
 * @param trafficOfPlan the traffic, where it is not known yet
 */
export function machineBounds(
  plan: () => SimulationPlan,
  trafficOfPlan: (plan: SimulationPlan) => Traffic,
  targets: PlanTargets,
): MachineBounds {
  let planned: SimulationPlan;
  try {
    planned = plan();
  } catch (error) {
    const isOfMachine = error instanceof TierKVError && /TKV_CAPACITY/.test(error.code);
    if (isOfMachine || isAboutParallelism(error))
      return { excluded: { why: 'does not fit', reason: (error as Error).message }, instances: undefined };
    throw error;
  }
  const traffic = trafficOfPlan(planned);
  const [{ machine, engine, limits }] = planned.pools;
  const { latency } = withLatency(machine);
  const { topBlocks, blockTokens } = engine;
  const { prompts, outputs } = traffic;
  const room = Math.floor((topBlocks * blockTokens) / Math.max(1, prompts.mean + outputs.mean));
  const most = Math.max(1, Math.min(limits.maxSequences, room));
  const least = Object.entries(leastLatencies(latency, traffic, targets)) as [FigureName, number][];
  const over = least.find(([name, ms]) => ms > (targets[name] ?? Infinity));
  return {
    excluded:
      over === undefined
        ? undefined
        : {
            why: 'too slow',
            reason: `${over[0]} is ${over[1].toFixed(1)} ms or more, even of a request that is alone`,
          },
    instances: traffic.hasSessions ? 1 : leastInstances(latency, traffic, most),
  };
}

/** Whether the machine is refused because its GPUs do not divide the heads of the model. */
function isAboutParallelism(error: unknown): boolean {
  return error instanceof TierKVError && /\btp\b/.test(`${error.field} ${error.message}`);
}

/** Whether the rate is the same over the time that is judged. Sessions of files and recorded traces rise and fall. */
export function isSteadyTraffic({ isGenerated, hasSessions, pausesS, perS }: Traffic): boolean {
  return isGenerated && (!hasSessions || pausesS > 0) && perS > 0;
}

/**
 * One request alone on its instance: the first token after its prompt, the others after steps of one. A percentile of a time
 * is at least the time of that percentile of the lengths.
 */
function leastLatencies(
  latency: LatencyModel,
  { prompts, outputs, sharesNothing }: Traffic,
  targets: PlanTargets,
): Partial<Record<FigureName, number>> {
  const decodeMs = decodeUs(latency, 1, 1) / 1000;
  const least: Partial<Record<FigureName, number>> = {};
  for (const name of Object.keys(targets) as FigureName[]) {
    const { quantity, percentile: p } = statisticOf(name);
    const of = (lengths: Lengths): number => (p === undefined ? lengths.mean : lengths.at(p));
    // a cached prefix is not computed, so the first token takes at least a step of one token
    const promptMs = prefillUs(latency, sharesNothing ? of(prompts) : 1) / 1000;
    const answerMs = (of(outputs) - 1) * decodeMs;
    least[name] = { itl: decodeMs, ttft: promptMs, e2e: decodeMs + answerMs }[quantity];
  }
  return least;
}

/** Instances that prompts alone, or answers alone, would keep busy all the time: one fewer could not keep up. */
function leastInstances(latency: LatencyModel, traffic: Traffic, most: number): number {
  const { perS, prompts, outputs, sharesNothing } = traffic;
  const promptUs = sharesNothing ? (prompts.mean * prefillUs(latency, LONG_STEP)) / LONG_STEP : 0;
  const answerUs = (outputs.mean * decodeUs(latency, most, prompts.mean)) / most;
  return Math.max(1, Math.floor((perS * Math.max(promptUs, answerUs)) / 1e6));
}

/** Tokens of a prompt step that is long enough to compute at the full rate of the model of time. */
const LONG_STEP = 8192;

function prefillUs(latency: LatencyModel, promptTokens: number): number {
  const tokens = Math.max(1, Math.round(promptTokens));
  const batch = new BatchSums(latency.windowTokens);
  batch.add({ promptTokens: tokens, progressTokens: 0, newTokens: tokens, outputTokens: 1 });
  return latency.stepTimeUs(batch);
}

function decodeUs(latency: LatencyModel, requests: number, contextTokens: number): number {
  const batch = new BatchSums(latency.windowTokens);
  // how many tokens lie in a sliding window is unknown here; 0 keeps the bound safe
  const sure = batch.windowTokens === 0 ? undefined : 0;
  batch.addDecodes(requests, Math.round(requests * contextTokens), sure);
  // a step gives most tokens where every proposed one is accepted
  return latency.stepTimeUs(batch) / (1 + (latency.speculation?.draftTokens ?? 0));
}
