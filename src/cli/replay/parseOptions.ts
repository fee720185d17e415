/**
 * From what the user wrote to `ReplayOptions`. Everything that can be known to be wrong before the run is
 * found here, each error naming the option and the remedy, so that no long run ends on a mistake that was
 * there at its start.
 */

import fs from 'node:fs';
import path from 'node:path';
import { systemReason } from '../../io/files/inputErrors.ts';
import { requireWritableTargets } from '../../io/files/results.ts';
import {
  configError,
  requireFinite,
  requireFraction,
  requireInteger,
  requirePositive,
  TierKVError,
} from '../../runtime/errors.ts';
import { defaultEviction, type EvictionChoice, resolvePolicy, TOP } from '../../runtime/index.ts';
import { parseBytes } from '../../runtime/sizes.ts';
import { readSharedTier } from '../../sim/build/engineSettings.ts';
import { SharedServer } from '../../sim/links/sharedServer.ts';
import type { DriverName, ReplayOptions } from '../../studies/replay/options.ts';
import {
  askedRows,
  type BlockBudget,
  blocksAsked,
  isAlwaysAsked,
  maxBlocks,
  requireHoldable,
  requireRoom,
  type SizedTier,
  sizeOption,
} from '../../studies/replay/sizedTiers.ts';
import { NAMED_BLOCKS, textOf } from '../tierOptions.ts';
import { singlePolicy } from './study.ts';
import { linkDefaults, type RawReplayOptions } from './words.ts';

function decimal(option: string, text: string, remedy: string = `Set ${option} to a number.`): number {
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text.trim())) {
    throw configError(option, `is "${text}", not a number`, remedy);
  }
  return Number(text);
}

/** A quarter of an hour: sums of such times are still whole microseconds. */
const LINK_LATENCY_US_MAX = 1e9;
/** From a byte a second to more than any link has, as a profile of links may say. */
const LINK_GBPS_MIN = 1e-9;
const LINK_GBPS_MAX = 1e6;

function integer(option: string, text: string, min: number, max?: number): number {
  const value = decimal(option, text, `Set ${option} to an integer of at least ${min}.`);
  return requireInteger(option, value, min, max);
}

/** @param text a number of blocks, bytes with a unit, or all */
function budget(option: string, text: string, min: number, blockBytes: number): BlockBudget {
  if (text.trim() === 'all') return 'all';
  const blocks = /[a-z]$/i.test(text.trim()) ? blocksAsked(option.slice(2), text, blockBytes) : Number.NaN;
  return Number.isNaN(blocks)
    ? integer(option, text, min, maxBlocks)
    : requireInteger(option, blocks, min, maxBlocks);
}

function requireAllOnlyLast(tiers: readonly SizedTier[]): void {
  const at = tiers.slice(0, -1).findIndex(({ blocks }) => blocks === 'all');
  if (at === -1) return;
  const [option, below] = [sizeOption(tiers[at].name), sizeOption(tiers[at + 1].name)];
  throw configError(
    option,
    `is all, so that nothing would ever reach the tier of ${below}`,
    `Give ${option} a number, or turn the lower tier off with ${below} 0.`,
  );
}

function blockBytesOf(text: string): number {
  const bytes = parseBytes('--block-bytes', text);
  if (bytes < 4 || bytes % 4 !== 0) {
    throw configError(
      '--block-bytes',
      `is ${bytes}, not a positive multiple of 4`,
      'Set it to one, like 16KiB.',
    );
  }
  return bytes;
}

function evictionOf(policy: string | undefined): EvictionChoice {
  const choice = policy === undefined ? defaultEviction : singlePolicy(policy);
  if (choice !== undefined) return resolvePolicy(choice);
  throw configError('--eviction', `is ${JSON.stringify(policy)}`, 'Name one policy for a replay.');
}

function driverOf(text: string): DriverName {
  if (text === 'real' || text === 'modeled') return text;
  throw configError('--driver', `is "${text}"`, 'Set it to real or modeled.');
}

