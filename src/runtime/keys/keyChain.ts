/**
 * Keys of token blocks, and everything that goes into them: the chain, namespaces, extras of one request, and keys
 * made of ids that a trace has already chained. A key is keyed BLAKE2s-256, cut to 128 bits:
 *
 *     key[i] = BLAKE2s(namespace key; count, i, key[i - 1], tokens of block i)      key[-1] = 0
 *
 * Equal keys mean equal tokens in the whole prefix, equal positions and one namespace, up to a collision of 128 bits
 * under a key that no client knows. The count makes a partial tail differ from every longer one. A key costs one
 * compression for each 64 bytes of 24 + 4 * tokens, two for 16 tokens, and leaves no garbage; one chain serves any
 * number of sequences.
 */

import { configError, described, invariant, requireInteger, TierKVError } from '../errors.ts';
import { Granularity, granularityNames, type UnitSpec, unitBox, unitSpec } from '../geometry/box.ts';
import { type KVLayout, layoutFingerprint, requireKVLayout } from '../geometry/layout.ts';
import * as is from '../kinds.ts';
import { type Kinds, optionTable } from '../options.ts';
import {
  blake2s,
  compress,
  digestBytesMax,
  keyBytesMax,
  keyedMidstate,
  messageBytes,
  messageWords,
  stateWords,
} from './blake2s.ts';

const headerWords = 6;
const digestWords = digestBytesMax / 4;

/** Told of keys, the first block of them that was hashed, and the tokens. */
type HashListener = (keys: BlockKeys, from: number, tokens: KeyElements) => void;

/** Told of the key of a partial last block: which block it begins, and how many tokens it has. */
type TailListener = (
  keys: BlockKeys,
  key: Uint32Array,
  block: number,
  count: number,
  tokens: KeyElements,
) => void;

/** Makes the keys of a sequence's blocks: each is a keyed hash of all tokens up to its end. */
export class KeyChain implements KeySource {
  readonly elementsPerKey: number;
  readonly #midstate: Uint32Array;
  /** For each block that extras of one request enter: the hash state with them. */
  #withExtras: ReadonlyMap<number, Uint32Array> = new Map();
  readonly #state: Uint32Array = new Uint32Array(stateWords);
  readonly #message: Uint32Array = new Uint32Array(messageWords);
  readonly #key: Uint32Array = new Uint32Array(wordsPerKey);
  #onHashed: HashListener | undefined;
  #onTail: TailListener | undefined;

  /** @throws TKV_CONFIG naming the field of the namespace that is missing or malformed. */
  constructor(namespace: KeyNamespace | KeyChain) {
    if (namespace instanceof KeyChain) {
      this.elementsPerKey = namespace.elementsPerKey;
      this.#midstate = namespace.#midstate;
      return;
    }
    const read = readNamespace(namespace);
    this.elementsPerKey = read.unit?.tokensPerUnit ?? read.layout.blockTokens;
    const namespaceKey = blake2s(encodeNamespace(read), digestBytesMax, read.secretKey);
    this.#midstate = keyedMidstate(namespaceKey, digestBytesMax);
    namespaceKey.fill(0);
  }

  /**
   * The chain of one request with extras: its keys equal this chain's up to the first block that extras enter. From
   * there on only requests with the same extras have the same keys.
   * @throws TKV_INPUT naming the malformed extra
   */
  withExtras(extras: RequestExtras): KeyChain {
    const digests = requestExtras(extras, this.elementsPerKey);
    if (digests.size === 0) return this;
    const chain = new KeyChain(this);
    chain.#withExtras = new Map([...digests].map(([block, digest]) => [block, this.#midstateOf(digest)]));
    return chain;
  }

