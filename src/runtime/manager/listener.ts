/**
 * What the manager tells whoever drives it, at the end of the call in which it came about. A listener may call the manager
 * again. It is no input: what it does with the news reaches the manager through calls, which are logged.
 */

import type { Sequence } from './sequences/sequence.ts';

export interface ManagerListener {
  /** Jobs wait to be taken by `nextJob`. */
  jobsIssued?(): void;
  /** No block of the sequence waits for a job any more, or the sequence has ended while some did. */
  settled?(sequence: Sequence): void;
  /** Room came free in HBM: a sequence let blocks go, or a job gave its slots back. */
  roomFreed?(): void;
}
