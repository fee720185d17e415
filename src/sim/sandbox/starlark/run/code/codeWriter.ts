/** What the code of an expression needs of the function in which it stands. */

import type { Binding, Expression, FunctionNode } from '../../syntax/index.ts';

export interface CodeWriter {
  /** Variables of the function that hold the bare numbers of floats. */
  readonly floatSlots: ReadonlySet<number>;
  /** The name of a constant of the program. */
  constant(code: string): string;
  /** The name of a variable for an intermediate value. */
  temporary(): string;
  variable(binding: Exclude<Binding, { kind: 'builtin' }>): string;
  /** Code that yields the expression's value. */
  value(expression: Expression): string;
  /** Code that yields whether the expression's value counts as true. */
  condition(expression: Expression): string;
  /** Code that makes a function. */
  functionCode(node: FunctionNode): string;
  /** A loop over the elements of what `iterable` yields. */
  loop(iterable: string, target: Expression, line: number, body: string): string;
}
