/**
 * CMA-ES: the covariance matrix adaptation evolution strategy with rank-one and rank-mu updates and negative
 * weights, as in N. Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv 1604.00772), formulas 49 to 58.
 * It looks for the highest value in the unit cube. Coordinates of integers keep a least deviation, so that
 * the search does not freeze between two steps (after N. Hansen, "A CMA-ES for Mixed-Integer Nonlinear
 * Optimization", INRIA RR-7751).
 *
 * The state is plain data that JSON keeps exactly; functions change it in place.
 */

import * as elementary from '../../../sim/random/elementary.ts';
import type { GoRandom } from '../../../sim/random/goRand.ts';

export interface CmaState {
  generation: number;
  mean: number[];
  /** Overall step size, in units of the cube's edge. */
  sigma: number;
  covariance: Matrix;
  /** Evolution path of the step size, and of the covariance. */
  pathSigma: number[];
  pathCovariance: number[];
  /** Points of a generation. */
  readonly population: number;
  /** Least standard deviation of each coordinate; 0 for no least deviation. */
  readonly leastDeviation: readonly number[];
}

const SIGMA_MAX = 1;
const RESAMPLES = 16;
const TINY = 1e-8;

export function newCma(
  mean: readonly number[],
  sigma: number,
  population: number,
  leastDeviation?: readonly number[],
): CmaState {
  const zeros = mean.map(() => 0);
  return {
    generation: 0,
    mean: [...mean],
    sigma,
    covariance: identity(mean.length),
    pathSigma: zeros,
    pathCovariance: [...zeros],
    population,
    leastDeviation: leastDeviation ?? [...zeros],
  };
}

/** Constants that follow from the number of coordinates and of points. */
function strategyOf(n: number, population: number) {
  const mu = Math.floor(population / 2);
  const raw = Array.from(
    { length: population },
    (_, i) => elementary.log((population + 1) / 2) - elementary.log(i + 1),
  );
  const massOf = (part: readonly number[]): number => {
    const sum = part.reduce((a, b) => a + b, 0);
    return (sum * sum) / part.reduce((a, b) => a + b * b, 0);
  };
  const muEff = massOf(raw.slice(0, mu));
  const muEffMinus = massOf(raw.slice(mu));
  const c1 = 2 / ((n + 1.3) ** 2 + muEff);
  const cMu = Math.min(1 - c1 - 1e-8, (2 * (muEff - 2 + 1 / muEff)) / ((n + 2) ** 2 + muEff));
  const negativeShare = Math.min(
    1 + c1 / cMu,
    1 + (2 * muEffMinus) / (muEff + 2),
    (1 - c1 - cMu) / (n * cMu),
  );
  const positive = raw.reduce((sum, w) => sum + Math.max(0, w), 0);
  const negative = raw.reduce((sum, w) => sum + Math.max(0, -w), 0);
  const weights = raw.map((w) => (w >= 0 ? w / positive : (negativeShare * w) / negative));
  const cSigma = (muEff + 2) / (n + muEff + 5);
  return {
    mu,
    muEff,
    weights,
    c1,
    cMu,
    cSigma,
    dSigma: 1 + 2 * Math.max(0, Math.sqrt((muEff - 1) / (n + 1)) - 1) + cSigma,
    cC: (4 + muEff / n) / (n + 4 + (2 * muEff) / n),
    /** Expected length of a standard normal vector. */
    chi: Math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n)),
  };
}

function factors(covariance: Matrix): { deviations: number[]; vectors: readonly (readonly number[])[] } {
  const { values, vectors } = symmetricEigen(covariance);
  return { deviations: values.map((value) => Math.sqrt(value < 0 ? TINY : value)), vectors };
}

/** `population` points of the cube. One outside is drawn again, at last moved to the nearest face. */
export function askCma(state: CmaState, random: GoRandom): number[][] {
  const { deviations, vectors } = factors(state.covariance);
  const draw = (): number[] => {
    const z = deviations.map((deviation) => deviation * random.normFloat64());
    return state.mean.map((mean, i) => {
      let step = 0;
      for (let k = 0; k < z.length; k++) step += vectors[i][k] * z[k];
      const least = state.leastDeviation[i];
      const missing = least * least - state.sigma * state.sigma * state.covariance[i][i];
      const noise = missing > 0 ? Math.sqrt(missing) * random.normFloat64() : 0;
      return mean + state.sigma * step + noise;
    });
  };
  return Array.from({ length: state.population }, () => {
    let x = draw();
    for (let tries = 0; tries < RESAMPLES && x.some((each) => each < 0 || each > 1); tries++) x = draw();
    return x.map((each) => Math.min(1, Math.max(0, each)));
  });
}

