/**
 * Blocks that are alike share a class, and a class learns how soon its blocks return. Classes form a tree, so
 * that a class with little data of its own leans on its parent:
 *
 *     root -> part of the request -> uses of the block -> pace of its chain -> new tokens of the request
 *        1               3                   18                 144                   864 classes
 */

export const CLASSES = 864;
export const NODES = 1030;
/** Node of class 0. A parent's number is lower than those of its children. */
export const FIRST_CLASS_NODE: number = NODES - CLASSES;

/** Which part of its last request a block was. */
export const Part = { LAST: 0, NEW: 1, KNOWN: 2 } as const;
export type Part = (typeof Part)[keyof typeof Part];

const USES = 6;
const PACES = 8;
const NEW_TOKENS = 6;

/**
 * @param uses requests that used the block
 * @param pace 0 for none, else the mean bucket of the chain's gaps, plus 1, times 8
 * @param newTokens tokens of the request that nobody knew
 */
export function classOf(part: Part, uses: number, pace: number, newTokens: number): number {
  return ((part * USES + usesLevel(uses)) * PACES + paceLevel(pace)) * NEW_TOKENS + newLevel(newTokens);
}

function usesLevel(uses: number): number {
  return uses < 3 ? (uses < 2 ? 0 : 1) : uses < 5 ? 2 : uses < 9 ? 3 : uses < 33 ? 4 : 5;
}

function paceLevel(pace: number): number {
  return pace === 0 ? 0 : Math.min(7, 1 + (pace >> 5));
}

function newLevel(tokens: number): number {
  return tokens < 513
    ? tokens < 65
      ? 0
      : 1
    : tokens < 2049
      ? 2
      : tokens < 8193
        ? 3
        : tokens < 32_769
          ? 4
          : 5;
}

/** Parent of each node; the root is its own. */
export const parentNode: Uint16Array = makeParents();

function makeParents(): Uint16Array {
  const parents = new Uint16Array(NODES);
  const widths = [1, 3, USES, PACES, NEW_TOKENS];
  let firstParent = 0;
  let first = 1;
  let count = 1;
  for (const width of widths.slice(1)) {
    for (let i = 0; i < count * width; i++) parents[first + i] = firstParent + Math.floor(i / width);
    firstParent = first;
    count *= width;
    first += count;
  }
  return parents;
}
