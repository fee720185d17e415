/** Computes expressions by walking their trees. */

import { callMethod, getAttribute } from '../builtins/index.ts';
import { branchCost, type Comprehension, type Expression, type FunctionNode } from '../syntax/index.ts';
import {
  beginLoop,
  elementsOf,
  endLoop,
  FieldSite,
  getItem,
  getSlice,
  invert,
  isTrue,
  negate,
  plus,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarTuple,
  type Value,
  withKey,
} from '../values/index.ts';
import { arityOf, bindArguments, call, withNamedRest, withRest } from './arguments.ts';
import { Frame } from './frame.ts';
import { operate } from './operators.ts';
import type { Thread } from './thread.ts';

/** What expressions need of the statements: bodies of functions, and targets of comprehensions. */
export interface StatementRunner {
  run(node: FunctionNode, frame: Frame): Value;
  assign(target: Expression, value: Value, frame: Frame): void;
}

export class Evaluator {
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
