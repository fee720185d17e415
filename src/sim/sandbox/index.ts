/** Policies that are texts, run within budgets that are the same on every machine. */

export * from './calls/index.ts';
export { loadProgram } from './loadProgram.ts';
export { type Budget, Meter } from './meter.ts';
export { PolicyError, type PolicyErrorFacts, type PolicyErrorKind, policyErrorKinds } from './policyError.ts';
export {
  type PolicyFunction,
  type PolicyInstance,
  type PolicyLanguage,
  type PolicyProgram,
  policyLanguages,
} from './program.ts';
export * from './starlark/index.ts';
export { textHash } from './wasm/index.ts';
