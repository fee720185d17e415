/**
 * What a record on disk says of its block beside its bytes: token ids, tenant and layer group, sealed by AES-256-GCM
 * under a key that is derived from the runtime's secret. So a reader of the disk learns neither prompts nor tenants,
 * and a note that was changed, or moved to another block, does not open.
 *
 *     0       12     28                                             (the block's key is authenticated with it)
 *     +-------+------+---------------------------------------------+
 *     | nonce | tag  | sealed: 1 | width | group | tenant | tokens  |
 *     +-------+------+---------------------------------------------+
 *
 * The nonce is random: 2^32 notes under one secret keep the odds of a repeated one below 2^-32.
 */

import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import type { DurableTier } from '../backends/tierRow.ts';
import { keyToHex } from '../runtime/index.ts';
import type { BlockBook, BlockText } from './blockBook.ts';

const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const NOTE_VERSION = 1;
/** Version, bytes a token, layer group, length of the tenant's name. */
const HEAD_BYTES = 6;
/** Longest tenant's name, in bytes. */
const TENANT_BYTES_MAX = 1024;

export class BlockNotes {
  readonly #key: Uint8Array;

  constructor(secretKey: Uint8Array) {
    this.#key = new Uint8Array(
      hkdfSync('sha256', secretKey, new Uint8Array(0), 'tierkv notes of records', 32),
    );
  }

  /** The note for a block; undefined for a tenant whose name is too long. */
  seal(blockKey: Uint32Array, text: BlockText): Uint8Array | undefined {
    const plain = plainText(text);
    if (plain === undefined) return undefined;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce);
    cipher.setAAD(bytesOf(blockKey));
    const sealed = Buffer.concat([cipher.update(plain), cipher.final()]);
    // Records keep whole words: the length before them tells what is padding.
    const note = new Uint8Array(4 + NONCE_BYTES + TAG_BYTES + sealed.byteLength);
    new DataView(note.buffer).setUint32(0, sealed.byteLength, true);
    note.set(nonce, 4);
    note.set(cipher.getAuthTag(), 4 + NONCE_BYTES);
    note.set(sealed, 4 + NONCE_BYTES + TAG_BYTES);
    return note;
  }

  /** What a note says; undefined unless it was sealed for this block under this secret. */
  open(blockKey: Uint32Array, note: Uint8Array): BlockText | undefined {
    const from = 4 + NONCE_BYTES + TAG_BYTES;
    if (note.byteLength < from) return undefined;
    const length = new DataView(note.buffer, note.byteOffset).getUint32(0, true);
    if (length < HEAD_BYTES || from + length > note.byteLength) return undefined;
    try {
      const cipher = createDecipheriv(CIPHER, this.#key, note.subarray(4, 4 + NONCE_BYTES));
      cipher.setAAD(bytesOf(blockKey));
      cipher.setAuthTag(note.subarray(4 + NONCE_BYTES, from));
      const plain = Buffer.concat([cipher.update(note.subarray(from, from + length)), cipher.final()]);
      return textIn(plain);
    } catch {
      return undefined; // not ours, or changed
    }
  }
}

function bytesOf(words: Uint32Array): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
}

function plainText({ tokenIds, tenant, group }: BlockText): Uint8Array | undefined {
  const name = new TextEncoder().encode(tenant);
  if (name.byteLength > TENANT_BYTES_MAX) return undefined;
  const largest = tokenIds.reduce((max, id) => Math.max(max, id), 0);
  const width = largest < 2 ** 16 ? 2 : largest < 2 ** 24 ? 3 : 4;
  const plain = Buffer.alloc(HEAD_BYTES + name.byteLength + width * tokenIds.length);
  plain.writeUInt8(NOTE_VERSION, 0);
  plain.writeUInt8(width, 1);
  plain.writeUInt16LE(group, 2);
  plain.writeUInt16LE(name.byteLength, 4);
  plain.set(name, HEAD_BYTES);
  tokenIds.forEach((id, i) => {
    plain.writeUIntLE(id, HEAD_BYTES + name.byteLength + i * width, width);
  });
  return plain;
}

/** Undefined for a note of a later version. It was authenticated, so its lengths are right. */
function textIn(plain: Buffer): BlockText | undefined {
  if (plain.readUInt8(0) !== NOTE_VERSION) return undefined;
  const width = plain.readUInt8(1);
  const from = HEAD_BYTES + plain.readUInt16LE(4);
  const tokenIds = new Uint32Array((plain.byteLength - from) / width);
  for (let i = 0; i < tokenIds.length; i++) tokenIds[i] = plain.readUIntLE(from + i * width, width);
  return { tokenIds, tenant: plain.toString('utf8', HEAD_BYTES, from), group: plain.readUInt16LE(2) };
}

/** The note of a cached block, for the file store. */
export function noteFrom(
  book: BlockBook,
  notes: BlockNotes,
): (blockKey: Uint32Array) => Uint8Array | undefined {
  return (blockKey) => {
    const text = book.textOf(keyToHex(blockKey));
    return text === undefined ? undefined : notes.seal(blockKey, text);
  };
}

/** Notes that are read at a time. */
const READERS = 8;

/**
 * Reads what the records of an earlier run say of their blocks. It goes on beside requests: a block that is
 * overwritten meanwhile is left out.
 * @param restored takes each of them
 * @param notice gets a line when the disk does not answer: what is left is not read then
 */
export async function readNotes(
  tier: Pick<DurableTier, 'records' | 'notes'>,
  notes: BlockNotes,
  signal: AbortSignal,
  restored: (key: string, text: BlockText) => void,
  notice: (line: string) => void,
): Promise<void> {
  const entries = [...tier.records()];
  let isTold = false;
  const reader = async (): Promise<void> => {
    for (let entry = entries.pop(); entry !== undefined && !signal.aborted; entry = entries.pop()) {
      let note: Uint8Array | undefined;
      try {
        note = await tier.notes.read(entry);
      } catch (error) {
        if (!isTold) {
          isTold = true;
          notice(
            `blocks of an earlier run are not announced: ${error instanceof Error ? error.message : error}`,
          );
        }
        entries.length = 0;
        return;
      }
      const text = note === undefined ? undefined : notes.open(entry.key, note);
      if (text !== undefined) restored(keyToHex(entry.key), text);
    }
  };
  await Promise.all(Array.from({ length: READERS }, reader));
}
