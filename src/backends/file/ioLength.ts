/**
 * How long an I/O is where nobody awaits a part of it. Long ones cost the host least; but several at once keep the disk busy, and
 * what one has brought is digested while the others go on. So each takes a share of the bytes under way in its direction: a short
 * load goes in several short I/Os, a long one in a stream of long ones.
 */

/** So many I/Os hold what is under way, where they are neither as short nor as long as can be. */
const IOS_UNDER_WAY = 8;

/** In shortest I/Os. Longer writes gain nothing. */
const LONGEST = { read: 4, write: 2 } as const;

/**
 * Bytes of the next I/O, at most.
 * @param bytesUnderWay of all requests of that kind that have not ended, those of the I/O included
 * @param shortestBytes fewer are not worth an I/O of their own
 */
export function ioBytes(kind: 'read' | 'write', bytesUnderWay: number, shortestBytes: number): number {
  const share = Math.ceil(bytesUnderWay / IOS_UNDER_WAY);
  return Math.min(LONGEST[kind] * shortestBytes, Math.max(shortestBytes, share));
}
