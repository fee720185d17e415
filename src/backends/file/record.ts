/**
 * The format of the data file: records, the superblock, and where they lie. A record holds the bytes of one
 * slot, and its header says whose bytes they are, so a reader trusts only the record and the item that it
 * asks for. Little-endian; lengths in bytes. docs/internals/disk-format.md has every field.
 *
 *      0        8    12     16          32           40           44         48        56       64       72
 *      +--------+----+------+-----------+------------+------------+----------+---------+--------+--------+
 *      | magic  | v  | head | key       | generation | size class | payload  | layout  | digest | store  |
 *      | 8      | 4  | 4    | 16        | 8          | 4          | 4        | 8       | 8      | 8      |
 *      +--------+----+------+-----------+------------+------------+----------+---------+--------+--------+
 *     72       80         88       92       108               120                128
 *      +--------+----------+--------+--------+-----------------+-------------------+
 *      | slot   | sequence | tokens | parent | note, its digest | header's digest  |
 *      | 8      | 8        | 4      | 16     | 4, 8             | 8                |
 *      +--------+----------+--------+--------+------------------+------------------+
 *
 * `parent` is the key of the preceding block in the chain. The header's digest covers the 30 words before it.
 * `note` is the length of what the store's owner keeps with the record, 0 for none (version 4; zeros in version 3).
 * A note lies where a record has room anyway: between header and payload, or behind a payload that is packed.
 * `head` is the offset of the payload. A payload of whole disk blocks lies apart from the header, so that
 * direct I/O moves it from and to the caller's memory. Any other payload follows the header in the same
 * block:
 *
 *      0            128          4096                     4096 + payload
 *      +------------+----- 0 ----+------------------------+
 *      | header     |            | payload                |       apart:    payload a multiple of 4096
 *      +------------+------------+------------------------+
 *      +------------+---------------------+--- 0 ---+
 *      | header     | payload             |         |             packed:   any other, up to the next 4096
 *      +------------+---------------------+---------+
 */

import { type Digest, digestBytes, digestWords } from '../../runtime/digest.ts';
import { configError, namedError, type TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, type OptionTable, optionTable } from '../../runtime/options.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import type { StoreItem } from '../../runtime/tier/tierStore.ts';
import { BLOCK_BYTES } from './dataFile.ts';
import { sha256 } from './sha256.ts';

export const HEADER_BYTES = 128;
/** Versions of records and superblock that are read. A store is written on in the version that it began with. */
const FORMAT_VERSION = 4;
/** The version before notes. */
const VERSION_WITHOUT_NOTES = 3;

const MAGIC_LO = 0x42564b54; // 'TKVB' in the file
const MAGIC_HI = 0x4b434f4c; // 'LOCK'
const CHECKED_WORDS = 30;

/** The two digests that all records of one store carry. */
export interface RecordFamily {
  /** Version of the store's format. */
  readonly version: number;
  /** Fingerprint of the pool's shape and of what its bytes mean. */
  readonly layout: Digest;
  /** Drawn at random when the store was created, so that records of an earlier store do not count. */
  readonly store: Digest;
}

export interface FileRecordShape {
  readonly payloadBytes: number;
  readonly payloadOffset: number;
  /** Length of the whole record, a multiple of BLOCK_BYTES. */
  readonly recordBytes: number;
  /** Whether the payload lies in blocks of its own. */
  readonly apart: boolean;
  /** Where a note begins. */
  readonly noteOffset: number;
  readonly noteBytesMax: number;
}

function recordShape(payloadBytes: number): FileRecordShape {
  const apart = payloadBytes % BLOCK_BYTES === 0;
  const payloadOffset = apart ? BLOCK_BYTES : HEADER_BYTES;
  const recordBytes = Math.ceil((payloadOffset + payloadBytes) / BLOCK_BYTES) * BLOCK_BYTES;
  const noteOffset = apart ? HEADER_BYTES : payloadOffset + payloadBytes;
  const noteBytesMax = (apart ? payloadOffset : recordBytes) - noteOffset;
  return { payloadBytes, payloadOffset, recordBytes, apart, noteOffset, noteBytesMax };
}

/**
 * Writes the header of `item`'s record into the first 32 words of `words`.
 * @param note of whole words; empty for none
 */
