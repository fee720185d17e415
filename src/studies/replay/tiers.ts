/** Tiers of a replay: a driver, the bytes behind it if it has any, and what to report of them. */

import type { SharedTier } from '../../backends/tierRow.ts';
import { configError } from '../../runtime/errors.ts';
import {
  type KVManager,
  type ManagerConfig,
  type TierSize,
  TOP,
  type TransferDriver,
} from '../../runtime/index.ts';
import type { ReplayOptions, TraceReplayListener, TraceSurvey } from './options.ts';
import type { ReplayReport } from './report.ts';
import { askedRows, type BlockBudget } from './sizedTiers.ts';

export interface ReplayTiers extends AsyncDisposable {
  readonly driver: TransferDriver;
  /** Moves virtual time on to the next end; null where time passes by itself. */
  readonly advance: (() => void) | null;
  /** The driver's own time in microseconds: the link model's, or the process's. */
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

// From blocks to a manager's configuration. A replay's tiers are exclusive and offload on demand only. The top
// tier has landing room for one window of blocks, each lower tier for the largest request, whose blocks may
// leave it while as many arrive.

const LANDING_BYTES = 32 * 1024 * 1024;
const LANDING_BLOCKS = 64;

interface ReplaySizes {
  readonly config: ManagerConfig;
  readonly topBlocks: number;
  /** Most blocks brought or computed at a time when a request is larger than the top tier. */
  readonly window: number;
}

export function replaySizes(options: ReplayOptions, survey: TraceSurvey): ReplaySizes {
  const { blockBytes, tiers } = options;
  const blocksOf = (budget: BlockBudget): number =>
    budget === 'all' ? Math.max(1, survey.uniqueBlocks) : budget;
  const blocks = tiers.map((tier) => blocksOf(tier.blocks));
  const window = Math.max(1, Math.min(LANDING_BLOCKS, Math.floor(LANDING_BYTES / blockBytes)));
  const largest = Math.max(...blocks);
  if ((largest + survey.longestRequest + window) * blockBytes > Number.MAX_SAFE_INTEGER) {
    const problem = `is ${blockBytes}, and tiers of ${largest} such blocks cannot be addressed`;
    throw configError('blockBytes', problem, 'Lower it.');
  }
  const isShared = sharesOf(options);
  const sizes = tiers.map(({ name }, i): [string, TierSize] => {
    const landing = i === TOP ? window : survey.longestRequest;
    // what others shall find goes down at once
    const offload = isShared && i < tiers.length - 1 ? ({ offload: { policy: 'eager' } } as const) : {};
    return [name, { capacityBytes: blocks[i] * blockBytes, landingBytes: landing * blockBytes, ...offload }];
  });
  return {
    topBlocks: blocks[TOP],
    window,
    config: {
      unitBytes: [blockBytes],
      ...Object.fromEntries(sizes),
      lowerCopy: isShared ? 'keep' : 'move',
      chainedKeys: false,
      eviction: options.eviction,
      ...(isShared ? {} : { offloadThreshold: options.offloadThreshold }),
      maxJobs: Math.max(16_384, 4 * survey.longestRequest),
    },
  };
}

/** Whether other runs find what this one leaves in a tier. */
export function sharesOf({ tiers }: Pick<ReplayOptions, 'tiers'>): boolean {
  return askedRows().some(
    ({ name, isShared }) => isShared === true && tiers.some((tier) => tier.name === name),
  );
}

/** The holder of the blocks' bytes, where a driver has bytes. */
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
