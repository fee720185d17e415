/**
 * The oracle of the compiled engine: it runs a program by walking its tree. The compiled engine must give the
 * same values, errors, steps and units of memory. Both call the same operators on values.
 */

import { type Budget, Meter } from '../../../src/policy/sandbox/program.ts';
import type {
  Binding,
  Comprehension,
  Expression,
  FunctionNode,
  NameExpression,
  Statement,
} from '../../../src/policy/sandbox/starlark/ast.ts';
import { builtins } from '../../../src/policy/sandbox/starlark/builtins.ts';
import { callMethod, getAttribute } from '../../../src/policy/sandbox/starlark/methods.ts';
import {
  beginLoop,
  elementsOf,
  endLoop,
  FieldSite,
  getItem,
  getSlice,
  invert,
  negate,
  plus,
  setItem,
  unpack,
  withKey,
} from '../../../src/policy/sandbox/starlark/operations.ts';
import { parse } from '../../../src/policy/sandbox/starlark/parser.ts';
import { branchCost, chargeFunction, resolve } from '../../../src/policy/sandbox/starlark/resolver.ts';
import { StarlarkInstance } from '../../../src/policy/sandbox/starlark/starlarkPolicy.ts';
import {
  arityOf,
  augment,
  bindArguments,
  call,
  operate,
  Thread,
  unassigned,
  withNamedRest,
  withRest,
} from '../../../src/policy/sandbox/starlark/thread.ts';
import {
  isTrue,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarTuple,
  type Value,
} from '../../../src/policy/sandbox/starlark/value.ts';

/** How a block ended: at its end, or by a statement that leaves it. */
type BlockEnding = 'end' | 'break' | 'continue' | 'return';

/** As `StarlarkProgram.instantiate`, by the interpreter. */
export function interpret(source: string, budget: Budget): StarlarkInstance {
  const module = parse(source);
  const functionCount = resolve(module, [...builtins.keys()]);
  chargeFunction(module);
  const thread = new Thread(new Meter(budget), functionCount);
  return new StarlarkInstance(thread, module, new Interpreter(thread).module(module));
}

class Interpreter {
  readonly #thread: Thread;
  readonly #evaluator: StarlarkEvaluator;
  #returned: Value = null;

  constructor(thread: Thread) {
    this.#thread = thread;
    this.#evaluator = new StarlarkEvaluator(thread, {
      run: (node, frame) => this.#body(node, frame),
      assign: (target, value, frame) => this.#assign(target, value, frame),
    });
  }

  /** Runs the module and returns its variables. */
  module(node: FunctionNode): readonly (Value | undefined)[] {
    const frame = new Frame(node.slots.length, null);
    this.#body(node, frame);
    return frame.values;
  }

  #body(node: FunctionNode, frame: Frame): Value {
    if (this.#block(node.body, frame) !== 'return') return null;
    const value = this.#returned;
    this.#returned = null;
    return value;
  }

  #block(statements: readonly Statement[], frame: Frame): BlockEnding {
    for (const statement of statements) {
      if (statement.charge > 0) this.#thread.meter.spend(statement.charge, statement.line);
      const ending = this.#statement(statement, frame);
      if (ending !== 'end') return ending;
    }
    return 'end';
  }

  #statement(statement: Statement, frame: Frame): BlockEnding {
    const evaluator = this.#evaluator;
    switch (statement.kind) {
      case 'expression':
        evaluator.value(statement.value, frame);
        return 'end';
      case 'assign':
        this.#assign(statement.target, evaluator.value(statement.value, frame), frame);
        return 'end';
      case 'augment':
        this.#augment(statement, frame);
        return 'end';
      case 'if': {
        const isMet = isTrue(evaluator.value(statement.condition, frame));
        return this.#block(isMet ? statement.then : statement.else, frame);
      }
      case 'for':
        return this.#loop(statement, frame);
      case 'def':
        this.#assign(statement.target, evaluator.function(statement.function, frame), frame);
        return 'end';
      case 'return':
        this.#returned = statement.value === null ? null : evaluator.value(statement.value, frame);
        return 'return';
      case 'break':
      case 'continue':
        return statement.kind;
      case 'pass':
        return 'end';
    }
  }

  #loop(statement: Extract<Statement, { kind: 'for' }>, frame: Frame): BlockEnding {
    const { meter } = this.#thread;
    const iterable = this.#evaluator.value(statement.iterable, frame);
    const items = elementsOf(meter, iterable, statement.line);
    beginLoop(iterable);
    let ending: BlockEnding = 'end';
    for (const item of items) {
      meter.spend(1, statement.line);
      this.#assign(statement.target, item, frame);
      ending = this.#block(statement.body, frame);
      if (ending === 'break' || ending === 'return') break;
    }
    endLoop(iterable);
    return ending === 'return' ? 'return' : 'end';
  }

  #assign(target: Expression, value: Value, frame: Frame): void {
    const { meter } = this.#thread;
    if (target.kind === 'name') {
      if (target.binding?.kind === 'local') frame.values[target.binding.slot] = value;
    } else if (target.kind === 'index') {
      const object = this.#evaluator.value(target.object, frame);
      setItem(meter, object, this.#evaluator.value(target.index, frame), value, target.line);
    } else if (target.kind === 'tuple' || target.kind === 'list') {
      const items = unpack(meter, value, target.elements.length, target.line);
      target.elements.forEach((element, i) => {
        this.#assign(element, items[i], frame);
      });
    }
  }

  #augment(statement: Extract<Statement, { kind: 'augment' }>, frame: Frame): void {
    const { meter } = this.#thread;
    const { target, operator, line } = statement;
    if (target.kind === 'index') {
      const object = this.#evaluator.value(target.object, frame);
      const index = this.#evaluator.value(target.index, frame);
      const before = getItem(meter, object, index, target.line);
      const after = augment(meter, operator, before, this.#evaluator.value(statement.value, frame), line);
      setItem(meter, object, index, after, target.line);
    } else {
      const before = this.#evaluator.value(target, frame);
      const after = augment(meter, operator, before, this.#evaluator.value(statement.value, frame), line);
      this.#assign(target, after, frame);
    }
  }
}

