/** Members of a JSON object as they are written: found, left out and put in, without a reader of its own for the rest. */

import { expect, it } from 'vitest';
import { memberText, withMembers } from '../../src/runtime/boundedJson.ts';
import { SeededRandom, testSeed } from '../../src/testing/index.ts';

const texts = ['a', 'b"', '\\', '{', '}', ',', ':', 'é', 'seed', 'x\\"y', '[', '\u0000', ''];

/** JSON of any shape, with spaces where there may be some. No name stands twice: engines do not always agree which one counts. */
function objectOf(random: SeededRandom, depth: number): string {
  const space = (): string => ['', ' ', '\n', '\t ', '\r\n'][random.below(5)];
  const name = (number = ''): string => {
    const text = JSON.stringify(texts[random.below(texts.length)] + number);
    // some with a letter written as an escape
    return random.below(3) === 0 ? text.replace('s', '\\u0073') : text;
  };
  const value = (): string => {
    const kinds = ['null', 'true', '-0.50', '12345678901234567890', '1e400', name()];
    const kind = random.below(depth > 3 ? kinds.length : kinds.length + 2);
    if (kind < kinds.length) return kinds[kind];
    if (kind > kinds.length) return objectOf(random, depth + 1);
    const list = Array.from({ length: random.below(4) }, value);
    return `[${space()}${list.join(`${space()},${space()}`)}${space()}]`;
  };
  const members = Array.from(
    { length: random.below(6) },
    (_, i) => `${name(String(i))}${space()}:${space()}${value()}`,
  );
  return `${space()}{${space()}${members.join(`${space()},${space()}`)}${space()}}${space()}`;
}

const seed = testSeed(50);

it(`members are found as JSON.parse finds them, of any object (TIERKV_SEED=${seed})`, () => {
  const random = new SeededRandom(seed);
  for (let i = 0; i < 5000; i++) {
    const text = objectOf(random, 0);
    const fields = JSON.parse(text) as Record<string, unknown>;
    for (const [name, value] of Object.entries(fields)) {
      expect(JSON.parse(memberText(text, name) ?? ''), text).toEqual(value);
    }
    expect(memberText(text, 'nothing')).toBeUndefined();
    const others = Object.entries(fields).filter(([name]) => !name.startsWith('seed'));
    const changed = withMembers(text, (name) => name.startsWith('seed'), { a: '12345678901234567890' });
    expect(JSON.parse(changed), text).toEqual({
      ...Object.fromEntries(others),
      a: Number('12345678901234567890'),
    });
    expect(changed.endsWith('"a":12345678901234567890}')).toBe(true);
  }
});

it.each(['9223372036854775807', '-9007199254740993', '1e400', '0.10', '12345678901234567890'])(
  'the number %s is found as it is written',
  (number) => {
    expect(memberText(`{"a": {"seed": 1}, "seed" : ${number} , "b":[{"seed":2}]}`, 'seed')).toBe(number);
    expect(memberText(`{"seed":1,"se\\u0065d":${number}}`, 'seed')).toBe(number);
  },
);
