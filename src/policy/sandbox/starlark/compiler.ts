/**
 * A resolved Starlark program as JavaScript.
 *
 * Nothing of a program's text gets into the code but strings, as JSON, and numbers. Variables become
 * v<function>_<slot>, and every operation calls a function that `thread.ts` provides. Results, errors,
 * steps and memory are the same as if the tree were walked; an interpreter in the tests holds it to that.
 */

import type {
  BinaryOperator,
  Binding,
  Comprehension,
  Expression,
  FunctionNode,
  NameExpression,
  Statement,
} from './ast.ts';
import { branchCost, childrenOf } from './resolver.ts';
import { surroundings, type Thread } from './thread.ts';
import type { Value } from './value.ts';

// The part of the enclosing function that the code of an expression needs.

interface CodeWriter {
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

// A program as JavaScript: faster than walking its tree, with the same results and steps.

export interface CompiledProgram {
  /** Runs the module on a thread and returns its variables. */
  run(thread: Thread): readonly (Value | undefined)[];
}

export function compileModule(module: FunctionNode): CompiledProgram {
  const constants = new Constants();
  const code = new FunctionCode(module, null, constants).moduleCode();
  const { nodes } = constants;
  return {
    run(thread) {
      const names = surroundings(thread);
      const text = `"use strict";\n${constants.declarations()}\n${code}`;
      const run = new Function('nodes', ...Object.keys(names), text);
      return run(nodes, ...Object.values(names));
    },
  };
}

// JavaScript for expressions. Nothing of a program's text gets into the code but strings, as JSON, and
// numbers: variables become v<function>_<slot>, and every operation is a call of a function of `thread.ts`.

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
function valueCode(code: CodeWriter, expression: Expression): string {
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
function conditionCode(code: CodeWriter, expression: Expression): string {
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

// JavaScript for functions and statements. One `FunctionCode` writes one function; it knows the functions
// around it, whose variables the new function sees as closures do.

/** Constants of a program, made once when it is loaded. */
class Constants {
  readonly #codes: string[] = [];
  readonly nodes: FunctionNode[] = [];

  add(code: string): string {
    this.#codes.push(code);
    return `k${this.#codes.length - 1}`;
  }

  declarations(): string {
    return this.#codes.map((code, i) => `const k${i}=${code};`).join('\n');
  }
}

class FunctionCode implements CodeWriter {
  readonly #node: FunctionNode;
  readonly #outer: FunctionCode | null;
  readonly #constants: Constants;
  readonly floatSlots: ReadonlySet<number>;
  /** Values that loops run over, the innermost last. */
  readonly #loops: string[] = [];
  #temporaries = 0;
  #comprehensions = 0;

  constructor(node: FunctionNode, outer: FunctionCode | null, constants: Constants) {
    this.#node = node;
    this.#outer = outer;
    this.#constants = constants;
    // globals are seen by all functions
    this.floatSlots = outer === null ? new Set() : floatSlotsOf(node);
    constants.nodes[node.id] = node;
  }

  constant(code: string): string {
    return this.#constants.add(code);
  }

  /** A variable of the JavaScript function that holds an intermediate value. */
  temporary(): string {
    return `t${this.#node.id}_${this.#temporaries++}`;
  }

  value(expression: Expression): string {
    return valueCode(this, expression);
  }

  condition(expression: Expression): string {
    return conditionCode(this, expression);
  }

  variable(binding: Exclude<Binding, { kind: 'builtin' }>): string {
    let owner: FunctionCode = this;
    if (binding.kind === 'global') return `v0_${binding.slot}`;
    for (let i = 0; i < binding.depth && owner.#outer !== null; i++) owner = owner.#outer;
    return `v${owner.#node.id}_${binding.slot}`;
  }

  /** Statements of the module, ending with its variables in an array. */
  moduleCode(): string {
    const body = this.#block(this.#node.body);
    const variables = this.#node.slots.map((_, slot) => `v0_${slot}`);
    return `${this.#declarations(0)}enter(nodes[0]);${body}leave(nodes[0]);return [${variables.join(',')}];`;
  }

  /** An expression that makes a function of the program. */
  functionCode(node: FunctionNode): string {
    const inner = new FunctionCode(node, this, this.#constants);
    const parameterCount =
      node.parameters.length + Number(node.rest !== null) + Number(node.namedRest !== null);
    const parameters = Array.from({ length: parameterCount }, (_, slot) => `v${node.id}_${slot}`);
    const defaults = node.parameters.map((each) =>
      each.default === null ? 'undefined' : valueCode(this, each.default),
    );
    const name = `nodes[${node.id}]`;
    const body = inner.#block(node.body);
    const declarations = inner.#declarations(parameterCount);
    const statements = `${declarations}enter(${name});${body}leave(${name});return null;`;
    const arrow = `(${parameters.join(',')})=>{${statements}}`;
    const captured = node.captures.map(({ slot, depth }) =>
      this.variable({ kind: 'local', slot, depth: depth - 1, isCertain: false }),
    );
    return `define(${name},[${defaults.join(',')}],${arrow},()=>[${captured.join(',')}])`;
  }

  #declarations(firstSlot: number): string {
    const { id, slots } = this.#node;
    const names = [
      ...slots.slice(firstSlot).map((_, i) => `v${id}_${firstSlot + i}`),
      ...Array.from({ length: this.#temporaries }, (_, i) => `t${id}_${i}`),
    ];
    return names.length === 0 ? '' : `let ${names.join(',')};`;
  }

  #block(statements: readonly Statement[]): string {
    return statements.map((statement) => this.#charge(statement) + this.#statement(statement)).join('\n');
  }

  #charge({ charge, line }: Statement): string {
    return charge === 0 ? '' : `if((meter.steps-=${charge})<0)meter.outOfSteps(${line});`;
  }

  #statement(statement: Statement): string {
    const { line } = statement;
    switch (statement.kind) {
      case 'expression':
        return `${valueCode(this, statement.value)};`;
      case 'assign':
        return (
          this.#ofFloat(statement.target, statement.value) ??
          this.#assignment(statement.target, valueCode(this, statement.value))
        );
      case 'augment':
        return this.#augmented(statement);
      case 'if': {
        const otherwise = statement.else.length === 0 ? '' : `else{${this.#block(statement.else)}}`;
        return `if(${conditionCode(this, statement.condition)}){${this.#block(statement.then)}}${otherwise}`;
      }
      case 'for': {
        const iterable = valueCode(this, statement.iterable);
        return this.loop(iterable, statement.target, line, () => this.#block(statement.body));
      }
      case 'def':
        return this.#assignment(statement.target, this.functionCode(statement.function));
      case 'return':
        return this.#return(statement.value);
      case 'break':
      case 'continue':
        return `${statement.kind};`;
      case 'pass':
        return '';
    }
  }

  #return(value: Expression | null): string {
    const result = this.temporary();
    const loops = this.#loops.map((each) => `endLoop(${each});`).join('');
    const leave = `${loops}leave(nodes[${this.#node.id}]);`;
    if (value === null) return `${leave}return null;`;
    return `${result}=${valueCode(this, value)};${leave}return ${result};`;
  }

  /** A loop over the elements of what `iterable` yields. Statements of the body may leave the function. */
  loop(iterable: string, target: Expression, line: number, body: string | (() => string)): string {
    const over = this.temporary();
    const items = this.temporary();
    const index = `i${this.#comprehensions++}`;
    if (typeof body === 'function') this.#loops.push(over);
    const inner = typeof body === 'function' ? body() : body;
    if (typeof body === 'function') this.#loops.pop();
    return (
      `${over}=${iterable};${items}=elementsOf(${over},${line});beginLoop(${over});` +
      `for(let ${index}=0;${index}<${items}.length;${index}++){spend(1,${line});` +
      `${this.#assignment(target, `${items}[${index}]`)}${inner}}endLoop(${over});`
    );
  }

  #assignment(target: Expression, value: string): string {
    if (target.kind === 'name') {
      if (target.binding === null || target.binding.kind === 'builtin') return '';
      return `${this.variable(target.binding)}=${value};`;
    }
    const held = this.temporary();
    if (target.kind === 'index') {
      const object = valueCode(this, target.object);
      return `${held}=${value};setItem(${object},${valueCode(this, target.index)},${held},${target.line});`;
    }
    if (target.kind !== 'tuple' && target.kind !== 'list') return '';
    const parts = target.elements.map((element, i) => this.#assignment(element, `${held}[${i}]`));
    return `${held}=unpack(${value},${target.elements.length},${target.line});${parts.join('')}`;
  }

  /** An assignment to a variable that holds bare numbers; null for any other target. */
  #ofFloat(target: Expression, value: Expression): string | null {
    if (target.kind !== 'name' || target.binding?.kind !== 'local') return null;
    if (!this.floatSlots.has(target.binding.slot)) return null;
    return `${this.variable(target.binding)}=${numberCode(this, value)};`;
  }

  #augmented(statement: Extract<Statement, { kind: 'augment' }>): string {
    const { target, operator, line } = statement;
    const result = { kind: 'binary', operator, left: target, right: statement.value, line } as const;
    const ofFloat = this.#ofFloat(target, result);
    if (ofFloat !== null) return ofFloat;
    const value = valueCode(this, statement.value);
    const sign = JSON.stringify(operator);
    if (target.kind !== 'index') {
      return this.#assignment(target, `augment(${sign},${valueCode(this, target)},${value},${line})`);
    }
    const [object, index] = [this.temporary(), this.temporary()];
    const before = `getItem(${object},${index},${target.line})`;
    const place = `${object}=${valueCode(this, target.object)};${index}=${valueCode(this, target.index)};`;
    return `${place}setItem(${object},${index},augment(${sign},${before},${value},${line}),${target.line});`;
  }
}

// JavaScript for numbers that need no object. `numberCode` is for expressions that are floats whatever
// happens; `bareCode` is for operands of which only the number counts, be it an int's or a float's.
//
// Operands are computed in their order, and refused only when all are there, as the operators on values do
// it.

type BinaryOperation = Extract<Expression, { kind: 'binary' }>;

/** The number of an expression whose kind is `float`. */
function numberCode(code: CodeWriter, expression: Expression): string {
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

/** Code that reads a variable, which must have a value already. */
function readCode(
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
function siteCode(
  code: CodeWriter,
  { name, line }: { readonly name: string; readonly line: number },
): string {
  return code.constant(`new FieldSite(${JSON.stringify(name)},${line})`);
}

/** @param expression a division, or one of + - * with a float on one side */
function arithmeticCode(code: CodeWriter, { operator, left, right, line }: BinaryOperation): string {
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

/** Code for an operand: a bare number, or a value whose number the operation takes itself or refuses. */
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
function orderCode(
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

// Kinds of numbers that a program's text proves: expressions that always give a float or an error.
// Compiled code computes these without making an object of each float.

type NumberKind = 'float' | 'int' | 'any';

/** @param floatSlots variables of the function that hold floats only */
function kindOf(expression: Expression, floatSlots: ReadonlySet<number>): NumberKind {
  const of = (each: Expression): NumberKind => kindOf(each, floatSlots);
  switch (expression.kind) {
    case 'integer':
      return 'int';
    case 'float':
      return 'float';
    case 'name': {
      const { binding } = expression;
      const isOwn = binding?.kind === 'local' && binding.depth === 0;
      return isOwn && floatSlots.has(binding.slot) ? 'float' : 'any';
    }
    case 'unary':
      return expression.operator === '-' && of(expression.operand) === 'float' ? 'float' : 'any';
    case 'binary':
      if (expression.operator === '/') return 'float';
      if (!['+', '-', '*'].includes(expression.operator)) return 'any';
      // a float beside anything but a number throws, so one float operand makes the result a float
      return of(expression.left) === 'float' || of(expression.right) === 'float' ? 'float' : 'any';
    case 'conditional':
      return of(expression.whenTrue) === 'float' && of(expression.whenFalse) === 'float' ? 'float' : 'any';
    default:
      return 'any';
  }
}

/** Variables of a function to which nothing but floats is ever assigned, and which no other function sees. */
function floatSlotsOf(node: FunctionNode): ReadonlySet<number> {
  const found = new Assignments(node);
  const slots = new Set(found.values.keys());
  for (const slot of found.others) slots.delete(slot);
  for (let before = -1; before !== slots.size; ) {
    before = slots.size;
    for (const [slot, values] of found.values) {
      if (values.some((value) => kindOf(value, slots) !== 'float')) slots.delete(slot);
    }
  }
  return slots;
}

/** Assignments to the variables of a function. */
class Assignments {
  readonly values = new Map<number, Expression[]>();
  /** Variables that get values in other ways, or that functions inside of it may use. */
  readonly others = new Set<number>();

  constructor({ parameters, rest, namedRest, body }: FunctionNode) {
    const count = parameters.length + Number(rest !== null) + Number(namedRest !== null);
    for (let slot = 0; slot < count; slot++) this.others.add(slot);
    this.#block(body);
  }

  #block(statements: readonly Statement[]): void {
    for (const statement of statements) this.#statement(statement);
  }

  #statement(statement: Statement): void {
    switch (statement.kind) {
      case 'assign':
        this.#assign(statement.target, statement.value);
        this.#expression(statement.value);
        break;
      case 'augment': {
        const { target, operator, value, line } = statement;
        this.#assign(target, { kind: 'binary', operator, left: target, right: value, line });
        this.#expression(value);
        break;
      }
      case 'if':
        this.#expression(statement.condition);
        this.#block(statement.then);
        this.#block(statement.else);
        break;
      case 'for':
        this.#assign(statement.target, null);
        this.#expression(statement.iterable);
        this.#block(statement.body);
        break;
      case 'def':
        this.#assign(statement.target, null);
        this.#inner(statement.function);
        break;
      case 'expression':
      case 'return':
        if (statement.value !== null) this.#expression(statement.value);
    }
  }

  /** @param value null where it is not known */
  #assign(target: Expression, value: Expression | null): void {
    if (target.kind === 'name') {
      if (target.binding?.kind !== 'local') return;
      const { slot } = target.binding;
      if (value === null) this.others.add(slot);
      else this.values.set(slot, [...(this.values.get(slot) ?? []), value]);
      return;
    }
    if (target.kind === 'tuple' || target.kind === 'list') {
      for (const element of target.elements) this.#assign(element, null);
    } else this.#expression(target);
  }

  #expression(expression: Expression): void {
    if (expression.kind === 'lambda') this.#inner(expression.function);
    else if (expression.kind === 'comprehension') {
      for (const clause of expression.clauses) {
        if (clause.kind === 'for') this.#assign(clause.target, null);
        this.#expression(clause.kind === 'for' ? clause.iterable : clause.condition);
      }
      if (expression.key !== null) this.#expression(expression.key);
      this.#expression(expression.value);
    } else for (const child of childrenOf(expression)) this.#expression(child);
  }

  #inner({ parameters, captures }: FunctionNode): void {
    for (const parameter of parameters) if (parameter.default !== null) this.#expression(parameter.default);
    // some of these may be of functions further out: then one more of ours is kept as it was
    for (const { slot } of captures) this.others.add(slot);
  }
}
