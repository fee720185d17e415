/** What a replay runs on: a driver, the bytes behind it if it has any, and what to report of them. */

import fs from 'node:fs';
import os from 'node:os';
import type { SharedTier } from '../backends/tierRow.ts';
import { formatBytes } from '../printing/text.ts';
import { configError } from '../runtime/errors.ts';
import type { KVManager, ManagerConfig, TransferDriver } from '../runtime/index.ts';
import type { BlockBudget, ReplayOptions, TraceReplayListener, TraceSurvey } from './options.ts';
import type { ReplayReport } from './report.ts';

export interface ReplayTiers extends AsyncDisposable {
  readonly driver: TransferDriver;
  /** Moves virtual time on to the next end; null where time passes by itself. */
  readonly advance: (() => void) | null;
  /** The driver's own time in microseconds: the link model's, or that of the process. */
  nowUs(): number;
  readonly bytes: BlockBytes | null;
  /** The tier that other runs write too, and its position. */
  readonly shared?: { readonly tier: SharedTier; readonly position: number } | undefined;
  readonly adapter: ReplayReport['adapter'];
  describe(): ReplayReport['tiers'];
  bytesMoved(): number;
  traffic(): Pick<ReplayReport, 'bytesMoved' | 'gbps'>;
}

export type OpenReplayTiers = (
  manager: KVManager,
  options: ReplayOptions,
  listener: TraceReplayListener,
) => Promise<ReplayTiers>;

/** @param links bytes and busy seconds by link */
export function trafficOf(
  links: Iterable<readonly [string, { bytes: number; busySeconds: number }]>,
): Pick<ReplayReport, 'bytesMoved' | 'gbps'> {
  const used = [...links].filter(([, link]) => link.bytes > 0).sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    bytesMoved: Object.fromEntries(used.map(([name, link]) => [name, link.bytes])),
    gbps: Object.fromEntries(
      used.map(([name, link]) => [name, link.busySeconds > 0 ? link.bytes / link.busySeconds / 1e9 : 0]),
    ),
  };
}

// From blocks to a manager's configuration. A replay's tiers are exclusive and offload on demand only. HBM
// has landing room for one window of blocks, each lower tier for the largest request, whose blocks may leave
// it while as many arrive.

const LANDING_BYTES = 32 * 1024 * 1024;
const LANDING_BLOCKS = 64;

/**
 * Most blocks of all tiers together. The manager needs some 60 bytes of memory for each, so this is about 1
 * GB.
 */
export const maxBlocks: number = 2 ** 24;

/**
 * Refuses tiers that no machine could manage or address. What `all` comes to is not known yet.
 * @throws {TierKVError} TKV_CONFIG naming the largest tier's option.
 */
export function requireHoldable(
  sizes: Pick<ReplayOptions, 'hbmBlocks' | 'ddrBlocks' | 'nvmeBlocks' | 'blockBytes'>,
): void {
  const tiers = [
    ['--hbm', sizes.hbmBlocks],
    ['--ddr', sizes.ddrBlocks],
    ['--nvme', sizes.nvmeBlocks],
  ] as const;
  let total = 0;
  let largest: readonly [option: string, blocks: number] = ['--hbm', 0];
  for (const [option, blocks] of tiers) {
    if (blocks === 'all') continue;
    total += blocks;
    if (blocks > largest[1]) largest = [option, blocks];
  }
  const [option, blocks] = largest;
  if (total > maxBlocks) {
    const problem = `is ${blocks}, and all tiers together would have ${total} blocks, more than ${maxBlocks}`;
    throw configError(
      option,
      problem,
      `Lower ${option}; larger blocks (--block-bytes) hold as much in fewer.`,
    );
  }
  if (blocks * sizes.blockBytes > Number.MAX_SAFE_INTEGER) {
    const problem = `makes ${blocks} blocks of ${sizes.blockBytes} bytes, more than can be addressed`;
    throw configError(option, problem, `Lower ${option} or --block-bytes.`);
  }
}

