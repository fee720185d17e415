/**
 * Reads the records of marked regions, as a start after a crash must: which are whole, by header and by
 * payload, and which are not. A page holds records of one size class; where leftovers of another are found it
 * is that of the whole record that was written last. Small records are read many at a time, large ones by
 * their header first.
 */

import { invariant } from '../../../runtime/errors.ts';
import { hostDigest } from '../../digest/index.ts';
import { BLOCK_BYTES, errnoOf } from '../io/dataFile.ts';
import type { RangedFile } from '../io/dataRanges.ts';
import type { StagingPool } from '../io/stagingPool.ts';
import { type FileLayout, recordOffset } from './fileLayout.ts';
import {
  HEADER_BYTES,
  hasMagic,
  headerFault,
  type RecordFacts,
  type RecordFamily,
  type RecordShape,
  recordFacts,
} from './record.ts';

export interface FoundRecord extends RecordFacts {
  readonly slot: number;
  readonly sizeClass: number;
  /** Why it is not whole; empty where it is. */
  readonly problem: string;
}

const WINDOW_BYTES = 1024 * 1024;
/** Records larger than this are not read before their header was. */
const WHOLE_BYTES_MAX = 64 * 1024;

export class RecordScan {
  readonly #blocks: RangedFile;
  readonly #layout: FileLayout;
  readonly #family: RecordFamily;
  readonly #staging: StagingPool;
  bytesRead = 0;

  /** @param blocks what was never written there is no record, and is not read */
  constructor(blocks: RangedFile, layout: FileLayout, family: RecordFamily, staging: StagingPool) {
    this.#blocks = blocks;
    this.#layout = layout;
    this.#family = family;
    this.#staging = staging;
  }

  /** The records of a page, whole and broken ones. Free space is not a record. */
  async page(page: number): Promise<FoundRecord[]> {
    const { shape } = this.#layout;
    const found: FoundRecord[] = [];
    for (let sizeClass = 0; sizeClass < shape.slotBytes.length; sizeClass++) {
      found.push(...(await this.#ofClass(page, sizeClass)));
    }
    const whole = found.filter(({ problem }) => problem === '');
    if (whole.length === 0) return found;
    const newest = whole.reduce((best, record) => (record.sequence > best.sequence ? record : best));
    return found.filter(({ problem, sizeClass, sequence }) =>
      problem === '' ? sizeClass === newest.sizeClass : sequence > newest.sequence,
    );
  }

  /** The record of one slot, or why there is none. */
  record(slot: number, sizeClass: number): Promise<FoundRecord | string> {
    return this.#alone(slot, sizeClass, (memory) => this.#judge(memory, slot, sizeClass));
  }

  /** The bytes of a record that was found whole, or why they cannot be read. */
  payload(slot: number, sizeClass: number): Promise<Uint8Array | string> {
    const { payloadOffset, payloadBytes } = this.#layout.records[sizeClass];
    return this.#alone(slot, sizeClass, (memory) =>
      memory.slice(payloadOffset, payloadOffset + payloadBytes),
    );
  }

  /** Reads one record. @returns what `use` makes of its bytes, or why they cannot be read */
  async #alone<T>(slot: number, sizeClass: number, use: (memory: Uint8Array) => T): Promise<T | string> {
    const { recordBytes } = this.#layout.records[sizeClass];
    const memory = this.#take(recordBytes);
    try {
      const errno = await this.#read(memory.subarray(0, recordBytes), slot, sizeClass);
      return errno === '' ? use(memory) : `cannot be read (${errno})`;
    } finally {
      this.#staging.give(memory);
    }
  }

  async #ofClass(page: number, sizeClass: number): Promise<FoundRecord[]> {
    const { shape, records } = this.#layout;
    const { recordBytes } = records[sizeClass];
    const perPage = shape.slotsPerPage[sizeClass];
    const first = page * shape.slotsPerPageMax;
    const found: FoundRecord[] = [];
    const perWindow = recordBytes > WHOLE_BYTES_MAX ? 1 : Math.floor(WINDOW_BYTES / recordBytes);
    for (let index = 0; index < perPage; ) {
      const at = recordOffset(this.#layout, first + index, sizeClass);
      const empty = Math.floor((this.#blocks.ranges.next(at) - at) / recordBytes);
      const count = Math.min(perWindow, perPage - index);
      if (empty === 0) await this.#window(first + index, count, sizeClass, found);
      index += empty === 0 ? count : empty;
    }
    return found;
  }

  async #window(slot: number, count: number, sizeClass: number, found: FoundRecord[]): Promise<void> {
    const { recordBytes } = this.#layout.records[sizeClass];
    const memory = this.#take(count * recordBytes);
    try {
      if (count === 1 && recordBytes > WHOLE_BYTES_MAX) {
        const errno = await this.#read(memory.subarray(0, BLOCK_BYTES), slot, sizeClass);
        if (errno !== '' || !hasMagic(headerIn(memory))) return;
      }
      const errno = await this.#read(memory.subarray(0, count * recordBytes), slot, sizeClass);
      if (errno !== '' && count > 1) {
        for (let i = 0; i < count; i++) await this.#window(slot + i, 1, sizeClass, found);
        return;
      }
      if (errno !== '') return;
      for (let i = 0; i < count; i++) {
        const record = this.#judge(memory.subarray(i * recordBytes), slot + i, sizeClass);
        if (typeof record !== 'string') found.push(record);
      }
    } finally {
      this.#staging.give(memory);
    }
  }

  /** @returns the errno, '' for none; the records that a failed read was of count as not there */
  async #read(memory: Uint8Array, slot: number, sizeClass: number): Promise<string> {
    try {
      await this.#blocks.file.readv([memory], recordOffset(this.#layout, slot, sizeClass));
      this.bytesRead += memory.byteLength;
      return '';
    } catch (error) {
      return errnoOf(error);
    }
  }

  #judge(memory: Uint8Array, slot: number, sizeClass: number): FoundRecord | string {
    const shape = this.#layout.records[sizeClass];
    const header = headerIn(memory);
    const fault = headerFault(header, this.#family, { slot, sizeClass }, shape);
    if (fault !== '') return fault;
    const facts = recordFacts(header);
    return { ...facts, slot, sizeClass, problem: payloadProblem(memory, shape, facts) };
  }

  #take(bytes: number): Uint8Array {
    const memory = this.#staging.take(bytes);
    invariant(memory !== undefined, 'a scan has its staging memory');
    return memory;
  }
}

function payloadProblem(memory: Uint8Array, shape: RecordShape, { digest }: RecordFacts): string {
  const end = shape.payloadOffset + shape.payloadBytes;
  const computed = hostDigest(memory.subarray(shape.payloadOffset, end));
  if (computed.lo !== digest.lo || computed.hi !== digest.hi) return 'the bytes do not have their digest';
  const isZero = (from: number, to: number) => memory.subarray(from, to).every((byte) => byte === 0);
  const isPadded = isZero(HEADER_BYTES, shape.payloadOffset) && isZero(end, shape.recordBytes);
  return isPadded ? '' : 'its padding is not zero';
}

function headerIn(memory: Uint8Array): Uint32Array {
  return new Uint32Array(memory.buffer, memory.byteOffset, HEADER_BYTES / 4);
}