/** What expressions need of the statements: bodies of functions, and targets of comprehensions. */
interface StatementRunner {
  run(node: FunctionNode, frame: Frame): Value;
  assign(target: Expression, value: Value, frame: Frame): void;
}

/** Computes expressions by walking their trees. */
class StarlarkEvaluator {
  readonly #thread: Thread;
  readonly #statements: StatementRunner;

  constructor(thread: Thread, statements: StatementRunner) {
    this.#thread = thread;
    this.#statements = statements;
  }

  value(expression: Expression, frame: Frame): Value {
    const { meter } = this.#thread;
    const { line } = expression;
    switch (expression.kind) {
      case 'name':
        return frame.read(expression);
      case 'integer':
      case 'text':
        return expression.value;
      case 'float':
        return new StarFloat(expression.value);
      case 'list':
        return new StarList(this.#many(expression.elements, frame, line));
      case 'tuple':
        return new StarTuple(this.#many(expression.elements, frame, line));
      case 'dict':
        return this.#dict(expression.entries, frame, line);
      case 'unary':
        return this.#unary(expression.operator, this.value(expression.operand, frame), line);
      case 'binary': {
        const left = this.value(expression.left, frame);
        return operate(meter, expression.operator, left, this.value(expression.right, frame), line);
      }
      case 'logical': {
        const left = this.value(expression.left, frame);
        return isTrue(left) === (expression.operator === 'or') ? left : this.#branch(expression.right, frame);
      }
      case 'conditional': {
        const isMet = isTrue(this.value(expression.condition, frame));
        return this.#branch(isMet ? expression.whenTrue : expression.whenFalse, frame);
      }
      case 'attribute':
        return getAttribute(this.value(expression.object, frame), new FieldSite(expression.name, line));
      case 'index': {
        const object = this.value(expression.object, frame);
        return getItem(meter, object, this.value(expression.index, frame), line);
      }
      case 'slice': {
        const object = this.value(expression.object, frame);
        const [start, stop, step] = [expression.start, expression.stop, expression.step].map((bound) =>
          bound === null ? null : this.value(bound, frame),
        );
        return getSlice(meter, object, start, stop, step, line);
      }
      case 'call':
        return this.#call(expression, frame);
      case 'lambda':
        return this.function(expression.function, frame);
      case 'comprehension':
        return this.#comprehension(expression, frame);
    }
  }

  /** The function as a value, with its defaults computed now. */
  function(node: FunctionNode, frame: Frame): StarFunction {
    const thread = this.#thread;
    const defaults = node.parameters.map((each) =>
      each.default === null ? undefined : this.value(each.default, frame),
    );
    const invoke: StarFunction['call'] = (meter, positional, named, line) => {
      const values = bindArguments(meter, node, defaults, positional, named, line);
      const inner = new Frame(node.slots.length, frame);
      for (let i = 0; i < values.length; i++) inner.values[i] = values[i];
      thread.enter(node);
      const result = this.#statements.run(node, inner);
      thread.leave(node);
      return result;
    };
    const held = (): (Value | undefined)[] => [
      ...defaults,
      ...node.captures.map(({ slot, depth }) => frame.at(depth - 1).values[slot]),
    ];
    return new StarFunction(node.name, invoke, { direct: null, ...arityOf(node), held });
  }

  #branch(part: Expression, frame: Frame): Value {
    this.#thread.meter.spend(branchCost(part), part.line);
    return this.value(part, frame);
  }

  #many(elements: readonly Expression[], frame: Frame, line: number): Value[] {
    const values = elements.map((element) => this.value(element, frame));
    this.#thread.meter.allocate(1 + values.length, line);
    return values;
  }

