/**
 * The first block of a data file: whose file it is. A file without it, or with that of another version, is not touched.
 *
 *      0          8         12        16         24                     4096
 *      +----------+---------+---------+----------+----------------------+
 *      | TKVSTORE | version | length  | digest   | JSON, then zeros     |     digest of the 4072 bytes after it
 *      +----------+---------+---------+----------+----------------------+
 */

import { type Digest, digestBytes } from '../../runtime/digest.ts';
import type { FileLayout } from './fileLayout.ts';
import { BLOCK_BYTES, type RecordFamily } from './record.ts';

const MAGIC = 'TKVSTORE';
const VERSION = 1;
const TEXT_START = 24;

export interface StoreFacts {
  readonly storeId: Digest;
  readonly layout: Digest;
  readonly pageBytes: number;
  readonly slotBytes: readonly number[];
  readonly pageStrideBytes: number;
}

/** @throws TKV_CONFIG never; a pool has few size classes, which always fit. */
export function encodeSuperblock(block: Uint8Array, family: RecordFamily, layout: FileLayout): void {
  const facts: StoreFacts = {
    storeId: family.store,
    layout: family.layout,
    pageBytes: layout.shape.pageBytes,
    slotBytes: layout.shape.slotBytes,
    pageStrideBytes: layout.pageStrideBytes,
  };
  const text = new TextEncoder().encode(JSON.stringify(facts));
  const header = new DataView(block.buffer, block.byteOffset, TEXT_START);
  block.fill(0);
  block.set(new TextEncoder().encode(MAGIC));
  block.set(text, TEXT_START);
  header.setUint32(8, VERSION, true);
  header.setUint32(12, text.byteLength, true);
  const digest = digestBytes(block.subarray(TEXT_START));
  header.setUint32(16, digest.lo, true);
  header.setUint32(20, digest.hi, true);
}

/** Why a file that begins with `bytes` is not one of ours to overwrite; empty where it is. */
export function foreignness(bytes: Uint8Array): string {
  if (bytes.byteLength === 0) return ''; // a store that was killed before its first write
  if (bytes.byteLength < TEXT_START || new TextDecoder().decode(bytes.subarray(0, 8)) !== MAGIC) {
    return 'is not a tierkv file';
  }
  const header = new DataView(bytes.buffer, bytes.byteOffset, TEXT_START);
  const version = header.getUint32(8, true);
  if (version !== VERSION) return `has format version ${version}, this tierkv reads ${VERSION}`;
  if (bytes.byteLength < BLOCK_BYTES) return 'is cut off';
  const digest = digestBytes(bytes.subarray(TEXT_START, BLOCK_BYTES));
  const right = header.getUint32(16, true) === digest.lo && header.getUint32(20, true) === digest.hi;
  return right ? '' : 'has a damaged superblock';
}
