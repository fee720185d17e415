/**
 * From what the user wrote to `ReplayOptions`. Everything that can be known to be wrong before the run is
 * found here, each error naming the option and the remedy, so that no long run ends on a mistake that was
 * there at its start.
 */

import fs from 'node:fs';
import path from 'node:path';
import { systemReason } from '../../files/inputErrors.ts';
import { mooncakeBlockTokens } from '../../files/mooncakeTrace.ts';
import { requireWritableTarget } from '../../files/results.ts';
import { parseBlocks, parseBytes } from '../../printing/text.ts';
import type { BlockBudget, DriverName, ReplayOptions } from '../../replay/options.ts';
import { maxBlocks, requireHoldable, requireRoom } from '../../replay/tiers.ts';
import {
  configError,
  requireFinite,
  requireFraction,
  requireInteger,
  requirePositive,
  TierKVError,
} from '../../runtime/errors.ts';
import { defaultEviction, type EvictionChoice, resolvePolicy } from '../../runtime/index.ts';
import { SharedServer } from '../../sim/links/sharedServer.ts';
import { readSharedTier } from '../../simulate/engineOptions.ts';
import { singlePolicy } from './study.ts';

/** The options as commander hands them over: text, under camel-case names. */
export interface RawReplayOptions {
  readonly hbmBlocks: string;
  readonly ddrBlocks: string;
  readonly nvmeBlocks: string;
  readonly blockBytes: string;
  readonly blockTokens: string;
  readonly driver: string;
  readonly offloadThreshold: string;
  readonly skipBad: boolean;
  /** Absent: the manager's default. */
  readonly policy?: string;
  readonly linkGbps?: string;
  readonly linkLatencyUs?: string;
  readonly requests?: string;
  readonly dir?: string;
  readonly remote?: string;
  readonly remoteBlocks?: string;
  readonly sharedTier?: string;
  readonly links?: string;
  readonly log?: string;
  readonly inputs?: string;
  readonly json?: string;
}

/** Enough for every tier to serve some of the bundled excerpt, at a total of about 400 MB. */
export const replayDefaults: Required<
  Pick<
    RawReplayOptions,
    'hbmBlocks' | 'ddrBlocks' | 'nvmeBlocks' | 'blockBytes' | 'blockTokens' | 'driver' | 'offloadThreshold'
  >
> = {
  hbmBlocks: '1000',
  ddrBlocks: '4000',
  nvmeBlocks: '20000',
  blockBytes: '16KiB',
  blockTokens: String(mooncakeBlockTokens),
  driver: 'real',
  offloadThreshold: '1',
};

/**
 * What the modeled driver assumes of links that no profile gives. Apart, since with the real driver they mean
 * nothing.
 */
export const linkDefaults: { readonly gbps: string; readonly latencyUs: string } = {
  gbps: '10',
  latencyUs: '10',
};

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
  const blocks = /[a-z]$/i.test(text.trim()) ? parseBlocks(text, blockBytes) : Number.NaN;
  return Number.isNaN(blocks)
    ? integer(option, text, min, maxBlocks)
    : requireInteger(option, blocks, min, maxBlocks);
}

