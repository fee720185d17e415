/** What a search measures by, taken from its presets once: axes of the archive, and a floor for hypervolume. */

import type { Individual } from '../bundles/index.ts';
import type { FeatureAxis } from '../selection/index.ts';
import type { SearchPlan } from './state.ts';

/** Axes over what the presets show, with half as much again at both ends; sizes begin at 0. */
export function axesOf({ features, bins }: SearchPlan, presets: readonly Individual[]): FeatureAxis[] {
  return features.map((name) => {
    const values = presets.map(({ metrics }) => metrics[name] ?? 0).filter(Number.isFinite);
    const low = Math.min(...values);
    const high = Math.max(...values);
    const margin = high > low ? (high - low) / 2 : Math.max(0.5, Math.abs(high) / 2);
    if (name === 'policy_nodes') return { name, min: 0, max: 2 * high + 40, bins };
    return { name, min: low - margin, max: high + margin, bins };
  });
}

/** The worst that a preset has in each objective, and a tenth of the range below. */
export function referenceOf(presets: readonly Individual[]): number[] {
  return presets[0].objectives.map((_, m) => {
    const values = presets.map(({ objectives }) => objectives[m]);
    const low = Math.min(...values);
    return low - 0.1 * (Math.max(...values) - low || 1);
  });
}