  /** A key of the namespace and the digest. Blocks have a count of at least 1 where this message has 0. */
  #midstateOf(digest: Uint8Array): Uint32Array {
    const state = this.#midstate.slice();
    const message = new Uint32Array(messageWords);
    const words = new Uint8Array(4 * digestWords);
    words.set(digest);
    const view = new DataView(words.buffer);
    for (let i = 0; i < digestWords; i++) message[headerWords + i] = view.getUint32(4 * i, true);
    compress(state, message, 2 * messageBytes, true);
    const key = new Uint8Array(digestBytesMax);
    const out = new DataView(key.buffer);
    for (let i = 0; i < stateWords; i++) out.setUint32(4 * i, state[i], true);
    return keyedMidstate(key, digestBytesMax);
  }

  /**
   * Sets what is called behind each `hashBlocks` and each `hashTail`. A chain that `withExtras` makes has listeners of
   * its own: there tokens alone do not name a block.
   */
  listen(listener: HashListener, onTail: TailListener): void {
    this.#onHashed = listener;
    this.#onTail = onTail;
  }

  hashBlocks(tokens: KeyElements, from: number, out: BlockKeys, tokenCount: number = tokens?.length): number {
    requireElements(tokens);
    invariant(tokenCount <= tokens.length, 'a sequence has no more tokens than its array');
    const blocks = Math.floor(tokenCount / this.elementsPerKey);
    invariant(from <= blocks, () => `block ${from} is not full yet: there are ${blocks} full blocks`);
    out.truncate(from);
    out.reserve(blocks);
    for (let block = from; block < blocks; block++) {
      this.#hash(tokens, block, this.elementsPerKey, out);
      out.append(this.#key, 0);
    }
    if (from < blocks) this.#onHashed?.(out, from, tokens);
    return out.length;
  }

  hashPartial(
    tokens: KeyElements,
    block: number,
    count: number,
    keys: BlockKeys,
    out: Uint32Array,
    at: number = 0,
  ): void {
    invariant(
      count >= 1 && count < this.elementsPerKey,
      'a partial tail is shorter than a block and not empty',
    );
    invariant(block * this.elementsPerKey + count <= tokens.length, 'a partial tail ends within its tokens');
    invariant(block <= keys.length, () => `the tail of block ${block} needs the key of the block before it`);
    this.#hash(tokens, block, count, keys);
    for (let i = 0; i < wordsPerKey; i++) out[at + i] = this.#key[i];
  }

  /** Like `hashPartial`, for a tail that is about to be stored: its listener is told. */
  hashTail(tokens: KeyElements, block: number, count: number, keys: BlockKeys, out: Uint32Array): void {
    this.hashPartial(tokens, block, count, keys, out);
    this.#onTail?.(keys, out, block, count, tokens);
  }

  /** Puts into #key the key of `count` tokens of `block`, whose parent is among `keys`. */
  #hash(tokens: KeyElements, block: number, count: number, keys: BlockKeys): void {
    const state = this.#state;
    const message = this.#message;
    const midstate = this.#withExtras.get(block) ?? this.#midstate;
    for (let i = 0; i < stateWords; i++) state[i] = midstate[i];
    message[0] = count;
    message[1] = block;
    const parents = keys.words;
    const parent = (block - 1) * wordsPerKey;
    for (let i = 0; i < wordsPerKey; i++) message[2 + i] = block > 0 ? parents[parent + i] : 0;

    const start = block * this.elementsPerKey;
    let filled = headerWords;
    let hashedBytes = messageBytes;
    for (let i = start; i < start + count; i++) {
      const token = elementAt(tokens, i);
      if (token >>> 0 !== token) throw badToken(i, tokens[i]);
      if (filled === messageWords) {
        hashedBytes += messageBytes;
        compress(state, message, hashedBytes, false);
        filled = 0;
      }
      message[filled++] = token;
    }
    hashedBytes += 4 * filled;
    while (filled < messageWords) message[filled++] = 0;
    compress(state, message, hashedBytes, true);
    for (let i = 0; i < wordsPerKey; i++) this.#key[i] = state[i];
  }
}

function badToken(index: number, token: unknown): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `tokens[${index}] is ${described(token)}, not an integer from 0 to 4294967295. Pass token ids as the ` +
      `tokenizer gave them.`,
    { field: `tokens[${index}]` },
  );
}

// The keys of a sequence's blocks in order, four 32-bit words a key, in one typed array that grows by
// doubling. An index reads key i at `words[4 * i]` and following, without an object a key. `words` is
// replaced when it grows, so hold the BlockKeys and not its array across an append.

export const wordsPerKey = 4;

/** Keys of one list: the gibibyte that a typed array takes everywhere. */
const keysMost = 2 ** 26;

export class BlockKeys {
  #words: Uint32Array;
  #length = 0;

  constructor(capacityKeys: number = 16) {
    requireInteger('capacityKeys', capacityKeys, 1, keysMost);
    this.#words = new Uint32Array(capacityKeys * wordsPerKey);
  }

  /** Keys held; words from `length * wordsPerKey` on mean nothing. */
  get length(): number {
    return this.#length;
  }

