/**
 * What one `tierkv replay` is asked to do: the contract between the command line, which checks every value
 * before any work starts, and `runReplay`, which may take them as right. All sizes are in bytes, all
 * capacities in blocks.
 */

import type { PolicyChoice } from '../../runtime/index.ts';
import type { ReplayReport } from './report/index.ts';

/**
 * Slots of a tier: a count, 0 for "this tier is off", or 'all' for "as many as the trace needs" (last tier
 * only).
 */
export type BlockBudget = number | 'all';

export type DriverName = 'real' | 'modeled';

export interface ReplayOptions {
  /** What is read: the trace, or `inputsPath` where that is given. */
  readonly tracePath: string;
  readonly hbmBlocks: BlockBudget;
  readonly ddrBlocks: BlockBudget;
  readonly nvmeBlocks: BlockBudget;
  /** Bytes of one block, a positive multiple of 4. */
  readonly blockBytes: number;
  /** Tokens of one block: what the trace's hash ids are cut by. */
  readonly blockTokens: number;
  /** Stop after this many requests. Absent: the whole trace. */
  readonly requests?: number;
  /** Directory for the NVMe tier's files. It exists, is writable, and is the caller's to remove. */
  readonly dir: string;
  readonly driver: DriverName;
  /** Who leaves a tier first. */
  readonly eviction: PolicyChoice;
  /** Share of HBM, 0 to 1, above which cached blocks are offloaded after each request. */
  readonly offloadThreshold: number;
  /**
   * Of every link of the modeled driver, in bytes per second. An assumption of the user's, not a measurement.
   */
  readonly linkBandwidthBytesPerS: number;
  /** Of every transfer of the modeled driver, in microseconds. */
  readonly linkBaseLatencyUs: number;
  /**
   * A profile of `tierkv calibrate` whose links the modeled driver takes; those that it lacks are as assumed.
   */
  readonly linksPath?: string;
  /** Write the decision log, and the inputs that led to it, here. */
  readonly logPath?: string;
  /** Inputs that an earlier run recorded, to be fed to the modeled driver. Only with `driver: 'modeled'`. */
  readonly inputsPath?: string;
  /** Write the report as JSON here. */
  readonly jsonPath?: string;
  /** Count malformed trace lines and go on, instead of stopping at the first. */
  readonly skipBad: boolean;
}

/** What a run tells while it goes. Every method returns at once and never throws. */
export interface ReplayListener {
  /** After each request, or as often as is cheap: listeners limit their own rate. */
  progress(state: ReplayProgress): void;
  /**
   * Something that the user should know and that does not stop the run: a software adapter, unlocked memory.
   */
  notice(message: string): void;
  /**
   * Raised when the user wants to stop. The run then ends soon, closes its stores and throws `signal.reason`.
   */
  readonly signal: AbortSignal;
}

/** The whole of a run, from opening the stores to closing them. Exported as `runReplay` by `run.ts`. */
export type RunReplay = (options: ReplayOptions, listener: ReplayListener) => Promise<ReplayReport>;

export interface ReplayProgress {
  readonly requests: number;
  /** Blocks looked up so far and in all: what a replay does goes by blocks, not by bytes of its file. */
  readonly blocks: number;
  readonly blocksTotal: number;
  /** Bytes moved over all links so far. */
  readonly bytesMoved: number;
}
