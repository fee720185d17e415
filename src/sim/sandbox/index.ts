/** Policies that are texts, run within budgets that are the same on every machine. */

export { type Budget, Meter } from './meter.ts';
export { PolicyError, type PolicyErrorFacts, type PolicyErrorKind, policyErrorKinds } from './policyError.ts';
export * from './starlark/index.ts';