/**
 * Refuses tiers of real bytes that this machine has no room for.
 * @param sizes `dir` is where the disk tier lies; undefined for the system's directory of temporary files.
 * @throws {TierKVError} TKV_CONFIG naming the option.
 */
export function requireRoom(
  sizes: Pick<ReplayOptions, 'ddrBlocks' | 'nvmeBlocks' | 'blockBytes'> & {
    readonly dir?: string | undefined;
  },
): void {
  const require = (option: string, blocks: BlockBudget, bytes: number, where: string): void => {
    if (blocks === 'all' || blocks * sizes.blockBytes <= bytes) return;
    const problem = `asks for ${formatBytes(blocks * sizes.blockBytes)}, and ${where} ${formatBytes(bytes)}`;
    throw configError(option, problem, `Lower ${option} or --block-bytes.`);
  };
  require('--ddr', sizes.ddrBlocks, os.totalmem(), 'this machine has a memory of');
  const dir = sizes.dir ?? os.tmpdir();
  const { bavail, bsize } = fs.statfsSync(dir);
  require('--nvme', sizes.nvmeBlocks, bavail * bsize, `${dir} has free`);
}

export interface ReplaySizes {
  readonly config: ManagerConfig;
  readonly hbmBlocks: number;
  /** Most blocks brought or computed at a time when a request is larger than HBM. */
  readonly window: number;
}

export function replaySizes(options: ReplayOptions, survey: TraceSurvey): ReplaySizes {
  const { blockBytes } = options;
  const blocks = (budget: BlockBudget): number =>
    budget === 'all' ? Math.max(1, survey.uniqueBlocks) : budget;
  const window = Math.max(1, Math.min(LANDING_BLOCKS, Math.floor(LANDING_BYTES / blockBytes)));
  const lower = (budget: BlockBudget): { capacityBytes: number; landingBytes: number } => ({
    capacityBytes: blocks(budget) * blockBytes,
    landingBytes: survey.longestRequest * blockBytes,
  });
  const hbmBlocks = blocks(options.hbmBlocks);
  // what others shall find goes down at once
  const eager = options.remote === undefined ? {} : { offload: { policy: 'eager' } };
  const largest = Math.max(hbmBlocks, blocks(options.ddrBlocks), blocks(options.nvmeBlocks));
  if ((largest + survey.longestRequest + window) * blockBytes > Number.MAX_SAFE_INTEGER) {
    const problem = `is ${blockBytes}, and tiers of ${largest} such blocks cannot be addressed`;
    throw configError('--block-bytes', problem, 'Lower it.');
  }
  return {
    hbmBlocks,
    window,
    config: {
      unitBytes: [blockBytes],
      hbm: { capacityBytes: hbmBlocks * blockBytes, landingBytes: window * blockBytes, ...eager },
      ...(options.ddrBlocks === 0 ? {} : { ddr: { ...lower(options.ddrBlocks), ...eager } }),
      ...(options.nvmeBlocks === 0 ? {} : { nvme: { ...lower(options.nvmeBlocks), ...eager } }),
      ...(options.remote === undefined ? {} : { remote: lower(options.remote.blocks) }),
      lowerCopy: options.remote === undefined ? 'move' : 'keep',
      chainedKeys: false,
      eviction: options.eviction,
      ...(options.remote === undefined ? { offloadThreshold: options.offloadThreshold } : {}),
      maxJobs: Math.max(16_384, 4 * survey.longestRequest),
    },
  };
}

/** What holds the bytes of the blocks, where a driver has bytes. */
export interface BlockBytes {
  /**
   * Starts writing the blocks' patterns into their open slots; device work is in order, so sealing may follow
   * at once.
   */
  write(places: readonly ReplayedPlace[]): void;
  /** Compares the blocks' bytes with their patterns. @returns blocks that differ */
  verify(places: readonly ReplayedPlace[]): Promise<number>;
}

export interface ReplayedPlace {
  readonly slot: number;
  readonly generation: number;
  /** The trace's id of the block: the seed of its bytes. */
  readonly id: number;
}
