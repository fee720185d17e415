/**
 * Which pages of the file have disk space. Under `whole` all have it from the start; under `extents` a page's
 * extent is allocated when a slot in it is first written. On a disk that has no room for a whole extent it
 * goes page by page, so that the last free space is used too.
 */

import { type DataFile, errnoOf, isFull } from './dataFile.ts';

/** Where the pages of a file lie. */
export interface PageRows {
  readonly startBytes: number;
  readonly strideBytes: number;
  readonly pages: number;
}

export class Extents {
  readonly #file: DataFile;
  readonly #rows: PageRows;
  readonly #pagesPerExtent: number;
  /** 1 for each page that has space; grows with the highest page touched. */
  #allocated: Uint8Array = new Uint8Array(0);
  readonly #inProgress: Map<number, Promise<void>> = new Map();
  #pages = 0;

  /** Begins with the space of `pages` pages set aside already. */
  constructor(file: DataFile, rows: PageRows, extentBytes: number, pages: number) {
    this.#file = file;
    this.#rows = rows;
    this.#pagesPerExtent = Math.max(1, Math.floor(extentBytes / rows.strideBytes));
    this.#note(0, pages);
  }

  /** Bytes of the file that have space. */
  get allocatedBytes(): number {
    return this.#rows.startBytes + this.#pages * this.#rows.strideBytes;
  }

  has(page: number): boolean {
    return this.#allocated[page] === 1;
  }

  /** Resolves once the page has space. @throws with the errno as `code`. */
  async ensure(page: number): Promise<void> {
    const extent = Math.floor(page / this.#pagesPerExtent);
    while (!this.has(page)) {
      const others = this.#inProgress.get(extent);
      if (others !== undefined) {
        await others.catch(() => {}); // whoever began it learns of its failure; this page tries for itself
        continue;
      }
      const attempt = this.#allocateExtentOf(page, extent).finally(() => this.#inProgress.delete(extent));
      this.#inProgress.set(extent, attempt);
      await attempt;
    }
  }

  async #allocateExtentOf(page: number, extent: number): Promise<void> {
    const first = extent * this.#pagesPerExtent;
    const pages = Math.min(this.#pagesPerExtent, this.#rows.pages - first);
    try {
      await this.#allocate(first, pages);
    } catch (error) {
      if (!isFull(errnoOf(error)) || pages === 1) throw error;
      await this.#allocate(page, 1);
    }
  }

  async #allocate(first: number, pages: number): Promise<void> {
    const { startBytes, strideBytes } = this.#rows;
    await this.#file.allocate(startBytes + first * strideBytes, pages * strideBytes);
    this.#note(first, pages);
  }

  #note(first: number, pages: number): void {
    if (first + pages > this.#allocated.length) {
      const grown = new Uint8Array(
        Math.min(this.#rows.pages, Math.max(first + pages, 2 * this.#allocated.length)),
      );
      grown.set(this.#allocated);
      this.#allocated = grown;
    }
    for (let page = first; page < first + pages; page++) {
      this.#pages += 1 - this.#allocated[page];
      this.#allocated[page] = 1;
    }
  }
}
