/** Candidates become individuals: what is known is not evaluated again, all else races. */

import type { PolicyBundle } from '../../bundle/policyBundle.ts';
import type { Evaluator } from '../../fitness/evaluation.ts';
import { type Candidate, contentKey, echoOf, type Individual, individualOf } from '../bundles/index.ts';
import { type Rung, race } from '../racing/index.ts';
import type { Book } from './book.ts';

export interface Answers {
  /** In the order of the candidates. */
  readonly individuals: readonly Individual[];
  /** How many were evaluated. */
  readonly evaluations: number;
}

/** The bundle with where it comes from. */
function labelled({ bundle, parents, changes }: Candidate, generation: number): PolicyBundle {
  const { name: _, ...unnamed } = bundle;
  const [parentId] = parents;
  return { ...unnamed, generation, ...(parentId === undefined ? {} : { parentId }), mutations: changes };
}

export async function answersTo(
  candidates: readonly Candidate[],
  generation: number,
  book: Book,
  rungs: readonly Rung[],
  evaluator: Evaluator,
  signal?: AbortSignal,
): Promise<Answers> {
  const keys = candidates.map(({ bundle }) => contentKey(bundle));
  const fresh = new Map<string, Candidate>();
  candidates.forEach((candidate, i) => {
    if (book.ofContent(keys[i]) !== undefined || fresh.has(keys[i])) return;
    fresh.set(keys[i], { ...candidate, bundle: labelled(candidate, generation) });
  });
  const asked = [...fresh.values()].map(({ bundle }) => bundle);
  const raced = await race(asked, rungs, evaluator, book.behaviours, signal);
  const answers = new Map<string, Individual>();
  /** The first of each behaviour that is new. */
  const firsts = new Map<string, Individual>();
  [...fresh].forEach(([key, candidate], i) => {
    const { evaluation, behaviour, isEcho } = raced[i];
    const known = isEcho ? (firsts.get(behaviour) ?? book.ofBehaviour(behaviour)) : undefined;
    const individual =
      known === undefined
        ? individualOf(candidate, generation, evaluation, raced[i])
        : echoOf(known, candidate, generation, evaluation.policyId);
    answers.set(key, individual);
    if (!isEcho) firsts.set(behaviour, individual);
  });
  const individuals = keys.map((key) => {
    const individual = answers.get(key) ?? book.ofContent(key);
    if (individual === undefined) throw new Error('a candidate has no answer');
    return individual;
  });
  return { individuals, evaluations: asked.length };
}
