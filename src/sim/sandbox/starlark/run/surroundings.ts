/** What compiled code calls. The generator names these functions; nothing else is in their reach. */

import { builtins, callMethod, getAttribute } from '../builtins/index.ts';
import type { FunctionNode } from '../syntax/index.ts';
import {
  add,
  addBare,
  beginLoop,
  bitwise,
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
  isTrue,
  leftNumber,
  modulo,
  multiply,
  multiplyBare,
  type NamedArguments,
  negate,
  plus,
  quotient,
  rightNumber,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarTuple,
  setItem,
  subtract,
  subtractBare,
  unpack,
  type Value,
  withKey,
} from '../values/index.ts';
import { arityOf, bindArguments, call, withNamedRest, withRest } from './arguments.ts';
import { unassigned } from './frame.ts';
import { augment, type BareKind, isLess, isLessBare } from './operators.ts';
import type { Thread } from './thread.ts';

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
    /** What operations know of a number whose kind the text of the program says. */
    anInt: 0,
    aFloat: new StarFloat(0),
    isFloat: { isFloat: true },
    multiply: (a: Value, b: Value, line: number) => multiply(meter, a, b, line),
    divide,
    floorDivide,
    modulo: (a: Value, b: Value, line: number) => modulo(meter, a, b, line),
    bitwise: (operator: string, a: Value, b: Value, line: number) => bitwise(meter, operator, a, b, line),
    augment: (operator: '+', a: Value, b: Value, line: number) => augment(meter, operator, a, b, line),
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
