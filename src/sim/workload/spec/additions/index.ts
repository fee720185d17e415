/** What a client may have beyond upstream's keys: read, checked, written. */

export { type ReadAdditions, readAdditions } from './read.ts';
export {
  type AdditionsSpec,
  type BehaviorSpec,
  type ContextGrowth,
  type CorrelationSpec,
  END_STATE,
  type PrefixChoiceSpec,
  type WalkSpec,
  type WalkState,
} from './types.ts';
export { additionsOut } from './write.ts';
