/** An ONNX file is read for the files that it takes data from, wherever it names them, in parts of any size. */

import { describe, expect, test } from 'vitest';
import { locationParts, OnnxFileReader } from '../../src/adapters/transformers/onnxFile.ts';
import { randomNumbers } from './decoders.ts';

function number(value: number): number[] {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest];
    bytes.push((rest % 128) + 128);
  }
}
const field = (id: number, bytes: readonly number[]): number[] => [
  ...number(8 * id + 2),
  ...number(bytes.length),
  ...bytes,
];
const text = (id: number, value: string): number[] => field(id, [...new TextEncoder().encode(value)]);
const entry = (key: string, value: string): number[] => field(13, [...text(1, key), ...text(2, value)]);
/** A tensor with data elsewhere, and bytes of its own that look like a name. */
const tensor = (location: string): number[] => [
  8,
  5,
  ...text(8, 'name'),
  ...field(9, entry('location', 'not a name')),
  ...entry('offset', '0'),
  ...entry('location', location),
  ...entry('length', '9'),
];
const graph = (inside: readonly number[]): number[] => field(7, inside);
const node = (attribute: readonly number[]): number[] => field(1, [...text(4, 'If'), ...field(5, attribute)]);

function readWhole(file: readonly number[], part = file.length): string[] {
  const reader = new OnnxFileReader();
  for (let at = 0; at < file.length; at += part) reader.push(Uint8Array.from(file.slice(at, at + part)));
  return reader.finish();
}

const places: readonly (readonly [string, number[]])[] = [
  ['an initialiser', graph(field(5, tensor('here')))],
  ['a sparse initialiser', graph(field(15, field(1, tensor('here'))))],
  ['indices of a sparse initialiser', graph(field(15, field(2, tensor('here'))))],
  ['a tensor of an attribute', graph(node(field(5, tensor('here'))))],
  ['tensors of an attribute', graph(node(field(10, tensor('here'))))],
  ['a sparse tensor of an attribute', graph(node(field(22, field(1, tensor('here')))))],
  ['a sub-graph', graph(node(field(6, field(5, tensor('here')))))],
  ['sub-graphs', graph(node(field(11, field(5, tensor('here')))))],
  ['a sub-graph of a sub-graph', graph(node(field(6, node(field(6, field(5, tensor('here')))))))],
  ['a function', [...graph([]), ...field(25, field(7, field(5, field(5, tensor('here')))))]],
  ['a function with its default', [...graph([]), ...field(25, field(11, field(5, tensor('here'))))]],
];

test.each(places)('%s', (_, file) => {
  for (const part of [1, 2, 3, 7, file.length]) expect(readWhole(file, part)).toEqual(['here']);
});

test('names come once and in order, beside fields that are not known', () => {
  const unknown = [...number(8 * 900 + 1), 1, 2, 3, 4, 5, 6, 7, 8, ...number(8 * 901 + 5), 1, 2, 3, 4];
  const big = [...number(8 * 902), 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
  const all = ['b', 'a', 'b', 'c'].flatMap((name) => field(5, tensor(name)));
  expect(readWhole([8, 9, ...unknown, ...big, ...graph([...unknown, ...all])], 5)).toEqual(['a', 'b', 'c']);
  expect(readWhole(graph(field(5, [8, 1])))).toEqual([]);
});

describe('what is not an ONNX file', () => {
  const deep = (levels: number): number[] => (levels === 0 ? [] : node(field(6, deep(levels - 1))));
  test.each<readonly [string, readonly number[], RegExp]>([
    ['nothing', [], /no graph/],
    ['a text', [...new TextEncoder().encode('<!DOCTYPE html>')], /not an ONNX file/],
    ['half a file', graph(field(5, tensor('here'))).slice(0, -9), /ends too early/],
    ['a field longer than its graph', graph([...number(8 * 5 + 2), 100, 1]), /longer than what it stands in/],
    ['a number without end', new Array(11).fill(255), /a number is too long/],
    ['graphs without end', graph(deep(40)), /deep in each other/],
    ['a long name', graph(field(5, tensor('x'.repeat(5000)))), /a name has 5000 bytes/],
    [
      'names without end',
      graph(Array.from({ length: 4097 }, (_, i) => field(5, entry('location', `${i}`))).flat()),
      /more than 4096 files/,
    ],
  ])('%s', (_, file, message) => {
    for (const part of [1, file.length || 1]) expect(() => readWhole(file, part)).toThrow(message);
  });

  test('damaged in any byte it ends in names or in one line', () => {
    const seed = 5;
    const next = randomNumbers(seed);
    const file = graph([...places[0][1], ...places[6][1].slice(2), ...field(5, tensor('here'))]);
    for (let i = 0; i < 3000; i++) {
      const damaged = file.slice();
      damaged[next() % file.length] = next() % 256;
      try {
        expect(Array.isArray(readWhole(damaged, 1 + (next() % 9)))).toBe(true);
      } catch (error) {
        expect((error as Error).message, `seed ${seed}, ${i}`).toMatch(/^it is not an ONNX file: /);
      }
    }
  });
});

test.each(['', '.', '/etc/passwd', '../other', 'a/../../b', 'C:\\x', 'a\0b'])(
  'data in %j is refused',
  (location) => {
    expect(() => locationParts(location)).toThrow(/outside of its folder/);
  },
);
test('a location is a path below the folder', () => {
  expect(locationParts('./parts/one.bin')).toEqual(['parts', 'one.bin']);
});
