/** From the arguments of a call to the parameters of a function of the program. */

import type { Meter } from '../../meter.ts';
import { fail } from '../failure.ts';
import type { FunctionNode } from '../syntax/index.ts';
import {
  elementsOf,
  type NamedArguments,
  StarDict,
  StarFunction,
  StarTuple,
  typeName,
  type Value,
} from '../values/index.ts';

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

/** @throws PolicyError policy_runtime for what is no function */
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