export function encodeHeader(
  words: Uint32Array,
  family: RecordFamily,
  shape: FileRecordShape,
  item: StoreItem,
  sequence: number,
  note: Uint8Array = new Uint8Array(0),
): void {
  words[0] = MAGIC_LO;
  words[1] = MAGIC_HI;
  words[2] = family.version;
  words[3] = shape.payloadOffset;
  words.set(item.key, 4);
  setWide(words, 8, item.generation);
  words[10] = item.sizeClass;
  words[11] = shape.payloadBytes;
  setDigest(words, 12, family.layout);
  setDigest(words, 14, item.digest);
  setDigest(words, 16, family.store);
  setWide(words, 18, item.slot);
  setWide(words, 20, sequence);
  words[22] = item.tokens ?? 0;
  setParent(words, 23, item.parent);
  words[27] = note.byteLength;
  if (note.byteLength > 0) setDigest(words, 28, digestBytes(note));
  else words.fill(0, 28, CHECKED_WORDS);
  setDigest(words, CHECKED_WORDS, digestWords(words.subarray(0, CHECKED_WORDS)));
}

/** Whether the words begin with a record's magic. Free space does not. */
export function hasMagic(words: Uint32Array): boolean {
  return words[0] === MAGIC_LO && words[1] === MAGIC_HI;
}

/** Why the header in `words` does not belong to a record of this store in this slot; empty if it does. */
export function headerFault(
  words: Uint32Array,
  family: RecordFamily,
  target: { readonly slot: number; readonly sizeClass: number },
  shape: FileRecordShape,
): string {
  if (!hasMagic(words)) return 'the slot holds no record (magic)';
  const checksum = digestWords(words.subarray(0, CHECKED_WORDS));
  if (!isDigest(words, CHECKED_WORDS, checksum)) return "the header's digest is wrong";
  if (words[2] !== family.version) return `record version ${words[2]}, not ${family.version}`;
  if (!isDigest(words, 16, family.store)) return 'the record is of another store';
  if (!isDigest(words, 12, family.layout)) return 'the record is of another layout';
  if (wide(words, 18) !== target.slot) return `the record is of slot ${wide(words, 18)}`;
  if (words[10] !== target.sizeClass) return `the record is of size class ${words[10]}`;
  if (words[3] !== shape.payloadOffset || words[11] !== shape.payloadBytes)
    return 'the record is of another length';
  if (words[27] > shape.noteBytesMax || words[27] % 4 !== 0)
    return 'the record has a note of an impossible length';
  return '';
}

/** Whether the header belongs to record number `sequence` of this store in this slot. */
export function isRecord(
  words: Uint32Array,
  family: RecordFamily,
  shape: FileRecordShape,
  target: { readonly slot: number; readonly sizeClass: number },
  sequence: number,
): boolean {
  return headerFault(words, family, target, shape) === '' && wide(words, 20) === sequence;
}

/** Fields of a header without fault. */
export interface RecordFacts {
  readonly key: Uint32Array;
  readonly generation: number;
  readonly digest: Digest;
  /** Number of the record: grows with each record that the store writes. */
  readonly sequence: number;
  readonly tokens: number;
  /** Key of the preceding block in the chain; zeros for the first block, undefined if unknown. */
  readonly parent: Uint32Array | undefined;
  readonly noteBytes: number;
  readonly noteDigest: Digest;
}

export function recordFacts(words: Uint32Array): RecordFacts {
  return {
    key: words.slice(4, 8),
    generation: wide(words, 8),
    digest: { lo: words[14], hi: words[15] },
    sequence: wide(words, 20),
    tokens: words[22],
    parent: parentIn(words, 23),
    noteBytes: words[27],
    noteDigest: { lo: words[28], hi: words[29] },
  };
}

/**
 * How the header in `words` disagrees with the item asked for; empty if it agrees.
 * @param sequence number of the record last written there, 0 if unknown
 */
export function headerDisagreement(
  words: Uint32Array,
  family: RecordFamily,
  shape: FileRecordShape,
  item: StoreItem,
  sequence: number,
): string {
  const fault = headerFault(words, family, item, shape);
  if (fault !== '') return fault;
  if (wide(words, 8) !== item.generation) return `the record is of generation ${wide(words, 8)}`;
  if (sequence !== 0 && wide(words, 20) !== sequence) return 'the record is an older one (sequence)';
  for (let word = 0; word < 4; word++)
    if (words[4 + word] !== item.key[word]) return 'the record is of another key';
  if (!isDigest(words, 14, item.digest)) return 'the record is of other content (digest)';
  return '';
}

