/**
 * KV events as bytes, as vLLM's engine sends them. A message has three frames:
 *
 *     [ topic | number, 8 bytes, big-endian | MessagePack: [ seconds, [event, ...], rank or nil ] ]
 *
 * An event is a map with `type`, as vLLM writes it since June 2026, or an array that begins with the type. Both
 * are read and written. Names of events and fields are vLLM's; everything else here has tierkv's names.
 *
 * - What is read comes from elsewhere: each field is checked, and a message with a fault in it is `WireFault`,
 *   never an exception of another kind.
 * - Hashes are opaque names of blocks: 16 hexadecimal digits for an integer, twice the length for bytes.
 */

import { TierKVError } from '../../../runtime/errors.ts';

/** Blocks can be found in a medium from now on. */
export interface KVBlocksStored {
  readonly type: 'stored';
  /** Hash of each block, in the order of the chain. */
  readonly hashes: readonly string[];
  /** The block before the first one; null if the first one begins a chain. */
  readonly parent: string | null;
  /**
   * `blockTokens` for each block, one behind the other; empty where the publisher does not tell them. Layers that need the last
   * blocks alone have fewer blocks than their tokens fill: these are the last ones, and the ones before lie nowhere.
   */
  readonly tokenIds: readonly number[];
  readonly blockTokens: number;
  /** The publisher's name of the medium: `GPU`, `CPU`, `STORAGE` or another name; null where it gives none. */
  readonly medium: string | null;
  /** Layer group; null where there is one. */
  readonly group: number | null;
  /** Kind of the group's layers, as the publisher calls it: `full_attention` and others; null where it does not say. */
  readonly layers: string | null;
  /** Tokens that the group's layers attend to, where these are the last ones alone; left out or null for all. */
  readonly window?: number | null;
  readonly loraName: string | null;
  /** Who may find the blocks, beside the tokens: vLLM's `cache_salt`. Null for all. */
  readonly salt: string | null;
  /** For each block, what its hash covers beside tokens, as the publisher wrote it; null for nothing. */
  readonly extraKeys: readonly (readonly unknown[] | null)[] | null;
}

/** Blocks can no longer be found in a medium. */
export interface KVBlocksRemoved {
  readonly type: 'removed';
  readonly hashes: readonly string[];
  readonly medium: string | null;
  readonly group: number | null;
}

/** Why everything that was known of a publisher counts for nothing. */
export type KVClearReason =
  /** The publisher said so. */
  | 'published'
  /** Numbers are missing, and could not be had again. */
  | 'gap'
  /** The publisher began again from a lower number. */
  | 'restart'
  /** The reader was slower than its queue is long. */
  | 'overflow';

/** No block can be found any more. What follows tells what can be found again. */
interface KVBlocksCleared {
  readonly type: 'cleared';
  readonly reason: KVClearReason;
  /** Where; null for all media. */
  readonly medium: string | null;
}

/** An event of a publisher's caches: blocks were stored, removed, or all were cleared. */
export type KVEvent = KVBlocksStored | KVBlocksRemoved | KVBlocksCleared;

/** One message: events that happened together. */
export interface KVEventBatch {
  readonly topic: string;
  /** Grows by one with each message of a publisher. */
  readonly number: bigint;
  /** The publisher's clock, in seconds since 1970. */
  readonly publishedAtS: number;
  /** Which of several engines behind one address; null where there is one. */
  readonly rank: number | null;
  readonly events: readonly KVEvent[];
}

/** A fault in a message from elsewhere, in words for a log. */
export class WireFault extends Error {}

/** Writes and reads MessagePack. */
export interface MessagePack {
  pack(value: unknown): Uint8Array;
  /** Integers of 64 bits come as bigint. @throws for bytes that are not MessagePack */
  unpack(bytes: Uint8Array): unknown;
}

