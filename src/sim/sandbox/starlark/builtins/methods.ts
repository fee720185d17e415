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
  typeName,
  type Value,
} from '../values/index.ts';
import { dictMethods, listMethods } from './collectionMethods.ts';
import { type Method, stringMethods } from './stringMethods.ts';

function methodsOf(object: Value): Readonly<Record<string, Method<never>>> {
  if (typeof object === 'string') return stringMethods;
  if (object instanceof StarList) return listMethods;
  return object instanceof StarDict ? dictMethods : {};
}

/** The table was chosen by the object's type, so the object is what the method takes: hence `as never`. */
function findMethod(object: Value, { name, line }: FieldSite): Method<never> {
  const methods = methodsOf(object);
  if (Object.hasOwn(methods, name)) return methods[name];
  const nearest = nearestName(name, Object.keys(methods));
  const remedy = nearest === undefined ? '' : `. Do you mean ${nearest}?`;
  return fail(line, `${typeName(object)} has no field or method ${name}${remedy}`);
}

export function getAttribute(object: Value, site: FieldSite): Value {
  const field = getField(object, site);
  if (field !== undefined) return field;
  const method = findMethod(object, site);
  return new StarFunction(site.name, (meter, positional, named, line) =>
    method(meter, object as never, positional, named, line),
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
  if (field === undefined) {
    return findMethod(object, site)(meter, object as never, positional, named, site.line);
  }
  if (!(field instanceof StarFunction)) return fail(site.line, `${typeName(field)} cannot be called`);
  return field.call(meter, positional, named, site.line);
}
