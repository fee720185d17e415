/**
 * Where the bytes of a slot lie. A pool is `pages` large pages of `pageBytes`; a page in use is cut into
 * slots of one size class. Slot numbers are fixed by the shape alone, so that the manager, every tier store
 * and the disk agree on them without talking:
 *
 *     slot = page * slotsPerPageMax + index          offset = page * pageBytes + index * slotBytes[sizeClass]
 *
 *      page 0 (class 0: 1 slot)        page 1 (class 1: 4 slots)          page 2 (not cut yet)
 *     +-----------------------------+-------+-------+-------+-------+-----------------------------+
 *     | slot 0                      | s 4   | s 5   | s 6   | s 7   |                             |
 *     +-----------------------------+-------+-------+-------+-------+-----------------------------+
 */

import { configError, invariant, requireInteger } from '../errors.ts';

export interface PoolShape {
  readonly pageBytes: number;
  readonly pages: number;
  /** Bytes of one slot, by size class. */
  readonly slotBytes: readonly number[];
  /** Slots that a page of each size class holds. */
  readonly slotsPerPage: readonly number[];
  readonly slotsPerPageMax: number;
  /** Slot numbers are below this. */
  readonly slotLimit: number;
  readonly capacityBytes: number;
}

/** @throws TKV_CONFIG when a size is not a positive integer or no slot of a class fits a page. */
export function poolShape(pages: number, pageBytes: number, slotBytes: readonly number[]): PoolShape {
  requireInteger('pages', pages, 0);
  requireInteger('pageBytes', pageBytes, 1);
  const slotsPerPage = slotBytes.map((bytes, sizeClass) => {
    requireInteger(`slotBytes[${sizeClass}]`, bytes, 1);
    if (bytes > pageBytes) {
      throw configError('pageBytes', `is ${pageBytes}, less than a slot of ${bytes}`, 'Raise pageBytes.');
    }
    return Math.floor(pageBytes / bytes);
  });
  if (slotsPerPage.length === 0) {
    throw configError('slotBytes', 'is empty', 'Name at least one slot size.');
  }
  const slotsPerPageMax = Math.max(...slotsPerPage);
  return {
    pageBytes,
    pages,
    slotBytes,
    slotsPerPage,
    slotsPerPageMax,
    slotLimit: pages * slotsPerPageMax,
    capacityBytes: pages * pageBytes,
  };
}

export function slotOffsetBytes(shape: PoolShape, slot: number, sizeClass: number): number {
  const index = slot % shape.slotsPerPageMax;
  const page = (slot - index) / shape.slotsPerPageMax;
  const inside = page < shape.pages && index < shape.slotsPerPage[sizeClass];
  invariant(inside, () => `slot ${slot} is outside its pool`);
  return page * shape.pageBytes + index * shape.slotBytes[sizeClass];
}
