/**
 * The page size of a pool that holds slots of several sizes. Every page is cut into slots of one size, so a
 * page size that each slot size divides wastes nothing: the least common multiple, when it is small enough to
 * be a page. When it is not, the smallest page of which no size wastes more than a stated share. (Pages at
 * the least common multiple are the idea of Jenga, arXiv 2503.18292; the bounded fallback is ours.)
 */

import { configError, requireInteger } from '../errors.ts';
import { optionNames, requireArray, requireOptions } from '../options.ts';

export interface PageSizeOptions {
  /** The page is a multiple of this. 4096 suits direct I/O and any WebGPU binding offset. */
  readonly alignmentBytes?: number;
  /**
   * The largest share of a page, in (0, 1), that may be left over when it is cut into slots of any one size.
   */
  readonly maxWasteShare?: number;
  /** The least common multiple is taken up to this size: 8 times the largest unit when absent. */
  readonly lcmLimitBytes?: number;
  /** No page may be larger: unlimited when absent. */
  readonly maxPageBytes?: number;
}

export const pageSizeOptionsNames: readonly string[] = optionNames<PageSizeOptions>({
  alignmentBytes: true,
  maxWasteShare: true,
  lcmLimitBytes: true,
  maxPageBytes: true,
});

export interface PageSize {
  readonly pageBytes: number;
  /** Slots of each size that one page holds. */
  readonly slotsPerPage: readonly number[];
  /** Share of a page that no slot of each size uses. */
  readonly wasteShare: readonly number[];
}

/**
 * Sizes are taken as they are: round them up first where a tier wants its slots aligned.
 * @throws TKV_CONFIG naming the size that is not a positive integer, or `maxPageBytes` when no page is small
 * enough.
 */
export function choosePageBytes(unitBytes: readonly number[], options: PageSizeOptions = {}): PageSize {
  requireArray(unitBytes, 'unitBytes', 'Name the sizes of units in bytes.', 'TKV_CONFIG');
  requireOptions(options, pageSizeOptionsNames, 'options', 'TKV_CONFIG');
  const { alignmentBytes = 4096, maxWasteShare = 0.03, maxPageBytes = Number.MAX_SAFE_INTEGER } = options;
  if (unitBytes.length === 0) {
    throw configError('unitBytes', 'is empty', 'Name at least one unit size.');
  }
  for (const [i, bytes] of unitBytes.entries()) requireInteger(`unitBytes[${i}]`, bytes, 1, 2 ** 40);
  requireInteger('alignmentBytes', alignmentBytes, 1, 2 ** 30);
  requireInteger('maxPageBytes', maxPageBytes, 1);
  if (!(maxWasteShare >= 1e-4 && maxWasteShare < 1)) {
    throw configError(
      'maxWasteShare',
      `is ${maxWasteShare}, outside [0.0001, 1)`,
      'Set it to a share such as 0.03.',
    );
  }
  const largestBytes = Math.max(...unitBytes);
  const lcmLimitBytes = options.lcmLimitBytes ?? alignUp(8 * largestBytes, alignmentBytes);
  requireInteger('lcmLimitBytes', lcmLimitBytes, 1);

  const pageBytes =
    commonMultiple([alignmentBytes, ...unitBytes], Math.min(lcmLimitBytes, maxPageBytes)) ??
    smallestPage(unitBytes, alignmentBytes, maxWasteShare);
  if (pageBytes > maxPageBytes) {
    throw configError(
      'maxPageBytes',
      `is ${maxPageBytes}, but ${pageBytes} is the smallest page that wastes at most ` +
        `${maxWasteShare} on every size`,
      'Raise maxPageBytes or maxWasteShare, or choose unit sizes that divide each other.',
    );
  }
  return {
    pageBytes,
    slotsPerPage: unitBytes.map((bytes) => Math.floor(pageBytes / bytes)),
    wasteShare: unitBytes.map((bytes) => (pageBytes % bytes) / pageBytes),
  };
}

/** The least common multiple of `sizes`, or undefined when it is above `limit`. */
function commonMultiple(sizes: readonly number[], limit: number): number | undefined {
  let multiple = 1;
  for (const size of sizes) {
    multiple = (multiple / greatestCommonDivisor(multiple, size)) * size;
    if (multiple > limit) return undefined;
  }
  return multiple;
}

/**
 * The smallest multiple of the alignment that wastes at most `share` on every size. A page of `n` slots and a
 * rest wastes too much until the rest grows into slot n + 1, so the search jumps there. It ends at the latest
 * where the page is 1 / share times the largest size.
 */
function smallestPage(sizes: readonly number[], alignment: number, share: number): number {
  let page = alignUp(Math.max(...sizes), alignment);
  for (let fitting = 0, i = 0; fitting < sizes.length; i = (i + 1) % sizes.length) {
    const size = sizes[i];
    const rest = page % size;
    if (rest <= share * page) {
      fitting++;
    } else {
      page = alignUp(page - rest + size, alignment);
      fitting = 0;
    }
  }
  return page;
}

function alignUp(bytes: number, alignment: number): number {
  return Math.ceil(bytes / alignment) * alignment;
}

function greatestCommonDivisor(a: number, b: number): number {
  let [larger, smaller] = [a, b];
  while (smaller !== 0) [larger, smaller] = [smaller, larger % smaller];
  return larger;
}
