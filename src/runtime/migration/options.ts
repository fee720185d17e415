/** The shares of a tier at which blocks move, checked. */

import { configError, requireFraction, requireInteger, requirePositive, TierKVError } from '../errors.ts';
import { optionNames, requireOptions } from '../options.ts';
import { type ClassifierOptions, HotColdClassifier } from './classifier.ts';
import type { Thresholds } from './plan.ts';

export interface MigratorOptions extends ClassifierOptions {
  /** Share of a tier from which on blocks go down. Default 0.9. */
  readonly downFrom?: number;
  /** Share of a tier to which they go down. Default 0.8. */
  readonly downTo?: number;
  /** Share of a tier below which hot blocks come up. Default 0.5. */
  readonly upBelow?: number;
  /** Bytes of one batch beside compute. Default 8 MiB, or one block. */
  readonly batchBytes?: number;
  /** `tick` plans at most once in so many microseconds. Default 250,000. */
  readonly intervalUs?: number;
}

export const migratorOptionsNames: readonly string[] = optionNames<MigratorOptions>({
  hotFrequencyThreshold: true,
  coldTimeoutS: true,
  warmFrequencyThreshold: true,
  downFrom: true,
  downTo: true,
  upBelow: true,
  batchBytes: true,
  intervalUs: true,
});

const LIFETIME_MIN_S = 1;
const DEADLINE_MS = 10_000;

/** @throws TKV_CONFIG for shares that are none or out of order */
export function thresholdsOf({ downFrom = 0.9, downTo = 0.8, upBelow = 0.5 }: MigratorOptions): Thresholds {
  requireFraction('downFrom', downFrom);
  requireFraction('downTo', downTo);
  requireFraction('upBelow', upBelow);
  if (!(upBelow <= downTo && downTo < downFrom)) {
    throw configError(
      'downTo',
      `is ${downTo}, between upBelow ${upBelow} and downFrom ${downFrom} is where it belongs`,
      'Set upBelow <= downTo < downFrom, or blocks go up and down in turn.',
    );
  }
  return { downFrom, downTo, upBelow, lifetimeMinS: LIFETIME_MIN_S, deadlineMs: DEADLINE_MS };
}

/**
 * Options that a migrator takes, before anything is opened for it. @throws TKV_CONFIG naming `migration.x`
 */
export function checkMigratorOptions(options: MigratorOptions): void {
  requireMigratorOptions(options, 'migration');
  try {
    new HotColdClassifier(options);
    thresholdsOf(options);
    batchBytesOf(options);
    intervalUsOf(options);
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    const field = `migration.${error.field}`;
    throw new TierKVError(error.code, error.message.replace(`${error.field}`, field), {
      field,
      cause: error,
    });
  }
}

/** @throws TKV_CONFIG for what is no object, and for a name that is unknown */
export function requireMigratorOptions(options: MigratorOptions, field = 'options'): MigratorOptions {
  return requireOptions(options, migratorOptionsNames, field, 'TKV_CONFIG');
}

export function batchBytesOf({ batchBytes = 8 * 1024 * 1024 }: MigratorOptions): number {
  return requireInteger('batchBytes', batchBytes, 1);
}

export function intervalUsOf({ intervalUs = 250_000 }: MigratorOptions): number {
  return requirePositive('intervalUs', intervalUs);
}
