/**
 * What executes the manager's jobs: for real (`TransferEngine` in tierkv/backends) or on a virtual clock
 * (`ModeledDriver` in tierkv/sim). A driver decides nothing. It hands the ends of jobs back in the order in which the
 * jobs were submitted, whatever order they really ended in: so a run's decisions do not depend on timing, and a modeled
 * run decides as the real one did.
 */

import type { JobId } from './jobTable.ts';
import type { Outcome } from './outcome.ts';
import type { Transfer } from './transfer.ts';

export interface Completion {
  readonly job: JobId;
  readonly outcome: Outcome;
  /** Digest of the sealed bytes; 0 for moves. */
  readonly digestLo: number;
  readonly digestHi: number;
  /** Why it was not loaded, for people. */
  readonly reason: string;
}

export interface TransferDriver {
  /** The driver's clock, in integer microseconds; never goes back. */
  nowUs(): number;
  /** Takes over jobs; returns at once. */
  submit(transfers: readonly Transfer[]): void;
  /** Jobs submitted whose end was not handed out yet. */
  readonly inFlight: number;
  /** Waits until the oldest job has ended; hands out its end and those right behind it that have ended too. */
  take(): Promise<readonly Completion[]>;
}
