/**
 * The record of a block where others can read and write: on a shared server, or on a wire between two runtimes.
 * It describes itself, and nothing in it is believed before its authenticator has been checked.
 *
 *     offset  bytes
 *     0       4    magic `TKVR`
 *     4       2    version of the format
 *     6       2    flags: bit 0, the payload is encrypted
 *     8       16   salt, drawn for each record
 *     24      88   facts, always encrypted:
 *                    0 key (16) · 16 parent's key (16) · 32 fingerprint of the layout (16) · 48 generation (4)
 *                    52 tokens (4) · 56 digest (8) · 64 payload bytes (4) · 68 has a parent (4) · 72 zeros (16)
 *     112     16   authenticator of bytes 0 to 111
 *     128     n    payload
 *     128+n   16   authenticator of the whole record
 *
 * Numbers are little-endian. Encryption and authenticators are AES-256-GCM under a key that is drawn from the
 * secret key, the salt and the block's key, so no nonce is ever used twice with one key, and a record under another
 * block's name cannot be opened. Facts are encrypted also where the payload is not: they would tell which blocks
 * follow each other, and let a guess at a block's bytes be checked.
 *
 * The record's name is a keyed hash of the block's key, the layout and the generation. It says nothing, and records
 * of other layouts and generations have other names.
 *
 * - `open` and `openBeside` write into the destination while they decrypt; where they answer a fault, what is there
 *   is void. `seal` and `open` do their work at once; `sealBeside` and `openBeside` have it done on another thread,
 *   where the codec was given a native cipher, and at once where that fails.
 * - The same record under its own name is the same bytes whenever it is read: identity is content.
 */

import { createCipheriv, createDecipheriv, hkdfSync, randomFillSync } from 'node:crypto';
import type { Digest } from '../../runtime/digest.ts';
import { blake2sOf } from '../../runtime/keys/blake2s.ts';
import type { NativeCipher } from './nativeCipher.ts';

export const HEADER_BYTES = 128;
const TAG_BYTES = 16;
/** Bytes that a record takes beside its payload. */
export const RECORD_OVERHEAD_BYTES: number = HEADER_BYTES + TAG_BYTES;
const RECORD_VERSION = 1;

const MAGIC = 0x52564b54; // 'TKVR' as a little-endian word
const SALT_AT = 8;
const SALT_BYTES = 16;
const FACTS_AT = 24;
const FACTS_BYTES = 88;
const ENCRYPTED = 1;
/** Bytes that are encrypted or decrypted in one call, few enough to stay in a core's cache. */
const PART_BYTES = 128 * 1024;
const CIPHER = 'aes-256-gcm';
const HEADER_NONCE: Buffer = Buffer.from('tierkv head.');
const PAYLOAD_NONCE: Buffer = Buffer.from('tierkv block');

export interface SharedFacts {
  readonly parent: Uint32Array | undefined;
  readonly tokens: number;
  readonly digest: Digest;
  readonly payloadBytes: number;
}

export interface SealedBlock {
  /** Four words. */
  readonly key: Uint32Array;
  readonly parent?: Uint32Array | undefined;
  readonly tokens?: number | undefined;
  readonly digest: Digest;
  readonly bytes: Uint8Array;
}

/**
 *   absent    no record, or one of another version of this package
 *   foreign   not ours, or damaged: its authenticator, its key, layout or generation is wrong
 */
type RecordFault = { readonly fault: 'absent' | 'foreign'; readonly reason: string };

export interface RecordIdentity {
  /** The secret under which block keys are made. */
  readonly secretKey: Uint8Array;
  /** The facts that determine the layout of a payload, as text. */
  readonly layout: string;
  /** Raised to forget everything that was written before. */
  readonly generation: number;
  /** Whether payloads are encrypted. A reader takes both kinds. Default true. */
  readonly encrypt?: boolean;
}

export class RecordCodec {
  readonly #nameKey: Uint8Array;
  readonly #sealKey: Uint8Array;
  readonly #layout: Uint8Array;
  readonly #generation: number;
  readonly #encrypt: boolean;
  readonly #prefix: string;
  readonly #native: NativeCipher | undefined;

  /** @param native does the work of `sealBeside` and `openBeside`. Default: Node's own cipher, on this thread */
  constructor(
    { secretKey, layout, generation, encrypt = true }: RecordIdentity,
    native: NativeCipher | undefined = undefined,
  ) {
    const derived = (purpose: string): Uint8Array =>
      new Uint8Array(hkdfSync('sha256', secretKey, 'tierkv shared record', purpose, 32));
    this.#nameKey = derived('name');
    this.#sealKey = derived('seal');
    this.#layout = blake2sOf(new TextEncoder().encode(layout), 16);
    this.#generation = generation;
    this.#encrypt = encrypt;
    this.#prefix = `tierkv:${RECORD_VERSION}:`;
    this.#native = native;
  }

