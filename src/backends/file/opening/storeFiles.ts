/** Names of a store's files, and whose files they are. What this tierkv did not make is not touched. */

import * as fs from 'node:fs';
import { join } from 'node:path';
import { TierKVError } from '../../../runtime/errors.ts';
import { BLOCK_BYTES } from '../io/dataFile.ts';
import { decodeSuperblock, type StoreFacts } from '../record/superblock.ts';

export const BLOCKS_NAME = 'tierkv.blocks';
export const INDEX_NAME = 'tierkv.index';
/** Behind a name while the file is made. */
export const NEW_SUFFIX = '.new';

/** The store there, if any. @throws TKV_MISMATCH when a file of our name is somebody else's */
export function storeThere(dir: string): StoreFacts | undefined {
  for (const name of [INDEX_NAME, INDEX_NAME + NEW_SUFFIX, BLOCKS_NAME + NEW_SUFFIX]) {
    const path = join(dir, name);
    const head = headOf(path);
    if (typeof head === 'string') throw foreign(path, head);
    // A file that was being made may hold anything from nothing to all of it.
    const unwritten = head === undefined || head.every((byte) => byte === 0);
    const magic = head === undefined ? '' : new TextDecoder().decode(head.subarray(0, 4));
    if (!unwritten && magic !== 'TKVI' && magic !== 'TKVS') throw foreign(path, 'is not a tierkv file');
  }
  const path = join(dir, BLOCKS_NAME);
  const head = headOf(path);
  if (head === undefined || head.length === 0) return undefined;
  const facts = typeof head === 'string' ? head : decodeSuperblock(head);
  if (typeof facts === 'string') throw foreign(path, facts);
  return facts;
}

/** The first block of a file; undefined when there is no file, a sentence when it is not a plain one. */
function headOf(path: string): Uint8Array | string | undefined {
  const stats = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return undefined;
  if (!stats.isFile()) return 'is not a regular file';
  const fd = fs.openSync(path, 'r');
  try {
    const head = new Uint8Array(BLOCK_BYTES);
    return head.subarray(0, fs.readSync(fd, head, 0, BLOCK_BYTES, 0));
  } finally {
    fs.closeSync(fd);
  }
}

function foreign(path: string, why: string): TierKVError {
  return new TierKVError(
    'TKV_MISMATCH',
    `dir holds ${path}, which ${why}. Move it away, or use another directory.`,
    { field: 'dir', path },
  );
}
