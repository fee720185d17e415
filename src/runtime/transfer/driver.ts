/**
 * What executes the manager's jobs: for real (`TransferEngine` in tierkv/backends) or on a virtual clock
 * (`ModeledDriver` in tierkv/sim). A driver decides nothing. It reports each end when it happens, in whatever
 * order ends come; a slow write to disk delays nobody who does not wait for it.
 */

import type { JobId } from './jobTable.ts';
import type { Outcome } from './outcome.ts';
import type { Transfer } from './transfer.ts';

/** How one job ended. Its slots are the manager's again. */
export interface Completion {
  readonly job: JobId;
  readonly outcome: Outcome;
  /** Digest of the sealed bytes; 0 for other kinds. */
  readonly digestLo: number;
  readonly digestHi: number;
  /** Why it was not loaded, for people. */
  readonly reason: string;
}

export type EndListener = (end: Completion) => void;

export interface TransferDriver {
  /** The driver's clock, in integer microseconds; never goes back. */
  nowUs(): number;
  /** Takes over jobs; returns at once. Each job ends once, also one whose deadline has passed. */
  submit(transfers: readonly Transfer[]): void;
  /**
   * Who is told of each end. The driver calls it from outside `submit`; a later listener takes the place of
   * the earlier one.
   */
  onEnd(listener: EndListener): void;
}
