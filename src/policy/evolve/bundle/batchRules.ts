/**
 * Rules by name that rank the requests of an instance between steps. Of the waiting requests the lowest rank joins the batch
 * first; of the running ones the highest gives way first. `describe` prints the line `about` of each.
 */

import { wordsPerKey } from '../../../runtime/keys/keyChain.ts';
import { SloPriorities } from '../../../sim/control/priority.ts';
import {
  cachedBlocks,
  dueUs,
  type EngineFacts,
  type SchedulingFacts,
  uncachedTokens,
} from '../features/scheduling.ts';

/** Ranks the requests, one number each. The numbers hold until the next call. */
export type RankAll = (requests: readonly SchedulingFacts[], instance: EngineFacts) => ArrayLike<number>;

interface RankingRule {
  readonly name: string;
  /** One line on what the rule ranks by. */
  readonly about: string;
  readonly rank: RankAll;
}

/** A rule that ranks each request by its own facts alone. */
export function eachBy(rank: (facts: SchedulingFacts) => number): RankAll {
  return (requests) => requests.map(rank);
}

//  SGLang's `dfs-weight`: waiting requests in the order of a walk through the tree of their cached prefixes.
// Of the children of a node the one with the most waiting requests comes first, of equal ones the one that
// was met first; requests whose cached part ends at a node come after those of its children.

interface Cached {
  readonly row: number;
  readonly words: Uint32Array;
  readonly blocks: number;
}

/** Place of each request in the walk. */
function dfsWeight(requests: readonly SchedulingFacts[]): number[] {
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

/** Requests in groups with the same block at `depth`, the largest group first. */
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

/** First place behind `depth` at which one of the requests ends or two differ. */
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

// The rules.

const classes = new SloPriorities();
/** Most waiting requests that SGLang ranks by prefix; more are taken in order of arrival. */
const LPM_WAITING_MOST = 128;

/** The longest cached prefix first. */
function longestPrefix(facts: SchedulingFacts): number {
  return facts.engine.waitingCount > LPM_WAITING_MOST ? 0 : -cachedBlocks(facts);
}

/** Smith's rule: tokens to compute over a weight of 1 + the priority of the class, if that is above 0. */
function weightedWork(facts: SchedulingFacts): number {
  return uncachedTokens(facts) / (1 + Math.max(0, classes.of(facts.request.sloClass)));
}

/**
 * Highest response ratio next: (wait + service) / service. With service in proportion to the tokens to
 * compute this is the order of wait / tokens.
 */
function responseRatio(facts: SchedulingFacts): number {
  return -(facts.nowUs - facts.request.arrivalUs) / uncachedTokens(facts);
}

/** Rules for waiting requests, as `make_batch` of a program. */
export const batchRules: readonly RankingRule[] = [
  {
    name: 'edf',
    about: 'the earliest due first: arrival and the time to the first token that it asks for',
    rank: eachBy(dueUs),
  },
  {
    name: 'least-uncached',
    about: 'the fewest tokens to compute first: known tokens less the tokens that HBM has',
    rank: eachBy(uncachedTokens),
  },
  {
    name: 'wspt',
    about:
      'the fewest tokens to compute first, divided by 1 + the priority of the class where that is above 0',
    rank: eachBy(weightedWork),
  },
  { name: 'hrrn', about: 'the longest wait for each token to compute first', rank: eachBy(responseRatio) },
  {
    name: 'lpm',
    about: 'the longest cached prefix first, in order of arrival while more than 128 wait',
    rank: eachBy(longestPrefix),
  },
  {
    name: 'dfs-weight',
    about: 'by a walk through the tree of cached prefixes, the most waited for first',
    rank: dfsWeight,
  },
];

/** Rules for running requests, as `select_preemption_victim` of a program. */
export const victimRules: readonly RankingRule[] = [
  {
    name: 'least-progress',
    about: 'the fewest computed tokens give way first',
    rank: eachBy(({ progress }) => -progress.computedTokens),
  },
];

/** The rule of that name; undefined for none. */
export function rankingRule(rules: readonly RankingRule[], name: unknown): RankingRule | undefined {
  return rules.find((rule) => rule.name === name);
}
