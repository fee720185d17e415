/**
 * SGLang's `dfs-weight`: waiting requests in the order of a walk through the tree of their cached prefixes.
 * Of the children of a node the one with the most waiting requests comes first, of equal ones the one that
 * was met first; requests whose cached part ends at a node come after those of its children.
 */

import { wordsPerKey } from '../../../runtime/keys/index.ts';
import { cachedBlocks, type SchedulingFacts } from '../../features/index.ts';

interface Cached {
  readonly row: number;
  readonly words: Uint32Array;
  readonly blocks: number;
}

/** Places in the walk, by request. */
export function dfsWeight(requests: readonly SchedulingFacts[]): number[] {
  const all = requests.map((facts, row): Cached => {
    return { row, words: facts.request.keys.words, blocks: cachedBlocks(facts) };
  });
  const ranks = requests.map(() => 0);
  let next = 0;
  const walk = (node: readonly Cached[], depth: number): void => {
    const deeper = node.filter(({ blocks }) => blocks > depth);
    const children = groupsAt(deeper, depth);
    if (children.length === 1 && deeper.length === node.length) {
      walk(node, endOfRun(node, depth));
      return;
    }
    for (const child of children) walk(child, depth + 1);
    for (const { row, blocks } of node) if (blocks === depth) ranks[row] = next++;
  };
  walk(all, 0);
  return ranks;
}

/** Requests that have the same block at that place together, the most first. */
function groupsAt(requests: readonly Cached[], depth: number): Cached[][] {
  const groups = new Map<string, Cached[]>();
  for (const request of requests) {
    const key = request.words.subarray(depth * wordsPerKey, (depth + 1) * wordsPerKey).join();
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [request]);
    else group.push(request);
  }
  return [...groups.values()].sort((a, b) => b.length - a.length);
}

/** The place behind `depth` at which one of the requests ends, or they first differ. */
function endOfRun(requests: readonly Cached[], depth: number): number {
  const [first] = requests;
  let end = depth + 1;
  const goesOn = ({ words, blocks }: Cached): boolean => {
    if (blocks === end) return false;
    for (let i = end * wordsPerKey; i < (end + 1) * wordsPerKey; i++) {
      if (words[i] !== first.words[i]) return false;
    }
    return true;
  };
  while (requests.every(goesOn)) end++;
  return end;
}
