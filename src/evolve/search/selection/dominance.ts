/**
 * Pareto order over objectives of which more is better: ranks by fast non-dominated sorting and crowding
 * distance, as in K. Deb et al., "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II" (2002).
 */

export type Objectives = readonly number[];

/** Whether `a` is nowhere worse than `b`, and better somewhere. */
export function dominates(a: Objectives, b: Objectives): boolean {
  let isBetter = false;
  for (let i = 0; i < a.length; i++) {
    if (a[i] < b[i]) return false;
    if (a[i] > b[i]) isBetter = true;
  }
  return isBetter;
}

/** Rank of each point: 0 for the front, 1 for the front of what is left, and so on. */
export function paretoRanks(points: readonly Objectives[]): number[] {
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

/** How far the neighbours of each point lie apart, summed over the objectives; Infinity at the ends. */
export function crowdingDistances(points: readonly Objectives[]): number[] {
  const distances: number[] = new Array(points.length).fill(0);
  const objectives = points[0]?.length ?? 0;
  for (let m = 0; m < objectives; m++) {
    const order = points.map((_, i) => i).sort((a, b) => points[a][m] - points[b][m] || a - b);
    const first = order[0];
    const last = order[order.length - 1];
    const range = points[last][m] - points[first][m];
    distances[first] = Infinity;
    distances[last] = Infinity;
    if (range === 0) continue;
    for (let k = 1; k < order.length - 1; k++) {
      distances[order[k]] += (points[order[k + 1]][m] - points[order[k - 1]][m]) / range;
    }
  }
  return distances;
}

/** The rank of each point, and its crowding distance among those of its rank. */
export function rankAndCrowd(points: readonly Objectives[]): { rank: number; crowding: number }[] {
  const ranks = paretoRanks(points);
  const result = ranks.map((rank) => ({ rank, crowding: 0 }));
  for (const rank of new Set(ranks)) {
    const members = ranks.flatMap((each, i) => (each === rank ? [i] : []));
    const distances = crowdingDistances(members.map((i) => points[i]));
    members.forEach((i, k) => {
      result[i].crowding = distances[k];
    });
  }
  return result;
}

/** Indexes of the `count` points that NSGA-II keeps, best first: by rank, then the least crowded. */
export function survivors(points: readonly Objectives[], count: number): number[] {
  const order = rankAndCrowd(points);
  return points
    .map((_, i) => i)
    .sort((a, b) => {
      if (order[a].rank !== order[b].rank) return order[a].rank - order[b].rank;
      if (order[a].crowding !== order[b].crowding) return order[b].crowding - order[a].crowding;
      return a - b;
    })
    .slice(0, count);
}
