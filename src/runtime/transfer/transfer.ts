/** A job as a driver sees it: from where to where, which bytes, and what they must be. */

import type { Digest } from '../digest.ts';
import type { Tier } from '../tier/tier.ts';
import type { JobId, Priority } from './jobTable.ts';

export interface Transfer {
  readonly job: JobId;
  /**
   * `move` brings source to target in another tier, `copy` within one tier; `seal` takes the digest of the
   * target where it lies, and has no source.
   */
  readonly kind: 'move' | 'copy' | 'seal';
  readonly source: Place | null;
  readonly target: Place;
  /** Of a copy: its source is a block that a sequence still writes. */
  readonly unsealed?: boolean | undefined;
  readonly sizeClass: number;
  readonly bytes: number;
  /** The content's key: four words. Zeros for a copy, whose content is not sealed. */
  readonly key: Uint32Array;
  /** Key of the block before it in its chain; zeros for the first, absent where it is not known. */
  readonly parent?: Uint32Array | undefined;
  readonly tokens?: number | undefined;
  /** What a move must bring. */
  readonly digest: Digest;
  readonly priority: Priority;
  readonly deadlineUs: number;
}

export interface Place {
  readonly tier: Tier;
  readonly slot: number;
  readonly generation: number;
}
