/**
 * The bytes of single units: written in HBM, read from wherever they lie. Between looking a place up and
 * reading it the unit may have moved on; its old place then refuses, and it is looked up again.
 */

import {
  Entry,
  type KVBlockDescriptor,
  type KVBox,
  type PoolUnit,
  TierKVError,
} from '../../runtime/index.ts';
import type { OpenTiers } from './openTiers.ts';
import type { StoredUnit } from './storageBackend.ts';

const ATTEMPTS_MAX = 4;
const NO_KEY = new Uint32Array(4);

export interface ReadUnit {
  /** Layers, heads and tokens of the whole unit. */
  readonly box: KVBox;
  readonly bytes: Uint8Array;
}

export class UnitBytes {
  readonly #open: OpenTiers;

  constructor(open: OpenTiers) {
    this.#open = open;
  }

  async write(units: readonly { readonly unit: PoolUnit; readonly bytes: Uint8Array }[]): Promise<void> {
    await this.#waitForPlaces(units.map(({ unit }) => unit));
    const stored = units.map(({ unit }): StoredUnit => {
      const state = unit.track.stateOf(unit.unit);
      const place = this.#open.pool.placeOf(unit);
      if (state === Entry.OPEN && place !== undefined) return { place, key: NO_KEY, digest: undefined };
      if (state === Entry.FAILED) {
        throw new TierKVError('TKV_FULL', 'blocks got no place in HBM. Let them go and others first.', {
          field: 'blocks',
        });
      }
      throw stateError('are committed: others may read them. Allocate new ones, or truncate the sequence.');
    });
    await this.#open.backends[0].write(
      stored,
      units.map(({ bytes }) => bytes),
    );
  }

  /** @throws TKV_STATE for a unit that was never written, or is lost */
  async read(units: readonly PoolUnit[]): Promise<ReadUnit[]> {
    const found = new Array<Uint8Array | undefined>(units.length).fill(undefined);
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#readMissing(units, found);
        break;
      } catch (error) {
        if (attempt === ATTEMPTS_MAX || !(error instanceof TierKVError) || error.code !== 'TKV_STALE')
          throw error;
      }
    }
    return units.map((unit, i) => {
      const { layerStart, layerEnd, headStart, headEnd, tokensPerUnit } = unit.track.column;
      const tokenStart = unit.unit * tokensPerUnit;
      const box = {
        layerStart,
        layerEnd,
        headStart,
        headEnd,
        tokenStart,
        tokenEnd: tokenStart + tokensPerUnit,
      };
      return { box, bytes: found[i] ?? new Uint8Array(0) };
    });
  }

  async #readMissing(units: readonly PoolUnit[], found: (Uint8Array | undefined)[]): Promise<void> {
    const { pool, backends } = this.#open;
    const byTier = backends.map((): { at: number; unit: StoredUnit }[] => []);
    units.forEach((unit, at) => {
      if (found[at] !== undefined) return;
      const place = pool.placeOf(unit);
      const state = unit.track.stateOf(unit.unit);
      if (place === undefined || state === Entry.FAILED || state === Entry.WAITING) {
        throw stateError(
          `have a part that is ${state === Entry.FAILED ? 'lost' : 'not there yet'}. Compute it.`,
        );
      }
      const key = unit.track.keyOf(unit.unit);
      const own = key === undefined || state === Entry.OPEN || place.diverged;
      const digest = own ? undefined : pool.manager.digestOf(key);
      byTier[place.position].push({ at, unit: { place, key: key ?? NO_KEY, digest } });
    });
    await Promise.all(
      byTier.map(async (wanted, position) => {
        if (wanted.length === 0) return;
        const bytes = await backends[position].read(wanted.map(({ unit }) => unit));
        wanted.forEach(({ at }, i) => {
          found[at] = bytes[i];
        });
      }),
    );
  }

  /** Waits until no unit of the blocks waits for a place. */
  placed(blocks: readonly KVBlockDescriptor[]): Promise<void> {
    return this.#waitForPlaces(blocks.flatMap((block) => block.units));
  }

  /** Waits until no unit of the blocks waits for a transfer. */
  async settled(blocks: readonly KVBlockDescriptor[]): Promise<void> {
    const tables = new Set(blocks.flatMap((block) => block.units.map(({ track }) => track.table)));
    await Promise.all([...tables].map((table) => this.#open.loop.settled(table)));
  }

  async #waitForPlaces(units: readonly PoolUnit[]): Promise<void> {
    for (;;) {
      const waiting = units.filter(({ track, unit }) => track.stateOf(unit) === Entry.WAITING);
      if (waiting.length === 0) return;
      await Promise.all(
        [...new Set(waiting.map(({ track }) => track.table))].map((t) => this.#open.loop.settled(t)),
      );
    }
  }
}

function stateError(problem: string): TierKVError {
  return new TierKVError('TKV_STATE', `blocks ${problem}`, { field: 'blocks' });
}