  #dict(entries: readonly (readonly [Expression, Expression])[], frame: Frame, line: number): StarDict {
    const dict = new StarDict();
    for (const [keyPart, valuePart] of entries) {
      const key = this.value(keyPart, frame);
      const value = this.value(valuePart, frame);
      withKey(this.#thread.meter, line, key, () => dict.set(key, value));
    }
    this.#thread.meter.allocate(1 + 2 * entries.length, line);
    return dict;
  }

  #unary(operator: '-' | '+' | '~' | 'not', value: Value, line: number): Value {
    if (operator === 'not') return !isTrue(value);
    if (operator === '-') return negate(value, line);
    return operator === '+' ? plus(value, line) : invert(value, line);
  }

  #call(expression: Extract<Expression, { kind: 'call' }>, frame: Frame): Value {
    const { meter } = this.#thread;
    const { callee, line } = expression;
    const isMethod = callee.kind === 'attribute';
    const target = this.value(isMethod ? callee.object : callee, frame);
    let positional = expression.positional.map((each) => this.value(each, frame));
    let named = expression.named.map(({ name, value }) => [name, this.value(value, frame)] as const);
    const rest = expression.rest === null ? undefined : this.value(expression.rest, frame);
    const namedRest = expression.namedRest === null ? undefined : this.value(expression.namedRest, frame);
    if (rest !== undefined) positional = withRest(meter, positional, rest, line);
    if (namedRest !== undefined) named = [...withNamedRest(meter, named, namedRest, line)];
    if (isMethod)
      return callMethod(meter, target, new FieldSite(callee.name, callee.line), positional, named);
    return call(meter, target, positional, named, line);
  }

  #comprehension(expression: Comprehension, frame: Frame): Value {
    const { meter } = this.#thread;
    const { key, value, clauses, line } = expression;
    meter.allocate(1, line);
    const list = new StarList([]);
    const dict = new StarDict();
    const clause = (at: number): void => {
      const part = clauses[at];
      if (part === undefined) {
        if (key === null) {
          const item = this.#branch(value, frame);
          meter.allocate(1, line);
          list.items.push(item);
          return;
        }
        const itemKey = this.#branch(key, frame);
        const item = this.#branch(value, frame);
        meter.allocate(2, line);
        withKey(meter, line, itemKey, () => dict.set(itemKey, item));
      } else if (part.kind === 'if') {
        if (isTrue(this.#branch(part.condition, frame))) clause(at + 1);
      } else {
        const iterable = at === 0 ? this.value(part.iterable, frame) : this.#branch(part.iterable, frame);
        const items = elementsOf(meter, iterable, part.line);
        beginLoop(iterable);
        for (const item of items) {
          meter.spend(1, part.line);
          this.#statements.assign(part.target, item, frame);
          clause(at + 1);
        }
        endLoop(iterable);
      }
    };
    clause(0);
    return key === null ? list : dict;
  }
}

/** Variables of one activation of a function. */
class Frame {
  readonly values: (Value | undefined)[];
  readonly outer: Frame | null;
  readonly module: Frame;

  constructor(slotCount: number, outer: Frame | null) {
    this.values = new Array<Value | undefined>(slotCount).fill(undefined);
    this.outer = outer;
    this.module = outer === null ? this : outer.module;
  }

  at(depth: number): Frame {
    let frame: Frame = this;
    for (let i = 0; i < depth && frame.outer !== null; i++) frame = frame.outer;
    return frame;
  }

  read({ name, binding, line }: NameExpression): Value {
    if (binding === null || binding.kind === 'builtin') return builtins.get(name) ?? null;
    const value = this.#holder(binding).values[binding.slot];
    return value === undefined ? unassigned(name, line) : value;
  }

  #holder(binding: Binding): Frame {
    if (binding.kind === 'local') return this.at(binding.depth);
    return this.module;
  }
}
