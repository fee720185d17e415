/** Globals of a module cannot change after it has run: no call can leave anything for the next. */

import { PolicyError } from '../../policyError.ts';
import { MAX_VALUE_DEPTH, StarDict, StarFunction, StarList, StarTuple, type Value } from './value.ts';

/** @throws PolicyError policy_runtime for values that nest too deep */
export function freeze(value: Value, depth = 0): void {
  if (value === null || typeof value !== 'object') return;
  if (depth > MAX_VALUE_DEPTH) {
    throw new PolicyError('policy_runtime', `a global nests deeper than ${MAX_VALUE_DEPTH} values`);
  }
  if (value instanceof StarList || value instanceof StarDict || value instanceof StarFunction) {
    if (value.isFrozen) return;
    value.isFrozen = true;
  }
  if (value instanceof StarList || value instanceof StarTuple) {
    for (const item of value.items) freeze(item, depth + 1);
  } else if (value instanceof StarDict) {
    for (const [key, item] of value.entries()) {
      freeze(key, depth + 1);
      freeze(item, depth + 1);
    }
  } else if (value instanceof StarFunction && value.held !== null) {
    for (const item of value.held()) if (item !== undefined) freeze(item, depth + 1);
  }
}
