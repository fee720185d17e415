/**
 * JavaScript for numbers that need no object. `numberCode` is for expressions that are floats whatever
 * happens; `bareCode` is for operands of which only the number counts, be it an int's or a float's.
 *
 * Operands are computed in their order, and refused only when all are there, as the operators on values do
 * it.
 */

import { type BinaryOperator, type Binding, branchCost, type Expression } from '../../syntax/index.ts';
import type { CodeWriter } from './codeWriter.ts';
import { kindOf, type NumberKind } from './numberKinds.ts';

type Binary = Extract<Expression, { kind: 'binary' }>;

/** The number of an expression whose kind is `float`. */
export function numberCode(code: CodeWriter, expression: Expression): string {
  switch (expression.kind) {
    case 'float':
      return String(expression.value);
    case 'name': {
      const { name, binding, line } = expression;
      if (binding === null || binding.kind === 'builtin') break;
      return readCode(code, name, binding, line);
    }
    case 'unary':
      return `(-${numberCode(code, expression.operand)})`;
    case 'conditional': {
      const { condition, whenTrue, whenFalse } = expression;
      const [met, unmet] = [whenTrue, whenFalse].map((part) => {
        return `(spend(${branchCost(part)},${part.line}),${numberCode(code, part)})`;
      });
      return `(${code.condition(condition)}?${met}:${unmet})`;
    }
    case 'binary':
      return arithmeticCode(code, expression);
  }
  throw new Error(`invariant broken: a ${expression.kind} is taken for a float`);
}

/** What a variable holds, which has to have a value already. */
export function readCode(
  code: CodeWriter,
  name: string,
  binding: Exclude<Binding, { kind: 'builtin' }>,
  line: number,
): string {
  const variable = code.variable(binding);
  if (binding.kind === 'local' && binding.isCertain) return variable;
  return `checked(${variable},${JSON.stringify(name)},${line})`;
}

/** The place of a field in the program, as a constant. */
export function siteCode(
  code: CodeWriter,
  { name, line }: { readonly name: string; readonly line: number },
): string {
  return code.constant(`new FieldSite(${JSON.stringify(name)},${line})`);
}

/** @param expression a division, or one of + - * with a float on one side */
function arithmeticCode(code: CodeWriter, { operator, left, right, line }: Binary): string {
  const kinds = [kindOf(left, code.floatSlots), kindOf(right, code.floatSlots)] as const;
  const sign = JSON.stringify(operator);
  if (kinds[0] === 'any' && kinds[1] === 'any') {
    return `quotient(${code.value(left)},${code.value(right)},${line})`;
  }
  if (kinds[1] === 'any') {
    const number = `rightNumber(${bareCode(code, right)},${sign},${sample(kinds[0])},${line})`;
    return applied(operator, knownCode(code, left), number, line);
  }
  if (kinds[0] === 'any') {
    const [a, b] = [code.temporary(), code.temporary()];
    const number = `leftNumber(${a},${sign},${sample(kinds[1])},${line})`;
    const operands = `${a}=${bareCode(code, left)},${b}=${knownCode(code, right)}`;
    return `(${operands},${applied(operator, number, b, line)})`;
  }
  return applied(operator, knownCode(code, left), knownCode(code, right), line);
}

function applied(operator: BinaryOperator, a: string, b: string, line: number): string {
  return operator === '/' ? `divideNumbers(${a},${b},${line})` : `(${a}${operator}${b})`;
}

/** A value of the kind, for the text of an error. */
function sample(kind: NumberKind): string {
  return kind === 'int' ? 'anInt' : 'aFloat';
}

/** The number of an int that stands in the text, or of a float. */
function knownCode(code: CodeWriter, expression: Expression): string {
  return expression.kind === 'integer' ? String(expression.value) : numberCode(code, expression);
}

const bareCalls: Readonly<Record<string, string>> = {
  '+': 'addBare',
  '-': 'subtractBare',
  '*': 'multiplyBare',
};

/** A number, or a value that is none or whose number the operation takes itself. */
function bareCode(code: CodeWriter, expression: Expression): string {
  if (expression.kind === 'attribute') {
    return `bareAttribute(${code.value(expression.object)},${siteCode(code, expression)})`;
  }
  if (expression.kind === 'binary' && expression.operator in bareCalls) {
    const { operator, left, right, line } = expression;
    return `${bareCalls[operator]}(${code.value(left)},${code.value(right)},${line})`;
  }
  return code.value(expression);
}

/** Whether one value is less than another one. @param isMoreFirst whether the second is computed first */
export function orderCode(
  code: CodeWriter,
  less: Expression,
  more: Expression,
  line: number,
  isMoreFirst = false,
): string {
  const [a, b] = [operandCode(code, less), operandCode(code, more)];
  const first = isMoreFirst ? code.temporary() : '';
  const right = isMoreFirst ? first : b.value;
  const call =
    a.kind === 'null' && b.kind === 'null'
      ? `isLess(${a.value},${right},${line})`
      : `isLessBare(${a.value},${a.kind},${right},${b.kind},${line})`;
  return isMoreFirst ? `(${first}=${b.value},${call})` : call;
}

/** An operand of a comparison as a bare number, and what says whether it is a float's. */
function operandCode(code: CodeWriter, expression: Expression): { value: string; kind: string } {
  if (kindOf(expression, code.floatSlots) === 'float') {
    return { value: numberCode(code, expression), kind: 'isFloat' };
  }
  if (expression.kind !== 'attribute') return { value: code.value(expression), kind: 'null' };
  const site = siteCode(code, expression);
  return { value: `bareAttribute(${code.value(expression.object)},${site})`, kind: site };
}
