/**
 * What a program's text says of the numbers in it: expressions that are floats whatever happens, or an error.
 * Compiled code computes these without making an object of each float.
 */

import { childrenOf, type Expression, type FunctionNode, type Statement } from '../../syntax/index.ts';

export type NumberKind = 'float' | 'int' | 'any';

/** @param floatSlots variables of the function that hold floats only */
export function kindOf(expression: Expression, floatSlots: ReadonlySet<number>): NumberKind {
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
      // a float and what is no number is an error
      return of(expression.left) === 'float' || of(expression.right) === 'float' ? 'float' : 'any';
    case 'conditional':
      return of(expression.whenTrue) === 'float' && of(expression.whenFalse) === 'float' ? 'float' : 'any';
    default:
      return 'any';
  }
}

/** Variables of a function to which nothing but floats is ever assigned, and which no other function sees. */
export function floatSlotsOf(node: FunctionNode): ReadonlySet<number> {
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

/** What is assigned to the variables of a function. */
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
