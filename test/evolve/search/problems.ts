/** Problems with known optima in the unit cube, more is better. */

import type { GoRandom } from '../../../src/sim/random/goRand.ts';

/** The optimum lies at 0.3 in each coordinate and is 0. */
function scaled(x: readonly number[]): number[] {
  return x.map((each) => (each - 0.3) * 10);
}

export function sphere(x: readonly number[]): number {
  return -scaled(x).reduce((sum, z) => sum + z * z, 0);
}

export function ellipsoid(x: readonly number[]): number {
  return -scaled(x).reduce((sum, z, i) => sum + 10 ** ((3 * i) / (x.length - 1)) * z * z, 0);
}

export function rastrigin(x: readonly number[]): number {
  return -scaled(x).reduce((sum, z) => sum + z * z + 10 * (1 - Math.cos(2 * Math.PI * z)), 0);
}

export function randomPoints(count: number, dimensions: number, random: GoRandom): number[][] {
  return Array.from({ length: count }, () => Array.from({ length: dimensions }, () => random.float64()));
}

export function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
