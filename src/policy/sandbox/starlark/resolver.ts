/**
 * Two passes over a syntax tree before it runs: what each name stands for (a parameter or variable of a
 * function, a global of the module, a builtin), and what each piece costs in steps. A name that a function
 * assigns anywhere is its own everywhere in it. Source:
 * https://github.com/bazelbuild/starlark/blob/master/spec.md#name-binding-and-variables.
 */

import { nearestName } from '../../../runtime/errors.ts';
import { PolicyError } from '../program.ts';
import type { Binding, Comprehension, Expression, FunctionNode, NameExpression, Statement } from './ast.ts';
import { remedyFor } from './lexer.ts';

/** Levels of a tree. The compiler and the checks walk it by recursion; this keeps them far from the end of the stack. */
const MAX_TREE_DEPTH = 96;

/**
 * Returns the number of functions, the module among them.
 *
 * @throws PolicyError compile, with the line and for an unknown name the nearest one
 */
export function resolve(module: FunctionNode, builtins: readonly string[]): number {
  const resolver = new Resolver(builtins);
  resolver.function(module, null);
  return resolver.functions;
}

class Resolver {
  readonly #builtins: readonly string[];
  readonly #isBuiltin: ReadonlySet<string>;
  #loops = 0;
  #functions = 0;
  #depth = 0;

  constructor(builtins: readonly string[]) {
    this.#builtins = builtins;
    this.#isBuiltin = new Set(builtins);
  }

  get functions(): number {
    return this.#functions;
  }

  function(node: FunctionNode, outer: FunctionScope | null): void {
    const scope = new FunctionScope(node, outer);
    node.id = this.#functions++;
    for (const parameter of node.parameters) scope.markCertain(scope.declare(parameter.name));
    if (node.rest !== null) scope.markCertain(scope.declare(node.rest));
    if (node.namedRest !== null) scope.markCertain(scope.declare(node.namedRest));
    this.#declareBlock(node.body, scope);
    const loops = this.#loops;
    this.#loops = 0;
    this.#block(node.body, scope);
    this.#loops = loops;
  }

