/**
 * What the manager tells whoever drives it, at the end of the call in which it came about. A listener may
 * call the manager again, except from `stored`, `removed` and `used`, which come in the middle of a call. It
 * is no input: what it does with the news reaches the manager through calls, which are logged.
 */

import type { Outcome } from '../../transfer/outcome.ts';
import type { Sequence } from '../sequences/blockTable/sequence.ts';

export interface ManagerListener {
  /** Jobs wait to be taken by `nextJob`. */
  jobsIssued?(): void;
  /** No block of the sequence waits for a job any more, or the sequence has ended while some did. */
  settled?(sequence: Sequence): void;
  /** A transfer of the block with this key to the tier at `position` has ended, whoever asked for it. */
  moved?(position: number, key: Uint32Array, outcome: Outcome): void;
  /** Room came free in HBM: a sequence let blocks go, or a job gave its slots back. */
  roomFreed?(): void;
  /** A block can be found in the tier at `position` from now on, where it was not before. */
  stored?(position: number, block: StoredBlock): void;
  /** A sequence uses the block of this number, which `contentKey` names: it was found, or is sealed. */
  used?(content: number): void;
  /** The block with this key can be found in the tier at `position` no more. */
  removed?(position: number, key: Uint32Array): void;
}

export interface StoredBlock {
  /** Four words. */
  readonly key: Uint32Array;
  /** Key of the block before it; zeros for the first of a chain, undefined where it is not known. */
  readonly parent: Uint32Array | undefined;
  readonly tokens: number;
  readonly bytes: number;
}
