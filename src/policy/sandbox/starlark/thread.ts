/**
 * Surroundings of compiled code while it runs: the budget and the active functions of a call, the passing of arguments,
 * and the functions that the code names. Starlark has no recursion, so calls nest at most as deep as the program has
 * functions; a limit keeps the stack far below the machine's.
 */

import type { Meter } from '../program.ts';
import type { BinaryOperator, FunctionNode } from './ast.ts';
import { builtins } from './builtins.ts';
import { callMethod, getAttribute } from './methods.ts';
import {
  add,
  addBare,
  beginLoop,
  bitwise,
  compare,
  contains,
  divide,
  divideNumbers,
  elementsOf,
  endLoop,
  FieldSite,
  floorDivide,
  getBareField,
  getField,
  getItem,
  getSlice,
  invert,
  isEqual,
  leftNumber,
  modulo,
  multiply,
  multiplyBare,
  negate,
  plus,
  quotient,
  requireMutable,
  rightNumber,
  setItem,
  subtract,
  subtractBare,
  unpack,
  withKey,
} from './operations.ts';
import {
  fail,
  isTrue,
  type NamedArguments,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarTuple,
  typeName,
  type Value,
} from './value.ts';

const MAX_CALL_DEPTH = 16;

export class Thread {
  readonly meter: Meter;
  readonly #isActive: Uint8Array;
  #depth = 0;

  constructor(meter: Meter, functionCount: number) {
    this.meter = meter;
    this.#isActive = new Uint8Array(functionCount);
  }

  /** Forgets what a failed call left behind, and fills the budget up. */
  reset(): void {
    this.#isActive.fill(0);
    this.#depth = 0;
    this.meter.refill();
  }

