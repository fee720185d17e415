/** AIBrix's pod autoscalers: figures within a tolerance of their targets change nothing. */

import type { StateVisitor } from '../../../runtime/snapshot.ts';
import { noMemory } from '../policy.ts';
import type { AutoScaleContext, AutoScalePolicy, ScaleDecision } from './autoScalePolicy.ts';
import { last, type MetricName, meanConcurrency, perReplica, towards } from './reactive.ts';

/** How far the figure may be off, and how far one change goes. */
export interface AibrixLimits {
  readonly up: number;
  readonly down: number;
  readonly maxUp: number;
  readonly maxDown: number;
}

/**
 * APA: with r = metric / target, above 1 + up tolerance min(ceil(n r), ceil(n maxUp)), below
 * 1 - down tolerance max(ceil(n r), floor(n / maxDown)), else nothing.
 */
export function apa(metric: MetricName, target: number, limits: AibrixLimits): AutoScalePolicy {
  return {
    ...noMemory,
    name: 'apa',
    evaluate(context) {
      const sample = last(context.loadHistory);
      const { up, down, maxUp, maxDown } = limits;
      const n = context.readyReplicas;
      if (sample === undefined || n === 0)
        return towards(context, context.currentReplicas, 'nothing measured');
      const ratio = perReplica(sample, metric, n) / target;
      const reason = `${metric} at ${ratio.toFixed(3)} of its target`;
      const wanted = Math.ceil(n * ratio - 1e-9);
      if (ratio > 1 + up) return towards(context, Math.min(wanted, Math.ceil(n * maxUp)), reason);
      if (ratio < 1 - down) {
        return towards(context, Math.max(wanted, Math.floor(n / maxDown)), reason);
      }
      return towards(context, context.currentReplicas, reason);
    },
  };
}

interface KpaWindows {
  readonly target: number;
  readonly stableUs: number;
  readonly panicUs: number;
  /** Panic begins above this ratio of the panic window's concurrency to the stable window's. */
  readonly panicThreshold: number;
}

/**
 * KPA: of each window ceil(mean / target) clamped to [floor(n / maxDown), ceil(n maxUp)], or what there is
 * where the mean is within the tolerances of n x target. There is panic while the mean of the panic window is
 * above threshold x the mean of the stable window; the count is then the larger of both, and does not shrink.
 * Knative's has no tolerances, panics by what the replicas can take, and stays in panic for a stable window.
 */
export class AibrixKpa implements AutoScalePolicy {
  readonly name: string = 'aibrix-kpa';
  readonly #windows: KpaWindows;
  readonly #limits: AibrixLimits;
  /** The most of this panic; 0 outside it. */
  #most = 0;

  constructor(windows: KpaWindows, limits: AibrixLimits) {
    this.#windows = windows;
    this.#limits = limits;
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    const { nowUs, loadHistory, currentReplicas } = context;
    const { stableUs, panicUs, panicThreshold } = this.#windows;
    if (loadHistory.length === 0) return towards(context, currentReplicas, 'nothing measured');
    const n = Math.max(1, context.readyReplicas);
    const stableMean = meanConcurrency(loadHistory, nowUs - stableUs);
    const panicMean = meanConcurrency(loadHistory, nowUs - panicUs);
    const stable = this.#wanted(stableMean, n, currentReplicas);
    if (panicMean <= panicThreshold * stableMean) {
      this.#most = 0;
      return towards(context, stable, `stable ${stable}`);
    }
    const panic = this.#wanted(panicMean, n, currentReplicas);
    this.#most = Math.max(this.#most, stable, panic, currentReplicas);
    return towards(context, this.#most, `panic ${panic}`);
  }

  #wanted(mean: number, n: number, current: number): number {
    const { up, down, maxUp, maxDown } = this.#limits;
    const ratio = mean / (n * this.#windows.target);
    if (ratio <= 1 + up && ratio >= 1 - down) return current;
    const wanted = Math.ceil(mean / this.#windows.target - 1e-9);
    return Math.min(Math.max(wanted, Math.floor(n / maxDown)), Math.ceil(maxUp * n));
  }

  visitState(visitor: StateVisitor): void {
    this.#most = visitor.number(this.#most);
  }
}
