import { describe, expect, test } from 'vitest';
import { sized } from '../../../sized.ts';
import { runInBoth } from './bothEngines.ts';
import { RandomPrograms } from './randomPrograms.ts';

const seed = Number(process.env.TIERKV_SEED ?? 11);
const count = Number(process.env.TIERKV_PROGRAMS ?? sized(600, 2000));

describe('the compiled program and the tree', () => {
  test(`agree on ${count} random programs, in results, errors, steps and memory (seed ${seed})`, () => {
    const programs = new RandomPrograms(seed);
    let values = 0;
    for (let i = 0; i < count; i++) if (runInBoth(programs.program()).value !== undefined) values++;
    expect(values).toBeGreaterThan(count / 5);
    expect(values).toBeLessThan(count);
  });

  test(`end in a typed error or a result on ${count} broken texts (seed ${seed})`, () => {
    const programs = new RandomPrograms(seed + 1);
    let state = seed;
    const below = (n: number): number => {
      state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
      return state % n;
    };
    const pieces = [
      '(',
      ')',
      '[',
      ']',
      '{',
      '}',
      ':',
      '"',
      "'",
      '\n',
      '    ',
      'for',
      'if',
      'def',
      'lambda',
      '=',
      '*',
      '**',
      '.',
      ',',
      '\\',
      '%',
      'return',
      'None',
      '\u0000',
      '\u{1f600}',
      '1e999',
      '0x',
      'in',
      'not',
      ';',
    ];
    let refused = 0;
    for (let i = 0; i < count; i++) {
      let text = programs.program();
      for (let edits = 1 + below(3); edits > 0; edits--) {
        const at = below(text.length);
        text = text.slice(0, at) + pieces[below(pieces.length)] + text.slice(at + below(4));
      }
      if (runInBoth(text).error?.startsWith('compile')) refused++;
    }
    expect(refused).toBeGreaterThan(count / 4);
  });
});