// ---- superblock: the first block of a data file, which says whose file it is and what its bytes mean
//
// A file without a superblock, or with one of another version, is not touched. For a file of another model,
// layout or key the error names what differs.
//
//      0          8         12        16         24                     4096
//      +----------+---------+---------+----------+----------------------+
//      | TKVSTORE | version | length  | digest   | JSON, then zeros     |   digest of the 4072 bytes after it
//      +----------+---------+---------+----------+----------------------+

const MAGIC = 'TKVSTORE';
const TEXT_START = 24;
/** Most size classes: the index has 8 bits for one. */
const SIZE_CLASSES_MAX = 256;
/** Most bytes of a page, so that offsets in the file stay below 2^53 however small the slots are. */
const PAGE_BYTES_MAX = 2 ** 40;

/** The meaning of a store's bytes and keys. Texts are compared, never interpreted. */
export interface StoreIdentity {
  /** Name and revision of the weights. */
  readonly model: string;
  /** Shape and type of the KV. */
  readonly layout: string;
  /** A fingerprint of the secret key, from which the key cannot be derived. */
  readonly secretKey: string;
  /** Everything else that determines the bytes. */
  readonly extras: string;
  /** Contents of another epoch are dropped, without an error. */
  readonly epoch: number;
}

/** Parts that are left out are empty. */
export const storeIdentityTable: OptionTable<Partial<StoreIdentity>> = optionTable(
  {
    model: is.optional(is.text()),
    layout: is.optional(is.text()),
    secretKey: is.optional(is.text()),
    extras: is.optional(is.text()),
    epoch: is.optional(is.integer(0)),
  } satisfies Kinds<Partial<StoreIdentity>>,
  'TKV_CONFIG',
);

export interface StoreFacts {
  readonly storeId: Digest;
  readonly identity: StoreIdentity;
  readonly pageBytes: number;
  readonly slotBytes: readonly number[];
  /** `empty` stores keep no index. Absent in older stores, which count as `warm`. */
  readonly restart?: 'empty' | 'warm';
  /** Version of the format, as the superblock says it. */
  readonly version: number;
}

/** @throws TKV_CONFIG when the identity's texts do not fit a block */
export function encodeSuperblock({ version, ...facts }: StoreFacts): Uint8Array {
  const block = new Uint8Array(BLOCK_BYTES);
  const text = new TextEncoder().encode(JSON.stringify(facts));
  if (text.byteLength > BLOCK_BYTES - TEXT_START) {
    throw configError('identity', `takes ${text.byteLength} bytes as text`, 'Use shorter names.');
  }
  const header = new DataView(block.buffer, 0, TEXT_START);
  block.set(new TextEncoder().encode(MAGIC));
  block.set(text, TEXT_START);
  header.setUint32(8, version, true);
  header.setUint32(12, text.byteLength, true);
  const digest = digestBytes(block.subarray(TEXT_START));
  header.setUint32(16, digest.lo, true);
  header.setUint32(20, digest.hi, true);
  return block;
}

/** The facts in the first block of a file, or why the file must not be touched. */
export function decodeSuperblock(block: Uint8Array): StoreFacts | string {
  if (block.byteLength < TEXT_START || new TextDecoder().decode(block.subarray(0, 8)) !== MAGIC) {
    return 'is not a tierkv file';
  }
  const header = new DataView(block.buffer, block.byteOffset, TEXT_START);
  const version = header.getUint32(8, true);
  if (version !== FORMAT_VERSION && version !== VERSION_WITHOUT_NOTES) {
    return `has format version ${version}, this tierkv reads ${VERSION_WITHOUT_NOTES} and ${FORMAT_VERSION}`;
  }
  if (block.byteLength < BLOCK_BYTES) return 'is cut off';
  const digest = digestBytes(block.slice(TEXT_START, BLOCK_BYTES));
  const isWhole = header.getUint32(16, true) === digest.lo && header.getUint32(20, true) === digest.hi;
  const text = block.subarray(TEXT_START, TEXT_START + header.getUint32(12, true));
  const facts = isWhole ? factsIn(new TextDecoder().decode(text)) : undefined;
  return facts === undefined ? 'has a damaged superblock' : { ...facts, version };
}

