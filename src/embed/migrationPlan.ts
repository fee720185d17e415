/**
 * Plans of a migrator: which blocks should lie in another tier. A tier that is fuller than `downFrom` sends its cold
 * and warm blocks down, the coldest first, until it is `downTo` full; hot blocks stay. A tier that is emptier than
 * `upBelow` takes hot blocks from below, the hottest first, until it is that full. What a quota or a hint keeps in its tier
 * does not go down, and nothing goes to a tier without free room: that would cost another block its place. Plans are data: making one changes nothing.
 *
 *     HBM   91 %  ---- cold, warm ---->  DDR      HBM   40 %  <---- hot ----  DDR
 */

import { configError, renamed } from '../runtime/errors.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import type { Tier } from '../runtime/tier/tier.ts';
import {
  type ClassifierOptions,
  classifierOptionsOf,
  HotColdClassifier,
  type Used,
} from './hotColdClassifier.ts';

/** A block that can be moved. */
export interface MigratableBlock extends Used {
  readonly blockId: number;
  readonly tier: Tier;
  readonly sizeBytes: number;
  /** A quota or a hint keeps it in its tier: it does not go down. Default false. */
  readonly isKept?: boolean;
}

/** One move that a `KVMigrator` plans. */
export interface MigrationPlan {
  readonly blockId: number;
  readonly fromTier: Tier;
  readonly toTier: Tier;
  /** Higher is done first. */
  readonly priority: number;
  /** Milliseconds after which a plan that has not begun is dropped. */
  readonly deadlineMs?: number;
}

export interface MigrationTier {
  readonly tier: Tier;
  readonly capacityBytes: number;
}

export interface MigrationThresholds {
  readonly downFrom: number;
  readonly downTo: number;
  readonly upBelow: number;
  /** Seconds that a hot block must stay warm without another use to be brought up. */
  readonly lifetimeMinS: number;
  readonly deadlineMs: number;
}

/**
 * @param tiers fastest first, @param shares used share of each tier, in the same order
 * @returns plans in the order in which they should be carried out
 */
export function planMoves(
  blocks: readonly MigratableBlock[],
  tiers: readonly MigrationTier[],
  shares: readonly number[],
  classifier: HotColdClassifier,
  thresholds: MigrationThresholds,
  nowUs: number,
): MigrationPlan[] {
  const used = tiers.map(({ capacityBytes }, i) => shares[i] * capacityBytes);
  const taken = new Set<number>();
  const plans: MigrationPlan[] = [];
  const add = (block: MigratableBlock, to: number, priority: number): void => {
    const from = tiers.findIndex(({ tier }) => tier === block.tier);
    used[from] -= block.sizeBytes;
    used[to] += block.sizeBytes;
    taken.add(block.blockId);
    const { deadlineMs } = thresholds;
    plans.push({
      blockId: block.blockId,
      fromTier: block.tier,
      toTier: tiers[to].tier,
      priority,
      deadlineMs,
    });
  };
  // The lowest tier goes first, so that it has room for blocks from above.
  for (let from = tiers.length - 2; from >= 0; from--) {
    if (shares[from] < thresholds.downFrom) continue;
    const leaving = ranked(blocks, tiers[from].tier, classifier, nowUs, (t) => t !== 'hot');
    for (const { block, score } of leaving) {
      if (used[from] <= thresholds.downTo * tiers[from].capacityBytes) break;
      if (taken.has(block.blockId) || block.isKept === true) continue;
      const to = lowerWithRoom(from, block.sizeBytes, tiers, used);
      if (to !== undefined) add(block, to, score);
    }
  }
  for (let to = 0; to < tiers.length - 1; to++) {
    if (shares[to] >= thresholds.upBelow) continue;
    const wanted = tiers
      .slice(to + 1)
      .flatMap(({ tier }) => ranked(blocks, tier, classifier, nowUs, (t) => t === 'hot'))
      .sort((a, b) => a.score - b.score || a.block.blockId - b.block.blockId);
    for (const { block, score } of wanted) {
      if (used[to] + block.sizeBytes > thresholds.upBelow * tiers[to].capacityBytes) break;
      if (taken.has(block.blockId)) continue;
      if (classifier.predictLifetime(block, nowUs) < thresholds.lifetimeMinS) continue;
      add(block, to, 6 - score);
    }
  }
  return plans.sort((a, b) => b.priority - a.priority || a.blockId - b.blockId);
}