function requireAllOnlyLast(budgets: readonly (readonly [option: string, budget: BlockBudget])[]): void {
  budgets.forEach(([option, blocks], index) => {
    const below = budgets.slice(index + 1).find(([, other]) => other !== 0);
    if (blocks === 'all' && below !== undefined) {
      throw configError(
        option,
        `is all, so that nothing would ever reach the tier of ${below[0]}`,
        `Give ${option} a number, or turn the lower tier off with ${below[0]} 0.`,
      );
    }
  });
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

function requireDirectory(dir: string): void {
  const stat = statOf(dir);
  const problem = stat === undefined ? 'which does not exist' : 'which is not a directory';
  if (stat?.isDirectory() !== true) {
    throw configError('--dir', `is ${dir}, ${problem}`, 'Make the directory, or leave --dir out.');
  }
  try {
    // permissions alone do not say it: no process can make a file in /proc
    fs.rmdirSync(fs.mkdtempSync(path.join(dir, '.tierkv-')));
  } catch (cause) {
    const problem = `--dir is ${dir}, in which nothing can be written (${systemReason(cause)})`;
    throw new TierKVError('TKV_IO', `${problem}. Name another directory.`, {
      field: '--dir',
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

function requireDifferentFiles(files: readonly (readonly [name: string, file: string | undefined])[]): void {
  const seen = new Map<string, string>();
  for (const [name, file] of files) {
    if (file === undefined) continue;
    const real = fs.existsSync(file) ? fs.realpathSync(file) : path.resolve(file);
    const other = seen.get(real);
    if (other !== undefined)
      throw configError(name, `is ${file}, the same file as ${other}`, 'Name another.');
    seen.set(real, name);
  }
}

/** Blocks of a shared tier that a replay keeps in mind, unless it is told otherwise. */
const REMOTE_BLOCKS = '20000';

function remoteOf(raw: RawReplayOptions, driver: DriverName): ReplayOptions['remote'] {
  const { remote, sharedTier } = raw;
  if (remote === undefined && sharedTier === undefined) {
    if (raw.remoteBlocks === undefined) return undefined;
    throw configError('--remote-blocks', 'is given without --remote', 'Name the server, or leave it out.');
  }
  if (remote !== undefined && driver === 'modeled') {
    const remedy = 'Use --driver real, or give --shared-tier the file of tierkv calibrate --remote.';
    throw configError('--remote', 'names a server, and a modeled driver has none', remedy);
  }
  if (sharedTier !== undefined && driver === 'real') {
    const remedy = 'Name the server with --remote, or use --driver modeled.';
    throw configError(
      '--shared-tier',
      'is a model of a server, and blocks of a real driver have bytes',
      remedy,
    );
  }
  const blocks = integer('--remote-blocks', raw.remoteBlocks ?? REMOTE_BLOCKS, 1);
  if (blocks > maxBlocks) throw configError('--remote-blocks', `is ${blocks}`, `Keep it to ${maxBlocks}.`);
  if (remote !== undefined) return { url: remote, blocks };
  return { server: new SharedServer(readSharedTier(sharedTier as string)), blocks };
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

/**
 * @param tracePath undefined with `raw.inputs`, which is read in its place
 * @param scratchDir makes the directory for the NVMe tier where the user named none; called once all else is
 * right.
 * @throws {TierKVError} TKV_CONFIG naming the option; TKV_IO for a place that cannot be written.
 */
export function parseReplayOptions(
  tracePath: string | undefined,
  raw: RawReplayOptions,
  scratchDir: () => string,
): ReplayOptions {
  const source = sourceOf(tracePath, raw.inputs);
  // Sequences write and read KV in HBM, so it is never off.
  const blockBytes = blockBytesOf(raw.blockBytes);
  const hbmBlocks = budget('--hbm', raw.hbmBlocks, 1, blockBytes);
  const ddrBlocks = budget('--ddr', raw.ddrBlocks, 0, blockBytes);
  const nvmeBlocks = budget('--nvme', raw.nvmeBlocks, 0, blockBytes);
  requireAllOnlyLast([
    ['--hbm', hbmBlocks],
    ['--ddr', ddrBlocks],
    ['--nvme', nvmeBlocks],
  ]);
  requireHoldable({ hbmBlocks, ddrBlocks, nvmeBlocks, blockBytes });
  const blockTokens = integer('--block-tokens', raw.blockTokens, 1);
  const requests = raw.requests === undefined ? undefined : integer('--num-requests', raw.requests, 1);

  const driver = driverOf(raw.driver);
  requireModelFile('--inputs', raw.inputs, driver, '--log of a run');
  requireModelFile('--links', raw.links, driver, 'tierkv calibrate');
  if (raw.linkGbps !== undefined) requireModeled('--link-gbps', driver);
  if (raw.linkLatencyUs !== undefined) requireModeled('--link-latency-us', driver);

  const remote = remoteOf(raw, driver);
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

  requireDifferentFiles([
    ['TRACE', tracePath],
    ['--inputs', raw.inputs],
    ['--links', raw.links],
    ['--log', raw.log],
    ['--json', raw.json],
  ]);
  if (raw.log !== undefined) requireWritableTarget(raw.log);
  if (raw.json !== undefined) requireWritableTarget(raw.json);
  if (raw.dir !== undefined) requireDirectory(raw.dir);
  if (driver === 'real') requireRoom({ ddrBlocks, nvmeBlocks, blockBytes, dir: raw.dir });

  return {
    tracePath: source,
    eviction: evictionOf(raw.policy),
    hbmBlocks,
    ddrBlocks,
    nvmeBlocks,
    blockBytes,
    blockTokens,
    driver,
    offloadThreshold,
    linkBandwidthBytesPerS: linkGbps * 1e9,
    linkBaseLatencyUs: linkLatencyUs,
    dir: raw.dir ?? scratchDir(),
    skipBad: raw.skipBad,
    ...(remote === undefined ? {} : { remote }),
    ...(requests === undefined ? {} : { requests }),
    ...(raw.links === undefined ? {} : { linksPath: raw.links }),
    ...(raw.log === undefined ? {} : { logPath: raw.log }),
    ...(raw.inputs === undefined ? {} : { inputsPath: raw.inputs }),
    ...(raw.json === undefined ? {} : { jsonPath: raw.json }),
  };
}