/** @throws TKV_CONFIG where the package is not installed */
export async function loadMessagePack(): Promise<MessagePack> {
  let msgpackr: typeof import('msgpackr');
  try {
    msgpackr = await import('msgpackr');
  } catch (cause) {
    throw packageMissing('msgpackr', cause);
  }
  const writer = new msgpackr.Packr({ useRecords: false, variableMapSize: true });
  const reader = new msgpackr.Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'bigint' });
  return {
    pack: (value) => writer.pack(value),
    unpack: (bytes) => reader.unpack(bytes) as unknown,
  };
}

export function packageMissing(name: string, cause: unknown): TierKVError {
  return new TierKVError(
    'TKV_CONFIG',
    `KV events need the package ${name}, which is not installed. Install it: npm install zeromq msgpackr`,
    { field: name, cause },
  );
}

// ---- writing

/** How events are written: as maps with `type` (vLLM since June 2026), or as arrays (before). */
export type WireEncoding = 'maps' | 'arrays';

/** A hash as it goes on the wire: 64 bits and never 0, which some routers take for no block. */
export type WireHash = bigint;

export interface WireStored {
  readonly hashes: readonly WireHash[];
  readonly parent: WireHash | null;
  readonly tokenIds: readonly number[];
  readonly blockTokens: number;
  readonly medium: string;
  readonly group: number | null;
  readonly loraName: string | null;
  /** Salt of all blocks of the event. */
  readonly salt: string | null;
  /** Put before the salt in `extra_keys`, for routers that look for a mark. */
  readonly saltPrefix: string;
  /**
   * Media of each block: images and the like whose first token lies in it, each by a hash and its offset in the block.
   */
  readonly media: readonly (readonly WireMedia[])[];
}

/** An image as vLLM names it: 64 hexadecimal digits, and the offset in the block at which it begins. */
export type WireMedia = readonly [hash: string, offset: number];

/** One `BlockStored`. */
export function storedOnWire(encoding: WireEncoding, stored: WireStored): unknown {
  const { hashes, parent, tokenIds, blockTokens, medium, group, loraName, salt } = stored;
  const extraKeys = extraKeysOf(stored);
  if (encoding === 'arrays') {
    const known = [
      'BlockStored',
      hashes,
      parent,
      tokenIds,
      blockTokens,
      null,
      medium,
      loraName,
      extraKeys,
      group,
    ];
    return known.slice(0, group !== null ? 10 : extraKeys !== null ? 9 : 8);
  }
  return {
    type: 'BlockStored',
    block_hashes: hashes,
    parent_block_hash: parent,
    token_ids: tokenIds,
    block_size: blockTokens,
    lora_id: null,
    medium,
    lora_name: loraName,
    ...(extraKeys === null ? {} : { extra_keys: extraKeys }),
    ...(group === null ? {} : { group_idx: group }),
    // Dynamo reads the salt of blocks further down a chain from here.
    ...(salt === null ? {} : { cache_salt: salt }),
  };
}

/**
 * Extra keys in vLLM's order: the adapter in each block, then media, and the salt only in the block that begins a
 * chain.
 */
function extraKeysOf({ hashes, parent, loraName, salt, saltPrefix, media }: WireStored): unknown[] | null {
  const keys = hashes.map((_, i) => [
    ...(loraName === null ? [] : [loraName]),
    ...media[i],
    ...(salt === null || parent !== null || i > 0 ? [] : [`${saltPrefix}${salt}`]),
  ]);
  return keys.every(({ length }) => length === 0) ? null : keys.map((one) => (one.length === 0 ? null : one));
}

/** One `BlockRemoved`. */
export function removedOnWire(
  encoding: WireEncoding,
  hashes: readonly WireHash[],
  medium: string,
  group: number | null,
): unknown {
  if (encoding === 'arrays') {
    return group === null ? ['BlockRemoved', hashes, medium] : ['BlockRemoved', hashes, medium, group];
  }
  return {
    type: 'BlockRemoved',
    block_hashes: hashes,
    medium,
    ...(group === null ? {} : { group_idx: group }),
  };
}

