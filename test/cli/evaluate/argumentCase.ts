/** A case that arguments of `tierkv simulate` describe. */

import type { SuiteCase } from '../../../src/policy/evolve/fitness/evaluation.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';

export function argumentCase(args: readonly string[], id: string = 'a'): SuiteCase {
  return { id, deployment: askedBy(readWords(args)).deployment, seed: 1, perturbation: 0 };
}
