/**
 * Rules by name that rank requests between steps: the lowest joins the batch first, the highest gives way.
 */

import { SloPriorities } from '../../../sim/control/index.ts';
import type { BatchRule, VictimRule } from '../../bundle/index.ts';
import { cachedBlocks, dueUs, type SchedulingFacts, uncachedTokens } from '../../features/index.ts';
import type { RankAll } from '../schedulingEngine.ts';
import { dfsWeight } from './dfsWeight.ts';

const classes = new SloPriorities();
/** With more that wait, SGLang takes them as they came. */
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
 * compute the order is that of wait / tokens.
 */
function responseRatio(facts: SchedulingFacts): number {
  return -(facts.nowUs - facts.request.arrivalUs) / uncachedTokens(facts);
}

function eachBy(rank: (facts: SchedulingFacts) => number): RankAll {
  return (requests) => requests.map(rank);
}

export const batchRules: Readonly<Record<BatchRule, RankAll>> = {
  edf: eachBy(dueUs),
  'least-uncached': eachBy(uncachedTokens),
  wspt: eachBy(weightedWork),
  hrrn: eachBy(responseRatio),
  lpm: eachBy(longestPrefix),
  'dfs-weight': dfsWeight,
};

export const victimRules: Readonly<Record<VictimRule, RankAll>> = {
  'least-progress': eachBy(({ progress }) => -progress.computedTokens),
};
