/**
 * JavaScript for functions and statements. One `FunctionCode` writes one function; it knows the functions
 * around it, whose variables the new function sees as closures do.
 */

import type { Binding, Expression, FunctionNode, Statement } from '../../syntax/index.ts';
import type { CodeWriter } from './codeWriter.ts';
import { conditionCode, valueCode } from './expressionCode.ts';
import { numberCode } from './numberCode.ts';
import { floatSlotsOf } from './numberKinds.ts';

/** Constants of a program, made once when it is loaded. */
export class Constants {
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

export class FunctionCode implements CodeWriter {
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

  /** An assignment to a variable that holds bare numbers, null where the target is none. */
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