export function clearedOnWire(encoding: WireEncoding): unknown {
  return encoding === 'arrays' ? ['AllBlocksCleared'] : { type: 'AllBlocksCleared' };
}

/** The payload of a message. */
export function packBatch(
  pack: MessagePack,
  publishedAtS: number,
  events: readonly unknown[],
  rank: number | null,
): Uint8Array {
  return pack.pack([publishedAtS, events, rank]);
}

export function numberFrame(number: bigint): Uint8Array {
  const frame = new Uint8Array(8);
  new DataView(frame.buffer).setBigUint64(0, BigInt.asUintN(64, number));
  return frame;
}

/** @throws WireFault unless the frame is 8 bytes */
export function numberIn(frame: Uint8Array): bigint {
  if (frame.byteLength !== 8) throw new WireFault(`the number has ${frame.byteLength} bytes, not 8`);
  return new DataView(frame.buffer, frame.byteOffset, 8).getBigUint64(0);
}

// ---- reading

/** Reads the content of a message. Events of unknown kinds are left out. @throws WireFault */
export function readBatch(
  pack: MessagePack,
  topic: string,
  number: bigint,
  payload: Uint8Array,
): KVEventBatch {
  let value: unknown;
  try {
    value = pack.unpack(payload);
  } catch (error) {
    throw new WireFault(`the payload is not MessagePack: ${error instanceof Error ? error.message : error}`);
  }
  const [seconds, events, rank] = Array.isArray(value)
    ? (value as unknown[])
    : isMap(value)
      ? [value.ts, value.events, value.data_parallel_rank]
      : [];
  if (!Array.isArray(events)) throw new WireFault('the payload has no list of events');
  if (typeof seconds !== 'number' && typeof seconds !== 'bigint')
    throw new WireFault('the payload has no time');
  return {
    topic,
    number,
    publishedAtS: Number(seconds),
    rank: orNull(rank, (one) => integer(one, 'the rank')),
    events: events.flatMap((event: unknown) => readEvent(event)),
  };
}

const storedFields = [
  'block_hashes',
  'parent_block_hash',
  'token_ids',
  'block_size',
  'lora_id',
  'medium',
  'lora_name',
  'extra_keys',
  'group_idx',
  'kv_cache_spec_kind',
  'kv_cache_spec_sliding_window',
  'locality',
];
const removedFields = ['block_hashes', 'medium', 'group_idx'];

/** Stands for a medium that the publisher does not name: vLLM's first medium was the device alone. */
export const MEDIUM_DEFAULT = 'GPU';

/** vLLM's name for layers that attend to all tokens. */
export const FULL_LAYERS = 'full_attention';

/** Whether the event is of a store that other servers share: what lies there says nothing of this server. */
function isElsewhere(locality: unknown): boolean {
  return locality !== undefined && locality !== null && locality !== 'LOCAL';
}

function readEvent(event: unknown): KVEvent[] {
  const isArray = Array.isArray(event);
  if (!isArray && !isMap(event)) throw new WireFault('an event is neither a map nor an array');
  const type: unknown = isArray ? event[0] : event.type;
  const fields = (names: readonly string[]): Readonly<Record<string, unknown>> =>
    isArray ? Object.fromEntries(names.map((name, i) => [name, event[i + 1] as unknown])) : event;
  if (type === 'AllBlocksCleared') return [{ type: 'cleared', reason: 'published', medium: null }];
  if (type === 'TierBlocksCleared') {
    const { medium } = fields(['medium']);
    return [{ type: 'cleared', reason: 'published', medium: orNull(medium, text) ?? MEDIUM_DEFAULT }];
  }
  if (type === 'BlockRemoved') {
    const { block_hashes, medium, group_idx, locality } = fields(removedFields);
    if (isElsewhere(locality)) return [];
    return [
      {
        type: 'removed',
        hashes: list(block_hashes, 'block_hashes').map(hash),
        medium: orNull(medium, text),
        group: orNull(group_idx, (one) => integer(one, 'group_idx')),
      },
    ];
  }
  if (type === 'BlockStored') {
    const stored = fields(storedFields);
    return isElsewhere(stored.locality) ? [] : [readStored(stored)];
  }
  if (typeof type !== 'string') throw new WireFault('an event has no type');
  return [];
}

