/**
 * How much of a load goes at once where its stages overlap. Long parts are the most efficient, but when the first stage is done with
 * the last part, all of that part has still to pass the others, and they had nothing to do before the first one arrived. So parts
 * shrink with what is left, as in guided self-scheduling (Polychronopoulos and Kuck, "Guided Self-Scheduling: A Practical
 * Scheduling Scheme for Parallel Supercomputers", IEEE Transactions on Computers C-36(12), 1987):
 *
 *     |    part    |    part    |    part   |  part  | part | part | part |
 */

/** In how many parts at least the rest of a load goes. */
const PARTS = 16;
/** Shorter parts cost a disk more than their overlap brings. */
const PART_BYTES_MIN = 512 * 1024;

/**
 * Bytes of the next part.
 * @param leftBytes of the load, this part included
 * @param mostBytes of a part
 */
export function guidedBytes(leftBytes: number, mostBytes: number): number {
  return Math.min(mostBytes, Math.max(PART_BYTES_MIN, Math.ceil(leftBytes / PARTS)));
}
