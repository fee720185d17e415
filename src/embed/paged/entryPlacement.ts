/** Where the blocks of a paged cache lie in HBM, and how they are moved: by a copy of a block onto itself. */

import { type BlockPlacement, Entry, type Sequence } from '../../runtime/index.ts';
import type { RequestContext } from '../requests/context.ts';

export class EntryPlacement implements BlockPlacement {
  readonly blocksPerPage: number;
  readonly #context: RequestContext;
  readonly #table: Sequence;
  readonly #sizeClass: number;

  constructor(context: RequestContext, table: Sequence, sizeClass: number) {
    this.#context = context;
    this.#table = table;
    this.#sizeClass = sizeClass;
    this.blocksPerPage = context.manager.pool(0).shape.slotsPerPage[sizeClass];
  }

  *movableBlocks(): Iterable<number> {
    for (let i = 0; i < this.#table.length; i++) if (this.#table.state[i] === Entry.OPEN) yield i;
  }

  pageOf(index: number): number {
    const { manager } = this.#context;
    const place = manager.readableBlock(this.#table, index);
    return place === undefined ? -1 : manager.pool(0).pageOf(place.slot);
  }

  takenOn(page: number): number {
    return this.#context.manager.pool(0).takenOn(page);
  }

  freeOnUsedPages(): number {
    return this.#context.manager.pool(0).freeOnCutPages(this.#sizeClass);
  }

  nextPage(): number {
    return this.#context.manager.pool(0).pageToTake(this.#sizeClass);
  }

  utilization(): number {
    const { takenSlots, uncutPages, shape } = this.#context.manager.pool(0);
    const places = (shape.pages - uncutPages) * this.blocksPerPage;
    return places === 0 ? 1 : takenSlots / places;
  }

  move(index: number): boolean {
    const { manager } = this.#context;
    return manager.copy(this.#table, index, this.#table, index, this.#context.nowUs());
  }
}
