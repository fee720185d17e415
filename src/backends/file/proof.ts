/**
 * Records that a disk has on its word alone, and how they are made sure.
 *
 * - A record that was written and not read since may not be what was written. `prove` reads it.
 * - A sync that failed may have thrown away what was written before it, and the next one succeeds all the same. So `mend`
 *   reads each of these records and writes it again, before any further sync counts.
 *
 * A record that is not what was written there is forgotten: `spoiled` is told, and `prove` names its place. Both go beside the
 * store's own reads and writes: reads see the same bytes throughout, and a write to a slot that is being made sure of waits
 * for that, and makes it needless.
 */

import type { SlotPlace } from '../../runtime/tier/tierStore.ts';
import { type DataFile, errnoOf, IoError } from './dataFile.ts';
import type { IoKind, QueuedIo, StagingPool } from './ioQueue.ts';
import { type FileLayout, type RecordFamily, recordOffset } from './record.ts';
import { judgeRecord } from './recordIo.ts';
import type { SlotEntry, SlotTable } from './slotTable.ts';

/** Records that are made sure of at a time: few, so that demand loads find their turn. */
const LANES = 8;

interface ProofParts {
  readonly file: DataFile;
  readonly layout: FileLayout;
  readonly family: RecordFamily;
  readonly staging: StagingPool;
  readonly table: SlotTable;
  readonly push: (io: QueuedIo) => void;
  readonly spoiled: (slot: number) => void;
  /** Counts an error of the disk. */
  readonly failed: (errno: string) => void;
}

export class Proofs {
  readonly #parts: ProofParts;
  /** Slots whose record nothing has read since it was written. */
  readonly #unread: Set<number> = new Set();
  /** Slots whose record no sync covers that has ended well. */
  #unsynced: Set<number> = new Set();
  /** Slots whose records a sync under way covers. */
  #covered: Set<number> = new Set();
  /** Slots whose record was written before a sync that failed. */
  readonly #unsafe: Set<number> = new Set();
  /** Slots that are being written, with the syncs that had failed when that began. */
  readonly #writing: Map<number, number> = new Map();
  /** Slots that are being made sure of; fulfilled when the disk is done. */
  readonly #underWay: Map<number, Promise<void>> = new Map();
  #failedSyncs = 0;
  readonly #damaged: SlotPlace[] = [];

  constructor(parts: ProofParts) {
    this.#parts = parts;
  }

  /** Slots whose record is on the disk's word alone. */
  get unproven(): number {
    return this.#unread.size;
  }

  // The store's own reads, writes and syncs.

  writing(slot: number): void {
    this.forget(slot);
    this.#writing.set(slot, this.#failedSyncs);
  }

  /** Fulfilled once the slot can be written; undefined where it can be at once. */
  free(slot: number): Promise<void> | undefined {
    return this.#underWay.get(slot);
  }

