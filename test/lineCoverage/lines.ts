/**
 * Which lines of a source ran, from V8's ranges. A line counts if it holds something that can run: what is
 * left of it without types and comments has a letter or a digit. It ran if any of that did, in any process.
 */

import { stripTypeScriptTypes } from 'node:module';

export interface V8Function {
  readonly ranges: readonly {
    readonly startOffset: number;
    readonly endOffset: number;
    readonly count: number;
  }[];
}

export interface LineCoverage {
  /** Numbers of lines that can run, from 1. */
  readonly lines: readonly number[];
  /** Of these, lines that ran. */
  readonly ran: ReadonlySet<number>;
}

/** Marks in `ran`, one entry a character of the source, what one process ran. */
export function addRuns(ran: Uint8Array, functions: readonly V8Function[]): void {
  const counts = new Int32Array(ran.length);
  // A function comes before those within it, and a range before those within it.
  for (const { ranges } of functions) {
    for (const { startOffset, endOffset, count } of ranges) counts.fill(count, startOffset, endOffset);
  }
  for (let i = 0; i < ran.length; i++) if (counts[i] > 0) ran[i] = 1;
}

/** @param ran by character, 1 where it ran */
export function linesOf(source: string, ran: Uint8Array): LineCoverage {
  const code = withoutComments(stripTypeScriptTypes(source));
  const lines: number[] = [];
  const covered = new Set<number>();
  let start = 0;
  code.split('\n').forEach((text, i) => {
    if (/[\p{L}\p{N}]/u.test(text) && !/^\s*(import|export \*|export \{)/.test(text)) {
      lines.push(i + 1);
      for (let at = 0; at < text.length; at++) {
        if (text[at].trim() === '' || ran[start + at] === 0) continue;
        covered.add(i + 1);
        break;
      }
    }
    start += text.length + 1;
  });
  return { lines, ran: covered };
}

/** Comments as blanks, so that all else stays where it is. Strings and templates are left alone. */
export function withoutComments(code: string): string {
  const token = /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g;
  return code.replace(token, (text) => (text.startsWith('/') ? text.replace(/[^\n]/g, ' ') : text));
}
