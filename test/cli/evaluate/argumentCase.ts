/** A case that arguments of `tierkv simulate` describe. */

import type { SuiteCase } from '../../../src/evolve/fitness/evaluation.ts';
import { askedBy, readWords } from '../../../src/simulate/optionTable.ts';
import { descriptionOf } from '../../../src/simulate/spec.ts';

export function argumentCase(args: readonly string[], id: string = 'a'): SuiteCase {
  return { id, deployment: descriptionOf(askedBy(readWords(args))), seed: 1, perturbation: 0 };
}
