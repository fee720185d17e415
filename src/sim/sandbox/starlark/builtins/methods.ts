/** `x.name` and `x.name(...)`: a field of a record or a method of a string, a list or a dict. */

import { nearestName } from '../../../../runtime/nearestName.ts';
import type { Meter } from '../../meter.ts';
import { fail } from '../failure.ts';
import {
  type FieldSite,
  getField,
  type NamedArguments,
  StarDict,
  StarFunction,
  StarList,
  StarRecord,
  StarTuple,
  typeName,
  type Value,
} from '../values/index.ts';
import { dictMethods, listMethods } from './collectionMethods.ts';
import { type Method, stringMethods } from './stringMethods.ts';

/** The call of one of the methods, all of which take what `self` is. */
function callOne<Self extends Value>(
  methods: Readonly<Record<string, Method<Self>>>,
  meter: Meter,
  self: Self,
  site: FieldSite,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): Value {
  return Object.hasOwn(methods, site.name)
    ? methods[site.name](meter, self, positional, named, line)
    : noMethod(methods, self, site);
}

function callOn(
  meter: Meter,
  object: Value,
  site: FieldSite,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): Value {
  if (typeof object === 'string') {
    return callOne(stringMethods, meter, object, site, positional, named, line);
  }
  if (object instanceof StarList) return callOne(listMethods, meter, object, site, positional, named, line);
  if (object instanceof StarDict) return callOne(dictMethods, meter, object, site, positional, named, line);
  return noMethod({}, object, site);
}

function methodsOf(object: Value): object {
  if (typeof object === 'string') return stringMethods;
  if (object instanceof StarList) return listMethods;
  return object instanceof StarDict ? dictMethods : {};
}

function noMethod(methods: object, object: Value, { name, line }: FieldSite): never {
  return fail(line, `${typeName(object)} has no field or method ${name}${remedyFor(methods, object, name)}`);
}

function remedyFor(methods: object, object: Value, name: string): string {
  if (['length', 'size', 'count'].includes(name) && !(name in methods)) return '. Write len(x)';
  const isMany = object instanceof StarTuple || object instanceof StarList;
  const [first] = isMany ? object.items : [];
  if (first instanceof StarRecord && first.shape.indexOf(name) >= 0) {
    return `. It holds records of ${first.shape.name}: [x.${name} for x in ${first.shape.name}]`;
  }
  const nearest = nearestName(name, Object.keys(methods));
  return nearest === undefined ? '' : `. Do you mean ${nearest}?`;
}

export function getAttribute(object: Value, site: FieldSite): Value {
  const field = getField(object, site);
  if (field !== undefined) return field;
  const methods = methodsOf(object);
  if (!Object.hasOwn(methods, site.name)) noMethod(methods, object, site);
  return new StarFunction(site.name, (meter, positional, named, line) =>
    callOn(meter, object, site, positional, named, line),
  );
}

/** `object.name(...)`, without making a value of the method. */
export function callMethod(
  meter: Meter,
  object: Value,
  site: FieldSite,
  positional: readonly Value[],
  named: NamedArguments,
): Value {
  const field = getField(object, site);
  if (field === undefined) return callOn(meter, object, site, positional, named, site.line);
  if (!(field instanceof StarFunction)) return fail(site.line, `${typeName(field)} cannot be called`);
  return field.call(meter, positional, named, site.line);
}
