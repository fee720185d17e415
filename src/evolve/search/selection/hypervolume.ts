/**
 * Hypervolume: the volume of what a set of points dominates, down to a reference point; more is better in
 * every objective. By slicing objectives (HSO: L. While et al., "A Faster Algorithm for Calculating
 * Hypervolume", 2006); exact, and fast enough for fronts of some hundred points in up to five objectives.
 */

import type { Objectives } from './dominance.ts';

/** @param reference a point below the others; what lies below it in some objective counts nothing */
export function hypervolume(points: readonly Objectives[], reference: Objectives): number {
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

/** Those that no other one covers in the first `dimensions` objectives, one of each. */
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
