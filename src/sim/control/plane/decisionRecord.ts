/** The record of a routing decision, from what a policy chose. */

import type { CandidateScore, RoutingDecision } from '../decisions.ts';
import { effectiveLoad } from '../instances.ts';
import type { RoutingChoice, RoutingContext } from '../routing/index.ts';

export type ChoiceRecord = Omit<
  RoutingDecision,
  'prefillInstance' | 'decodeInstance' | 'expectedBlocks' | 'couldTake'
>;

/** @param topK others that are kept; -1 leaves out scores as well */
export function recordOf(context: RoutingContext, choice: RoutingChoice, topK: number): ChoiceRecord {
  const chosen = context.candidates[choice.index];
  const base = { target: chosen.instance, reason: choice.reason };
  if (topK < 0) return { ...base, scores: [], filteredOut: choice.filteredOut, topKCandidates: [] };
  const scores = context.candidates.map((candidate, i): CandidateScore => {
    const scoreBreakdown: Record<string, number> = {};
    for (const part of choice.parts) scoreBreakdown[part.name] = part.weight * part.values[i];
    // a policy without scores is compared by load, as upstream's counterfactual analysis does
    const score = choice.scores === null ? -effectiveLoad(candidate) : choice.scores[i];
    return { instance: candidate.instance, id: candidate.id, score, scoreBreakdown };
  });
  const others = topK === 0 ? [] : scores.filter((_, i) => i !== choice.index);
  others.sort((a, b) => b.score - a.score || a.instance - b.instance);
  return { ...base, scores, filteredOut: choice.filteredOut, topKCandidates: others.slice(0, topK) };
}
