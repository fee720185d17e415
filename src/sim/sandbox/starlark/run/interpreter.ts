/**
 * Runs a program by walking its tree. It is the reference: the compiled form must give the same values, the
 * same errors and the same steps.
 */

import type { Expression, FunctionNode, Statement } from '../syntax/index.ts';
import {
  beginLoop,
  elementsOf,
  endLoop,
  getItem,
  isTrue,
  setItem,
  unpack,
  type Value,
} from '../values/index.ts';
import { Evaluator } from './evaluator.ts';
import { Frame } from './frame.ts';
import { augment } from './operators.ts';
import type { Thread } from './thread.ts';

/** How a block ended: at its end, or by a statement that leaves it. */
type Ending = 'end' | 'break' | 'continue' | 'return';

export class Interpreter {
  readonly #thread: Thread;
  readonly #evaluator: Evaluator;
  #returned: Value = null;

  constructor(thread: Thread) {
    this.#thread = thread;
    this.#evaluator = new Evaluator(thread, {
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

  #block(statements: readonly Statement[], frame: Frame): Ending {
    for (const statement of statements) {
      if (statement.charge > 0) this.#thread.meter.spend(statement.charge, statement.line);
      const ending = this.#statement(statement, frame);
      if (ending !== 'end') return ending;
    }
    return 'end';
  }

  #statement(statement: Statement, frame: Frame): Ending {
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

  #loop(statement: Extract<Statement, { kind: 'for' }>, frame: Frame): Ending {
    const { meter } = this.#thread;
    const iterable = this.#evaluator.value(statement.iterable, frame);
    const items = elementsOf(meter, iterable, statement.line);
    beginLoop(iterable);
    let ending: Ending = 'end';
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
