/** What is kept of a sequence while its found blocks arrive and the others are computed. */

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
}