interface RankedBlock {
  readonly block: MigratableBlock;
  readonly score: number;
}

/** The tier's blocks of the temperatures asked for, the coldest first. */
function ranked(
  blocks: readonly MigratableBlock[],
  tier: Tier,
  classifier: HotColdClassifier,
  nowUs: number,
  wanted: (temperature: ReturnType<HotColdClassifier['classify']>) => boolean,
): RankedBlock[] {
  return blocks
    .filter((block) => block.tier === tier && wanted(classifier.classify(block, nowUs)))
    .map((block) => ({ block, score: classifier.getPriorityScore(block, nowUs) }))
    .sort((a, b) => b.score - a.score || a.block.blockId - b.block.blockId);
}

/** The next lower tier that has room for the block; undefined where none has: a move makes no other block go. */
function lowerWithRoom(
  from: number,
  sizeBytes: number,
  tiers: readonly MigrationTier[],
  used: readonly number[],
): number | undefined {
  for (let to = from + 1; to < tiers.length; to++) {
    if (used[to] + sizeBytes <= tiers[to].capacityBytes) return to;
  }
  return undefined;
}

// The shares of a tier at which blocks move, checked.

/** When a `KVMigrator` moves blocks up and down. */
export interface MigratorOptions extends ClassifierOptions {
  /** Used share of a tier from which on blocks go down. Default 0.9. */
  readonly downFrom?: number;
  /** Used share of a tier down to which they go. Default 0.8. */
  readonly downTo?: number;
  /** Used share of a tier below which hot blocks come up. Default 0.5. */
  readonly upBelow?: number;
  /** Bytes of one batch beside compute. Default 8 MiB, or one block. */
  readonly batchBytes?: number;
  /** Microseconds between two plans of `tick`, at least. Default 250,000. */
  readonly intervalUs?: number;
}

const migratorOptionsTable = optionTable(
  {
    hotFrequencyThreshold: is.optional(is.passed()),
    coldTimeoutS: is.optional(is.passed()),
    warmFrequencyThreshold: is.optional(is.passed()),
    downFrom: is.optional(is.fraction()),
    downTo: is.optional(is.fraction()),
    upBelow: is.optional(is.fraction()),
    batchBytes: is.optional(is.integer(1)),
    intervalUs: is.optional(is.positive()),
  } satisfies Kinds<MigratorOptions>,
  'TKV_CONFIG',
);

const LIFETIME_MIN_S = 1;
const DEADLINE_MS = 10_000;

/** @throws TKV_CONFIG for shares out of range or out of order */
export function thresholdsOf({
  downFrom = 0.9,
  downTo = 0.8,
  upBelow = 0.5,
}: MigratorOptions): MigrationThresholds {
  if (!(upBelow <= downTo && downTo < downFrom)) {
    throw configError(
      'downTo',
      (name) =>
        `is ${downTo}, but must lie between ${name('upBelow')} ${upBelow} and ${name('downFrom')} ${downFrom}`,
      (name) =>
        `Set ${name('upBelow')} <= ${name('downTo')} < ${name('downFrom')}, or blocks go up and down in turn.`,
    );
  }
  return { downFrom, downTo, upBelow, lifetimeMinS: LIFETIME_MIN_S, deadlineMs: DEADLINE_MS };
}

/** Checks a migrator's options before anything is opened for it. @throws TKV_CONFIG naming `migration.x` */
export function checkMigratorOptions(options: MigratorOptions): void {
  migratorOptionsTable.read(options, 'migration');
  try {
    new HotColdClassifier(classifierOptionsOf(options));
    thresholdsOf(options);
    batchBytesOf(options);
    intervalUsOf(options);
  } catch (error) {
    throw renamed((field) => `migration.${field}`, error);
  }
}

/** @throws TKV_CONFIG if it is not an object, or a name is unknown */
export function requireMigratorOptions(options: MigratorOptions, field = 'options'): MigratorOptions {
  return migratorOptionsTable.readFlat(options, field);
}

export function batchBytesOf({ batchBytes = 8 * 1024 * 1024 }: MigratorOptions): number {
  return batchBytes;
}

export function intervalUsOf({ intervalUs = 250_000 }: MigratorOptions): number {
  return intervalUs;
}
