/**
 * The first block of a data file: whose file it is and what its bytes mean. A file without it, or with that
 * of another version, is not touched; one of another model, layout or key is refused by the name of what
 * differs.
 *
 *      0          8         12        16         24                     4096
 *      +----------+---------+---------+----------+----------------------+
 *      | TKVSTORE | version | length  | digest   | JSON, then zeros     |   digest of the 4072 bytes after it
 *      +----------+---------+---------+----------+----------------------+
 */

import { type Digest, digestBytes } from '../../../runtime/digest.ts';
import { configError, TierKVError } from '../../../runtime/errors.ts';
import { optionNames } from '../../../runtime/options.ts';
import type { PoolShape } from '../../../runtime/pool/shape.ts';
import { BLOCK_BYTES } from '../io/dataFile.ts';
import { type FileLayout, layoutFingerprint } from './fileLayout.ts';
import { printable } from './printable.ts';
import type { RecordFamily } from './record.ts';

const MAGIC = 'TKVSTORE';
const VERSION = 3;
const TEXT_START = 24;
/** The index has 8 bits for a size class. */
const SIZE_CLASSES_MAX = 256;
/** So that offsets in the file stay below 2^53, however small the slots are. */
const PAGE_BYTES_MAX = 2 ** 40;

/** What gives a store's bytes and keys their meaning. Texts are compared, never interpreted. */
export interface StoreIdentity {
  /** Name and revision of the weights. */
  readonly model: string;
  /** Shape and type of the KV. */
  readonly layout: string;
  /** A fingerprint of the secret key, from which the key does not follow. */
  readonly secretKey: string;
  /** What else determines the bytes. */
  readonly extras: string;
  /** Contents of another epoch are forgotten, not refused. */
  readonly epoch: number;
}

export const storeIdentityNames: readonly string[] = optionNames<StoreIdentity>({
  model: true,
  layout: true,
  secretKey: true,
  extras: true,
  epoch: true,
});

export interface StoreFacts {
  readonly storeId: Digest;
  readonly identity: StoreIdentity;
  readonly pageBytes: number;
  readonly slotBytes: readonly number[];
  /** `empty` stores keep no index. Absent in older stores, which count as `warm`. */
  readonly restart?: 'empty' | 'warm';
}

/** @throws TKV_CONFIG when the identity's texts do not fit a block */
export function encodeSuperblock(facts: StoreFacts): Uint8Array {
  const block = new Uint8Array(BLOCK_BYTES);
  const text = new TextEncoder().encode(JSON.stringify(facts));
  if (text.byteLength > BLOCK_BYTES - TEXT_START) {
    throw configError('identity', `takes ${text.byteLength} bytes as text`, 'Use shorter names.');
  }
  const header = new DataView(block.buffer, 0, TEXT_START);
  block.set(new TextEncoder().encode(MAGIC));
  block.set(text, TEXT_START);
  header.setUint32(8, VERSION, true);
  header.setUint32(12, text.byteLength, true);
  const digest = digestBytes(block.subarray(TEXT_START));
  header.setUint32(16, digest.lo, true);
  header.setUint32(20, digest.hi, true);
  return block;
}

/** The facts in the first block of a file, or why the file is not one of ours to touch. */
export function decodeSuperblock(block: Uint8Array): StoreFacts | string {
  if (block.byteLength < TEXT_START || new TextDecoder().decode(block.subarray(0, 8)) !== MAGIC) {
    return 'is not a tierkv file';
  }
  const header = new DataView(block.buffer, block.byteOffset, TEXT_START);
  const version = header.getUint32(8, true);
  if (version !== VERSION) return `has format version ${version}, this tierkv reads ${VERSION}`;
  if (block.byteLength < BLOCK_BYTES) return 'is cut off';
  const digest = digestBytes(block.slice(TEXT_START, BLOCK_BYTES));
  const isWhole = header.getUint32(16, true) === digest.lo && header.getUint32(20, true) === digest.hi;
  const text = block.subarray(TEXT_START, TEXT_START + header.getUint32(12, true));
  const facts = isWhole ? factsIn(new TextDecoder().decode(text)) : undefined;
  return facts ?? 'has a damaged superblock';
}

/** Facts that a store can have; undefined for a text that no tierkv wrote, whatever its digest. */
function factsIn(text: string): StoreFacts | undefined {
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

/** What all records of the store share. */
export function familyOf({ storeId, identity, pageBytes, slotBytes }: StoreFacts): RecordFamily {
  return { store: storeId, layout: layoutFingerprint(pageBytes, slotBytes, JSON.stringify(identity)) };
}

/**
 * @throws TKV_MISMATCH with the part of the identity that differs as its field, when the store in `stored`
 * holds bytes of another meaning than `wanted` gives them
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
    if (has !== want) throw mismatch(field, `dir ${dir} holds blocks of ${has}, not of ${want}`, path);
  }
  if (stored.identity.secretKey !== wanted.identity.secretKey) {
    throw mismatch('secretKey', `dir ${dir} holds blocks under another secret key`, path);
  }
}

function mismatch(field: string, problem: string, path: string): TierKVError {
  return new TierKVError(
    'TKV_MISMATCH',
    `${printable(problem)}. Use the ${field} that wrote it or another directory, ` +
      `or remove ${path} to begin empty.`,
    { field, path },
  );
}

export function factsOf(
  storeId: Digest,
  identity: StoreIdentity,
  layout: FileLayout,
  restart: 'empty' | 'warm',
): StoreFacts {
  const { pageBytes, slotBytes } = layout.shape;
  return { storeId, identity, pageBytes, slotBytes, restart };
}
