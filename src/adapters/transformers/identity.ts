/**
 * All that determines the KV of a model besides tokens and tenant, as one hash, and the names that its weights can have.
 * Files are read by `weights.ts`, which a page has a counterpart of.
 */

import { sha256 } from '../../backends/file/sha256.ts';
import { described, TierKVError } from '../../runtime/errors.ts';

/** How transformers.js ends the names of files, by dtype. */
const suffixes: Readonly<Record<string, string>> = {
  fp32: '',
  fp16: '_fp16',
  int8: '_int8',
  uint8: '_uint8',
  q8: '_quantized',
  q4: '_q4',
  q2: '_q2',
  q1: '_q1',
  q4f16: '_q4f16',
  q2f16: '_q2f16',
  q1f16: '_q1f16',
  bnb4: '_bnb4',
};

/** Names of a decoder's file, in the order in which they are looked for. */
export const decoderNames: readonly string[] = ['model', 'decoder_model_merged'];

const nameFiles = 'Name the directory of the model, or its ONNX files.';

export function weightsFault(
  problem: string,
  facts: { path?: string; cause?: unknown } = {},
  remedy: string = nameFiles,
): TierKVError {
  return new TierKVError('TKV_CONFIG', `weights ${problem}. ${remedy}`, { field: 'weights', ...facts });
}

/** @throws TKV_CONFIG for what is not a name, or a list of names */
export function weightNames(weights: string | readonly string[]): readonly string[] {
  const named = typeof weights === 'string' ? [weights] : weights;
  const isList = Array.isArray(named) && named.length > 0;
  if (isList && named.every((each) => typeof each === 'string' && each !== '')) return named;
  throw weightsFault(`must be a path or a list of paths, and it is ${described(weights)}`);
}

/** @throws TKV_CONFIG for a dtype that is not known */
export function fileSuffix(dtype: string = 'fp32'): string {
  const suffix = suffixes[dtype];
  if (suffix !== undefined) return suffix;
  throw weightsFault(`is a directory, and files of dtype ${dtype} are not known`);
}

interface IdentityParts {
  /** Hashes that tell weights apart, of the content of their files, in order. */
  readonly weights: readonly string[];
  readonly dtype: string | undefined;
  readonly device: string | undefined;
  readonly revision: string | undefined;
  /** The model's configuration: rope settings and all else. */
  readonly config: object;
  /** Versions of what computes. */
  readonly engine: string;
}

/** 32 bytes that differ wherever one part does. */
export function identityOf(parts: IdentityParts): Uint8Array {
  const encoder = new TextEncoder();
  let text = '';
  const part = (name: string, value: string): void => {
    text += `${name} ${encoder.encode(value).length}\n${value}\n`;
  };
  part('form', 'tierkv transformers 2');
  for (const hash of parts.weights) part('weights', hash);
  part('dtype', parts.dtype ?? '');
  part('device', parts.device ?? '');
  part('revision', parts.revision ?? '');
  part('config', canonical(parts.config));
  part('engine', parts.engine);
  const identity = new Uint8Array(32);
  const view = new DataView(identity.buffer);
  sha256(encoder.encode(text)).forEach((word, i) => {
    view.setUint32(4 * i, word);
  });
  return identity;
}

/** JSON with the names of each object in order. Functions and undefined values are left out. */
function canonical(value: unknown): string {
  return (
    JSON.stringify(value, (_, item: unknown) =>
      typeof item === 'object' && item !== null && !Array.isArray(item)
        ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
        : item,
    ) ?? ''
  );
}
