/** What is kept of a sequence while its found blocks arrive and the others are computed. */

import type { Sequence } from '../../runtime/index.ts';

/**
 * Tokens of the sequence to be computed next: all KV before `start` is in HBM, and blocks up to `end` open.
 */
export interface PrefillPart {
  readonly start: number;
  readonly end: number;
}

/** What is known of a sequence while it arrives. */
export class ArrivingPrefix {
  /** Tokens whose KV is in place without a gap, those of the part that is computed now included. */
  computed = 0;
  /** Tokens that were handed out to be computed. */
  handedOut = 0;
  part: PrefillPart | null = null;
  /** When the part was handed out, and when the device had done the one before. */
  handedOutUs = 0;
  doneUs = 0;

  /** The sequence ends after `tokens` tokens. */
  truncate(tokens: number): void {
    this.computed = Math.min(this.computed, tokens);
    this.handedOut = Math.min(this.handedOut, tokens);
  }
}

/** A cached tail that may be taken over behind the found blocks. */
export interface ArrivingTail {
  readonly tokens: number;
  /** The sequence's block that it is the beginning of. */
  readonly block: number;
  /** What pins it and brings it up, and how far it is: of each layer group. */
  readonly tables: readonly Sequence[];
  readonly stages: TailStage[];
}

/**
 * `coming`: on its way up, pinned by a table of its own. `copying`: from there into the sequence's own block.
 * `failed`: that block is to be computed from its first token.
 */
export type TailStage = 'coming' | 'copying' | 'inPlace' | 'failed';
