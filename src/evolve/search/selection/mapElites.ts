/**
 * MAP-Elites (J.-B. Mouret and J. Clune, arXiv 1504.04909) with islands: a grid over features of a
 * candidate, of which each cell keeps the best that fell into it. Each island has a grid of its own; now and
 * then the best of one go to the next one in the ring.
 *
 * The state is plain data; functions change it in place.
 */

import type { GoRandom } from '../../../sim/random/index.ts';

/** A figure of a candidate by which the grid is divided. What lies outside goes into the outermost cells. */
export interface FeatureAxis {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  readonly bins: number;
}

export interface Elite {
  readonly id: string;
  readonly score: number;
}

/** Elites by cell; cells in the order in which they were first filled. */
export type Grid = Record<string, Elite>;

export interface IslandsState {
  readonly axes: readonly FeatureAxis[];
  readonly islands: Grid[];
}

export function newIslands(axes: readonly FeatureAxis[], islands: number): IslandsState {
  return { axes, islands: Array.from({ length: islands }, () => ({})) };
}

/** Name of the cell, for example `3/0`; a feature that is missing or not finite counts as the least. */
export function cellOf(axes: readonly FeatureAxis[], features: Readonly<Record<string, number>>): string {
  const bins = axes.map(({ name, min, max, bins }) => {
    const value = features[name] ?? min;
    if (!Number.isFinite(value) || max <= min) return 0;
    return Math.min(bins - 1, Math.max(0, Math.floor(((value - min) / (max - min)) * bins)));
  });
  return bins.join('/');
}

/** Takes the candidate in where its cell is empty or held by a worse one. Says whether it did. */
export function offer(grid: Grid, cell: string, elite: Elite): boolean {
  const holder = Object.hasOwn(grid, cell) ? grid[cell] : undefined;
  if (holder !== undefined && holder.score >= elite.score) return false;
  grid[cell] = elite;
  return true;
}

/** Elites, the best first; equal ones in the order of their cells. */
export function elitesOf(grid: Grid): Elite[] {
  return Object.values(grid).sort((a, b) => b.score - a.score);
}

/** An elite to vary: of three drawn cells the best. */
export function pickElite(grid: Grid, random: GoRandom): Elite | undefined {
  const elites = Object.values(grid);
  if (elites.length === 0) return undefined;
  let best = elites[random.intn(elites.length)];
  for (let tries = 0; tries < 2; tries++) {
    const other = elites[random.intn(elites.length)];
    if (other.score > best.score) best = other;
  }
  return best;
}

/** Offers the best `count` of each island to the next one. All leave before any arrives. */
export function migrate({ islands }: IslandsState, count: number): void {
  const leaving = islands.map((grid) => {
    return Object.entries(grid)
      .sort(([, a], [, b]) => b.score - a.score)
      .slice(0, count);
  });
  leaving.forEach((elites, i) => {
    const next = islands[(i + 1) % islands.length];
    for (const [cell, elite] of elites) offer(next, cell, elite);
  });
}

/**
 * Quality-diversity score: what the elites of the best grid over all islands add up to above `floor`, the
 * score of a candidate that is worth nothing.
 */
export function qdScore({ islands }: IslandsState, floor: number): number {
  const merged: Grid = {};
  for (const grid of islands) for (const [cell, elite] of Object.entries(grid)) offer(merged, cell, elite);
  return Object.values(merged).reduce((sum, { score }) => sum + Math.max(0, score - floor), 0);
}
