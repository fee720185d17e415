/** Plain data that travels as text: it arrives bit for bit, and other data does not leave. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readPayload, writePayload } from '../../src/policy/workers/payload.ts';

const leaf = fc.oneof(
  fc.double(),
  fc.bigInt(),
  fc.string(),
  fc.boolean(),
  fc.constant(null),
  fc.constantFrom(-0, Infinity, -Infinity, Number.NaN, 5e-324),
);
const key = fc.oneof(fc.string(), fc.constantFrom('$', 'of', 'of$'));
const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4 },
    leaf,
    fc.array(tie('tree'), { maxLength: 4 }),
    fc.dictionary(key, tie('tree'), { maxKeys: 4 }).map((each) => ({ ...each })),
  ),
}));

test('it arrives bit for bit, and like data have one text', () => {
  fc.assert(
    fc.property(tree, (value) => {
      const text = writePayload(value);
      expect(readPayload(text)).toStrictEqual(structuredClone(value));
      expect(writePayload(readPayload(text))).toBe(text);
    }),
  );
});

test('an entry that is undefined is left out, and one of a list is not', () => {
  expect(readPayload(writePayload({ a: undefined, b: [undefined, 1] }))).toStrictEqual({ b: [undefined, 1] });
});

test('other data does not leave', () => {
  for (const value of [() => 1, new Map(), new Float64Array(2), new Date(0)]) {
    expect(() => writePayload({ value })).toThrow('a payload is plain data');
  }
});

test('a text of another origin is one error that names the server', () => {
  const deep = '['.repeat(200_000) + ']'.repeat(200_000);
  for (const text of ['', '[', '{"$":"integer","of":"x"}', '{"$":"entries"}', deep]) {
    expect(() => readPayload(text), text.slice(0, 20)).toThrow(
      expect.objectContaining({ isTierKVError: true, code: 'TKV_INPUT', field: 'workers' }),
    );
  }
});
