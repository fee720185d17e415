/**
 * Eigenvalues and eigenvectors of a symmetric matrix by cyclic Jacobi rotations (Golub and Van Loan, Matrix
 * Computations, 8.5). Square roots and the four operations only, so that every machine gets the same bits.
 */

export type Matrix = number[][];

export interface Eigen {
  /** In no order. */
  readonly values: readonly number[];
  /** `vectors[i][k]` is coordinate i of the vector that belongs to `values[k]`; they are orthonormal. */
  readonly vectors: readonly (readonly number[])[];
}

const SWEEPS_MAX = 60;

export function identity(n: number): Matrix {
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
