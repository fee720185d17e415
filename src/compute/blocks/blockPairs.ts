/**
 * Pairs of blocks, from one to another, as kernels want them. Within a step a block is read by as many pairs
 * as one likes, or written by one pair. So the order in which a kernel goes through them does not matter.
 */

import { configError, requireInteger } from '../../runtime/errors.ts';

/** Where a block begins: the index of a slab, and bytes from its first on. As `DevicePool.locate` says it. */
export interface BlockPlace {
  readonly slab: number;
  readonly offsetBytes: number;
}

export interface BlockPair {
  readonly from: BlockPlace;
  readonly to: BlockPlace;
  /** Only the so many first tokens; the bytes behind them stay as they are. Default: all. */
  readonly tokens?: number;
}

/** One side of all pairs. */
export interface PairSide {
  readonly slabs: readonly GPUBuffer[];
  readonly blockBytes: number;
  /** Bytes of which offsets are multiples. */
  readonly unitBytes: number;
}

export interface PairLimits {
  readonly from: PairSide;
  readonly to: PairSide;
  readonly blockTokens: number;
  readonly pairsMax: number;
}

export const PAIR_WORDS = 5;

/**
 * `[pair][5]`: from slab, from unit, to slab, to unit, tokens.
 * @throws TKV_CONFIG naming the pair that is out of bounds, or whose target another pair reads or writes
 */
export function pairTable(pairs: readonly BlockPair[], limits: PairLimits): Uint32Array<ArrayBuffer> {
  requireInteger('pairs.length', pairs.length, 0, limits.pairsMax);
  const words = new Uint32Array(pairs.length * PAIR_WORDS);
  pairs.forEach(({ from, to, tokens = limits.blockTokens }, i) => {
    requireInteger(`pairs[${i}].tokens`, tokens, 0, limits.blockTokens);
    const fromUnit = unitOf(`pairs[${i}].from`, from, limits.from);
    const toUnit = unitOf(`pairs[${i}].to`, to, limits.to);
    words.set([from.slab, fromUnit, to.slab, toUnit, tokens], i * PAIR_WORDS);
  });
  requireApart(pairs, limits);
  return words;
}

function unitOf(field: string, { slab, offsetBytes }: BlockPlace, side: PairSide): number {
  requireInteger(`${field}.slab`, slab, 0, side.slabs.length - 1);
  requireInteger(`${field}.offsetBytes`, offsetBytes, 0, side.slabs[slab].size - side.blockBytes);
  if (offsetBytes % side.unitBytes !== 0) {
    const problem = `is ${offsetBytes}, no multiple of ${side.unitBytes} bytes, in which kernels move`;
    throw configError(`${field}.offsetBytes`, problem, 'Give the place of a block of the pool.');
  }
  return offsetBytes / side.unitBytes;
}

/** No target overlaps another target, or a source. */
function requireApart(pairs: readonly BlockPair[], { from, to }: PairLimits): void {
  const targets = pairs.map(({ to: place }, pair) => ({ buffer: to.slabs[place.slab], place, pair }));
  const before = (a: BlockPlace, b: BlockPlace): number => a.slab - b.slab || a.offsetBytes - b.offsetBytes;
  targets.sort((a, b) => before(a.place, b.place) || a.pair - b.pair);
  targets.forEach(({ place, pair }, i) => {
    const next = targets[i + 1];
    if (next?.place.slab !== place.slab) return;
    if (next.place.offsetBytes < place.offsetBytes + to.blockBytes) {
      const problem = `overlaps pairs[${pair}].to`;
      throw configError(`pairs[${next.pair}].to`, problem, 'Write a block in one pair of a step only.');
    }
  });
  pairs.forEach(({ from: source }, i) => {
    const slab = to.slabs.indexOf(from.slabs[source.slab]);
    if (slab === -1) return;
    // The last target that begins before the source ends.
    let [low, high] = [0, targets.length];
    const end = { slab, offsetBytes: source.offsetBytes + from.blockBytes };
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(targets[middle].place, end) < 0) low = middle + 1;
      else high = middle;
    }
    const target = targets[low - 1];
    if (target?.place.slab !== slab) return;
    if (target.place.offsetBytes + to.blockBytes > source.offsetBytes) {
      const problem = `overlaps pairs[${target.pair}].to`;
      throw configError(`pairs[${i}].from`, problem, 'Read a block that is written in a step of its own.');
    }
  });
}
