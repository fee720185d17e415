import { describe, expect, it } from 'vitest';
import { TierKVError } from '../../../../src/runtime/errors.ts';
import {
  maxMappings,
  maxYamlCharacters,
  maxYamlEmptyLines,
  readYaml,
} from '../../../../src/sim/description/fields.ts';

const read = (text: string) => readYaml(text, 'f.yaml');
const times = (count: number, text: string): string => Array.from({ length: count }, () => text).join('');

function errorOf(text: string): TierKVError {
  try {
    read(text);
  } catch (error) {
    if (error instanceof TierKVError) return error;
    throw error;
  }
  throw new Error('it was read');
}

describe('aliases', () => {
  it('stand for what they name, as values, in lists and as keys', () => {
    const root = read(
      'base: &b {rate: 5}\none: *b\nlist:\n  - *b\n  - {rate: 6}\nname: &n rate\nkeyed: {*n : 7}\n',
    );
    expect(root.section('one')!.number('rate', {}, 0)).toBe(5);
    expect(root.list('list').map((item) => item.number('rate', {}, 0))).toEqual([5, 6]);
    expect(root.section('keyed')!.number('rate', {}, 0)).toBe(7);
  });

  it('name the last node with their anchor', () => {
    const root = read('a: &x 1\nb: *x\nc: &x 2\nd: *x\n');
    expect(['b', 'd'].map((key) => root.number(key, {}, 0))).toEqual([1, 2]);
  });

  it('cost nothing until they are read, and count each time that they are', () => {
    const bomb = Array.from(
      { length: 60 },
      (_, i) => `k${i}: &b${i} [${i === 0 ? '{x: 1}' : times(9, `*b${i - 1},`).slice(0, -1)}]\n`,
    ).join('');
    expect(read(bomb).keys()).toHaveLength(60);
    const root = read(`one: &o {x: 1}\nlist: [${times(1000, '*o,')}]\n`);
    const readAll = (): void => {
      for (let i = 0; i <= maxMappings / 1000; i++) root.list('list');
    };
    expect(readAll).toThrow(/^f\.yaml:1: there are more than 500000 mappings to read/);
  });

  it.each([
    ['a: &x [*x]', /^f\.yaml:1: an alias contains itself/],
    ['a: &x\n  b: {c: *x}', /^f\.yaml:2: an alias contains itself/],
    ['a: *nowhere', /^f\.yaml:1: not valid YAML: .*nowhere/],
    ['a: *x\nb: &x 1', /^f\.yaml:1: not valid YAML: .*\bx\b/],
  ])('%j is an error with its line', (text, message) => {
    expect(errorOf(text).message).toMatch(message);
  });
});

describe('a text beyond its limits', () => {
  it.each([
    ['nested lists', `a: ${times(100_000, '[')}`, /:1: lists and mappings are nested more than 100 deep/],
    ['nested dashes', times(100_000, '- '), /nested more than 100 deep/],
    ['nested keys', `{"a": ${times(500, '{"a": ')}`, /nested more than 100 deep/],
    ['more characters', `a: ${times(maxYamlCharacters, 'x')}`, /:1: has more than 1048576 characters/],
    ['directives', times(20, '%A\n'), /:11: there are more than 10 directives/],
    ['stray brackets', times(100_000, '}\n'), /:1: not valid YAML/],
    ['a second document', 'a: 1\n---\nb: 2\n', /a second document begins/],
    ['a list as a key', '[a, b]: 1', /:1: a key is a list or a mapping/],
  ])('of %s is one line', (_, text, message) => {
    const error = errorOf(text);
    expect(error.message).toMatch(message);
    expect(error.message.length).toBeLessThan(300);
  });

  it('and values of any length are shown short', () => {
    const root = read(`word: ${times(5000, 'x')}\ndigits: ${times(5000, '9')}\n`);
    expect(() => root.number('word', {}, 0)).toThrow(/word is x{40}\.\.\.\. Set it/);
    expect(() => root.number('digits', {}, 0)).toThrow(/digits is Infinity\. Set it/);
    expect(() => root.choice('word', ['a', 'b'])).toThrow(/word is "x{40}\.\.\."\. Use one of: a, b/);
  });

  it('but a hundred levels and ten thousand keys are fine', () => {
    const deep = `${times(45, '{"a": ')}1${times(45, '}')}`;
    expect(read(deep).keys()).toEqual(['a']);
    const wide = Array.from({ length: 10_000 }, (_, i) => `k${i}: ${i}\n`).join('');
    expect(read(wide).number('k9999', {}, 0)).toBe(9999);
  });
});

describe('empty lines', () => {
  it('are read up to their limit in a row, and refused with the line behind it', () => {
    const text = (count: number): string => `a: 1\n${times(count, ' \n')}b: 2\n`;
    expect(read(text(maxYamlEmptyLines)).number('b', {}, 0)).toBe(2);
    expect(errorOf(text(maxYamlEmptyLines + 1))).toMatchObject({
      code: 'TKV_INPUT',
      line: maxYamlEmptyLines + 2,
    });
  });
});
