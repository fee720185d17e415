/**
 * The note that a record on disk has of its block beside the bytes: token ids, tenant and layer group, sealed by AES-256-GCM
 * under a key that is derived from the runtime's secret. So a reader of the disk learns neither prompts nor tenants,
 * and a note that was changed, or moved to another block, does not open.
 *
 *     0       12     28                                             (the block's key is authenticated with it)
 *     +-------+------+---------------------------------------------+
 *     | nonce | tag  | sealed: 1 | width | group | tenant | tokens  |
 *     +-------+------+---------------------------------------------+
 *
 * Notes of blocks that tokens alone do not name are of version 2. Between tenant and tokens they have two bytes of
 * length and JSON of as many bytes: `{"extras": [[name, value, offset], ...], "isTail": true}`, each where it is.
 * A reader of version 1 leaves these out.
 *
 * The nonce is random: 2^32 notes under one secret keep the odds of a repeated one below 2^-32.
 */

import type { DurableTier } from '../backends/tierRow.ts';
import { keyToHex } from '../runtime/index.ts';
import type { BlockBook, BlockText } from './blockBook.ts';
import { NoteCipher } from './noteCipher.ts';

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Versions of a note: for a block that tokens and tenant name, and for one that has more to tell. */
const VERSION_PLAIN = 1;
const VERSION_MORE = 2;
/** Version, bytes a token, layer group, length of the tenant's name. */
const HEAD_BYTES = 6;
/** Longest text of what else names a block, in bytes. */
const MORE_BYTES_MAX = 2048;
/** Longest tenant's name, in bytes. */
const TENANT_BYTES_MAX = 1024;

export class BlockNotes {
  readonly #cipher: NoteCipher;

  constructor(secretKey: Uint8Array) {
    this.#cipher = new NoteCipher(secretKey);
  }

  /** The note for a block; undefined for a tenant whose name is too long, or for too many extras. */
  seal(blockKey: Uint32Array, text: BlockText): Uint8Array | undefined {
    const plain = plainText(text);
    if (plain === undefined) return undefined;
    const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
    const { sealed, tag } = this.#cipher.seal(nonce, bytesOf(blockKey), plain);
    // Records keep whole words: the length before them tells what is padding.
    const note = new Uint8Array(4 + NONCE_BYTES + TAG_BYTES + sealed.byteLength);
    new DataView(note.buffer).setUint32(0, sealed.byteLength, true);
    note.set(nonce, 4);
    note.set(tag, 4 + NONCE_BYTES);
    note.set(sealed, 4 + NONCE_BYTES + TAG_BYTES);
    return note;
  }

  /** Opens a note; undefined unless it was sealed for this block under this secret. */
  open(blockKey: Uint32Array, note: Uint8Array): BlockText | undefined {
    const from = 4 + NONCE_BYTES + TAG_BYTES;
    if (note.byteLength < from) return undefined;
    const length = new DataView(note.buffer, note.byteOffset).getUint32(0, true);
    if (length < HEAD_BYTES || from + length > note.byteLength) return undefined;
    const plain = this.#cipher.open(
      note.subarray(4, 4 + NONCE_BYTES),
      note.subarray(4 + NONCE_BYTES, from),
      bytesOf(blockKey),
      note.subarray(from, from + length),
    );
    return plain === undefined ? undefined : textIn(plain); // undefined: not ours, or changed
  }
}

function bytesOf(words: Uint32Array): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
}

function plainText({ tokenIds, tenant, group, extras, isTail }: BlockText): Uint8Array | undefined {
  const name = new TextEncoder().encode(tenant);
  if (name.byteLength > TENANT_BYTES_MAX) return undefined;
  const more = moreText(extras, isTail);
  if (more.byteLength > MORE_BYTES_MAX) return undefined;
  const largest = tokenIds.reduce((max, id) => Math.max(max, id), 0);
  const width = largest < 2 ** 16 ? 2 : largest < 2 ** 24 ? 3 : 4;
  const tokensAt = HEAD_BYTES + name.byteLength + more.byteLength;
  const plain = new Uint8Array(tokensAt + width * tokenIds.length);
  const view = new DataView(plain.buffer);
  view.setUint8(0, more.byteLength === 0 ? VERSION_PLAIN : VERSION_MORE);
  view.setUint8(1, width);
  view.setUint16(2, group, true);
  view.setUint16(4, name.byteLength, true);
  plain.set(name, HEAD_BYTES);
  plain.set(more, HEAD_BYTES + name.byteLength);
  tokenIds.forEach((id, i) => {
    const at = tokensAt + i * width;
    for (let byte = 0; byte < width; byte++) plain[at + byte] = id >>> (8 * byte);
  });
  return plain;
}

/** With its length before it; empty for a block that has nothing more to tell. */
function moreText(extras: BlockText['extras'], isTail: BlockText['isTail']): Uint8Array {
  if (extras === undefined && isTail === undefined) return new Uint8Array(0);
  const listed = extras?.map(({ name, value, offset }) => [name, value, offset]);
  const text = new TextEncoder().encode(JSON.stringify({ extras: listed, isTail }));
  const more = new Uint8Array(2 + text.byteLength);
  new DataView(more.buffer).setUint16(0, text.byteLength, true);
  more.set(text, 2);
  return more;
}

function moreIn(text: Uint8Array): Pick<BlockText, 'extras' | 'isTail'> {
  const { extras, isTail } = JSON.parse(new TextDecoder().decode(text)) as {
    extras?: [name: string, value: string, offset: number][];
    isTail?: true;
  };
  return {
    ...(extras && { extras: extras.map(([name, value, offset]) => ({ name, value, offset })) }),
    ...(isTail && { isTail }),
  };
}

/** Undefined for a note of a later version. It was authenticated, so its lengths are right. */
function textIn(plain: Uint8Array): BlockText | undefined {
  const view = new DataView(plain.buffer, plain.byteOffset, plain.byteLength);
  const version = view.getUint8(0);
  if (version !== VERSION_PLAIN && version !== VERSION_MORE) return undefined;
  const width = view.getUint8(1);
  const nameEnd = HEAD_BYTES + view.getUint16(4, true);
  const from = version === VERSION_PLAIN ? nameEnd : nameEnd + 2 + view.getUint16(nameEnd, true);
  const tokenIds = new Uint32Array((plain.byteLength - from) / width);
  for (let i = 0; i < tokenIds.length; i++) {
    let id = 0;
    for (let byte = width - 1; byte >= 0; byte--) id = id * 256 + plain[from + i * width + byte];
    tokenIds[i] = id;
  }
  const tenant = new TextDecoder().decode(plain.subarray(HEAD_BYTES, nameEnd));
  const more = version === VERSION_PLAIN ? {} : moreIn(plain.subarray(nameEnd + 2, from));
  return { tokenIds, tenant, group: view.getUint16(2, true), ...more };
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
        if (!isTold && !signal.aborted) {
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