  /** Gives slots to all names that the statements bind. */
  #declareBlock(statements: readonly Statement[], scope: FunctionScope): void {
    for (const statement of statements) {
      switch (statement.kind) {
        case 'assign':
        case 'augment':
          this.#declareTarget(statement.target, scope, statement.kind === 'assign');
          break;
        case 'def':
          this.#declareTarget(statement.target, scope, true);
          break;
        case 'for':
          this.#declareTarget(statement.target, scope, true);
          this.#declareBlock(statement.body, scope);
          break;
        case 'if':
          this.#declareBlock(statement.then, scope);
          this.#declareBlock(statement.else, scope);
          break;
      }
    }
  }

  #declareTarget(target: Expression, scope: FunctionScope, isNew: boolean): void {
    if (target.kind === 'tuple' || target.kind === 'list') {
      for (const element of target.elements) this.#declareTarget(element, scope, isNew);
    } else if (target.kind === 'name') {
      if (scope.isModule && (!isNew || scope.slotOf(target.name) !== undefined)) {
        const remedy = 'Use another name, or a variable of a function';
        this.#fail(target, `the global ${target.name} is assigned twice. ${remedy}`);
      }
      scope.declare(target.name);
    }
  }

  #block(statements: readonly Statement[], scope: FunctionScope): void {
    for (const statement of statements) this.#statement(statement, scope);
  }

  #statement(statement: Statement, scope: FunctionScope): void {
    this.#descend(statement);
    this.#parts(statement, scope);
    this.#depth--;
  }

  #descend(node: { readonly line: number }): void {
    if (++this.#depth <= MAX_TREE_DEPTH) return;
    this.#fail(node, `the text nests deeper than ${MAX_TREE_DEPTH} levels. Give parts of it names`);
  }

  #parts(statement: Statement, scope: FunctionScope): void {
    switch (statement.kind) {
      case 'expression':
        this.#expression(statement.value, scope);
        break;
      case 'assign':
        this.#expression(statement.value, scope);
        this.#target(statement.target, scope);
        break;
      case 'augment':
        this.#expression(statement.target, scope);
        this.#expression(statement.value, scope);
        break;
      case 'if':
        this.#refuseInModule(statement, scope, '"if"');
        this.#expression(statement.condition, scope);
        scope.branch(() => this.#block(statement.then, scope));
        scope.branch(() => this.#block(statement.else, scope));
        break;
      case 'for':
        this.#refuseInModule(statement, scope, '"for"');
        this.#expression(statement.iterable, scope);
        scope.branch(() => {
          this.#loops++;
          this.#target(statement.target, scope);
          this.#block(statement.body, scope);
          this.#loops--;
        });
        break;
      case 'def':
        this.#defaults(statement.function, scope);
        this.function(statement.function, scope);
        this.#target(statement.target, scope);
        break;
      case 'return':
        this.#refuseInModule(statement, scope, '"return"');
        if (statement.value !== null) this.#expression(statement.value, scope);
        break;
      case 'break':
      case 'continue':
        if (this.#loops === 0) this.#fail(statement, `"${statement.kind}" stands outside a loop`);
        break;
      case 'pass':
        break;
    }
  }

  #refuseInModule(statement: Statement, scope: FunctionScope, what: string): void {
    if (scope.isModule) this.#fail(statement, `${what} stands outside a function. Move it into one`);
  }

  #target(target: Expression, scope: FunctionScope): void {
    if (target.kind === 'tuple' || target.kind === 'list') {
      for (const element of target.elements) this.#target(element, scope);
    } else if (target.kind === 'name') {
      scope.markCertain(scope.declare(target.name));
      this.#name(target, scope);
    } else {
      this.#expression(target, scope);
    }
  }

  #defaults(node: FunctionNode, scope: FunctionScope): void {
    for (const parameter of node.parameters) {
      if (parameter.default !== null) this.#expression(parameter.default, scope);
    }
  }

  #name(expression: NameExpression, scope: FunctionScope): void {
    const { name } = expression;
    const binding = lookUp(scope, name);
    if (binding !== undefined) {
      expression.binding = binding;
      return;
    }
    if (!this.#isBuiltin.has(name)) {
      const names: string[] = [...this.#builtins];
      for (let each: FunctionScope | null = scope; each !== null; each = each.outer)
        names.push(...each.names());
      const nearest = nearestName(name, names);
      const meant = nearest === undefined ? 'Assign it first' : `Do you mean ${nearest}?`;
      this.#fail(expression, `${name} is not defined. ${remedyFor(name) ?? meant}`);
    }
    expression.binding = { kind: 'builtin', name };
  }

  #expression(expression: Expression, scope: FunctionScope): void {
    this.#descend(expression);
    this.#operands(expression, scope);
    this.#depth--;
  }

  #operands(expression: Expression, scope: FunctionScope): void {
    switch (expression.kind) {
      case 'name':
        this.#name(expression, scope);
        break;
      case 'lambda':
        this.#defaults(expression.function, scope);
        this.function(expression.function, scope);
        break;
      case 'comprehension':
        this.#comprehension(expression, scope);
        break;
      case 'logical':
        this.#expression(expression.left, scope);
        scope.branch(() => this.#expression(expression.right, scope));
        break;
      default:
        for (const child of childrenOf(expression)) this.#expression(child, scope);
    }
  }

  /** The first iterable is computed outside, as Python and Starlark have it. */
  #comprehension({ key, value, clauses }: Comprehension, scope: FunctionScope): void {
    const [first] = clauses;
    if (first.kind === 'for') this.#expression(first.iterable, scope);
    scope.inner(() =>
      scope.branch(() => {
        for (const clause of clauses) {
          if (clause.kind === 'if') this.#expression(clause.condition, scope);
          else {
            if (clause !== first) this.#expression(clause.iterable, scope);
            this.#target(clause.target, scope);
          }
        }
        if (key !== null) this.#expression(key, scope);
        this.#expression(value, scope);
      }),
    );
  }

  #fail({ line }: { readonly line: number }, problem: string): never {
    throw new PolicyError('compile', problem, { line });
  }
}