function requireDirectory(option: string, dir: string): void {
  const stat = statOf(dir);
  const problem = stat === undefined ? 'which does not exist' : 'which is not a directory';
  if (stat?.isDirectory() !== true) {
    throw configError(option, `is ${dir}, ${problem}`, `Make the directory, or leave ${option} out.`);
  }
  try {
    // permissions alone do not say it: no process can make a file in /proc
    fs.rmdirSync(fs.mkdtempSync(path.join(dir, '.tierkv-')));
  } catch (cause) {
    const problem = `${option} is ${dir}, in which nothing can be written (${systemReason(cause)})`;
    throw new TierKVError('TKV_IO', `${problem}. Name another directory.`, {
      field: option,
      path: dir,
      cause,
    });
  }
}

/** Undefined for what does not exist, cannot be reached, or cannot be a path. */
function statOf(file: string): fs.Stats | undefined {
  try {
    return fs.statSync(file, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/** A file that only the modeled driver reads. */
function requireModelFile(option: string, file: string | undefined, driver: DriverName, made: string): void {
  if (file === undefined) return;
  requireModeled(option, driver);
  if (statOf(file)?.isFile() === true) return;
  throw configError(option, `is ${file}, which is not a file`, `Name what ${made} wrote.`);
}

function requireModeled(option: string, driver: DriverName): void {
  if (driver === 'modeled') return;
  throw configError(option, 'needs the modeled driver', `Add --driver modeled, or leave ${option} out.`);
}

/**
 * The tiers that are on. Sequences read and write in the first one, which is never off.
 */
function tiersOf(raw: RawReplayOptions, blockBytes: number, driver: DriverName): SizedTier[] {
  const tiers = askedRows().flatMap((row, position): SizedTier[] => {
    const { name, asked } = row;
    const { size, place } = asked;
    const option = `--${size.option}`;
    const given = textOf(raw, size.option);
    if (isAlwaysAsked(row)) {
      const blocks = budget(option, given ?? '0', position === TOP ? 1 : 0, blockBytes);
      const at = place === undefined ? undefined : textOf(raw, place.option);
      if (at !== undefined) requireDirectory(`--${place?.option}`, at);
      return blocks === 0 ? [] : [{ name, blocks, ...(at === undefined ? {} : { place: at }) }];
    }
    const named = `--${place?.option}`;
    const at = textOf(raw, place?.option ?? '');
    const isModeled = row.isShared === true && raw.sharedTier !== undefined;
    if (at === undefined && !isModeled) {
      if (given === undefined) return [];
      throw configError(option, `is given without ${named}`, 'Name the server, or leave it out.');
    }
    if (at !== undefined && driver === 'modeled') {
      const remedy = 'Use --driver real, or give --shared-tier the file of tierkv calibrate --remote.';
      throw configError(named, 'names a server, and a modeled driver has none', remedy);
    }
    const blocks = integer(option, given ?? NAMED_BLOCKS, 1);
    if (blocks > maxBlocks) throw configError(option, `is ${blocks}`, `Keep it to ${maxBlocks}.`);
    return [{ name, blocks, ...(at === undefined ? {} : { place: at }) }];
  });
  requireAllOnlyLast(tiers);
  return tiers;
}

/** The trace, or the recorded inputs that are read in its place. */
function sourceOf(tracePath: string | undefined, inputs: string | undefined): string {
  if (tracePath !== undefined && inputs !== undefined) {
    throw configError('--inputs', 'is read in place of a trace', `Leave ${tracePath} out, or --inputs.`);
  }
  const source = tracePath ?? inputs;
  if (source === undefined) throw configError('TRACE', 'is missing', 'Name one, or recorded --inputs.');
  return source;
}

/** The tier with a directory of its own where it needs one and has none. */
function inDirectory(tier: SizedTier, scratchDir: () => string): SizedTier {
  const needs = askedRows().some(({ name, asked: { place } }) => name === tier.name && place?.isDirectory);
  return needs && tier.place === undefined ? { ...tier, place: scratchDir() } : tier;
}

/**
 * @param tracePath undefined with `raw.inputs`, which is read in its place
 * @param scratchDir makes the directory of a tier where the user named none; called once all else is right.
 * @throws {TierKVError} TKV_CONFIG naming the option; TKV_IO for a place that cannot be written.
 */
export function parseReplayOptions(
  tracePath: string | undefined,
  raw: RawReplayOptions,
  scratchDir: () => string,
): ReplayOptions {
  const source = sourceOf(tracePath, raw.inputs);
  const blockBytes = blockBytesOf(raw.blockBytes);
  const driver = driverOf(raw.driver);
  const tiers = tiersOf(raw, blockBytes, driver);
  requireHoldable(tiers, blockBytes);
  const blockTokens = integer('--block-tokens', raw.blockTokens, 1);
  const requests = raw.requests === undefined ? undefined : integer('--num-requests', raw.requests, 1);

  requireModelFile('--inputs', raw.inputs, driver, '--log of a run');
  requireModelFile('--links', raw.links, driver, 'tierkv calibrate');
  if (raw.sharedTier !== undefined && driver === 'real') {
    const remedy = 'Name the server with --remote, or use --driver modeled.';
    throw configError(
      '--shared-tier',
      'is a model of a server, and blocks of a real driver have bytes',
      remedy,
    );
  }
  if (raw.linkGbps !== undefined) requireModeled('--link-gbps', driver);
  if (raw.linkLatencyUs !== undefined) requireModeled('--link-latency-us', driver);

  const offloadThreshold = requireFraction(
    '--offload-threshold',
    decimal('--offload-threshold', raw.offloadThreshold),
  );
  const linkGbps = requirePositive('--link-gbps', decimal('--link-gbps', raw.linkGbps ?? linkDefaults.gbps));
  if (linkGbps < LINK_GBPS_MIN || linkGbps > LINK_GBPS_MAX) {
    const remedy = `Set it to a number from ${LINK_GBPS_MIN} to ${LINK_GBPS_MAX}.`;
    throw configError('--link-gbps', `is ${linkGbps}`, remedy);
  }
  const linkLatencyUs = requireFinite(
    '--link-latency-us',
    decimal('--link-latency-us', raw.linkLatencyUs ?? linkDefaults.latencyUs),
  );
  if (linkLatencyUs > LINK_LATENCY_US_MAX) {
    const remedy = `Set --link-latency-us to ${LINK_LATENCY_US_MAX} or less.`;
    throw configError('--link-latency-us', `is ${linkLatencyUs}, more than any link has`, remedy);
  }

  requireWritableTargets(
    { '--log': raw.log, '--json': raw.json },
    { TRACE: tracePath, '--inputs': raw.inputs, '--links': raw.links },
  );
  if (driver === 'real') requireRoom(tiers, blockBytes);

  const { sharedTier } = raw;
  return {
    ...(sharedTier === undefined ? {} : { shared: new SharedServer(readSharedTier(sharedTier)) }),
    tracePath: source,
    eviction: evictionOf(raw.policy),
    tiers: tiers.map((tier) => inDirectory(tier, scratchDir)),
    blockBytes,
    blockTokens,
    driver,
    offloadThreshold,
    linkBandwidthBytesPerS: linkGbps * 1e9,
    linkBaseLatencyUs: linkLatencyUs,
    skipBad: raw.skipBad,
    ...(requests === undefined ? {} : { requests }),
    ...(raw.links === undefined ? {} : { linksPath: raw.links }),
    ...(raw.log === undefined ? {} : { logPath: raw.log }),
    ...(raw.inputs === undefined ? {} : { inputsPath: raw.inputs }),
    ...(raw.json === undefined ? {} : { jsonPath: raw.json }),
  };
}