/** The facts in `text`; undefined if no tierkv can have written it. The digest alone does not prove that. */
function factsIn(text: string): Omit<StoreFacts, 'version'> | undefined {
  let facts: Partial<StoreFacts> | null;
  try {
    facts = JSON.parse(text) as Partial<StoreFacts> | null;
  } catch {
    return undefined;
  }
  const { storeId, identity, pageBytes, slotBytes } = facts ?? {};
  const isWord = (value: unknown): boolean => Number.isInteger(value) && value === (value as number) >>> 0;
  const texts = [identity?.model, identity?.layout, identity?.secretKey, identity?.extras];
  const isKnown =
    isWord(storeId?.lo) &&
    isWord(storeId?.hi) &&
    texts.every((one) => typeof one === 'string') &&
    Number.isSafeInteger(identity?.epoch) &&
    Number.isInteger(pageBytes) &&
    Number(pageBytes) <= PAGE_BYTES_MAX &&
    Array.isArray(slotBytes) &&
    slotBytes.length > 0 &&
    slotBytes.length <= SIZE_CLASSES_MAX &&
    slotBytes.every((bytes) => isWord(bytes) && bytes > 0 && bytes % 4 === 0 && bytes <= Number(pageBytes));
  return isKnown ? (facts as StoreFacts) : undefined;
}

/** The digests that all records of the store carry. */
export function familyOf({ storeId, identity, pageBytes, slotBytes, version }: StoreFacts): RecordFamily {
  const layout = layoutFingerprint(version, pageBytes, slotBytes, JSON.stringify(identity));
  return { version, store: storeId, layout };
}

/**
 * @throws TKV_MISMATCH if `stored` and `wanted` differ in what bytes mean; the field is the part of the
 * identity that differs
 */
export function requireSameMeaning(stored: StoreFacts, wanted: StoreFacts, dir: string, path: string): void {
  const sizes = ({ pageBytes, slotBytes }: Pick<PoolShape, 'pageBytes' | 'slotBytes'>): string =>
    `pages of ${pageBytes} bytes cut into ${slotBytes.join(', ')}`;
  const compared: readonly (readonly [field: string, has: string, want: string])[] = [
    ['model', `model '${stored.identity.model}'`, `model '${wanted.identity.model}'`],
    ['layout', `'${stored.identity.layout}'`, `'${wanted.identity.layout}'`],
    ['layout', sizes(stored), sizes(wanted)],
    ['extras', `extras ${stored.identity.extras}`, `extras ${wanted.identity.extras}`],
  ];
  for (const [field, has, want] of compared) {
    if (has !== want) throw mismatch(field, dir, `holds blocks of ${has}, not of ${want}`, path);
  }
  if (stored.identity.secretKey !== wanted.identity.secretKey) {
    throw mismatch('secretKey', dir, 'holds blocks under another secret key', path);
  }
}

function mismatch(field: string, dir: string, problem: string, path: string): TierKVError {
  return namedError(
    'TKV_MISMATCH',
    { field, path },
    (name) =>
      `${name('dir')} ${printable(`${dir} ${problem}`)}. Use the ${name(field)} that wrote it or another directory, ` +
      `or remove ${path} to begin empty.`,
  );
}

export function factsOf(
  storeId: Digest,
  identity: StoreIdentity,
  layout: FileLayout,
  restart: 'empty' | 'warm',
): StoreFacts {
  const { pageBytes, slotBytes } = layout.shape;
  return { storeId, identity, pageBytes, slotBytes, restart, version: FORMAT_VERSION };
}

// ---- layout: where the records of a pool lie in its file
//
// Pages keep the pool's order. Each is as long as its longest division into records, so a slot's place does
// not depend on the size classes of other pages:
//
//      0            4096      8192
//      +------------+---------+---------------------------+---------------------------+---
//      | superblock | scratch | page 0: record 0, 1, 2 .. | page 1                    |
//      +------------+---------+---------------------------+---------------------------+---
//                             |<------- pageStride ------>|
//
// When a store is opened the scratch block is written and read back, to see whether direct I/O works.

export const SCRATCH_START_BYTES: number = BLOCK_BYTES;
export const DATA_START_BYTES: number = 2 * BLOCK_BYTES;

