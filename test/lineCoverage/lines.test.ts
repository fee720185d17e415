/** The lines that count, and the lines that ran, of a source that is known. */

import { expect, it } from 'vitest';
import { addRuns, linesOf, withoutComments } from './lines.ts';

const source = `/** A comment with words. */
import { x } from './x.ts';
export interface Shape {
  readonly side: number;
}
export function twice(n: number): number {
  if (n < 0) {
    return -1; // never
  }
  return 2 * n;
}
`;

it('types, comments, imports and brackets do not count; a range of its own overrules the one around it', () => {
  const ran = new Uint8Array(source.length);
  const at = (text: string): number => source.indexOf(text);
  const body = { startOffset: at('export function'), endOffset: source.length - 1, count: 3 };
  const branch = { startOffset: at('{\n    return -1'), endOffset: at('  return 2'), count: 0 };
  addRuns(ran, [
    { ranges: [{ startOffset: 0, endOffset: source.length, count: 1 }] },
    { ranges: [body, branch] },
  ]);
  const { lines, ran: covered } = linesOf(source, ran);
  expect(lines).toEqual([6, 7, 8, 10]);
  expect([...covered]).toEqual([6, 7, 10]);
  addRuns(ran, [{ ranges: [{ ...branch, count: 1 }] }]);
  expect(linesOf(source, ran).ran.size, 'another process ran it').toBe(4);
  expect(linesOf(source, new Uint8Array(source.length)).ran.size, 'a file that was never loaded').toBe(0);
});

it('strings that look like comments stay', () => {
  expect(withoutComments("a = '// no'; /* b\nc */ d(`/*`); // e")).toBe(
    "a = '// no';     \n     d(`/*`);     ",
  );
});
