/** What a checkpoint file offers, whatever its format: named tensors of floats. */

import { TierKVError } from '../../../../src/index.ts';

export interface TensorSource {
  /** Where the tensors come from, for messages. */
  readonly path: string;
  readonly names: readonly string[];
  /** Outermost dimension first, or undefined for an unknown tensor. */
  shape(name: string): readonly number[] | undefined;
  /**
   * The elements in row-major order, as f32. @throws TKV_INPUT where the file ends before them, TKV_IO where
   * it cannot be read
   */
  read(name: string): Float32Array;
  close(): void;
}

/** Tensors of files, which may be stored in a format that is not known. */
export interface StoredTensors extends TensorSource {
  /** @throws TKV_INPUT for a tensor that is missing, not whole, or in a format that is not known */
  requireReadable(name: string): void;
}

export function elementsOf(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** What is wrong with a file of the checkpoint, and what to do. */
export function checkpointError(path: string, problem: string, remedy: string, field?: string): TierKVError {
  return new TierKVError('TKV_INPUT', `${path}: ${problem}. ${remedy}`, {
    path,
    ...(field === undefined ? {} : { field }),
  });
}
