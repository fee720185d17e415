/** A bundle that was evaluated, with where it came from: a line of the lineage. */

import { type PolicyBundle, type PolicySpec, policySlots } from '../../bundle/policyBundle.ts';
import type { Evaluation, EvaluationError } from '../../fitness/evaluation.ts';
import { policyNodes } from '../../fitness/index.ts';

/** What made a bundle. */
export type Origin = 'preset' | 'crossing' | 'cma' | 'strategy' | 'variation' | 'pareto' | 'branch';

export interface Individual {
  /** Content hash of the bundle. */
  readonly id: string;
  readonly bundle: PolicyBundle;
  readonly generation: number;
  readonly origin: Origin;
  /** Ids of the bundles that it was made from. */
  readonly parents: readonly string[];
  /** What the search goes by: the lead over the best preset, mostly where it is smallest. */
  readonly score: number;
  /** Over the best preset of each setting; none where it failed. */
  readonly leads: Readonly<Record<string, number>>;
  /** Cases that it ran on; a race stops some before they have run on all. */
  readonly cases: number;
  /** Digest of its scores on the first rung, '' where it failed: those of one behaviour decide alike. */
  readonly behaviour: string;
  /** One found before that has the same behaviour. It was stopped then, and has the standing of that one. */
  readonly echoOf?: string;
  /** Mean gain over the baseline on these cases. */
  readonly gain: number;
  readonly objectives: readonly number[];
  readonly metrics: Readonly<Record<string, number>>;
  readonly error?: EvaluationError;
}

/** A bundle that waits for its evaluation. */
export interface Candidate {
  readonly bundle: PolicyBundle;
  readonly origin: Origin;
  readonly parents: readonly string[];
  /** What was changed, a line each. */
  readonly changes: readonly string[];
}

/** JSON keeps no infinities; a score that is none is the worst there is. */
function finite(value: number): number {
  return Number.isFinite(value) ? value : -Number.MAX_VALUE;
}

export function individualOf(
  { bundle, origin, parents }: Candidate,
  generation: number,
  { policyId, score: gain, objectives, metrics, error }: Evaluation,
  { score, leads, cases, behaviour }: Pick<Individual, 'score' | 'leads' | 'cases' | 'behaviour'>,
): Individual {
  return {
    id: policyId,
    bundle,
    generation,
    origin,
    parents,
    score: finite(score),
    leads,
    cases,
    behaviour,
    gain: finite(gain),
    objectives: objectives.map(finite),
    metrics: { ...metrics, policy_nodes: policyNodes(bundle) },
    ...(error === undefined ? {} : { error }),
  };
}

/** A candidate that decides as `known` does: another bundle with the standing of that one. */
export function echoOf(
  known: Individual,
  { bundle, origin, parents }: Candidate,
  generation: number,
  id: string,
): Individual {
  const metrics = { ...known.metrics, policy_nodes: policyNodes(bundle) };
  return { ...known, id, bundle, generation, origin, parents, metrics, echoOf: known.id };
}

/**
 * Text that is equal for bundles that decide alike. The order of weights counts, since some policies go by
 * it.
 */
export function contentKey(bundle: PolicyBundle): string {
  return JSON.stringify(policySlots.map((slot) => bundle[slot] ?? null));
}

/** Template, language, or `tree`; `-` for an empty slot. */
export function nameOfSpec(spec: PolicySpec | undefined): string {
  switch (spec?.type) {
    case undefined:
      return '-';
    case 'parameterized':
      return spec.template;
    case 'decisionTree':
      return 'tree';
    case 'code':
      return spec.language;
  }
}
