/**
 * What a generation came to, and what that is measured by, taken once from the better half of its presets:
 * axes of the archive, and a floor for hypervolume. The worse half would stretch both over what no search
 * goes to.
 */

import type { Individual } from '../bundles/index.ts';
import { type FeatureAxis, hypervolume, qdScore } from '../selection/index.ts';
import type { GenerationRecord, SearchPlan, SearchState } from './state.ts';

function betterHalf(presets: readonly Individual[]): Individual[] {
  return [...presets].sort((a, b) => b.score - a.score).slice(0, Math.ceil(presets.length / 2));
}

/** Axes over what they show, with half as much again at both ends; sizes begin at 0. */
export function axesOf({ features, bins }: SearchPlan, presets: readonly Individual[]): FeatureAxis[] {
  return features.map((name) => {
    if (name === 'policy_nodes') {
      const largest = Math.max(...presets.map(({ metrics }) => metrics[name] ?? 0));
      return { name, min: 0, max: 2 * largest + 40, bins };
    }
    const values = betterHalf(presets)
      .map(({ metrics }) => metrics[name] ?? 0)
      .filter(Number.isFinite);
    const low = Math.min(...values);
    const high = Math.max(...values);
    const margin = high > low ? (high - low) / 2 : Math.max(0.5, Math.abs(high) / 2);
    return { name, min: low - margin, max: high + margin, bins };
  });
}

/** The worst that one of them has in each objective, and a tenth of the range below. */
export function referenceOf(presets: readonly Individual[]): number[] {
  const better = betterHalf(presets);
  return better[0].objectives.map((_, m) => {
    const values = better.map(({ objectives }) => objectives[m]);
    const low = Math.min(...values);
    return low - 0.1 * (Math.max(...values) - low || 1);
  });
}

/**
 * @param found by this generation
 * @param best score so far
 * @param front objectives of the population that NSGA-II keeps
 */
export function recordOf(
  { generation, evaluations, archive, history, reference }: SearchState,
  found: readonly Individual[],
  best: number,
  front: readonly (readonly number[])[],
): GenerationRecord {
  const ran = found.filter(({ error }) => error === undefined);
  const scores = ran.map(({ score }) => score).sort((a, b) => a - b);
  return {
    generation,
    evaluations,
    failures: found.length - ran.length,
    best,
    bestOfGeneration: scores[scores.length - 1] ?? -Number.MAX_VALUE,
    medianOfGeneration: scores[Math.floor(scores.length / 2)] ?? -Number.MAX_VALUE,
    hypervolume: reference.length > 4 ? null : hypervolume(front, reference),
    qdScore: qdScore(archive, history[0]?.medianOfGeneration ?? scores[0] ?? 0),
    filledCells: new Set(archive.islands.flatMap((grid) => Object.keys(grid))).size,
  };
}
