/**
 * Reads the notes of records, beside the queue of the store and in memory of its own, so that neither waits for the
 * other. A bounded number is read at a time, and further calls wait for their turn:
 *
 *     call -> waits -> reads -> end
 *               |        +---> late: the call ends, and the read keeps its memory until it retires
 *               +---> late, or the store closes: the call ends, and nothing is read for it
 */

import { invariant, TierKVError } from '../../runtime/errors.ts';
import { runningClock } from '../runningClock.ts';
import type { DataFile } from './dataFile.ts';
import { StagingPool } from './ioQueue.ts';
import { type FileLayout, isRecord, type RecordFamily, recordFacts, recordOffset } from './record.ts';
import { headerIn, noteIn } from './recordIo.ts';

/** Notes that are read at a time. */
const NOTES_AT_ONCE = 8;

/** Where notes are read. */
interface NotePlace {
  readonly file: DataFile;
  readonly family: RecordFamily;
  readonly layout: FileLayout;
}

/** A record of the store, by its number in the slot. */
interface NotedRecord {
  readonly slot: number;
  readonly sizeClass: number;
  readonly sequence: number;
}

interface WaitingNote {
  begin(): void;
  refuse(error: TierKVError): void;
}

export class NoteReader {
  readonly #place: NotePlace;
  readonly #settings: { readonly deadlineMs: number; readonly native: boolean };
  /** Bytes of memory in which one note is read. */
  readonly #bytes: number;
  #memory: Promise<StagingPool> | undefined;
  /** In order of arrival, which a Set keeps. */
  readonly #waiting: Set<WaitingNote> = new Set();
  readonly #underWay: Set<Promise<void>> = new Set();
  #isClosed = false;

  constructor(place: NotePlace, settings: { readonly deadlineMs: number; readonly native: boolean }) {
    this.#place = place;
    this.#settings = settings;
    const { records } = place.layout;
    this.#bytes = Math.max(
      ...records.map((shape) => (shape.apart ? shape.payloadOffset : shape.recordBytes)),
    );
  }

  /**
   * @returns undefined where the record has no note, the slot has another record by now, or it cannot be read
   * @throws TKV_IO when it is not read by the deadline, TKV_STATE when the store is closed before it begins
   */
  async read(entry: NotedRecord): Promise<Uint8Array | undefined> {
    if (this.#isClosed) throw closedStore();
    const memory = await this.#opened();
    if (this.#isClosed) throw closedStore();
    const end = Promise.withResolvers<Uint8Array | undefined>();
    const waiting: WaitingNote = {
      begin: () => {
        const reading = this.#readIn(memory, entry).then((note) => {
          this.#underWay.delete(reading);
          end.resolve(note);
          this.#next();
        });
        this.#underWay.add(reading);
      },
      refuse: end.reject,
    };
    this.#waiting.add(waiting);
    const { deadlineMs } = this.#settings;
    const stop = runningClock.alarm(deadlineMs, () => {
      this.#waiting.delete(waiting);
      end.reject(
        new TierKVError(
          'TKV_IO',
          `slot ${entry.slot}: its note was not read within ${deadlineMs} ms. Look at the disk.`,
          { field: 'dir' },
        ),
      );
    });
    this.#next();
    try {
      return await end.promise;
    } finally {
      stop();
    }
  }

  /** Refuses calls that wait. Fulfilled when the others no longer touch the file. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { refuse } of this.#waiting) refuse(closedStore());
    this.#waiting.clear();
    await Promise.all(this.#underWay);
    (await this.#memory?.catch(() => undefined))?.[Symbol.dispose]();
  }

  /** The memory, taken by the first call. Where it is not to be had the next call asks again. */
  #opened(): Promise<StagingPool> {
    if (this.#memory !== undefined) return this.#memory;
    const opening = StagingPool.open(NOTES_AT_ONCE * this.#bytes, this.#settings.native);
    this.#memory = opening;
    opening.catch(() => {
      this.#memory = undefined;
    });
    return opening;
  }

  #next(): void {
    for (const waiting of this.#waiting) {
      if (this.#underWay.size >= NOTES_AT_ONCE) return;
      this.#waiting.delete(waiting);
      waiting.begin();
    }
  }

  /** It reads no more of the record than it needs. */
  async #readIn(memory: StagingPool, record: NotedRecord): Promise<Uint8Array | undefined> {
    const { file, family, layout } = this.#place;
    const { slot, sizeClass, sequence } = record;
    const shape = layout.records[sizeClass];
    const staged = memory.take(this.#bytes); // of one size, so that as many as are read at a time fit
    invariant(staged !== undefined, 'a note must have memory');
    try {
      const bytes = staged.subarray(0, shape.apart ? shape.payloadOffset : shape.recordBytes);
      await file.readv([bytes], recordOffset(layout, slot, sizeClass));
      const header = headerIn(bytes);
      if (!isRecord(header, family, shape, { slot, sizeClass }, sequence)) return undefined;
      const note = noteIn(bytes, shape, recordFacts(header));
      return note === undefined || note.byteLength === 0 ? undefined : note;
    } catch {
      return undefined;
    } finally {
      memory.give(staged);
    }
  }
}

/** The error of a call to a store that is closed. */
export function closedStore(): TierKVError {
  return new TierKVError('TKV_STATE', 'the store is closed. Open it again.');
}