/** @param values of the points, more is better; as many as `population` */
export function tellCma(
  state: CmaState,
  points: readonly (readonly number[])[],
  values: readonly number[],
): void {
  const n = state.mean.length;
  const { mu, muEff, weights, c1, cMu, cSigma, dSigma, cC, chi } = strategyOf(n, state.population);
  const { deviations, vectors } = factors(state.covariance);
  const order = values.map((_, i) => i).sort((a, b) => values[b] - values[a] || a - b);
  const steps = order.map((i) => points[i].map((x, j) => (x - state.mean[j]) / state.sigma));
  /** C^(-1/2) v. */
  const whiten = (v: readonly number[]): number[] => {
    const turned = deviations.map((deviation, k) => {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += vectors[i][k] * v[i];
      return sum / deviation;
    });
    return v.map((_, i) => {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += vectors[i][k] * turned[k];
      return sum;
    });
  };

  const mean = state.mean.map((_, j) => {
    let sum = 0;
    for (let k = 0; k < mu; k++) sum += weights[k] * steps[k][j];
    return sum;
  });
  state.generation++;
  state.mean = state.mean.map((x, j) => x + state.sigma * mean[j]);
  const white = whiten(mean);
  const gainSigma = Math.sqrt(cSigma * (2 - cSigma) * muEff);
  state.pathSigma = state.pathSigma.map((p, j) => (1 - cSigma) * p + gainSigma * white[j]);
  const length = Math.sqrt(state.pathSigma.reduce((sum, p) => sum + p * p, 0));
  const settled = Math.sqrt(1 - elementary.pow(1 - cSigma, 2 * (state.generation + 1)));
  const isShort = length / settled < (1.4 + 2 / (n + 1)) * chi;
  const gainC = isShort ? Math.sqrt(cC * (2 - cC) * muEff) : 0;
  state.pathCovariance = state.pathCovariance.map((p, j) => (1 - cC) * p + gainC * mean[j]);
  const corrected = steps.map((step, k) => {
    if (weights[k] >= 0) return weights[k];
    return (weights[k] * n) / (whiten(step).reduce((sum, w) => sum + w * w, 0) + TINY);
  });
  const loss = isShort ? 0 : cC * (2 - cC);
  const kept = 1 + c1 * loss - c1 - cMu * weights.reduce((a, b) => a + b, 0);
  const path = state.pathCovariance;
  state.covariance = state.covariance.map((row, i) =>
    row.map((c, j) => {
      let rankMu = 0;
      for (let k = 0; k < steps.length; k++) rankMu += corrected[k] * steps[k][i] * steps[k][j];
      return kept * c + c1 * path[i] * path[j] + cMu * rankMu;
    }),
  );
  state.sigma = Math.min(SIGMA_MAX, state.sigma * elementary.exp((cSigma / dSigma) * (length / chi - 1)));
}

/** Greatest standard deviation of a coordinate, in units of the cube's edge. */
export function cmaSpread(state: CmaState): number {
  return state.sigma * Math.sqrt(Math.max(...state.covariance.map((row, i) => row[i])));
}

// Eigenvalues and eigenvectors of a symmetric matrix by cyclic Jacobi rotations (Golub and Van Loan, Matrix
// Computations, 8.5). Square roots and the four operations only, so that every machine gets the same bits.

type Matrix = number[][];

interface Eigen {
  /** In no order. */
  readonly values: readonly number[];
  /** `vectors[i][k]` is coordinate i of the vector that belongs to `values[k]`; they are orthonormal. */
  readonly vectors: readonly (readonly number[])[];
}

const SWEEPS_MAX = 60;

function identity(n: number): Matrix {
  return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => (i === j ? 1 : 0)));
}

/** @param matrix symmetric; it is left as it is */
export function symmetricEigen(matrix: readonly (readonly number[])[]): Eigen {
  const n = matrix.length;
  const a = matrix.map((row) => [...row]);
  const vectors = identity(n);
  for (let sweep = 0; sweep < SWEEPS_MAX && isCoupled(a); sweep++) {
    for (let p = 0; p < n - 1; p++) for (let q = p + 1; q < n; q++) rotate(a, vectors, p, q);
  }
  return { values: a.map((row, i) => row[i]), vectors };
}

/** Whether anything off the diagonal still counts beside the diagonal. */
function isCoupled(a: Matrix): boolean {
  let off = 0;
  let diagonal = 0;
  for (let i = 0; i < a.length; i++) {
    diagonal += a[i][i] * a[i][i];
    for (let j = 0; j < i; j++) off += a[i][j] * a[i][j];
  }
  return off > 1e-30 * diagonal;
}

/** Makes the elements (p, q) and (q, p) zero. */
function rotate(a: Matrix, vectors: Matrix, p: number, q: number): void {
  const coupling = a[p][q];
  if (coupling === 0) return;
  const theta = (a[q][q] - a[p][p]) / (2 * coupling);
  const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const c = 1 / Math.sqrt(t * t + 1);
  const s = t * c;
  for (const row of a) turn(row, p, q, c, s);
  const { [p]: rowP, [q]: rowQ } = a;
  for (let k = 0; k < a.length; k++) {
    const kept = rowP[k];
    rowP[k] = c * kept - s * rowQ[k];
    rowQ[k] = s * kept + c * rowQ[k];
  }
  for (const row of vectors) turn(row, p, q, c, s);
}

function turn(row: number[], p: number, q: number, c: number, s: number): void {
  const kept = row[p];
  row[p] = c * kept - s * row[q];
  row[q] = s * kept + c * row[q];
}
