/** Blocks that kernels may use: loaded, open or being sealed. */

import { Entry, type Sequence } from '../../runtime/index.ts';

/** The leading blocks that are in place. */
export function placedBlocks(table: Sequence): number {
  let placed = 0;
  while (placed < table.length && isPlaced(table.state[placed])) placed++;
  return placed;
}

function isPlaced(state: number): boolean {
  return state === Entry.READY || state === Entry.OPEN || state === Entry.SEALING;
}
