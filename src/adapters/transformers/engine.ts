/**
 * What is used of transformers.js, as types of its shape: a program that never loads the package needs none of it, and
 * the package's own classes fit (`test/adapters` holds that against the real types).
 */

import { TierKVError } from '../../runtime/errors.ts';
import { described } from '../../runtime/options.ts';

/** A tensor of transformers.js. */
export interface EngineTensor {
  readonly type: string;
  readonly dims: readonly number[];
  /** `cpu`, `gpu-buffer`, ... */
  readonly location: string;
  readonly data: unknown;
  readonly ort_tensor?: { getData(releaseData?: boolean): Promise<unknown> } | undefined;
  dispose(): void;
}

/** `DynamicCache`: tensors by name, replaced in place by each step. */
export interface EngineCache {
  get_seq_length(): number;
  update(entries: Record<string, EngineTensor>): void;
  dispose(): Promise<void>;
}

/** One input of a session. Axes of any size have a name. */
export interface SessionInput {
  readonly name: string;
  readonly type?: string;
  readonly shape?: readonly (number | string)[];
}

export interface EngineSession {
  readonly inputMetadata: readonly SessionInput[];
  /** What transformers.js chose: dtype of the files and device. */
  readonly config?: { readonly dtype?: string; readonly device?: string };
}

/** A model of transformers.js: `AutoModelForCausalLM.from_pretrained(...)`. */
export interface DecoderModel {
  readonly config: object;
  readonly sessions: Readonly<Record<string, unknown>>;
  generate(options: never): Promise<unknown>;
}

/** The module itself. */
export interface EngineModule {
  readonly Tensor: new (type: never, data: never, dims: number[]) => EngineTensor;
  readonly DynamicCache: new (entries?: never) => EngineCache;
  readonly env: object;
}

/** @throws TKV_CONFIG where the package is missing */
export async function loadEngine(given?: EngineModule): Promise<EngineModule> {
  if (given !== undefined) {
    const missing = (['Tensor', 'DynamicCache', 'env'] as const).find((name) => given[name] === undefined);
    if (missing === undefined) return given;
    throw new TierKVError(
      'TKV_CONFIG',
      `transformers has no ${missing}. Pass the module: import * as transformers from '@huggingface/transformers'.`,
      { field: 'transformers' },
    );
  }
  try {
    return await import('@huggingface/transformers');
  } catch (cause) {
    throw new TierKVError(
      'TKV_CONFIG',
      'tierkv/transformers needs the package @huggingface/transformers, which cannot be loaded: ' +
        `${cause instanceof Error ? cause.message : described(cause)}. ` +
        'Install it: npm install @huggingface/transformers.',
      { field: 'transformers', cause },
    );
  }
}

/** The tensors of a cache object, by name. */
export function entriesOf(cache: EngineCache): Record<string, EngineTensor> {
  return { ...(cache as unknown as Record<string, EngineTensor>) };
}

export function isCache(value: unknown): value is EngineCache {
  if (typeof value !== 'object' || value === null) return false;
  const { get_seq_length: length, update } = value as Partial<EngineCache>;
  return typeof length === 'function' && typeof update === 'function';
}
