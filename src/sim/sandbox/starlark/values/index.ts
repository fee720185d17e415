/** Values of a Starlark program and what can be done with them. Both engines compute by these functions. */

export { freeze } from './freezing.ts';
export {
  contains,
  FieldSite,
  getBareField,
  getField,
  getItem,
  getSlice,
  requireMutable,
  setItem,
  withKey,
} from './operations/access.ts';
export {
  add,
  addBare,
  bitwise,
  divide,
  divideNumbers,
  exact,
  floorDivide,
  invert,
  leftNumber,
  modulo,
  multiply,
  multiplyBare,
  negate,
  plus,
  quotient,
  rightNumber,
  subtract,
  subtractBare,
} from './operations/arithmetic.ts';
export { concatenate } from './operations/combining.ts';
export { compare, isEqual, spendSearch, spendText } from './operations/comparison.ts';
export { beginLoop, elementsOf, endLoop, unpack } from './operations/iteration.ts';
export { type FieldKind, RecordShape } from './record.ts';
export { floatText, repr, str } from './text.ts';
export { isTrue, typeName } from './typeName.ts';
export {
  MAX_VALUE_DEPTH,
  type NamedArguments,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarRange,
  StarRecord,
  StarTuple,
  type Value,
} from './value.ts';
