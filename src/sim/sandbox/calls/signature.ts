/**
 * What a host asks of a policy: the name of the function, the inputs it gets, and the decision it makes. The
 * same signature serves every language; each language says how a function of that signature looks in it.
 */

import { configError } from '../../../runtime/errors.ts';

/** `int` and `float` are numbers, `bool` is 0 or 1 in the table and a truth value in the program. */
export type FeatureKind = 'int' | 'float' | 'bool' | 'text';

export interface InputShape {
  readonly name: string;
  /** One record, or a list of any number of records. */
  readonly kind: 'record' | 'records';
  /** Fields in the order in which they stand in a row. */
  readonly fields: Readonly<Record<string, FeatureKind>>;
}

/**
 * - `none`: the function only observes.
 * - `number`: a number that is not NaN.
 * - `index`: the place of a record in the input `of`, from 0.
 * - `numbers`: a number that is not NaN for each record of the input `of`.
 * - `choice`: one of `names`; those in `withAmount` come with a number that is not NaN.
 */
export type DecisionShape =
  | { readonly kind: 'none' }
  | { readonly kind: 'number' }
  | { readonly kind: 'index'; readonly of: string }
  | { readonly kind: 'numbers'; readonly of: string }
  | { readonly kind: 'choice'; readonly names: readonly string[]; readonly withAmount: readonly string[] };

export interface Signature {
  /** Of the function, as it is written in the program. */
  readonly name: string;
  readonly inputs: readonly InputShape[];
  readonly decision: DecisionShape;
}

/** The place of the input that the decision is about, -1 where it is about none. */
export function decidedInput({ inputs, decision }: Signature): number {
  if (decision.kind !== 'index' && decision.kind !== 'numbers') return -1;
  return inputs.findIndex(({ name, kind }) => name === decision.of && kind === 'records');
}

/** Whether a text can mean a field by its name; where it may ask for fields by other texts, it always can. */
export function mentions(source: string, field: string): boolean {
  return new RegExp(`\\b${field}\\b`).test(source) || /\bgetattr\b/.test(source);
}

/** @throws TKV_CONFIG for a signature that no program could have */
export function requireSignature(signature: Signature): void {
  const { name, inputs, decision } = signature;
  for (const input of inputs) {
    if (Object.keys(input.fields).length > 0) continue;
    throw configError(`${name}.${input.name}`, 'has no fields', 'Name at least one field.');
  }
  const isAbout = decision.kind === 'index' || decision.kind === 'numbers';
  if (isAbout && decidedInput(signature) < 0) {
    throw configError(`${name}.decision`, `is about ${decision.of}, no list of records`, 'Name an input.');
  }
}