export interface FileLayout {
  readonly shape: PoolShape;
  /** Shape of the record, by size class. */
  readonly records: readonly FileRecordShape[];
  readonly pageStrideBytes: number;
  /** Length of the file with all pages. */
  readonly fileBytes: number;
}

/** @throws TKV_CONFIG if a slot is not whole 32-bit words, or the file would pass 2^53 bytes */
export function fileLayout(shape: PoolShape): FileLayout {
  const records = shape.slotBytes.map((bytes, sizeClass) => {
    if (bytes % 4 !== 0) {
      const remedy = 'Digests need whole 32-bit words: pad the slot.';
      throw configError(`slotBytes[${sizeClass}]`, `is ${bytes}, not a multiple of 4`, remedy);
    }
    return recordShape(bytes);
  });
  const cuts = records.map((record, sizeClass) => record.recordBytes * shape.slotsPerPage[sizeClass]);
  const pageStrideBytes = Math.max(...cuts);
  const fileBytes = DATA_START_BYTES + shape.pages * pageStrideBytes;
  if (!Number.isSafeInteger(fileBytes)) {
    const problem = `is ${shape.pages}, a file of ${fileBytes} bytes`;
    throw configError('pages', problem, 'Lower the number of blocks.');
  }
  return { shape, records, pageStrideBytes, fileBytes };
}

/** Whether records of the store can have notes. */
export function hasNotes({ version }: Pick<RecordFamily, 'version'>): boolean {
  return version > VERSION_WITHOUT_NOTES;
}

/** Length of the longest record. */
export function recordBytesMax({ records }: FileLayout): number {
  return Math.max(...records.map(({ recordBytes }) => recordBytes));
}

export function pageOf(layout: FileLayout, slot: number): number {
  return Math.floor(slot / layout.shape.slotsPerPageMax);
}

/** The page in which byte `at` of the file lies; below 0 before the first page. */
export function pageAt(layout: FileLayout, at: number): number {
  return Math.floor((at - DATA_START_BYTES) / layout.pageStrideBytes);
}

export function recordOffset(layout: FileLayout, slot: number, sizeClass: number): number {
  const { slotsPerPageMax } = layout.shape;
  const page = Math.floor(slot / slotsPerPageMax);
  const index = slot - page * slotsPerPageMax;
  return DATA_START_BYTES + page * layout.pageStrideBytes + index * layout.records[sizeClass].recordBytes;
}

/** Fingerprint of the layout and meaning of bytes: 64 bits of a SHA-256. */
function layoutFingerprint(
  version: number,
  pageBytes: number,
  slotBytes: readonly number[],
  meaning: string,
): Digest {
  const facts = JSON.stringify([version, pageBytes, slotBytes, meaning]);
  const [first, second] = sha256(new TextEncoder().encode(facts));
  return { lo: swapped(first), hi: swapped(second) };
}

function swapped(word: number): number {
  return ((word << 24) | ((word & 0xff00) << 8) | ((word >>> 8) & 0xff00) | (word >>> 24)) >>> 0;
}

// ---- numbers, digests and parents as 32-bit words of records and of the index

const UNKNOWN_WORD = 0xffff_ffff;

/** Writes the parent's key. All ones stand for an unknown parent. */
export function setParent(words: Uint32Array, at: number, parent: Uint32Array | undefined): void {
  if (parent === undefined) words.fill(UNKNOWN_WORD, at, at + 4);
  else words.set(parent, at);
}

export function parentIn(words: Uint32Array, at: number): Uint32Array | undefined {
  const parent = words.slice(at, at + 4);
  return parent.every((word) => word === UNKNOWN_WORD) ? undefined : parent;
}

export function setDigest(words: Uint32Array, at: number, digest: Digest): void {
  words[at] = digest.lo;
  words[at + 1] = digest.hi;
}

export function isDigest(words: Uint32Array, at: number, digest: Digest): boolean {
  return words[at] === digest.lo && words[at + 1] === digest.hi;
}

export function setWide(words: Uint32Array, at: number, value: number): void {
  words[at] = value >>> 0;
  words[at + 1] = Math.floor(value / 2 ** 32);
}

export function wide(words: Uint32Array, at: number): number {
  return words[at] + words[at + 1] * 2 ** 32;
}

/**
 * The text with control and format characters, line ends too, as `\u{1b}`: a text from a foreign file must
 * not control the reader's terminal.
 */
export function printable(text: string): string {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);
}