  /** @param wasRead whether the record was read back */
  written(slot: number, wasRead: boolean): void {
    const failedSyncs = this.#writing.get(slot);
    this.#writing.delete(slot);
    this.#unsynced.add(slot);
    if (!wasRead) this.#unread.add(slot);
    if (failedSyncs !== this.#failedSyncs) this.#unsafe.add(slot);
  }

  notWritten(slot: number): void {
    this.#writing.delete(slot);
  }

  /** The record was read and is what was written. */
  read(slot: number): void {
    if (this.#unread.size > 0) this.#unread.delete(slot);
  }

  /** The slot has no record any more. */
  forget(slot: number): void {
    this.#unread.delete(slot);
    this.#unsynced.delete(slot);
    this.#covered.delete(slot);
    this.#unsafe.delete(slot);
  }

  syncBegins(): void {
    this.#covered = this.#unsynced;
    this.#unsynced = new Set();
  }

  syncEnded(isDurable: boolean): void {
    if (!isDurable) {
      this.#failedSyncs++;
      for (const slots of [this.#covered, this.#unsynced]) for (const slot of slots) this.#unsafe.add(slot);
      this.#unsynced = new Set();
    }
    this.#covered = new Set();
  }

  // Making sure.

  /** Writes again what a failed sync may have thrown away. @throws with the errno as `code` where the disk does not take it */
  async mend(): Promise<void> {
    await this.#each(this.#unsafe, 'write');
  }

  /**
   * Reads what was written and not read since.
   * @returns places that do not hold what was written there, since the last call
   * @throws with the errno as `code` when a record could not be read, so that it stays unproven
   */
  async prove(): Promise<readonly SlotPlace[]> {
    await this.#each(this.#unread, 'read');
    return this.#damaged.splice(0);
  }

  async #each(slots: Set<number>, kind: IoKind): Promise<void> {
    if (slots.size === 0) return;
    const all = [...slots].sort((a, b) => a - b);
    let next = 0;
    let errno = '';
    const lane = async (): Promise<void> => {
      while (next < all.length) {
        const slot = all[next++];
        const before = this.#underWay.get(slot);
        if (before !== undefined) await before;
        if (!slots.has(slot) || this.#writing.has(slot)) continue;
        const why = await this.#one(slot, kind);
        if (why === '') slots.delete(slot);
        else if (slots.has(slot)) errno ||= why;
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    if (errno !== '') throw new IoError(errno, kind === 'read' ? 'reading back' : 'writing again');
  }

  /** @returns the errno; empty where the record is sure now, or needless, or found to be damaged */
  async #one(slot: number, kind: IoKind): Promise<string> {
    const { table, layout, file, staging, family, push, spoiled, failed } = this.#parts;
    if (table.sequenceOf(slot) === 0) return '';
    const entry = table.entry(slot);
    const isCurrent = (): boolean => !this.#writing.has(slot) && table.sequenceOf(slot) === entry.sequence;
    const retired = Promise.withResolvers<void>();
    this.#underWay.set(slot, retired.promise);
    const verdict = await new Promise<ProofVerdict>((ended) => {
      push(
        new ProofIo(kind, { file, staging, layout, family, entry, isCurrent, ended }, () => {
          this.#underWay.delete(slot);
          retired.resolve();
        }),
      );
    });
    if (!isCurrent()) return '';
    if (verdict === 'whole') {
      if (kind === 'write') this.#unsynced.add(slot);
      return '';
    }
    if (verdict === 'damaged') {
      failed('EIO');
      this.#damaged.push({ slot, sizeClass: entry.sizeClass, generation: entry.generation });
      spoiled(slot);
      return '';
    }
    failed(verdict.errno);
    return verdict.errno;
  }
}

type ProofVerdict = 'whole' | 'damaged' | { readonly errno: string };

interface ProofRequest {
  readonly file: DataFile;
  readonly staging: StagingPool;
  readonly layout: FileLayout;
  readonly family: RecordFamily;
  readonly entry: SlotEntry;
  /** Whether the slot has the record still, and nothing writes it. */
  readonly isCurrent: () => boolean;
  readonly ended: (verdict: ProofVerdict) => void;
}

/** Reads one record whole and compares it with the table; of the kind `write`, writes the same bytes again. */
class ProofIo implements QueuedIo {
  readonly kind: IoKind;
  readonly #request: ProofRequest;
  readonly #retired: () => void;

  constructor(kind: IoKind, request: ProofRequest, retired: () => void) {
    this.kind = kind;
    this.#request = request;
    this.#retired = retired;
  }

  begin(): Promise<void> | undefined {
    const { staging, layout, entry, isCurrent } = this.#request;
    if (!isCurrent()) {
      this.#end('whole');
      return Promise.resolve();
    }
    const memory = staging.take(layout.records[entry.sizeClass].recordBytes);
    return memory === undefined ? undefined : this.#run(memory);
  }

  overdue(): void {
    this.#request.ended({ errno: 'ETIMEDOUT' });
  }

  giveUp(why: 'stuck' | 'closed'): void {
    this.#end({ errno: why === 'stuck' ? 'ETIMEDOUT' : 'ECANCELED' });
  }

  async #run(memory: Uint8Array): Promise<void> {
    const { file, layout, family, entry, staging } = this.#request;
    const { slot, sizeClass, sequence, digest } = entry;
    const record = memory.subarray(0, layout.records[sizeClass].recordBytes);
    const at = recordOffset(layout, slot, sizeClass);
    let verdict: ProofVerdict = 'whole';
    try {
      await file.readv([record], at);
      const found = judgeRecord(record, { slot, sizeClass }, layout, family);
      const isSame =
        typeof found !== 'string' &&
        found.problem === '' &&
        found.sequence === sequence &&
        found.digest.lo === digest.lo &&
        found.digest.hi === digest.hi;
      if (!isSame) verdict = 'damaged';
      else if (this.kind === 'write') await file.writev([record], at);
    } catch (error) {
      const errno = errnoOf(error);
      verdict = errno === 'EOF' ? 'damaged' : { errno };
    }
    staging.give(memory);
    this.#end(verdict);
  }

  #end(verdict: ProofVerdict): void {
    this.#retired();
    this.#request.ended(verdict);
  }
}
