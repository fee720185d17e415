/**
 * Which blocks are in use now. A block is
 *
 *     cold   without a use for `coldTimeoutS`, however often it was used before,
 *     hot    with at least `hotFrequencyThreshold` uses a second,
 *     warm   with at least `warmFrequencyThreshold` uses a second, and for a while after its first use,
 *            which is when it is made,
 *     cold   otherwise.
 *
 * Hot blocks belong in HBM, warm ones may lie in DDR, cold ones in NVME. Frequencies decay, so a block that was hot
 * turns cold by itself.
 */

import { configError } from '../runtime/errors.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, type OptionTable, optionTable } from '../runtime/options.ts';
import type { UseHistory } from '../runtime/tables/contentTable.ts';

export const temperatures = ['hot', 'warm', 'cold'] as const;
/** A block's temperature in a `HotColdClassifier`. */
export type Temperature = (typeof temperatures)[number];

/** Thresholds of a `HotColdClassifier`. */
export interface ClassifierOptions {
  /** Uses per second from which on a block is hot. Default 1. */
  readonly hotFrequencyThreshold?: number;
  /** Seconds without a use after which a block is cold. Default 60. */
  readonly coldTimeoutS?: number;
  /** Uses per second from which on a block is warm. Default 0.1. */
  readonly warmFrequencyThreshold?: number;
}

export const classifierOptionsTable: OptionTable<Required<ClassifierOptions>> = optionTable(
  {
    hotFrequencyThreshold: is.optional(is.positive(), 1),
    coldTimeoutS: is.optional(is.positive(), 60),
    warmFrequencyThreshold: is.optional(is.positive(), 0.1),
  } satisfies Kinds<ClassifierOptions>,
  'TKV_CONFIG',
);

/** Takes the options of the classifier out of options that it shares with others. */
export function classifierOptionsOf({
  hotFrequencyThreshold,
  coldTimeoutS,
  warmFrequencyThreshold,
}: ClassifierOptions): ClassifierOptions {
  return { hotFrequencyThreshold, coldTimeoutS, warmFrequencyThreshold } as ClassifierOptions;
}

/** Anything with a history of uses: a descriptor of a pool, a block of a manager. */
export interface Used {
  readonly use: UseHistory;
}

const RANK: Readonly<Record<Temperature, number>> = { hot: 0, warm: 2, cold: 4 };

/** Tells hot, warm and cold blocks apart by how often and how lately they were used. */
export class HotColdClassifier {
  readonly hotFrequencyThreshold: number;
  readonly coldTimeoutS: number;
  readonly warmFrequencyThreshold: number;

  /** @throws TKV_CONFIG for a threshold that is not positive, or a warm one above the hot one */
  constructor(options: ClassifierOptions = {}) {
    const { hotFrequencyThreshold, coldTimeoutS, warmFrequencyThreshold } =
      classifierOptionsTable.read(options);
    this.hotFrequencyThreshold = hotFrequencyThreshold;
    this.coldTimeoutS = coldTimeoutS;
    this.warmFrequencyThreshold = warmFrequencyThreshold;
    if (warmFrequencyThreshold > hotFrequencyThreshold) {
      throw configError(
        'warmFrequencyThreshold',
        (name) =>
          `is ${warmFrequencyThreshold}, above ${name('hotFrequencyThreshold')} ${hotFrequencyThreshold}`,
        'A hot block is used at least as often as a warm one.',
      );
    }
  }

  /** A block without a history is warm: it was brought for a sequence that has not used it yet. */
  classify({ use }: Used, nowUs: number): Temperature {
    if (use.uses === 0) return 'warm';
    if (this.#idleS(use, nowUs) >= this.coldTimeoutS) return 'cold';
    const frequency = use.frequencyAt(nowUs);
    if (frequency >= this.hotFrequencyThreshold) return 'hot';
    return frequency >= this.warmFrequencyThreshold ? 'warm' : 'cold';
  }

  /**
   * Seconds until the block is cold without further uses; 0 if it is cold. The more often it was used lately, the
   * longer. A block that turns cold before it has arrived is not worth bringing up.
   */
  predictLifetime({ use }: Used, nowUs: number): number {
    if (use.uses === 0) return this.coldTimeoutS;
    const patienceS = this.coldTimeoutS - this.#idleS(use, nowUs);
    if (patienceS <= 0 || use.frequencyAt(nowUs) < this.warmFrequencyThreshold) return 0;
    const isWarm = (afterS: number): boolean =>
      use.frequencyAt(nowUs + afterS * 1e6) >= this.warmFrequencyThreshold;
    if (isWarm(patienceS)) return patienceS;
    // Frequencies only fall without uses, so that bisection finds the moment.
    let [warmS, coldS] = [0, patienceS];
    for (let i = 0; i < 24; i++) {
      const middleS = (warmS + coldS) / 2;
      if (isWarm(middleS)) warmS = middleS;
      else coldS = middleS;
    }
    return warmS;
  }

  /**
   * Higher is moved down first: by temperature, then by the time since the last use and by the frequency.
   * From 0 to below 6.
   */
  getPriorityScore(block: Used, nowUs: number): number {
    const { use } = block;
    const idleS = use.uses === 0 ? this.coldTimeoutS : this.#idleS(use, nowUs);
    const frequency = use.frequencyAt(nowUs);
    return (
      RANK[this.classify(block, nowUs)] +
      idleS / (idleS + this.coldTimeoutS) +
      this.warmFrequencyThreshold / (this.warmFrequencyThreshold + frequency)
    );
  }

  #idleS({ lastUseUs }: UseHistory, nowUs: number): number {
    return Math.max(0, nowUs - lastUseUs) / 1e6;
  }
}
