/**
 * JavaScript for expressions. Nothing of a program's text gets into the code but strings, as JSON, and
 * numbers: variables become v<function>_<slot>, and every operation is a call of `surroundings.ts`.
 */

import { branchCost, type Comprehension, type Expression, type NameExpression } from '../../syntax/index.ts';
import type { CodeWriter } from './codeWriter.ts';
import { numberCode, orderCode, readCode, siteCode } from './numberCode.ts';
import { kindOf } from './numberKinds.ts';

const binaryCalls: Readonly<Record<string, string>> = {
  '+': 'add',
  '-': 'subtract',
  '*': 'multiply',
  '/': 'divide',
  '//': 'floorDivide',
  '%': 'modulo',
};

const unaryCalls = { '-': 'negate', '+': 'plus', '~': 'invert' } as const;

/** Code that yields the expression's value. */
export function valueCode(code: CodeWriter, expression: Expression): string {
  const { line } = expression;
  const value = (each: Expression): string => valueCode(code, each);
  if (expression.kind !== 'float' && kindOf(expression, code.floatSlots) === 'float') {
    return `new StarFloat(${numberCode(code, expression)})`;
  }
  switch (expression.kind) {
    case 'name':
      return nameCode(code, expression);
    case 'integer':
      return String(expression.value);
    case 'text':
      return JSON.stringify(expression.value);
    case 'float':
      return code.constant(`new StarFloat(${expression.value})`);
    case 'list':
    case 'tuple':
      return `${expression.kind}([${expression.elements.map(value).join(',')}],${line})`;
    case 'dict': {
      const { entries } = expression;
      const built = code.temporary();
      const sets = entries.map(([key, item]) => `withEntry(${built},${value(key)},${value(item)},${line})`);
      return `(${[`${built}=new StarDict()`, ...sets].join(',')},dict(${built},${entries.length},${line}))`;
    }
    case 'unary':
      if (expression.operator === 'not') return conditionCode(code, expression);
      return `${unaryCalls[expression.operator]}(${value(expression.operand)},${line})`;
    case 'binary':
      return binaryCode(code, expression);
    case 'logical': {
      const temporary = code.temporary();
      const left = `isTrue(${temporary}=${value(expression.left)})`;
      const right = branchCode(code, expression.right);
      return expression.operator === 'and'
        ? `(${left}?${right}:${temporary})`
        : `(${left}?${temporary}:${right})`;
    }
    case 'conditional': {
      const { condition, whenTrue, whenFalse } = expression;
      const isMet = conditionCode(code, condition);
      return `(${isMet}?${branchCode(code, whenTrue)}:${branchCode(code, whenFalse)})`;
    }
    case 'attribute':
      return `attribute(${value(expression.object)},${siteCode(code, expression)})`;
    case 'index':
      return `getItem(${value(expression.object)},${value(expression.index)},${line})`;
    case 'slice': {
      const bounds = [expression.start, expression.stop, expression.step];
      const values = bounds.map((bound) => (bound === null ? 'null' : value(bound)));
      return `getSlice(${value(expression.object)},${values.join(',')},${line})`;
    }
    case 'call':
      return callCode(code, expression);
    case 'lambda':
      return code.functionCode(expression.function);
    case 'comprehension':
      return comprehensionCode(code, expression);
  }
}

/** Code that yields whether the expression's value counts as true. */
export function conditionCode(code: CodeWriter, expression: Expression): string {
  if (expression.kind === 'unary' && expression.operator === 'not') {
    return `!${conditionCode(code, expression.operand)}`;
  }
  const isBoolean = expression.kind === 'binary' && /^(==|!=|<=?|>=?|in|not in)$/.test(expression.operator);
  const value = valueCode(code, expression);
  return isBoolean ? value : `isTrue(${value})`;
}

function branchCode(code: CodeWriter, part: Expression): string {
  return `(spend(${branchCost(part)},${part.line}),${valueCode(code, part)})`;
}

function nameCode(code: CodeWriter, { name, binding, line }: NameExpression): string {
  if (binding === null || binding.kind === 'builtin')
    return code.constant(`builtin(${JSON.stringify(name)})`);
  return readCode(code, name, binding, line);
}

