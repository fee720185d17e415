/**
 * Says of each name what it stands for, before the program runs: a parameter or variable of a function, a
 * global of the module, or a builtin. A name that a function assigns anywhere is its own everywhere in it.
 * Source: https://github.com/bazelbuild/starlark/blob/master/spec.md#name-binding-and-variables.
 */

import { nearestName } from '../../../../runtime/nearestName.ts';
import { PolicyError } from '../../policyError.ts';
import type { Comprehension, Expression, FunctionNode, NameExpression, Statement } from './ast.ts';
import { remedyFor } from './foreignNames.ts';
import { FunctionScope, lookUp } from './scopes.ts';

/** Both engines and the checks walk the tree by recursion; this keeps them far from the end of the stack. */
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
