/** What a host and a program say to each other, whatever the language. */

export {
  invalidDecision,
  quoted,
  requireChoice,
  requireChoicePlace,
  requireIndex,
  requireNumber,
  SCALARS,
} from './decision.ts';
export { InputTable } from './inputTable.ts';
export {
  type DecisionShape,
  decidedInput,
  type FeatureKind,
  type InputShape,
  mentions,
  requireSignature,
  type Signature,
} from './signature.ts';