  get words(): Uint32Array {
    return this.#words;
  }

  /** Makes room for `keys` keys in all, so that appending up to there replaces no array. */
  reserve(keys: number): void {
    if (keys * wordsPerKey <= this.#words.length) return;
    const grown = new Uint32Array(Math.max(keys * wordsPerKey, 2 * this.#words.length));
    grown.set(this.#words.subarray(0, this.#length * wordsPerKey));
    this.#words = grown;
  }

  /** Appends the four words at `source[at]`. */
  append(source: Uint32Array, at: number): void {
    this.reserve(this.#length + 1);
    const to = this.#length * wordsPerKey;
    this.#words[to] = source[at];
    this.#words[to + 1] = source[at + 1];
    this.#words[to + 2] = source[at + 2];
    this.#words[to + 3] = source[at + 3];
    this.#length++;
  }

  /** Forgets all but the first `keys` keys. */
  truncate(keys: number): void {
    invariant(keys >= 0 && keys <= this.#length, () => `${this.#length} keys cannot be cut to ${keys}`);
    this.#length = keys;
  }

  /** Whether key `index` equals the four words at `other[at]`. */
  equalsAt(index: number, other: Uint32Array, at: number): boolean {
    const from = index * wordsPerKey;
    return (
      this.#words[from] === other[at] &&
      this.#words[from + 1] === other[at + 1] &&
      this.#words[from + 2] === other[at + 2] &&
      this.#words[from + 3] === other[at + 3]
    );
  }

  /** Key `index` as 32 hexadecimal digits, for logs and messages. */
  toHex(index: number): string {
    invariant(index >= 0 && index < this.#length, () => `key ${index} is not among the ${this.#length} keys`);
    return keyToHex(this.#words, index * wordsPerKey);
  }
}

/** The key at `words[at]` as 32 hexadecimal digits, in the order of its bytes. */
export function keyToHex(words: Uint32Array, at: number = 0): string {
  let hex = '';
  for (let byte = 0; byte < 4 * wordsPerKey; byte++) {
    const value = (words[at + (byte >> 2)] >>> ((byte & 3) * 8)) & 0xff;
    hex += value.toString(16).padStart(2, '0');
  }
  return hex;
}

// The canonical encoding of what goes into a key besides tokens. Every value is written as
//
//      0     1      2           6
//     +-----+------+-----------+----------------+
//     | tag | type | length LE | length bytes   |      tag: which field      type: bytes, text or integer
//     +-----+------+-----------+----------------+
//
// so the bytes can be read back in one way only: no two different lists of values have the same encoding,
// whatever the values are. A tenant named like a model, a text that holds another field's bytes or a number
// written as text change the encoding. Text is written as UTF-16 code units, since UTF-8 maps every unpaired
// surrogate to the same bytes.

export const ValueType = { BYTES: 1, TEXT: 2, INTEGER: 3 } as const;
export type ValueType = (typeof ValueType)[keyof typeof ValueType];

const headerBytes = 6;

export class CanonicalWriter {
  #bytes: Uint8Array = new Uint8Array(256);
  #length = 0;

  bytes(tag: number, value: Uint8Array): this {
    this.#header(tag, ValueType.BYTES, value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
    return this;
  }

  text(tag: number, value: string): this {
    this.#header(tag, ValueType.TEXT, 2 * value.length);
    for (let i = 0; i < value.length; i++) {
      const unit = value.charCodeAt(i);
      this.#bytes[this.#length++] = unit & 0xff;
      this.#bytes[this.#length++] = unit >>> 8;
    }
    return this;
  }

  /** A safe integer of at least 0, as eight bytes. */
  integer(tag: number, value: number): this {
    invariant(
      Number.isSafeInteger(value) && value >= 0,
      () => `${value} is not a safe integer of at least 0`,
    );
    this.#header(tag, ValueType.INTEGER, 8);
    this.#word(value % 2 ** 32);
    this.#word(Math.floor(value / 2 ** 32));
    return this;
  }

  /** A copy of all that was written. */
  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  #header(tag: number, type: ValueType, length: number): void {
    invariant(Number.isInteger(tag) && tag >= 1 && tag <= 255, 'a tag is an integer from 1 to 255');
    const needed = this.#length + headerBytes + length;
    if (needed > this.#bytes.length) {
      const grown = new Uint8Array(2 * needed);
      grown.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = grown;
    }
    this.#bytes[this.#length++] = tag;
    this.#bytes[this.#length++] = type;
    this.#word(length);
  }

  #word(value: number): void {
    for (let shift = 0; shift < 32; shift += 8) this.#bytes[this.#length++] = (value >>> shift) & 0xff;
  }
}

// A namespace is everything besides parent and tokens that determines the bytes of a unit of KV, or which requests
// may share it. Keys of two namespaces have nothing in common, so isolation needs no check at lookup.
//
// The program that embeds tierkv gives secret and tenant, from an authenticated context and never from a request's
// body. The secret is not kept: each namespace has a key of its own, derived from it by keyed BLAKE2s.

/** The parts that give keys their meaning beside the tokens: secret, tenant, epoch, model and layout. */
export interface KeyNamespace {
  /** 16 to 32 random bytes. Without them keys can be neither predicted nor made to collide. */
  readonly secretKey: Uint8Array;
  /** The tenant, or the group of tenants that trust each other: only it shares. */
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
  /** Other settings that determine the bytes, by name: adapter, rope scaling, quantization scales. */
  readonly extras?: Readonly<Record<string, string>>;
}

const secretKeyBytesMin = 16;

function requireSecret(secretKey: Uint8Array, field: string): Uint8Array {
  const isBytes = secretKey instanceof Uint8Array;
  if (isBytes && secretKey.length >= secretKeyBytesMin && secretKey.length <= keyBytesMax) return secretKey;
  const found = isBytes ? `it has ${secretKey.length}` : `it is ${described(secretKey)}`;
  throw configError(
    field,
    `must be a Uint8Array of ${secretKeyBytesMin} to ${keyBytesMax} bytes, and ${found}`,
    `Generate ${keyBytesMax} random bytes once and keep them.`,
  );
}

function requireTenant(tenant: string | Uint8Array, field: string): string | Uint8Array {
  if (tenant instanceof Uint8Array || typeof tenant === 'string') return tenant;
  throw configError(
    field,
    `is ${described(tenant)}`,
    'Give the tenant as text or bytes; "" is a tenant too.',
  );
}

/** A key is derived from the secret of the namespace, which is not kept. */
const keyNamespace = optionTable(
  {
    secretKey: is.by(requireSecret),
    tenant: is.by(requireTenant),
    epoch: is.integer(0),
    model: is.name('Name the weights, with their revision.'),
    layout: is.by(requireKVLayout),
    unit: is.optional(is.object()),
    unitInRange: is.optional(is.passed(), 0),
    extras: is.optional(is.object(), {}),
  } satisfies Kinds<KeyNamespace>,
  'TKV_CONFIG',
);

/** Tags of the encoding. A tag is never reused for another meaning. */
const Tag = {
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
  EXTRA_OFFSET: 14,
} as const;

function readNamespace(namespace: KeyNamespace): KeyNamespace {
  return keyNamespace.readFlat(namespace, 'namespace');
}

/**
 * The canonical encoding of all of a namespace but its secret.
 * @throws TKV_CONFIG naming the field that is missing or malformed.
 */
export function encodeNamespace(namespace: KeyNamespace): Uint8Array {
  const { layout, unitInRange = 0, extras = {}, ...read } = readNamespace(namespace);
  const unit = read.unit ?? unitSpec(layout, { granularity: Granularity.BLOCK });
  requireInteger('unitInRange', unitInRange, 0, unit.unitsPerTokenRange - 1);
  const box = unitBox(layout, unit, unitInRange);
  const writer = new CanonicalWriter().text(Tag.DOMAIN, 'tierkv key namespace 1');
  encodeTenant(writer, read.tenant, read.epoch)
    .text(Tag.MODEL, read.model)
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
      throw configError(`extras.${name}`, `is ${described(value)}`, 'Give it as text.');
    }
    writer.text(Tag.EXTRA_NAME, name).text(Tag.EXTRA_VALUE, value);
  }
  return writer.finish();
}

/** Writes tenant and epoch, the part of a namespace that keys of every kind share. */
function encodeTenant(writer: CanonicalWriter, tenant: string | Uint8Array, epoch: number): CanonicalWriter {
  if (tenant instanceof Uint8Array) writer.bytes(Tag.TENANT, tenant);
  else writer.text(Tag.TENANT, tenant);
  return writer.integer(Tag.EPOCH, epoch);
}

// Sources of keys. `KeyChain` hashes tokens; `ExternalKeys` takes ids that a trace has already chained. In both, two
// blocks have equal keys only if they and all blocks before them hold the same, in the same namespace.

/** Token ids, or block ids for `ExternalKeys`: integers of at least 0, as tokenizers give them. */
export type KeyElements =
  | Int32Array
  | Uint32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array
  | readonly (number | bigint)[];

/** Element `i` as a number; NaN if it is neither a number nor a bigint. */
export function elementAt(elements: KeyElements, i: number): number {
  const element = elements[i];
  if (typeof element === 'number') return element;
  return typeof element === 'bigint' ? Number(element) : Number.NaN;
}

/** @throws TKV_INPUT if it is not a list of numbers, judged by its length */
export function requireElements(elements: KeyElements, field = 'tokens'): void {
  if (elements instanceof Float32Array) {
    const problem = `${field} must hold whole token ids, and it is a Float32Array, which rounds ids above 2^24`;
    throw new TierKVError('TKV_INPUT', `${problem}. Pass a Uint32Array, or an array of token ids.`, {
      field,
    });
  }
  const isList = typeof elements === 'object' && elements !== null;
  if (isList && Number.isSafeInteger(elements.length) && elements.length >= 0) return;
  const problem = `${field} must be a list, and it is ${described(elements)}`;
  throw new TierKVError('TKV_INPUT', `${problem}. Pass an array of token ids.`, { field });
}

export interface KeySource {
  /** Elements that one key covers: tokens of a unit, or one id. */
  readonly elementsPerKey: number;

  /**
   * Makes `out` the keys of all full blocks among the first `elementCount` elements of a sequence (default: all).
   * Keys before `from` are kept and the rest appended: call it with `from = out.length` to extend a sequence that
   * grew.
   * @returns `out.length`
   * @throws TKV_INPUT naming the element that is not a valid id; `out` then holds the keys before it
   */
  hashBlocks(elements: KeyElements, from: number, out: BlockKeys, elementCount?: number): number;

  /**
   * Writes to `out[at]` the key of the first `count` elements of block `block`, fewer than a whole block: a partial
   * tail, keyed by its exact length. `keys` holds the keys of the blocks before it.
   * @throws TKV_INPUT naming the element that is not a valid id
   */
  hashPartial(
    elements: KeyElements,
    block: number,
    count: number,
    keys: BlockKeys,
    out: Uint32Array,
    at?: number,
  ): void;
}

// Keys for simulators, from ids that a trace has already chained: equal id = equal whole prefix (Mooncake's
// hash_ids).
//
//      word 0   word 1            word 2   word 3
//     +--------+--------+        +--------+--------+
//     | id, shuffled by |        | tenant and epoch |
//     | the namespace   |        | hashed to 64 bit |
//     +--------+--------+        +--------+--------+
//
// The shuffle is a three-round Feistel network: one-to-one on 64 bits, so ids never collide within a
// namespace and `idOf` gives them back, and well mixed, so an index may take any word as its hash. It is
// cheap and no protection against an adversary: the runtime's keys are those of `KeyChain`.

interface ExternalNamespace {
  readonly tenant: string | Uint8Array;
  readonly epoch: number;
}

const externalNamespace = optionTable(
  { tenant: is.by(requireTenant), epoch: is.integer(0) } satisfies Kinds<ExternalNamespace>,
  'TKV_CONFIG',
);

export class ExternalKeys implements KeySource {
  readonly elementsPerKey: number = 1;
  readonly #key: Uint32Array = new Uint32Array(wordsPerKey);

  /** @throws TKV_CONFIG naming `tenant` or `epoch`. */
  constructor(namespace: ExternalNamespace) {
    const { tenant, epoch } = externalNamespace.readFlat(namespace, 'namespace');
    const writer = new CanonicalWriter().text(Tag.DOMAIN, 'tierkv external keys 1');
    const digest = blake2s(encodeTenant(writer, tenant, epoch).finish(), 8);
    for (let i = 0; i < digest.length; i++) this.#key[2 + (i >> 2)] |= digest[i] << ((i & 3) * 8);
  }

  hashBlocks(ids: KeyElements, from: number, out: BlockKeys, idCount: number = ids?.length): number {
    requireElements(ids, 'ids');
    invariant(from <= idCount && idCount <= ids.length, 'a sequence has no more ids than its array');
    out.truncate(from);
    out.reserve(idCount);
    for (let i = from; i < idCount; i++) {
      this.#shuffle(elementAt(ids, i), ids[i], i);
      out.append(this.#key, 0);
    }
    return out.length;
  }

  hashPartial(): void {
    invariant(false, 'an id names a whole block, which has no partial tail');
  }

  /** The id behind the key at `words[at]`, or undefined if the key is of another namespace. */
  idOf(words: Uint32Array, at: number = 0): number | undefined {
    const key = this.#key;
    if (words[at + 2] !== key[2] || words[at + 3] !== key[3]) return undefined;
    let low = words[at];
    let high = words[at + 1];
    high ^= mix(low + key[2]);
    low ^= mix(high + key[3]);
    high ^= mix(low + key[2]);
    return (high >>> 0) * 2 ** 32 + (low >>> 0);
  }

  #shuffle(id: number, given: unknown, index: number): void {
    if (!Number.isSafeInteger(id) || id < 0) {
      throw new TierKVError(
        'TKV_INPUT',
        `ids[${index}] is ${described(given)}, not an integer from 0 to 2^53 - 1. Number the blocks of the trace from 0.`,
        { field: `ids[${index}]` },
      );
    }
    const key = this.#key;
    let low = id | 0;
    let high = Math.floor(id / 2 ** 32);
    high ^= mix(low + key[2]);
    low ^= mix(high + key[3]);
    high ^= mix(low + key[2]);
    key[0] = low;
    key[1] = high;
  }
}

/** The 32-bit finalizer of MurmurHash3 (Appleby, public domain). */
function mix(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}

// Extras: what determines the KV of one request besides its tokens, such as an adapter, the images that placeholders
// stand for, or a salt. An extra enters the key of one block with its place there, and through the chain the keys of all
// blocks behind it; the blocks before it are shared as usual.
//
//     block        0        1        2        3
//     key          k0 ----> k1 ----> k2' ---> k3'        an image whose first token lies in block 2
//                                    ^ image

/** A part of the key by name: `{ adapter: 'sql-7' }`, `{ image: { value: sha256, fromToken: 35 } }`. */
export type RequestExtras = Readonly<Record<string, string | Uint8Array | RequestExtra>>;

/** A part of the key that begins at a token, such as the hash of an image. */
export interface RequestExtra {
  readonly value: string | Uint8Array;
  /** The first token whose KV depends on it; the block of that token is the first whose key changes. Default 0. */
  readonly fromToken?: number | undefined;
}

const extraTable = optionTable({
  value: is.by(requireValue),
  fromToken: is.optional(is.by(requireFromToken), 0),
} satisfies Kinds<RequestExtra>);

/**
 * For each block that extras enter, 32 bytes that stand for all of them.
 * @throws TKV_INPUT naming the malformed extra
 */
function requestExtras(
  extras: RequestExtras,
  tokensPerKey: number,
  field = 'extras',
): ReadonlyMap<number, Uint8Array> {
  is.object().read(extras, field);
  const writers = new Map<number, CanonicalWriter>();
  for (const name of Object.keys(extras).sort()) {
    const { value, fromToken } = checkedExtra(extras[name], `${field}.${name}`);
    const block = Math.floor(fromToken / tokensPerKey);
    const writer = writers.get(block) ?? new CanonicalWriter().text(Tag.DOMAIN, 'tierkv request extras 1');
    writers.set(block, writer.text(Tag.EXTRA_NAME, name));
    // the same tokens have other KV where the same extra begins at another one of them
    const offset = fromToken % tokensPerKey;
    if (offset > 0) writer.integer(Tag.EXTRA_OFFSET, offset);
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
  return extraTable.read(extra, field);
}

function requireFromToken(fromToken: number, field: string): number {
  if (Number.isSafeInteger(fromToken) && fromToken >= 0) return fromToken;
  const problem = `${field} must be an integer from 0 on, and it is ${described(fromToken)}`;
  throw new TierKVError('TKV_INPUT', `${problem}. Name the first token that depends on it.`, { field });
}

function requireValue(value: string | Uint8Array, field: string): string | Uint8Array {
  if (isValue(value)) return value;
  throw badExtra(field, value);
}

function isValue(value: unknown): value is string | Uint8Array {
  return typeof value === 'string' || value instanceof Uint8Array;
}

function badExtra(field: string, value: unknown): TierKVError {
  const problem = `${field} must be text or a Uint8Array, and it is ${described(value)}`;
  return new TierKVError('TKV_INPUT', `${problem}. Pass what determines the KV, or a hash of it.`, { field });
}
