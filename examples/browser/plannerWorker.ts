/** The simulator in a worker: a plan comes as the text of a deployment file, and what charts are drawn from goes back. */

import {
  type OccupancySample,
  type SimulationResult,
  simulate,
  simulationChoices,
} from '../../src/sim/page.ts';

/** Points of a curve: more than a chart has pixels for would only cost time. */
const POINTS_MOST = 240;

export interface PlanCurve {
  readonly name: string;
  /** Milliseconds by equal steps of the share of requests, from 0 to 1. */
  readonly ms: readonly number[];
}

export interface PlanMoment {
  readonly s: number;
  /** By tier: share in use, and share of the blocks since the moment before that were found there. */
  readonly used: readonly number[];
  readonly found: readonly number[];
  readonly waiting: number;
  readonly running: number;
}

export interface PlanOutcome {
  readonly metrics: SimulationResult['metrics'];
  readonly gpus: number;
  readonly tiers: readonly string[];
  readonly curves: readonly PlanCurve[];
  readonly moments: readonly PlanMoment[];
  /** Share of blocks that were found, and by tier. */
  readonly hitRate: number;
  readonly hitRates: readonly number[];
  /** Time that the simulation took here. */
  readonly tookMs: number;
}

export type FromWorker =
  | { readonly choices: ReturnType<typeof simulationChoices> }
  | { readonly id: number; readonly outcome: PlanOutcome }
  | { readonly id: number; readonly problem: string };

function curve(name: string, valuesUs: Float64Array): PlanCurve {
  const sorted = valuesUs.slice().sort();
  const last = sorted.length - 1;
  const ms = Array.from({ length: last < 0 ? 0 : 101 }, (_, i) => {
    return sorted[Math.min(last, Math.floor((i / 100) * sorted.length))] / 1000;
  });
  return { name, ms };
}

/** Samples that lie about evenly, each with what was found since the one before. */
function momentsOf(samples: readonly OccupancySample[]): PlanMoment[] {
  const every = Math.max(1, Math.ceil(samples.length / POINTS_MOST));
  const kept = samples.filter((_, i) => i % every === 0 || i === samples.length - 1);
  // hits over a window: a share of two blocks says little
  const windowOf = Math.max(1, Math.floor(kept.length / 40));
  return kept.map(({ timeUs, shares, hits, openedBlocks, waiting, running }, i) => {
    const before = kept[i - windowOf];
    const found = hits.map((count, tier) => count - (before?.hits[tier] ?? 0));
    const all = found.reduce((sum, count) => sum + count, openedBlocks - (before?.openedBlocks ?? 0));
    return {
      s: timeUs / 1e6,
      used: shares,
      found: found.map((count) => (all === 0 ? 0 : count / all)),
      waiting,
      running,
    };
  });
}

function outcomeOf(file: string): PlanOutcome {
  const startMs = performance.now();
  const { metrics, gpus, detail } = simulate(
    { file: 'plan.yaml' },
    { files: { 'plan.yaml': file }, detail: true },
  );
  const { latencies, tiers, samples, cache } = detail!;
  return {
    metrics,
    gpus,
    tiers,
    curves: [
      curve('first token', latencies.firstToken),
      // an answer of one token has no gap
      curve(
        'between tokens',
        latencies.betweenTokens.filter((us) => us > 0),
      ),
      curve('whole request', latencies.wholeRequest),
    ],
    moments: momentsOf(samples),
    hitRate: cache.hitRate,
    hitRates: tiers.map((tier) => cache.hitsByTier[tier] / Math.max(cache.lookups, 1)),
    tookMs: performance.now() - startMs,
  };
}

const send = (message: FromWorker): void => postMessage(message);

addEventListener('message', ({ data }: MessageEvent<{ id: number; file: string }>) => {
  const { id, file } = data;
  try {
    send({ id, outcome: outcomeOf(file) });
  } catch (error) {
    send({ id, problem: error instanceof Error ? error.message : String(error) });
  }
});
send({ choices: simulationChoices() });
