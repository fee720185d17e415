/**
 * Emptying pages that are sparsely used: their blocks go onto fuller ones, by copy jobs. A page is a source
 * if everything on it can be moved and finds room on pages in use that are no sources, so each page that is
 * begun comes free when its copies have ended. The sparsest page goes first: it costs the fewest copies.
 */

import type { BlockPlacement } from './pagedAttentionCache.ts';

export interface Compaction {
  /** Copies that were started. */
  readonly movedBlocks: number;
  /** Pages that are free once these have ended. */
  readonly freedPages: number;
}

export function compact(placement: BlockPlacement): Compaction {
  const { blocksPerPage } = placement;
  const emptied = new Set<number>();
  let room = placement.freeOnUsedPages();
  let movedBlocks = 0;
  let freedPages = 0;
  for (const [page, blocks] of sources(placement)) {
    const others = room - (blocksPerPage - blocks.length);
    if (blocks.length > others) break; // no page behind it has fewer blocks
    const moved = emptyPage(placement, page, blocks, emptied);
    movedBlocks += moved;
    if (moved < blocks.length) continue;
    emptied.add(page);
    freedPages++;
    room = others - moved;
  }
  return { movedBlocks, freedPages };
}

/** Pages on which nothing but movable blocks lies, with room beside them; the sparsest first. */
function sources(placement: BlockPlacement): [page: number, blocks: number[]][] {
  const byPage = new Map<number, number[]>();
  for (const index of placement.movableBlocks()) {
    const page = placement.pageOf(index);
    const blocks = byPage.get(page);
    if (blocks === undefined) byPage.set(page, [index]);
    else blocks.push(index);
  }
  return [...byPage]
    .filter(([page, { length }]) => length === placement.takenOn(page) && length < placement.blocksPerPage)
    .sort(([pageA, a], [pageB, b]) => a.length - b.length || pageB - pageA);
}

function emptyPage(
  placement: BlockPlacement,
  page: number,
  blocks: readonly number[],
  emptied: ReadonlySet<number>,
): number {
  let moved = 0;
  for (const index of blocks) {
    const target = placement.nextPage();
    if (target === -1 || target === page || emptied.has(target) || !placement.move(index)) break;
    moved++;
  }
  return moved;
}