function readStored(fields: Readonly<Record<string, unknown>>): KVBlocksStored {
  const hashes = list(fields.block_hashes, 'block_hashes').map(hash);
  const blockTokens = integer(fields.block_size, 'block_size');
  if (blockTokens < 1) throw new WireFault(`block_size is ${blockTokens}`);
  const tokenIds = list(fields.token_ids ?? [], 'token_ids').map((id) => integer(id, 'a token id'));
  const layers = orNull(fields.kv_cache_spec_kind, text);
  const missing = tokenIds.length / blockTokens - hashes.length;
  const isSparse = Number.isInteger(missing) && missing > 0 && layers !== null && layers !== FULL_LAYERS;
  if (tokenIds.length !== 0 && missing !== 0 && !isSparse) {
    throw new WireFault(`${hashes.length} blocks of ${blockTokens} tokens have ${tokenIds.length} token ids`);
  }
  const loraName = orNull(fields.lora_name, text);
  const extraKeys = orNull(fields.extra_keys, (keys) =>
    list(keys, 'extra_keys').map((one) => orNull(one, (of) => list(of, 'extra_keys'))),
  );
  const window = orNull(fields.kv_cache_spec_sliding_window, (one) => integer(one, 'a sliding window'));
  return {
    type: 'stored',
    hashes,
    parent: orNull(fields.parent_block_hash, hash),
    tokenIds,
    blockTokens,
    medium: orNull(fields.medium, text),
    group: orNull(fields.group_idx, (one) => integer(one, 'group_idx')),
    layers,
    ...(window === null ? {} : { window }),
    loraName,
    salt: orNull(fields.cache_salt, text) ?? saltIn(extraKeys, loraName),
    extraKeys,
  };
}

/** Mark before a salt that Dynamo's engines are given. */
const DYNAMO_SALT_PREFIX = 'dynamo-cache-salt:';

/** vLLM's name of an image or a sound, which versions before the offset sent alone. */
export const MEDIA_HASH: RegExp = /^[0-9a-f]{64}$/;

/** The text among the extra keys of the first block that names neither an adapter nor an image. */
function saltIn(extraKeys: KVBlocksStored['extraKeys'], loraName: string | null): string | null {
  const salt = extraKeys?.[0]?.find(
    (key): key is string => typeof key === 'string' && key !== loraName && !MEDIA_HASH.test(key),
  );
  if (salt === undefined) return null;
  return salt.startsWith(DYNAMO_SALT_PREFIX) ? salt.slice(DYNAMO_SALT_PREFIX.length) : salt;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !ArrayBuffer.isView(value);
}

function orNull<T>(value: unknown, read: (value: unknown) => T): T | null {
  return value === undefined || value === null ? null : read(value);
}

function list(value: unknown, name: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new WireFault(`${name} is not a list`);
  return value as unknown[];
}

function text(value: unknown): string {
  if (typeof value !== 'string') throw new WireFault('a name is not text');
  return value;
}

function integer(value: unknown, name: string): number {
  const number = typeof value === 'bigint' ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isSafeInteger(number))
    throw new WireFault(`${name} is not an integer`);
  return number;
}

/** The name of a block: signed integers count as their 64 bits. */
function hash(value: unknown): string {
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isSafeInteger(value))) {
    return hashName(BigInt(value));
  }
  if (value instanceof Uint8Array && value.byteLength > 0) return Buffer.from(value).toString('hex');
  if (typeof value === 'string' && value !== '') return value;
  throw new WireFault('a hash is neither an integer nor bytes');
}

export function hashName(hash: WireHash): string {
  return BigInt.asUintN(64, hash).toString(16).padStart(16, '0');
}
