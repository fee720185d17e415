/**
 * The memories of a search: Pareto ranks with the volume of a front, and a MAP-Elites archive with islands. States are plain
 * data that functions change in place.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import type { GoRandom } from '../../../sim/random/goRand.ts';

// Pareto order over objectives; more is better in each. Ranks by fast non-dominated sorting, as in K. Deb et al., "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II" (2002).

type Objectives = readonly number[];

/** Whether `a` is at least as good as `b` in every objective, and better in one. */
export function dominates(a: Objectives, b: Objectives): boolean {
  let isBetter = false;
  for (let i = 0; i < a.length; i++) {
    if (a[i] < b[i]) return false;
    if (a[i] > b[i]) isBetter = true;
  }
  return isBetter;
}

/** Rank of each point: 0 on the front, 1 on the front of the points behind it, and so on. */
export function paretoRanks(points: readonly Objectives[]): number[] {
  checkInputs({ points }, { points: is.list(is.list(is.number())) });
  const ranks: number[] = new Array(points.length).fill(-1);
  const dominatedBy = points.map((a) => points.filter((b) => dominates(b, a)).length);
  let front = points.map((_, i) => i).filter((i) => dominatedBy[i] === 0);
  for (let rank = 0; front.length > 0; rank++) {
    const next: number[] = [];
    for (const i of front) ranks[i] = rank;
    for (const i of front) {
      points.forEach((point, j) => {
        if (dominates(points[i], point) && --dominatedBy[j] === 0) next.push(j);
      });
    }
    front = next.sort((a, b) => a - b);
  }
  return ranks;
}

// Hypervolume: the volume that a set of points dominates, down to a reference point. By slicing objectives (HSO: L. While et al., "A Faster Algorithm for Calculating
// Hypervolume", 2006); exact, and fast enough for fronts of some hundred points in up to five objectives.

/**
 * The volume that a set of points dominates: how good a front of objectives is.
 * @param reference a point that is below it in some objective adds no volume
 */
export function hypervolume(points: readonly Objectives[], reference: Objectives): number {
  checkInputs(
    { points, reference },
    { points: is.list(is.list(is.number())), reference: is.list(is.number()) },
  );
  const above = points
    .filter((point) => point.every((value, m) => value > reference[m]))
    .map((point) => point.map((value, m) => value - reference[m]));
  return volume(above, reference.length);
}

/** Volume above the origin in the first `dimensions` objectives. */
function volume(points: readonly Objectives[], dimensions: number): number {
  if (points.length === 0) return 0;
  if (dimensions === 1) return points.reduce((most, [value]) => Math.max(most, value), 0);
  const last = dimensions - 1;
  const sorted = [...points].sort((a, b) => b[last] - a[last]);
  let total = 0;
  for (let i = 0; i < sorted.length; i++) {
    const depth = sorted[i][last] - (sorted[i + 1]?.[last] ?? 0);
    if (depth > 0) total += depth * volume(frontOf(sorted.slice(0, i + 1), last), last);
  }
  return total;
}

/** The points that are not dominated in the first `dimensions` objectives; of equal points one. */
function frontOf(points: readonly Objectives[], dimensions: number): Objectives[] {
  const covers = (a: Objectives, b: Objectives): boolean => {
    for (let m = 0; m < dimensions; m++) if (a[m] < b[m]) return false;
    return true;
  };
  const front: Objectives[] = [];
  for (const point of points) {
    if (front.some((other) => covers(other, point))) continue;
    for (let i = front.length - 1; i >= 0; i--) if (covers(point, front[i])) front.splice(i, 1);
    front.push(point);
  }
  return front;
}

// MAP-Elites (J.-B. Mouret and J. Clune, arXiv 1504.04909) with islands. A grid divides candidates by some of their
// metrics, and each cell keeps its best candidate. Each island has its own grid; at intervals the best of an island
// go to the next one in the ring.

/** A metric that divides the grid. Values outside its range belong to the outermost cells. */
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

/** Name of the candidate's cell, as `3/0`. A feature that is missing or not finite counts as the least value. */
export function cellOf(axes: readonly FeatureAxis[], features: Readonly<Record<string, number>>): string {
  const bins = axes.map(({ name, min, max, bins }) => {
    const value = features[name] ?? min;
    if (!Number.isFinite(value) || max <= min) return 0;
    return Math.min(bins - 1, Math.max(0, Math.floor(((value - min) / (max - min)) * bins)));
  });
  return bins.join('/');
}

/** Puts the candidate into its cell if that is empty or holds a worse one. Returns whether it did. */
export function offer(grid: Grid, cell: string, elite: Elite): boolean {
  const holder = Object.hasOwn(grid, cell) ? grid[cell] : undefined;
  if (holder !== undefined && holder.score >= elite.score) return false;
  grid[cell] = elite;
  return true;
}

/** A parent: the best elite of three drawn cells. */
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

/** Offers the best `count` elites of each island to the next one. All leave before the first arrives. */
export function migrate(state: IslandsState, count: number): void {
  const { islands } = state;
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
 * Quality-diversity score: the best elite of each cell over all islands, summed above `floor`.
 * @param floor score from which an elite counts
 */
export function qdScore(state: IslandsState, floor: number): number {
  const { islands } = state;
  const merged: Grid = {};
  for (const grid of islands) for (const [cell, elite] of Object.entries(grid)) offer(merged, cell, elite);
  return Object.values(merged).reduce((sum, { score }) => sum + Math.max(0, score - floor), 0);
}
