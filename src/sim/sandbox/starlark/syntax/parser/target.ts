/** What may stand on the left of an assignment, and between "for" and "in". */

import { PolicyError } from '../../../policyError.ts';
import type { Expression } from '../ast.ts';

/** @throws PolicyError compile */
export function checkTarget(target: Expression): void {
  const { kind, line } = target;
  if (kind === 'tuple' || kind === 'list') {
    for (const element of target.elements) checkTarget(element);
  } else if (kind !== 'name' && kind !== 'index') {
    const remedy =
      kind === 'attribute'
        ? 'Fields are read-only; a dict has keys: d["name"] = 1'
        : 'Assign to a name, an index or a tuple of them';
    throw new PolicyError('compile', `nothing can be assigned to this. ${remedy}`, { line });
  }
}