  /** @throws PolicyError policy_runtime where the function calls itself, or calls nest too deep */
  enter({ id, name, line }: FunctionNode): void {
    if (this.#isActive[id] !== 0) fail(line, `${name} calls itself. Use a loop with a bound`);
    if (++this.#depth > MAX_CALL_DEPTH) fail(line, `calls nest deeper than ${MAX_CALL_DEPTH}`);
    this.#isActive[id] = 1;
  }

  leave({ id }: FunctionNode): void {
    this.#isActive[id] = 0;
    this.#depth--;
  }
}

// From the arguments of a call to the parameters of a function of the program.

/**
 * Values of the function's first slots: parameters, then `*args`, then `**kwargs`. `defaults[i]` belongs to
 * parameter i.
 *
 * @throws PolicyError policy_runtime with the function's name and the parameter
 */
export function bindArguments(
  meter: Meter,
  node: FunctionNode,
  defaults: readonly (Value | undefined)[],
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): Value[] {
  const { name, parameters, positionalCount } = node;
  const bound: (Value | undefined)[] = parameters.map((_, i) =>
    i < positionalCount ? positional[i] : undefined,
  );
  if (positional.length > positionalCount && node.rest === null) {
    fail(line, `${name} takes ${positionalCount} arguments by position, not ${positional.length}`);
  }
  const others = new StarDict();
  for (const [key, value] of named) {
    const i = parameters.findIndex((each) => each.name === key);
    if (i >= 0) {
      if (bound[i] !== undefined) fail(line, `${name} gets its argument ${key} twice`);
      bound[i] = value;
    } else {
      if (node.namedRest === null) fail(line, `${name} has no parameter ${key}`);
      if (others.get(key) !== undefined) fail(line, `${name} gets its argument ${key} twice`);
      others.set(key, value);
    }
  }
  const values = parameters.map((parameter, i) => {
    const value = bound[i] ?? (bound[i] === null ? null : defaults[i]);
    return value === undefined ? fail(line, `${name} lacks its argument ${parameter.name}`) : value;
  });
  if (node.rest !== null) {
    const rest = positional.slice(positionalCount);
    meter.allocate(1 + rest.length, line);
    values.push(new StarTuple(rest));
  }
  if (node.namedRest !== null) {
    meter.allocate(1 + 2 * others.size, line);
    values.push(others);
  }
  return values;
}

/** How many positional arguments a function takes: the most and the least. */
export function arityOf(node: FunctionNode): { arity: number; required: number } {
  const needed = node.parameters.filter((each) => each.default === null);
  const isNamedOnly = (at: number): boolean => at >= node.positionalCount;
  return {
    arity: node.rest === null ? node.positionalCount : Number.POSITIVE_INFINITY,
    required: needed.some((each) => isNamedOnly(node.parameters.indexOf(each)))
      ? Number.POSITIVE_INFINITY
      : needed.length,
  };
}

/** Positional arguments with those of `*rest`. */
export function withRest(meter: Meter, positional: readonly Value[], rest: Value, line: number): Value[] {
  const items = elementsOf(meter, rest, line);
  meter.allocate(items.length, line);
  return [...positional, ...items];
}

/** Named arguments with those of `**rest`. */
export function withNamedRest(
  meter: Meter,
  named: NamedArguments,
  rest: Value,
  line: number,
): readonly (readonly [string, Value])[] {
  if (!(rest instanceof StarDict)) return fail(line, `** takes a dict, not ${typeName(rest)}`);
  meter.allocate(rest.size, line);
  const more = Array.from(rest.entries(), ([key, value]) => {
    if (typeof key !== 'string') return fail(line, `the keys after ** are strings, not ${typeName(key)}`);
    if (named.some(([name]) => name === key)) fail(line, `the argument ${key} is given twice`);
    return [key, value] as const;
  });
  return [...named, ...more];
}

/** @throws PolicyError policy_runtime unless `callee` is a function */
export function call(
  meter: Meter,
  callee: Value,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): Value {
  if (!(callee instanceof StarFunction)) return fail(line, `${typeName(callee)} cannot be called`);
  return callee.call(meter, positional, named, line);
}

// Functions that compiled code calls. The generator names them; compiled code reaches nothing else.

/** The functions, bound to the thread that runs them. */
export function surroundings(thread: Thread): Record<string, unknown> {
  const { meter } = thread;
  const spend = (steps: number, line: number): void => {
    if ((meter.steps -= steps) < 0) meter.outOfSteps(line);
  };
  const callOne = (callee: Value, line: number, a: Value): Value =>
    callee instanceof StarFunction && callee.arity === 1 && callee.direct !== null
      ? callee.direct(a)
      : call(meter, callee, [a], [], line);
  const callTwo = (callee: Value, line: number, a: Value, b: Value): Value =>
    callee instanceof StarFunction && callee.arity === 2 && callee.direct !== null
      ? callee.direct(a, b)
      : call(meter, callee, [a, b], [], line);
  const define = (
    node: FunctionNode,
    defaults: readonly (Value | undefined)[],
    body: (...values: Value[]) => Value,
    captured: () => (Value | undefined)[],
  ): StarFunction => {
    const isPlain = node.rest === null && node.namedRest === null;
    return new StarFunction(
      node.name,
      (_, positional, named, line) => body(...bindArguments(meter, node, defaults, positional, named, line)),
      {
        direct: isPlain && node.positionalCount === node.parameters.length ? body : null,
        ...arityOf(node),
        held: () => [...defaults, ...captured()],
      },
    );
  };
  return {
    meter,
    spend,
    define,
    callOne,
    callTwo,
    enter: (node: FunctionNode) => thread.enter(node),
    leave: (node: FunctionNode) => thread.leave(node),
    callMany: (callee: Value, line: number, positional: Value[]) => call(meter, callee, positional, [], line),
    callNamed: (callee: Value, line: number, positional: Value[], named: NamedArguments) =>
      call(meter, callee, positional, named, line),
    callMethod: (object: Value, site: FieldSite, positional: Value[], named: NamedArguments) =>
      callMethod(meter, object, site, positional, named),
    withRest: (positional: Value[], rest: Value, line: number) => withRest(meter, positional, rest, line),
    withNamedRest: (named: NamedArguments, rest: Value, line: number) =>
      withNamedRest(meter, named, rest, line),
    attribute: (object: Value, site: FieldSite): Value => {
      const field = getField(object, site);
      return field === undefined ? getAttribute(object, site) : field;
    },
    bareAttribute: (object: Value, site: FieldSite): Value => {
      const field = getBareField(object, site);
      return field === undefined ? getAttribute(object, site) : field;
    },
    checked: (value: Value | undefined, name: string, line: number): Value =>
      value === undefined ? unassigned(name, line) : value,
    add: (a: Value, b: Value, line: number) => add(meter, a, b, line),
    subtract,
    addBare: (a: Value, b: Value, line: number) => addBare(meter, a, b, line),
    subtractBare,
    multiplyBare: (a: Value, b: Value, line: number) => multiplyBare(meter, a, b, line),
    quotient,
    divideNumbers,
    leftNumber,
    rightNumber,
    /** Stand-ins for a number whose kind the text of the program gives. */
    anInt: 0,
    aFloat: new StarFloat(0),
    isFloat: { isFloat: true },
    multiply: (a: Value, b: Value, line: number) => multiply(meter, a, b, line),
    divide,
    floorDivide,
    modulo: (a: Value, b: Value, line: number) => modulo(meter, a, b, line),
    bitwise: (operator: string, a: Value, b: Value, line: number) => bitwise(meter, operator, a, b, line),
    augment: (operator: BinaryOperator, a: Value, b: Value, line: number) =>
      augment(meter, operator, a, b, line),
    isEqual: (a: Value, b: Value, line: number) => isEqual(meter, a, b, line),
    isLess: (a: Value, b: Value, line: number) => isLess(meter, a, b, line),
    isLessBare: (a: Value, kindOfA: BareKind, b: Value, kindOfB: BareKind, line: number) =>
      isLessBare(meter, a, kindOfA, b, kindOfB, line),
    contains: (a: Value, b: Value, line: number) => contains(meter, a, b, line),
    getItem: (object: Value, index: Value, line: number) => getItem(meter, object, index, line),
    setItem: (object: Value, index: Value, value: Value, line: number) =>
      setItem(meter, object, index, value, line),
    getSlice: (object: Value, start: Value, stop: Value, step: Value, line: number) =>
      getSlice(meter, object, start, stop, step, line),
    list: (items: Value[], line: number) => {
      meter.allocate(1 + items.length, line);
      return new StarList(items);
    },
    tuple: (items: Value[], line: number) => {
      meter.allocate(1 + items.length, line);
      return new StarTuple(items);
    },
    /** Adds an item to what a comprehension builds. */
    collect: (items: Value[], item: Value, line: number) => {
      meter.allocate(1, line);
      items.push(item);
    },
    collectEntry: (dict: StarDict, key: Value, value: Value, line: number) => {
      meter.allocate(2, line);
      withKey(meter, line, key, () => dict.set(key, value));
    },
    dict: (dict: StarDict, count: number, line: number) => {
      meter.allocate(1 + 2 * count, line);
      return dict;
    },
    withEntry: (dict: StarDict, key: Value, value: Value, line: number) =>
      withKey(meter, line, key, () => dict.set(key, value)),
    elementsOf: (value: Value, line: number) => elementsOf(meter, value, line),
    unpack: (value: Value, count: number, line: number) => unpack(meter, value, count, line),
    beginLoop,
    endLoop,
    isTrue,
    negate,
    plus,
    invert,
    builtin: (name: string): Value => builtins.get(name) ?? null,
    FieldSite,
    StarFloat,
    StarList,
    StarDict,
  };
}

/** @throws PolicyError policy_runtime, always */
export function unassigned(name: string, line: number): never {
  return fail(line, `${name} has no value yet. Assign it on every way to this line`);
}

// Operators.

/** NaN is above all numbers. */
function isLess(meter: Meter, a: Value, b: Value, line: number): boolean {
  if (typeof a === 'number' && typeof b === 'number') return a < b;
  if (a instanceof StarFloat && b instanceof StarFloat) {
    const y = b.value;
    return a.value < y || (Number.isNaN(y) && !Number.isNaN(a.value));
  }
  return compare(meter, a, b, line) < 0;
}

/**
 * `isLess` of operands that can be bare numbers: `a` is a float where `kindOfA` says so, and a number or any
 * other value where it does not.
 */
function isLessBare(
  meter: Meter,
  a: Value,
  kindOfA: BareKind,
  b: Value,
  kindOfB: BareKind,
  line: number,
): boolean {
  const x = a instanceof StarFloat ? a.value : a;
  const y = b instanceof StarFloat ? b.value : b;
  if (typeof x === 'number' && typeof y === 'number') return x < y || (Number.isNaN(y) && !Number.isNaN(x));
  return compare(meter, boxed(a, kindOfA), boxed(b, kindOfB), line) < 0;
}

/** Where the operand was found: a field, or null for a value that says itself what it is. */
type BareKind = { readonly isFloat: boolean } | null;

function boxed(value: Value, kind: BareKind): Value {
  return typeof value === 'number' && kind?.isFloat === true ? new StarFloat(value) : value;
}

export function operate(meter: Meter, operator: BinaryOperator, a: Value, b: Value, line: number): Value {
  switch (operator) {
    case '+':
      return add(meter, a, b, line);
    case '-':
      return subtract(a, b, line);
    case '*':
      return multiply(meter, a, b, line);
    case '/':
      return divide(a, b, line);
    case '//':
      return floorDivide(a, b, line);
    case '%':
      return modulo(meter, a, b, line);
    case '==':
      return isEqual(meter, a, b, line);
    case '!=':
      return !isEqual(meter, a, b, line);
    case '<':
      return isLess(meter, a, b, line);
    case '<=':
      return !isLess(meter, b, a, line);
    case '>':
      return isLess(meter, b, a, line);
    case '>=':
      return !isLess(meter, a, b, line);
    case 'in':
      return contains(meter, a, b, line);
    case 'not in':
      return !contains(meter, a, b, line);
    default:
      return bitwise(meter, operator, a, b, line);
  }
}

/** `a op= b`. A list grows in place, so every variable that holds it sees the new items. */
export function augment(meter: Meter, operator: BinaryOperator, a: Value, b: Value, line: number): Value {
  if (operator !== '+' || !(a instanceof StarList)) return operate(meter, operator, a, b, line);
  requireMutable(a, line);
  const items = [...elementsOf(meter, b, line)];
  meter.spend(items.length, line);
  meter.allocate(items.length, line);
  for (const item of items) a.items.push(item);
  return a;
}
