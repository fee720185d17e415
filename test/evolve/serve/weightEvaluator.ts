/**
 * An evaluator for tests of the wire: how near the constant WEIGHT of a routing program is to 0.75, over two
 * cases. A program that mentions `hang` is answered with its signal only, as where a worker is stuck; one that
 * mentions `freeze` stops the whole process.
 */

import type { PolicyBundle } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { policyId } from '../../../src/policy/evolve/bundle/presets.ts';
import type { Evaluation, Evaluator, SuiteName } from '../../../src/policy/evolve/fitness/evaluation.ts';

const caseIds = ['steady/roofline/1', 'bursty/roofline/1'];

function weightOf({ routing }: PolicyBundle): number {
  if (routing?.type !== 'code') return 0;
  return Number(/WEIGHT = ([0-9.]+)/.exec(routing.source)?.[1] ?? 0);
}

export class WeightEvaluator implements Evaluator {
  readonly objectiveNames: readonly string[] = ['latency', 'hits'];

  caseIds(): readonly string[] {
    return caseIds;
  }

  async evaluate(
    bundles: readonly PolicyBundle[],
    _suite: SuiteName,
    signal?: AbortSignal,
  ): Promise<readonly Evaluation[]> {
    return Promise.all(bundles.map((bundle) => this.#one(bundle, signal)));
  }

  async #one(bundle: PolicyBundle, signal?: AbortSignal): Promise<Evaluation> {
    const { routing } = bundle;
    if (routing?.type === 'code' && routing.source.includes('hang')) {
      await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
    }
    if (routing?.type === 'code' && routing.source.includes('freeze')) for (;;);
    const weight = weightOf(bundle);
    const score = 0.75 - Math.abs(weight - 0.75);
    const cases = caseIds.map((id, i) => ({
      id,
      score: score - 0.1 * i,
      objectives: [score, -weight],
      metrics: { latency_ms: 100 - score },
    }));
    return {
      policyId: policyId(bundle),
      score,
      objectives: [score, -weight],
      metrics: { latency_ms: 100 - score, hit_rate: weight },
      cases,
    };
  }
}
