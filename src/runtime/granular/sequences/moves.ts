/**
 * Moves of a pool's blocks between tiers. A part that goes down is copied first and held in the tier below
 * only once its bytes have arrived there; until then it stays where it was. So a move that fails loses
 * nothing, and its source is free as soon as it has arrived.
 */

import type { KVManager } from '../../manager/kvManager.ts';
import { Entry } from '../../manager/sequences/blockTable/sequence.ts';
import type { MoveEnd } from '../../migration/index.ts';
import { Priority } from '../../transfer/jobTable.ts';
import { Outcome, outcomeNames } from '../../transfer/outcome.ts';
import type { BlockRecord, KVBlockDescriptor, PoolUnit } from '../descriptor.ts';

type Ended = (success: boolean, reason: string) => void;

export class BlockMoves {
  readonly #manager: KVManager;
  readonly #nowUs: () => number;
  /** Who waits for a transfer, by key and tier. */
  readonly #byKey: Map<string, Ended[]> = new Map();
  /** Who waits for a table's loads, by table. */
  readonly #byTable: Map<number, (() => void)[]> = new Map();
  /** Blocks that have arrived where they were sent. */
  arrived = 0;

  constructor(manager: KVManager, nowUs: () => number) {
    this.#manager = manager;
    this.#nowUs = nowUs;
  }

  /** Moves all parts of the block; `ended` is told once, when the last one has ended. */
  move(
    block: KVBlockDescriptor,
    position: number,
    priority: Priority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    const { units, record } = block;
    let left = units.length + 1;
    let reason = '';
    let moved = 0;
    const settle = (success: boolean, why: string): void => {
      if (success) moved++;
      else reason = why;
      if (--left > 0) return;
      const all = moved === units.length + 1;
      if (all) this.arrived++;
      ended({ success: all, reason: all ? '' : reason, nowUs: this.#nowUs() });
    };
    for (const unit of units) this.#moveUnit(unit, record, position, priority, nowUs, settle);
    settle(true, '');
  }

  /** The manager's listener hands the ends of transfers on to here. */
  moved(position: number, key: Uint32Array, outcome: Outcome): void {
    const name = nameOf(position, key);
    const waiting = this.#byKey.get(name);
    if (waiting === undefined) return;
    this.#byKey.delete(name);
    for (const ended of waiting) ended(outcome === Outcome.LOADED, outcomeNames[outcome]);
  }

  /** And here it says that a table waits for nothing any more. */
  settled(table: number): void {
    const waiting = this.#byTable.get(table);
    if (waiting === undefined) return;
    this.#byTable.delete(table);
    for (const look of waiting) look();
  }

  #moveUnit(
    { track, unit }: PoolUnit,
    record: BlockRecord,
    position: number,
    priority: Priority,
    nowUs: number,
    ended: Ended,
  ): void {
    const state = track.stateOf(unit);
    const key = track.keyOf(unit);
    if (key === undefined || (state !== Entry.READY && state !== Entry.MATCHED)) {
      ended(false, state === Entry.FAILED ? 'lost' : 'not sealed yet');
      return;
    }
    if (position === 0 && priority === Priority.DEMAND_LOAD) {
      this.#load({ track, unit }, nowUs, ended);
      return;
    }
    if (this.#manager.place(track.table, unit)?.position === position) {
      ended(true, '');
      return;
    }
    const keep = (): void => {
      for (const holder of [...record.holders]) {
        for (const part of holder.units) {
          if (!sameKey(part.track.keyOf(part.unit), key)) continue;
          this.#manager.keepIn(part.track.table, part.unit, part.unit + 1, position, this.#nowUs());
        }
      }
      const kept = this.#manager.place(track.table, unit)?.position === position;
      ended(kept, 'it was evicted before it could be held there');
    };
    const answer = this.#manager.move(key, position, priority, nowUs);
    if (answer === 'there') keep();
    else if (answer === 'started' || answer === 'pending') {
      push(this.#byKey, nameOf(position, key), (success, why) => (success ? keep() : ended(false, why)));
    } else ended(false, answer);
  }

  /** Brings a part up for somebody who waits for it. */
  #load({ track, unit }: PoolUnit, nowUs: number, ended: Ended): void {
    if (!this.#manager.load(track.table, nowUs, unit, unit + 1)) {
      ended(false, 'full');
      return;
    }
    const look = (): void => {
      const state = track.stateOf(unit);
      if (state === Entry.LOADING) push(this.#byTable, track.table.id, look);
      else ended(state === Entry.READY, 'lost');
    };
    look();
  }
}

function push<Key, Value>(map: Map<Key, Value[]>, key: Key, value: Value): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}

function sameKey(a: Uint32Array | undefined, b: Uint32Array): boolean {
  return a?.every((word, i) => word === b[i]) === true;
}

function nameOf(position: number, key: Uint32Array): string {
  return `${position} ${key.join(' ')}`;
}