/** The expressions right below one, in the order in which they are computed. */
export function childrenOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case 'list':
    case 'tuple':
      return expression.elements;
    case 'dict':
      return expression.entries.flat();
    case 'unary':
      return [expression.operand];
    case 'binary':
    case 'logical':
      return [expression.left, expression.right];
    case 'conditional':
      return [expression.condition, expression.whenTrue, expression.whenFalse];
    case 'attribute':
      return [expression.object];
    case 'index':
      return [expression.object, expression.index];
    case 'slice':
      return [expression.object, expression.start, expression.stop, expression.step].filter(
        (e) => e !== null,
      );
    case 'call': {
      const { callee, positional, named, rest, namedRest } = expression;
      const values = named.map(({ value }) => value);
      return [callee, ...positional, ...values, rest, namedRest].filter((e) => e !== null);
    }
    default:
      return [];
  }
}

// The scopes of names while a program is resolved. A function has one scope for all its names, whatever block
// they stand in; a comprehension has one for its variables.

class FunctionScope {
  readonly node: FunctionNode;
  readonly outer: FunctionScope | null;
  /** Scopes of names, the function's own first, then those of the comprehensions around this place. */
  readonly #names: Map<string, number>[] = [new Map()];
  /** Slots that hold a value on every way to this place. */
  #certain = new Set<number>();

  constructor(node: FunctionNode, outer: FunctionScope | null) {
    this.node = node;
    this.outer = outer;
  }

  get isModule(): boolean {
    return this.outer === null;
  }

  /** A slot for the name in the innermost scope, made once. */
  declare(name: string): number {
    const scope = this.#names[this.#names.length - 1];
    let slot = scope.get(name);
    if (slot === undefined) {
      slot = this.node.slots.length;
      this.node.slots.push(name);
      scope.set(name, slot);
    }
    return slot;
  }

  slotOf(name: string): number | undefined {
    for (let i = this.#names.length - 1; i >= 0; i--) {
      const slot = this.#names[i].get(name);
      if (slot !== undefined) return slot;
    }
    return undefined;
  }

  names(): string[] {
    return this.#names.flatMap((scope) => [...scope.keys()]);
  }

  /** Runs `work` with a new innermost scope. */
  inner(work: () => void): void {
    this.#names.push(new Map());
    work();
    this.#names.pop();
  }

  markCertain(slot: number): void {
    this.#certain.add(slot);
  }

  isCertain(slot: number): boolean {
    return this.#certain.has(slot);
  }

  /** Facts that `branch` establishes hold only inside it, since it may not run. */
  branch(branch: () => void): void {
    const before = new Set(this.#certain);
    branch();
    this.#certain = before;
  }
}

/** Where a name is found from within `scope`, outwards. */
function lookUp(scope: FunctionScope, name: string): Binding | undefined {
  let depth = 0;
  for (let each: FunctionScope | null = scope; each !== null; each = each.outer) {
    const slot = each.slotOf(name);
    if (slot !== undefined) {
      if (each.isModule && depth > 0) return { kind: 'global', slot };
      capture(scope, slot, depth);
      return { kind: 'local', slot, depth, isCertain: depth === 0 && each.isCertain(slot) };
    }
    depth++;
  }
  return undefined;
}

/** Every function between the name and its variable holds on to the variable. */
function capture(scope: FunctionScope, slot: number, depth: number): void {
  let each = scope;
  for (let left = depth; left > 0; left--) {
    const { captures } = each.node;
    if (!captures.some((known) => known.slot === slot && known.depth === left)) {
      captures.push({ slot, depth: left });
    }
    if (each.outer === null) return;
    each = each.outer;
  }
}

// Costs of a program in steps. Each expression that is computed and each statement costs one step, each
// turn of a loop one more. The compiler, and the interpreter that tests compare it with, charge by this file
// alone and at the same places, so that a program takes the same number of steps in both and on every machine.
//
// Statements that always run together are charged at once, at the first of them. A part that may not run (the
// branch of an `if`, the right side of an `and`, the body of a comprehension) is charged when it is entered.

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
function costOf(expression: Expression): number {
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
