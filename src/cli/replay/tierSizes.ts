/**
 * From blocks to a manager's configuration. A replay's tiers are exclusive and offload on demand only. HBM has a landing
 * zone for one window of blocks; each lower tier has one for the largest request, whose blocks may leave it while as many
 * arrive.
 */

import type { ManagerConfig } from '../../runtime/index.ts';
import type { BlockBudget, ReplayOptions } from './options.ts';
import type { TraceSurvey } from './survey.ts';

const LANDING_BYTES = 32 * 1024 * 1024;
const LANDING_BLOCKS = 64;

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
  return {
    hbmBlocks,
    window,
    config: {
      unitBytes: [blockBytes],
      hbm: { capacityBytes: hbmBlocks * blockBytes, landingBytes: window * blockBytes },
      ...(options.ddrBlocks === 0 ? {} : { ddr: lower(options.ddrBlocks) }),
      ...(options.nvmeBlocks === 0 ? {} : { nvme: lower(options.nvmeBlocks) }),
      lowerCopy: 'move',
      chainedKeys: false,
      offloadThreshold: options.offloadThreshold,
      maxJobs: Math.max(16_384, 4 * survey.longestRequest),
    },
  };
}
