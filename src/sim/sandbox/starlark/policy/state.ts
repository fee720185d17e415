/**
 * What a Starlark policy remembers: a dict that its functions get as a last parameter, where they ask for it.
 * It holds plain values only, so that it can be written down. Lists and dicts that are shared stay shared.
 */

import type { PlainState } from '../../../control/policy.ts';
import { PolicyError } from '../../policyError.ts';
import {
  MAX_VALUE_DEPTH,
  StarDict,
  StarFloat,
  StarList,
  StarRange,
  StarTuple,
  typeName,
  type Value,
} from '../values/index.ts';

/**
 * Counts values and refuses those that cannot be written down.
 *
 * @param most stops counting there: shared values count each time, and could be very many
 * @throws PolicyError policy_runtime
 */
export function measureState(value: Value, most: number, depth = 0): number {
  if (value === null || typeof value !== 'object') {
    return typeof value === 'string' ? 1 + Math.floor(value.length / 8) : 1;
  }
  if (depth > MAX_VALUE_DEPTH) {
    throw new PolicyError('policy_runtime', `the state nests deeper than ${MAX_VALUE_DEPTH} values`);
  }
  if (value instanceof StarFloat || value instanceof StarRange) return 1;
  let size = 1;
  if (value instanceof StarList || value instanceof StarTuple) {
    for (const item of value.items) {
      if (size > most) break;
      size += measureState(item, most - size, depth + 1);
    }
    return size;
  }
  if (value instanceof StarDict) {
    for (const [key, item] of value.entries()) {
      if (size > most) break;
      size += measureState(key, most - size, depth + 1) + measureState(item, most - size, depth + 1);
    }
    return size;
  }
  throw new PolicyError(
    'policy_runtime',
    `the state holds ${typeName(value)}. Keep numbers, texts, lists, tuples and dicts in it`,
  );
}

/** Frees what the loops of a failed call still hold on to. */
export function releaseState(value: Value, seen: Set<Value> = new Set()): void {
  if (value === null || typeof value !== 'object' || seen.has(value)) return;
  seen.add(value);
  if (value instanceof StarList || value instanceof StarDict) value.loops = 0;
  if (value instanceof StarList || value instanceof StarTuple) {
    for (const item of value.items) releaseState(item, seen);
  } else if (value instanceof StarDict) {
    for (const [, item] of value.entries()) releaseState(item, seen);
  }
}

/** A value that was measured, as plain data. Ints stand bare, everything that holds others in an object. */
export function writeState(value: Value, seen: Map<Value, number> = new Map()): PlainState {
  if (value === null || typeof value !== 'object') return value;
  if (value instanceof StarFloat) return { float: value.value };
  if (value instanceof StarRange) return { range: [value.start, value.step, value.length] };
  if (value instanceof StarTuple) return { tuple: value.items.map((item) => writeState(item, seen)) };
  const before = seen.get(value);
  if (before !== undefined) return { same: before };
  seen.set(value, seen.size);
  if (value instanceof StarList) return { list: value.items.map((item) => writeState(item, seen)) };
  if (value instanceof StarDict) {
    return {
      dict: Array.from(value.entries(), ([key, item]) => [writeState(key, seen), writeState(item, seen)]),
    };
  }
  throw new PolicyError('policy_runtime', `the state holds ${typeName(value)}`);
}

/** The value that `writeState` wrote. */
export function readState(state: PlainState, seen: Value[] = []): Value {
  if (state === null || typeof state !== 'object') return state;
  // the state is what `writeState` made
  const written = state as Readonly<Record<string, readonly PlainState[]>> & {
    readonly float?: number;
    readonly same?: number;
  };
  if (written.float !== undefined) return new StarFloat(written.float);
  if (written.same !== undefined) return seen[written.same];
  if (written.tuple !== undefined) return new StarTuple(written.tuple.map((item) => readState(item, seen)));
  if (written.range !== undefined) {
    const [start, step, length] = written.range as readonly number[];
    return new StarRange(start, step, length);
  }
  if (written.list !== undefined) {
    const list = new StarList([]);
    seen.push(list);
    for (const item of written.list) list.items.push(readState(item, seen));
    return list;
  }
  const dict = new StarDict();
  seen.push(dict);
  for (const entry of written.dict) {
    const [key, item] = entry as readonly PlainState[];
    dict.set(readState(key, seen), readState(item, seen));
  }
  return dict;
}
