/**
 * How a transfer can end. `loaded` is the only success, of reads and writes alike; "done" cannot be built
 * from an error.
 *
 *   loaded     the bytes are in place and, where the destination verifies, they are right
 *   missing    the source holds nothing under that name
 *   corrupt    bytes are there, but others than were asked for: digest, key, layout or generation disagree
 *   timedOut   the deadline passed; the slots stay taken until the job retires
 *   refused    nothing was done and nothing harmed: disk full, I/O error, device lost, stale generation
 *   cancelled  nobody wants it any more
 */
export const Outcome = { LOADED: 0, MISSING: 1, CORRUPT: 2, TIMED_OUT: 3, REFUSED: 4, CANCELLED: 5 } as const;
export type Outcome = (typeof Outcome)[keyof typeof Outcome];

export const outcomeNames = ['loaded', 'missing', 'corrupt', 'timedOut', 'refused', 'cancelled'] as const;
export type OutcomeName = (typeof outcomeNames)[number];
