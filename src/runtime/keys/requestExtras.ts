/**
 * What determines the KV of one request beside its tokens: an adapter, the images that placeholders stand for,
 * a salt. It enters the key of one block, and through the chain the keys of all blocks behind it; the blocks
 * before it are shared as if it were not there.
 *
 *     block        0        1        2        3
 *     key          k0 ----> k1 ----> k2' ---> k3'        an image whose first token lies in block 2
 *                                    ^ image
 */

import { TierKVError } from '../errors.ts';
import { described, optionNames, requireObject, requireOptions } from '../options.ts';
import { blake2s } from './blake2s.ts';
import { CanonicalWriter } from './encoding.ts';
import { Tag } from './namespace.ts';

/** A part of the key by name: `{ adapter: 'sql-7' }`, `{ image: { value: sha256, fromToken: 35 } }`. */
export type RequestExtras = Readonly<Record<string, string | Uint8Array | RequestExtra>>;

export interface RequestExtra {
  readonly value: string | Uint8Array;
  /** The first token whose KV depends on it: its block is the first with another key. Default 0. */
  readonly fromToken?: number | undefined;
}

const extraNames = optionNames<RequestExtra>({ value: true, fromToken: true });

/**
 * 32 bytes for each block whose key extras enter, which stand for all of them there.
 * @throws TKV_INPUT naming the extra that is none
 */
export function requestExtras(
  extras: RequestExtras,
  tokensPerKey: number,
  field = 'extras',
): ReadonlyMap<number, Uint8Array> {
  requireObject(extras, field);
  const writers = new Map<number, CanonicalWriter>();
  for (const name of Object.keys(extras).sort()) {
    const { value, fromToken } = checkedExtra(extras[name], `${field}.${name}`);
    const block = Math.floor(fromToken / tokensPerKey);
    const writer = writers.get(block) ?? new CanonicalWriter().text(Tag.DOMAIN, 'tierkv request extras 1');
    writers.set(block, writer.text(Tag.EXTRA_NAME, name));
    if (typeof value === 'string') writer.text(Tag.EXTRA_VALUE, value);
    else writer.bytes(Tag.EXTRA_VALUE, value);
  }
  return new Map([...writers].map(([block, writer]) => [block, blake2s(writer.finish())]));
}

function checkedExtra(
  extra: RequestExtras[string],
  field: string,
): { readonly value: string | Uint8Array; readonly fromToken: number } {
  if (isValue(extra)) return { value: extra, fromToken: 0 };
  if (typeof extra !== 'object' || extra === null || Array.isArray(extra) || ArrayBuffer.isView(extra)) {
    throw badExtra(field, extra);
  }
  const { value, fromToken = 0 } = requireOptions(extra, extraNames, field);
  if (!isValue(value)) throw badExtra(`${field}.value`, value);
  if (Number.isSafeInteger(fromToken) && fromToken >= 0) return { value, fromToken };
  const problem = `${field}.fromToken must be an integer from 0 on, and it is ${described(fromToken)}`;
  throw new TierKVError('TKV_INPUT', `${problem}. Name the first token that depends on it.`, {
    field: `${field}.fromToken`,
  });
}

function isValue(value: unknown): value is string | Uint8Array {
  return typeof value === 'string' || value instanceof Uint8Array;
}

function badExtra(field: string, value: unknown): TierKVError {
  const problem = `${field} must be text or a Uint8Array, and it is ${described(value)}`;
  return new TierKVError('TKV_INPUT', `${problem}. Pass what determines the KV, or a hash of it.`, { field });
}