function binaryCode(code: CodeWriter, expression: Extract<Expression, { kind: 'binary' }>): string {
  const { operator, line } = expression;
  if (/^[<>]=?$/.test(operator)) return comparisonCode(code, expression);
  const left = valueCode(code, expression.left);
  const right = valueCode(code, expression.right);
  const call = binaryCalls[operator];
  if (call !== undefined) return `${call}(${left},${right},${line})`;
  switch (operator) {
    case '==':
      return `isEqual(${left},${right},${line})`;
    case '!=':
      return `!isEqual(${left},${right},${line})`;
    case 'in':
      return `contains(${left},${right},${line})`;
    case 'not in':
      return `!contains(${left},${right},${line})`;
    default:
      return `bitwise(${JSON.stringify(operator)},${left},${right},${line})`;
  }
}

function comparisonCode(code: CodeWriter, expression: Extract<Expression, { kind: 'binary' }>): string {
  const { operator, left, right, line } = expression;
  switch (operator) {
    case '<':
      return orderCode(code, left, right, line);
    case '>=':
      return `!${orderCode(code, left, right, line)}`;
    case '>':
      return orderCode(code, right, left, line, true);
    default:
      return `!${orderCode(code, right, left, line, true)}`;
  }
}

function callCode(code: CodeWriter, expression: Extract<Expression, { kind: 'call' }>): string {
  const { callee, line, positional, named, rest, namedRest } = expression;
  const values = positional.map((each) => valueCode(code, each));
  const pairs = named.map(({ name, value }) => `[${JSON.stringify(name)},${valueCode(code, value)}]`);
  const isPlain = named.length === 0 && rest === null && namedRest === null;
  if (callee.kind !== 'attribute' && isPlain && (values.length === 1 || values.length === 2)) {
    const call = values.length === 1 ? 'callOne' : 'callTwo';
    return `${call}(${valueCode(code, callee)},${line},${values.join(',')})`;
  }
  const target = valueCode(code, callee.kind === 'attribute' ? callee.object : callee);
  const place = callee.kind === 'attribute' ? siteCode(code, callee) : String(line);
  const call = callee.kind === 'attribute' ? 'callMethod' : 'callNamed';
  if (rest === null && namedRest === null) {
    return `${call}(${target},${place},[${values.join(',')}],[${pairs.join(',')}])`;
  }
  // All arguments are computed before any of them is taken apart.
  const [t, p, n, r, m] = Array.from({ length: 5 }, () => code.temporary());
  const computed = [
    `${t}=${target}`,
    `${p}=[${values.join(',')}]`,
    `${n}=[${pairs.join(',')}]`,
    ...(rest === null ? [] : [`${r}=${valueCode(code, rest)}`]),
    ...(namedRest === null ? [] : [`${m}=${valueCode(code, namedRest)}`]),
    ...(rest === null ? [] : [`${p}=withRest(${p},${r},${line})`]),
    ...(namedRest === null ? [] : [`${n}=withNamedRest(${n},${m},${line})`]),
  ];
  return `(${computed.join(',')},${call}(${t},${place},${p},${n}))`;
}

function comprehensionCode(code: CodeWriter, { key, value, clauses, line }: Comprehension): string {
  const built = code.temporary();
  const item =
    key === null
      ? `collect(${built}.items,${branchCode(code, value)},${line});`
      : `collectEntry(${built},${branchCode(code, key)},${branchCode(code, value)},${line});`;
  const body = clauses.reduceRight((inner, clause, i) => {
    if (clause.kind === 'if') {
      const { condition } = clause;
      const isMet = conditionCode(code, condition);
      return `spend(${branchCost(condition)},${condition.line});if(${isMet}){${inner}}`;
    }
    const iterable = i === 0 ? valueCode(code, clause.iterable) : branchCode(code, clause.iterable);
    return code.loop(iterable, clause.target, clause.line, inner);
  }, item);
  const empty = key === null ? `list([],${line})` : `dict(new StarDict(),0,${line})`;
  return `(()=>{${built}=${empty};${body}return ${built}})()`;
}
