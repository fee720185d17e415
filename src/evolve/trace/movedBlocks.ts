/** Which blocks of an instance come to which tier, from what its caches say. */

import { keyToHex } from '../../runtime/keys/index.ts';
import type { MovedBlock } from './records.ts';

const HBM = 0;
/** Blocks that one record names. */
const NAMED = 16;

/** The first 16 hexadecimal digits of a key: what traces name a block by. */
export function blockName(key: Uint32Array): string {
  return keyToHex(key).slice(0, 16);
}

export class MovedBlocks {
  readonly #tiers: () => readonly string[];
  /** By block: the tier below HBM that it came to last. */
  readonly #below = new Map<string, number>();
  #moved: MovedBlock[] = [];

  /** @param tiers names of the instance's tiers, HBM first */
  constructor(tiers: () => readonly string[]) {
    this.#tiers = tiers;
  }

  stored(tier: number, key: Uint32Array): void {
    const block = blockName(key);
    const before = this.#below.get(block);
    if (tier !== HBM) this.#below.set(block, tier);
    // in HBM it is new, unless it was below
    else if (before === undefined) return;
    if (this.#moved.length === NAMED) return;
    const names = this.#tiers();
    this.#moved.push({ block, fromTier: names[before ?? HBM], toTier: names[tier] });
  }

  removed(tier: number, key: Uint32Array): void {
    if (tier === HBM) return;
    const block = blockName(key);
    if (this.#below.get(block) === tier) this.#below.delete(block);
  }

  /** Those since the last call. */
  take(): readonly MovedBlock[] {
    const moved = this.#moved;
    if (moved.length > 0) this.#moved = [];
    return moved;
  }
}
