/** The name of a value's type, as `type(x)` gives it, and whether a value counts as true. */

import { StarDict, StarFloat, StarFunction, StarList, StarRange, StarTuple, type Value } from './value.ts';

export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'number') return 'int';
  if (typeof value === 'string') return 'string';
  if (value instanceof StarFloat) return 'float';
  if (value instanceof StarList) return 'list';
  if (value instanceof StarTuple) return 'tuple';
  if (value instanceof StarDict) return 'dict';
  if (value instanceof StarRange) return 'range';
  if (value instanceof StarFunction) return value.isBuiltin ? 'builtin_function_or_method' : 'function';
  return value.shape.name;
}

export function isTrue(value: Value): boolean {
  if (typeof value === 'boolean') return value;
  if (typeof value === 'number') return value !== 0;
  if (value === null || value === '') return false;
  if (typeof value === 'string') return true;
  if (value instanceof StarFloat) return value.value !== 0;
  if (value instanceof StarList || value instanceof StarTuple) return value.items.length > 0;
  if (value instanceof StarDict) return value.size > 0;
  if (value instanceof StarRange) return value.length > 0;
  return true;
}
