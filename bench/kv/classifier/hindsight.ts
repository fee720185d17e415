/**
 * How often the hot and cold classifier says what hindsight says. At regular moments each block that an LRU
 * cache of `cacheBlocks` blocks would hold is classified by what was seen of it so far. Hindsight gives the
 * class of the same thresholds to what really came: uses in the next `horizonS` seconds, by second.
 *
 *     hot   >= hotFrequencyThreshold     warm   >= warmFrequencyThreshold     cold   below that
 *
 * Moments so late that the horizon passes the end of the load are left out, and so is the first minute.
 */

import { temperatures } from '../../../src/embed/hotColdClassifier.ts';
import { BlockUse, useRates } from '../../../src/runtime/tables/contentTable.ts';
import { HotColdClassifier, type Temperature } from '../../../src/views/index.ts';

/** Blocks that are used at one moment; times never fall. */
export interface Use {
  readonly timeUs: number;
  readonly blocks: ArrayLike<number>;
}

export interface HindsightOptions {
  readonly horizonS: number;
  /** Seconds between two moments at which all blocks are classified. */
  readonly everyS: number;
  readonly cacheBlocks: number;
}

export interface Hindsight {
  /** `confusion[said][true]`, each by hot, warm, cold. */
  readonly confusion: readonly (readonly number[])[];
  readonly samples: number;
  /** Share of the samples in which both agree. */
  readonly agreement: number;
  /** The same for always saying the class that is most frequent in hindsight. */
  readonly majority: number;
  /** Mean over the classes that occur of the share of each that was recognised: 1/classes for a majority rule. */
  readonly balanced: number;
  /** Of the harder question, whether a block is used at all within the horizon: share answered rightly. */
  readonly usedAgain: number;
  readonly usedAgainMajority: number;
}

const WARM_UP_S = 60;

export function compareWithHindsight(uses: readonly Use[], options: HindsightOptions): Hindsight {
  const { horizonS, everyS, cacheBlocks } = options;
  const classifier = new HotColdClassifier();
  const rates = useRates();
  const times = timesOf(uses);
  const known = new Map<number, BlockUse>(); // in LRU order
  const confusion = temperatures.map(() => temperatures.map(() => 0));
  const again = [0, 0]; // [right answers, blocks used again]
  const endUs = uses[uses.length - 1].timeUs;
  let samples = 0;
  let next = 0;
  for (let atUs = WARM_UP_S * 1e6; atUs + horizonS * 1e6 <= endUs; atUs += everyS * 1e6) {
    for (; next < uses.length && uses[next].timeUs <= atUs; next++) use(uses[next]);
    for (const [block, history] of known) {
      const said = classifier.classify({ use: history }, atUs);
      const count = countWithin(times.get(block) ?? [], atUs, atUs + horizonS * 1e6);
      confusion[temperatures.indexOf(said)][temperatures.indexOf(trueClass(classifier, count / horizonS))]++;
      if ((said !== 'cold') === count > 0) again[0]++;
      if (count > 0) again[1]++;
      samples++;
    }
  }
  return summary(confusion, samples, again);

  function use({ timeUs, blocks }: Use): void {
    for (let i = blocks.length - 1; i >= 0; i--) {
      const history = known.get(blocks[i]) ?? new BlockUse(rates);
      known.delete(blocks[i]);
      known.set(blocks[i], history);
      history.used(timeUs);
    }
    for (const block of known.keys()) {
      if (known.size <= cacheBlocks) break;
      known.delete(block);
    }
  }
}

function trueClass(classifier: HotColdClassifier, perSecond: number): Temperature {
  if (perSecond >= classifier.hotFrequencyThreshold) return 'hot';
  return perSecond >= classifier.warmFrequencyThreshold ? 'warm' : 'cold';
}

function timesOf(uses: readonly Use[]): Map<number, number[]> {
  const times = new Map<number, number[]>();
  for (const { timeUs, blocks } of uses) {
    for (let i = 0; i < blocks.length; i++) {
      const list = times.get(blocks[i]);
      if (list === undefined) times.set(blocks[i], [timeUs]);
      else list.push(timeUs);
    }
  }
  return times;
}

/** Times in (from, to] of a sorted list. */
function countWithin(times: readonly number[], from: number, to: number): number {
  return upTo(times, to) - upTo(times, from);
}

function upTo(times: readonly number[], limit: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

function summary(
  confusion: readonly (readonly number[])[],
  samples: number,
  again: readonly number[],
): Hindsight {
  const truth = temperatures.map((_, t) => confusion.reduce((sum, row) => sum + row[t], 0));
  const present = truth.flatMap((count, t) => (count > 0 ? [confusion[t][t] / count] : []));
  const [right, usedAgain] = again;
  return {
    confusion,
    samples,
    agreement: confusion.reduce((sum, row, t) => sum + row[t], 0) / samples,
    majority: Math.max(...truth) / samples,
    balanced: present.reduce((sum, share) => sum + share, 0) / present.length,
    usedAgain: right / samples,
    usedAgainMajority: Math.max(usedAgain, samples - usedAgain) / samples,
  };
}
