/**
 * What a program costs, in steps. Each expression that is computed and each statement costs one step, each
 * turn of a loop one more. Both engines charge by this file alone, at the same places, so that a program
 * takes the same number of steps in each of them, and on every machine.
 *
 * Statements that always run together are charged at once, at the first of them. A part that may not run (the
 * branch of an `if`, the right side of an `and`, the body of a comprehension) is charged when it is entered.
 */

import type { Comprehension, Expression, FunctionNode, Statement } from './ast.ts';
import { childrenOf } from './resolver.ts';

/** Fills in `charge` of all statements of a function and of the functions in it. */
export function chargeFunction(node: FunctionNode): void {
  chargeBlock(node.body);
}

function chargeBlock(statements: readonly Statement[]): void {
  let first: Statement | null = null;
  for (const statement of statements) {
    if (first === null) {
      first = statement;
      first.charge = 0;
    }
    first.charge += 1 + statementCost(statement);
    if (statement.kind === 'if') {
      chargeBlock(statement.then);
      chargeBlock(statement.else);
      first = null;
    } else if (statement.kind === 'for') {
      chargeBlock(statement.body);
      first = null;
    }
  }
}

function statementCost(statement: Statement): number {
  switch (statement.kind) {
    case 'expression':
      return costOf(statement.value);
    case 'assign':
    case 'augment':
      return costOf(statement.target) + costOf(statement.value);
    case 'if':
      return costOf(statement.condition);
    case 'for':
      return costOf(statement.iterable);
    case 'def':
      return functionCost(statement.function);
    case 'return':
      return statement.value === null ? 0 : costOf(statement.value);
    default:
      return 0;
  }
}

/** Steps to make the function, not to call it. */
function functionCost(node: FunctionNode): number {
  chargeFunction(node);
  let cost = 0;
  for (const parameter of node.parameters) if (parameter.default !== null) cost += costOf(parameter.default);
  return cost;
}

/** Steps that computing the expression always takes. Charges the functions in it on the way. */
export function costOf(expression: Expression): number {
  switch (expression.kind) {
    case 'logical':
      branchCost(expression.right);
      return 1 + costOf(expression.left);
    case 'conditional':
      branchCost(expression.whenTrue);
      branchCost(expression.whenFalse);
      return 1 + costOf(expression.condition);
    case 'comprehension':
      return 1 + comprehensionCost(expression);
    case 'lambda':
      return 1 + functionCost(expression.function);
    default: {
      let cost = 1;
      for (const child of childrenOf(expression)) cost += costOf(child);
      return cost;
    }
  }
}

const branchCosts = new WeakMap<object, number>();

/** Steps of a part that may not run, to be charged when it is entered. Computed once for each part. */
export function branchCost(part: Expression): number {
  let cost = branchCosts.get(part);
  if (cost === undefined) {
    cost = costOf(part);
    branchCosts.set(part, cost);
  }
  return cost;
}

function comprehensionCost({ key, value, clauses }: Comprehension): number {
  for (const clause of clauses.slice(1))
    branchCost(clause.kind === 'if' ? clause.condition : clause.iterable);
  if (key !== null) branchCost(key);
  branchCost(value);
  const [first] = clauses;
  return first.kind === 'for' ? costOf(first.iterable) : 0;
}