  /** The name under which the block lies on the server. */
  nameOf(key: Uint32Array, at = 0): string {
    const named = Buffer.alloc(36);
    for (let i = 0; i < 4; i++) named.writeUInt32LE(key[at + i], 4 * i);
    named.set(this.#layout, 16);
    named.writeUInt32LE(this.#generation, 32);
    return this.#prefix + Buffer.from(blake2sOf(named, 16, this.#nameKey)).toString('hex');
  }

  /** Whether payloads go through a native cipher. */
  get isNative(): boolean {
    return this.#native !== undefined;
  }

  /** The block as a record: new memory, so the block's own may be used again at once. */
  seal(block: SealedBlock): Buffer {
    const { bytes } = block;
    const { record, recordKey } = this.#sealedHead(block);
    const body = createCipheriv(CIPHER, recordKey, PAYLOAD_NONCE);
    body.setAAD(record.subarray(0, HEADER_BYTES));
    if (this.#encrypt) {
      for (let at = 0; at < bytes.byteLength; at += PART_BYTES) {
        body.update(bytes.subarray(at, at + PART_BYTES)).copy(record, HEADER_BYTES + at);
      }
    } else {
      record.set(bytes, HEADER_BYTES);
      body.setAAD(bytes);
    }
    body.final();
    body.getAuthTag().copy(record, HEADER_BYTES + bytes.byteLength);
    return record;
  }

  /** Like `seal`. The block's memory must stay as it is until the record is there. */
  async sealBeside(block: SealedBlock): Promise<Buffer> {
    if (this.#native === undefined) return this.seal(block);
    const { record, recordKey } = this.#sealedHead(block);
    const payload = record.subarray(HEADER_BYTES, HEADER_BYTES + block.bytes.byteLength);
    if (!this.#encrypt) payload.set(block.bytes);
    const job = {
      key: recordKey,
      nonce: PAYLOAD_NONCE,
      header: record.subarray(0, HEADER_BYTES),
      from: this.#encrypt ? block.bytes : payload,
      into: this.#encrypt ? payload : undefined,
    };
    const tag = await this.#native.seal(job).catch(() => undefined);
    if (tag === undefined) return this.seal(block);
    tag.copy(record, HEADER_BYTES + payload.length);
    return record;
  }

  /** A record with its header, whose payload is to come. */
  #sealedHead({ key, parent, tokens = 0, digest, bytes }: SealedBlock): {
    record: Buffer;
    recordKey: Uint8Array;
  } {
    const record = Buffer.allocUnsafe(RECORD_OVERHEAD_BYTES + bytes.byteLength);
    record.writeUInt32LE(MAGIC, 0);
    record.writeUInt16LE(RECORD_VERSION, 4);
    record.writeUInt16LE(this.#encrypt ? ENCRYPTED : 0, 6);
    randomFillSync(record, SALT_AT, SALT_BYTES);
    const facts = Buffer.alloc(FACTS_BYTES);
    for (let i = 0; i < 4; i++) {
      facts.writeUInt32LE(key[i], 4 * i);
      facts.writeUInt32LE(parent?.[i] ?? 0, 16 + 4 * i);
    }
    facts.set(this.#layout, 32);
    facts.writeUInt32LE(this.#generation, 48);
    facts.writeUInt32LE(tokens, 52);
    facts.writeUInt32LE(digest.lo >>> 0, 56);
    facts.writeUInt32LE(digest.hi >>> 0, 60);
    facts.writeUInt32LE(bytes.byteLength, 64);
    facts.writeUInt32LE(parent === undefined ? 0 : 1, 68);
    const recordKey = this.#recordKey(record, key);
    const head = createCipheriv(CIPHER, recordKey, HEADER_NONCE);
    head.setAAD(record.subarray(0, FACTS_AT));
    head.update(facts).copy(record, FACTS_AT);
    head.final();
    head.getAuthTag().copy(record, FACTS_AT + FACTS_BYTES);
    return { record, recordKey };
  }

  /** Reads the facts of the block of `key` from the first bytes of a record, if they are ours. */
  openHeader(head: Uint8Array, key: Uint32Array, at = 0): SharedFacts | RecordFault {
    const opened = this.#openedHead(head, key, at);
    return 'fault' in opened ? opened : opened.facts;
  }

  #openedHead(head: Uint8Array, key: Uint32Array, at: number): OpenedHead | RecordFault {
    const fault = shapeFault(head);
    if (fault !== undefined) return fault;
    const record = Buffer.from(head.buffer, head.byteOffset, HEADER_BYTES);
    const recordKey = this.#recordKey(record, key, at);
    const decipher = createDecipheriv(CIPHER, recordKey, HEADER_NONCE);
    decipher.setAAD(record.subarray(0, FACTS_AT));
    decipher.setAuthTag(record.subarray(FACTS_AT + FACTS_BYTES, HEADER_BYTES));
    const facts = decipher.update(record.subarray(FACTS_AT, FACTS_AT + FACTS_BYTES));
    try {
      decipher.final();
    } catch {
      return foreign('its header has no authenticator of ours');
    }
    for (let i = 0; i < 4; i++) {
      if (facts.readUInt32LE(4 * i) !== key[at + i]) return foreign('it is the record of another block');
    }
    if (Buffer.compare(facts.subarray(32, 48), this.#layout) !== 0) return foreign('it has another layout');
    const generation = facts.readUInt32LE(48);
    if (generation !== this.#generation) {
      return foreign(`it is of generation ${generation}, not ${this.#generation}`);
    }
    const parent = new Uint32Array(4);
    for (let i = 0; i < 4; i++) parent[i] = facts.readUInt32LE(16 + 4 * i);
    return {
      recordKey,
      facts: {
        parent: facts.readUInt32LE(68) === 1 ? parent : undefined,
        tokens: facts.readUInt32LE(52),
        digest: { lo: facts.readUInt32LE(56), hi: facts.readUInt32LE(60) },
        payloadBytes: facts.readUInt32LE(64),
      },
    };
  }

  /**
   * Decrypts the record of `key` into `into`.
   * @returns what it says of the block, or why `into` holds nothing
   */
  open(record: Uint8Array, key: Uint32Array, into: Uint8Array): SharedFacts | RecordFault {
    const opened = this.#openedWhole(record, key, into);
    if ('fault' in opened) return opened;
    const { facts, recordKey, payload, whole } = opened;
    const decipher = createDecipheriv(CIPHER, recordKey, PAYLOAD_NONCE);
    decipher.setAAD(whole.subarray(0, HEADER_BYTES));
    decipher.setAuthTag(whole.subarray(HEADER_BYTES + payload.length));
    const isEncrypted = (whole.readUInt16LE(6) & ENCRYPTED) !== 0;
    if (isEncrypted) {
      for (let at = 0; at < payload.length; at += PART_BYTES) {
        into.set(decipher.update(payload.subarray(at, at + PART_BYTES)), at);
      }
    } else decipher.setAAD(payload);
    try {
      decipher.final();
    } catch {
      return foreign('its payload has no authenticator of ours');
    }
    if (!isEncrypted) into.set(payload);
    return facts;
  }

  /** Like `open`. `record` and `into` must stay where they are until it has ended. */
  async openBeside(
    record: Uint8Array,
    key: Uint32Array,
    into: Uint8Array,
  ): Promise<SharedFacts | RecordFault> {
    if (this.#native === undefined) return this.open(record, key, into);
    const opened = this.#openedWhole(record, key, into);
    if ('fault' in opened) return opened;
    const { facts, recordKey, payload, whole } = opened;
    const isEncrypted = (whole.readUInt16LE(6) & ENCRYPTED) !== 0;
    const job = {
      key: recordKey,
      nonce: PAYLOAD_NONCE,
      header: whole.subarray(0, HEADER_BYTES),
      from: payload,
      ...(isEncrypted ? { into } : { into: undefined, copy: into }),
    };
    const tag = whole.subarray(HEADER_BYTES + payload.length);
    const isOurs = await this.#native.open(job, tag).catch(() => undefined);
    if (isOurs === undefined) return this.open(record, key, into);
    return isOurs ? facts : foreign('its payload has no authenticator of ours');
  }

  /** The record with its header opened, of the length that its header says and `into` has. */
  #openedWhole(
    record: Uint8Array,
    key: Uint32Array,
    into: Uint8Array,
  ): (OpenedHead & { payload: Buffer; whole: Buffer }) | RecordFault {
    const opened = this.#openedHead(record, key, 0);
    if ('fault' in opened) return opened;
    const { payloadBytes } = opened.facts;
    const end = HEADER_BYTES + payloadBytes;
    if (record.byteLength !== end + TAG_BYTES) {
      return foreign(`it has ${record.byteLength} bytes, and its header says ${end + TAG_BYTES}`);
    }
    if (payloadBytes !== into.byteLength) {
      return foreign(`its payload has ${payloadBytes} bytes, not ${into.byteLength}`);
    }
    const whole = Buffer.from(record.buffer, record.byteOffset, record.byteLength);
    return { ...opened, whole, payload: whole.subarray(HEADER_BYTES, end) };
  }

  #recordKey(record: Buffer, key: Uint32Array, at = 0): Uint8Array {
    const drawn = Buffer.alloc(SALT_BYTES + 16);
    record.copy(drawn, 0, SALT_AT, SALT_AT + SALT_BYTES);
    for (let i = 0; i < 4; i++) drawn.writeUInt32LE(key[at + i], SALT_BYTES + 4 * i);
    return blake2sOf(drawn, 32, this.#sealKey);
  }
}

interface OpenedHead {
  readonly facts: SharedFacts;
  readonly recordKey: Uint8Array;
}

function shapeFault(head: Uint8Array): RecordFault | undefined {
  if (head.byteLength === 0) return { fault: 'absent', reason: 'the server has no such record' };
  if (head.byteLength < HEADER_BYTES) return foreign(`it ends after ${head.byteLength} bytes`);
  const words = new DataView(head.buffer, head.byteOffset, 8);
  if (words.getUint32(0, true) !== MAGIC) return foreign('it is not a record of tierkv');
  const version = words.getUint16(4, true);
  if (version === RECORD_VERSION) return undefined;
  return { fault: 'absent', reason: `it is a record of version ${version}, not ${RECORD_VERSION}` };
}

function foreign(reason: string): RecordFault {
  return { fault: 'foreign', reason };
}
