/**
 * A namespace is everything besides parent and tokens that determines the bytes of a unit of KV, or who may
 * share it. Keys of two namespaces have nothing in common, so isolation needs no check at lookup: there is
 * nothing to find.
 *
 * The secret and the tenant come from whoever embeds tierkv, from an authenticated context and never from a
 * request's body. The secret is not kept: each namespace has a key of its own, derived from it by keyed
 * BLAKE2s.
 */

import { configError, requireInteger } from '../errors.ts';
import {
  Granularity,
  granularityNames,
  type KVLayout,
  layoutFingerprint,
  requireKVLayout,
  type UnitSpec,
  unitBox,
  unitSpec,
} from '../geometry/index.ts';
import { described, optionNames, requireObject } from '../options.ts';
import { blake2s, digestBytesMax, keyBytesMax } from './blake2s.ts';
import { CanonicalWriter } from './encoding.ts';

export interface KeyNamespace {
  /** 16 to 32 random bytes. Who does not know them can neither predict nor collide keys. */
  readonly secretKey: Uint8Array;
  /** Who may share: the tenant, or the group of tenants that trust each other. */
  readonly tenant: string | Uint8Array;
  /** Raised to make everything stored before unreachable. */
  readonly epoch: number;
  /** Name and revision of the weights. */
  readonly model: string;
  readonly layout: KVLayout;
  /** How the KV is cut; whole blocks when absent. */
  readonly unit?: UnitSpec;
  /** Which of the units side by side over one token range: 0 for BLOCK and TOKEN. */
  readonly unitInRange?: number;
  /** What else determines the bytes, by name: adapter, rope scaling, quantization scales. */
  readonly extras?: Readonly<Record<string, string>>;
}

export const keyNamespaceNames: readonly string[] = optionNames<KeyNamespace>({
  secretKey: true,
  tenant: true,
  epoch: true,
  model: true,
  layout: true,
  unit: true,
  unitInRange: true,
  extras: true,
});

/** Tags of the encoding. A tag is never reused for another meaning. */
export const Tag = {
  DOMAIN: 1,
  TENANT: 2,
  EPOCH: 3,
  MODEL: 4,
  LAYOUT: 5,
  GRANULARITY: 6,
  LAYER_START: 7,
  LAYER_END: 8,
  HEAD_START: 9,
  HEAD_END: 10,
  TOKENS_PER_KEY: 11,
  EXTRA_NAME: 12,
  EXTRA_VALUE: 13,
} as const;

export const secretKeyBytesMin = 16;

/** Tokens that one key of the namespace covers. */
export function tokensPerKey(namespace: KeyNamespace): number {
  return namespace.unit?.tokensPerUnit ?? namespace.layout.blockTokens;
}

/**
 * The canonical encoding of all of a namespace but its secret.
 * @throws TKV_CONFIG naming the field that is missing or malformed.
 */
export function encodeNamespace(namespace: KeyNamespace): Uint8Array {
  const { layout, unitInRange = 0, extras = {} } = namespace;
  requireKVLayout(layout);
  requireObject(extras, 'extras', 'TKV_CONFIG');
  const unit = namespace.unit ?? unitSpec(layout, { granularity: Granularity.BLOCK });
  requireInteger('unitInRange', unitInRange, 0, unit.unitsPerTokenRange - 1);
  if (typeof namespace.model !== 'string' || namespace.model === '') {
    throw configError(
      'model',
      `must be text, and it is ${namespace.model === '' ? 'empty' : described(namespace.model)}`,
      'Name the weights, with their revision.',
    );
  }
  const box = unitBox(layout, unit, unitInRange);
  const writer = new CanonicalWriter().text(Tag.DOMAIN, 'tierkv key namespace 1');
  encodeTenant(writer, namespace.tenant, namespace.epoch)
    .text(Tag.MODEL, namespace.model)
    .text(Tag.LAYOUT, layoutFingerprint(layout))
    .text(Tag.GRANULARITY, granularityNames[unit.granularity])
    .integer(Tag.LAYER_START, box.layerStart)
    .integer(Tag.LAYER_END, box.layerEnd)
    .integer(Tag.HEAD_START, box.headStart)
    .integer(Tag.HEAD_END, box.headEnd)
    .integer(Tag.TOKENS_PER_KEY, unit.tokensPerUnit);
  for (const name of Object.keys(extras).sort()) {
    const value = extras[name];
    if (typeof value !== 'string') {
      throw configError(`extras.${name}`, `is ${typeof value}`, 'Give it as text.');
    }
    writer.text(Tag.EXTRA_NAME, name).text(Tag.EXTRA_VALUE, value);
  }
  return writer.finish();
}

/** Writes tenant and epoch, the part of a namespace that keys of every kind share. */
export function encodeTenant(
  writer: CanonicalWriter,
  tenant: string | Uint8Array,
  epoch: number,
): CanonicalWriter {
  requireInteger('epoch', epoch, 0);
  if (tenant instanceof Uint8Array) writer.bytes(Tag.TENANT, tenant);
  else if (typeof tenant === 'string') writer.text(Tag.TENANT, tenant);
  else
    throw configError(
      'tenant',
      `is ${typeof tenant}`,
      'Give the tenant as text or bytes; "" is a tenant too.',
    );
  return writer.integer(Tag.EPOCH, epoch);
}

/**
 * The namespace's own key: BLAKE2s-256 of its encoding under the secret.
 * @throws TKV_CONFIG naming the field that is missing or malformed.
 */
export function deriveNamespaceKey(namespace: KeyNamespace): Uint8Array {
  const { secretKey } = namespace;
  if (
    !(secretKey instanceof Uint8Array) ||
    secretKey.length < secretKeyBytesMin ||
    secretKey.length > keyBytesMax
  ) {
    const found =
      secretKey instanceof Uint8Array ? `it has ${secretKey.length}` : `it is ${described(secretKey)}`;
    throw configError(
      'secretKey',
      `must be a Uint8Array of ${secretKeyBytesMin} to ${keyBytesMax} bytes, and ${found}`,
      `Generate ${keyBytesMax} random bytes once and keep them.`,
    );
  }
  return blake2s(encodeNamespace(namespace), digestBytesMax, secretKey);
}
