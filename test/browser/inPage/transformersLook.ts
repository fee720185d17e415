/** What transformersWorker.ts is asked for, and what it tells. */

import type { PrefixTurn } from '../../../src/adapters/transformers/index.ts';

export interface LoadOptions {
  readonly device: 'webgpu' | 'wasm';
  /** Folder of the model, beside the page. */
  readonly model: string;
  /** Whether blocks lie on the session's device. */
  readonly hbm: boolean;
  /** Directory of the files; none: no files. */
  readonly files?: string;
  readonly revision?: string;
}

export interface Loaded {
  readonly tiers: readonly string[];
  /** Whether the runtime works on the device of onnxruntime. */
  readonly isShared: boolean;
  readonly identity: string;
}

export interface Asked {
  readonly tokens: readonly number[];
  /** What the model says without the cache. */
  readonly plain: readonly number[];
  readonly turn: PrefixTurn;
}

export interface RestoredBits {
  readonly cachedTokens: number;
  readonly byTier: readonly number[];
  readonly locations: readonly string[];
  /** Elements whose bits differ from those that the model computes. */
  readonly different: number;
}
