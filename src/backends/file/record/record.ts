/**
 * The record: what lies on disk for one slot. It says by itself whose bytes it holds, so that a reader trusts
 * nothing but the record and the item it asks for. Little-endian; all lengths in bytes. docs/disk-format.md
 * has every field.
 *
 *      0        8    12     16          32           40           44         48        56       64       72
 *      +--------+----+------+-----------+------------+------------+----------+---------+--------+--------+
 *      | magic  | v  | head | key       | generation | size class | payload  | layout  | digest | store  |
 *      | 8      | 4  | 4    | 16        | 8          | 4          | 4        | 8       | 8      | 8      |
 *      +--------+----+------+-----------+------------+------------+----------+---------+--------+--------+
 *     72       80         88       92       108               120                128
 *      +--------+----------+--------+--------+-----------------+-------------------+
 *      | slot   | sequence | tokens | parent | zero (reserved) | header's digest   |
 *      | 8      | 8        | 4      | 16     | 12              | 8                 |
 *      +--------+----------+--------+--------+-----------------+-------------------+
 *
 * `parent` is the key of the block before it in its chain, and the header's digest is that of the 30 words
 * before it. `head` is where the payload starts. Payloads that are whole blocks lie apart from the header, so
 * that direct I/O moves them from and to the caller's memory; others follow it in the same block:
 *
 *      0            128          4096                     4096 + payload
 *      +------------+----- 0 ----+------------------------+
 *      | header     |            | payload                |       apart:    payload a multiple of 4096
 *      +------------+------------+------------------------+
 *      +------------+---------------------+--- 0 ---+
 *      | header     | payload             |         |             packed:   any other, up to the next 4096
 *      +------------+---------------------+---------+
 */

import { type Digest, digestWords } from '../../../runtime/digest.ts';
import type { StoreItem } from '../../../runtime/tier/tierStore.ts';
import { BLOCK_BYTES } from '../io/dataFile.ts';
import { isDigest, parentIn, setDigest, setParent, setWide, wide } from './words.ts';

export const HEADER_BYTES = 128;
export const RECORD_VERSION = 3;

const MAGIC_LO = 0x42564b54; // 'TKVB' in the file
const MAGIC_HI = 0x4b434f4c; // 'LOCK'
const CHECKED_WORDS = 30;

/** What all records of one store share. */
export interface RecordFamily {
  /** Fingerprint of the pool's shape and of what its bytes mean. */
  readonly layout: Digest;
  /** Drawn when the store was created: records of an earlier life are not its own. */
  readonly store: Digest;
}

export interface RecordShape {
  readonly payloadBytes: number;
  readonly payloadOffset: number;
  /** The whole record, a multiple of BLOCK_BYTES. */
  readonly recordBytes: number;
  /** Whether the payload lies in blocks of its own. */
  readonly apart: boolean;
}

export function recordShape(payloadBytes: number): RecordShape {
  const apart = payloadBytes % BLOCK_BYTES === 0;
  const payloadOffset = apart ? BLOCK_BYTES : HEADER_BYTES;
  const recordBytes = Math.ceil((payloadOffset + payloadBytes) / BLOCK_BYTES) * BLOCK_BYTES;
  return { payloadBytes, payloadOffset, recordBytes, apart };
}

/** Writes the header of `item`'s record into the first 32 words of `words`. */
export function encodeHeader(
  words: Uint32Array,
  family: RecordFamily,
  shape: RecordShape,
  item: StoreItem,
  sequence: number,
): void {
  words[0] = MAGIC_LO;
  words[1] = MAGIC_HI;
  words[2] = RECORD_VERSION;
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
  words.fill(0, 27, CHECKED_WORDS);
  setDigest(words, CHECKED_WORDS, digestWords(words.subarray(0, CHECKED_WORDS)));
}

/** Whether the words begin as a record does; free space does not. */
export function hasMagic(words: Uint32Array): boolean {
  return words[0] === MAGIC_LO && words[1] === MAGIC_HI;
}

/** Why the header in `words` is not that of a record of this store in this slot; empty where it is. */
export function headerFault(
  words: Uint32Array,
  family: RecordFamily,
  target: { readonly slot: number; readonly sizeClass: number },
  shape: RecordShape,
): string {
  if (!hasMagic(words)) return 'there is no record (magic)';
  const checksum = digestWords(words.subarray(0, CHECKED_WORDS));
  if (!isDigest(words, CHECKED_WORDS, checksum)) return "the header's digest is wrong";
  if (words[2] !== RECORD_VERSION) return `record version ${words[2]}, not ${RECORD_VERSION}`;
  if (!isDigest(words, 16, family.store)) return 'the record is of another store';
  if (!isDigest(words, 12, family.layout)) return 'the record is of another layout';
  if (wide(words, 18) !== target.slot) return `the record is of slot ${wide(words, 18)}`;
  if (words[10] !== target.sizeClass) return `the record is of size class ${words[10]}`;
  if (words[3] !== shape.payloadOffset || words[11] !== shape.payloadBytes)
    return 'the record is of another length';
  return '';
}

/** Whether the header is that of the record `sequence`, whoever may ask for it. */
export function isRecord(
  words: Uint32Array,
  family: RecordFamily,
  shape: RecordShape,
  target: { readonly slot: number; readonly sizeClass: number },
  sequence: number,
): boolean {
  return headerFault(words, family, target, shape) === '' && wide(words, 20) === sequence;
}

/** What a header without fault says of its record. */
export interface RecordFacts {
  readonly key: Uint32Array;
  readonly generation: number;
  readonly digest: Digest;
  /** Grows with each record that the store writes. */
  readonly sequence: number;
  readonly tokens: number;
  /** Key of the block before it in its chain; zeros for the first, undefined where it is not known. */
  readonly parent: Uint32Array | undefined;
}

export function recordFacts(words: Uint32Array): RecordFacts {
  return {
    key: words.slice(4, 8),
    generation: wide(words, 8),
    digest: { lo: words[14], hi: words[15] },
    sequence: wide(words, 20),
    tokens: words[22],
    parent: parentIn(words, 23),
  };
}

/**
 * What disagrees between the header in `words` and the item asked for; empty where nothing does.
 * @param sequence number of the record that was written there last, 0 where that is not known
 */
export function headerDisagreement(
  words: Uint32Array,
  family: RecordFamily,
  shape: RecordShape,
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
