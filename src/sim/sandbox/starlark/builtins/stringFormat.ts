/** `"{} {name!r}".format(...)`: fields by order, number or name, without attributes and widths. */

import type { Meter } from '../../meter.ts';
import { fail } from '../failure.ts';
import { type NamedArguments, repr, str, type Value } from '../values/index.ts';

const FIELD = /^([^!:]*)(?:!([a-z]))?$/;

export function formatText(
  meter: Meter,
  format: string,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): string {
  meter.spend(format.length, line);
  let next = 0;
  const numbered = { isAutomatic: false, isManual: false };
  const fieldValue = (name: string): Value => {
    if (name === '') numbered.isAutomatic = true;
    else if (/^\d+$/.test(name)) numbered.isManual = true;
    if (numbered.isAutomatic && numbered.isManual) fail(line, 'format mixes {} and {0}. Use one of them');
    if (name !== '' && !/^\d+$/.test(name)) {
      const found = named.find(([key]) => key === name);
      return found === undefined ? fail(line, `format gets no argument ${name}`) : found[1];
    }
    const index = name === '' ? next++ : Number(name);
    return index < positional.length
      ? positional[index]
      : fail(line, `format gets no argument number ${index}`);
  };
  let text = '';
  for (let i = 0; i < format.length; i++) {
    const c = format[i];
    if ((c === '{' || c === '}') && format[i + 1] === c) {
      text += c;
      i++;
    } else if (c === '}') {
      fail(line, 'a single "}" stands in the format. Write }}');
    } else if (c === '{') {
      const end = format.indexOf('}', i);
      if (end < 0) fail(line, 'a "{" is not closed in the format. Write {{ for a brace');
      const field = FIELD.exec(format.slice(i + 1, end));
      if (field === null || /[{.[\]]/.test(field[1])) {
        return fail(line, 'a field of a format is a name or a number. Round a float before it is shown');
      }
      const value = fieldValue(field[1]);
      if (field[2] !== undefined && field[2] !== 'r' && field[2] !== 's')
        fail(line, `!${field[2]} is no conversion`);
      text += field[2] === 'r' ? repr(meter, value, line) : str(meter, value, line);
      i = end;
    } else {
      text += c;
    }
  }
  meter.allocateText(text.length, line);
  return text;
}
