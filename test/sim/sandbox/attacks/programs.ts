/** Random programs by number: of every language, some of them damaged, each with a budget. */

import type { PolicyLanguage } from '../../../../src/policy/sandbox/program.ts';
import { Random } from '../../../fuzz/random.ts';
import { RandomPrograms } from '../starlark/randomPrograms.ts';
import { RandomModules } from '../wasm/randomModules.ts';
import { RandomScripts } from './randomScripts.ts';

export interface FuzzedProgram {
  readonly language: PolicyLanguage;
  readonly source: string;
  readonly budget: { readonly steps: number; readonly memoryUnits: number };
}

const languages: readonly PolicyLanguage[] = ['starlark', 'wasm', 'javascript'];

/** The program of that number: the same in every run. */
export function programOf(seed: number, number: number): FuzzedProgram {
  const random = new Random((Math.imul(seed, 0x9e3779b1) ^ Math.imul(number, 0x85ebca6b)) >>> 0);
  const language = languages[number % languages.length];
  const budget = { steps: random.pick([100, 5_000, 20_000]), memoryUnits: random.pick([20_000, 100_000]) };
  const isDamaged = random.chance(0.5);
  const at = random.below(2 ** 31);
  switch (language) {
    case 'starlark': {
      const program = new RandomPrograms(at).program();
      const source = `${program}def run(input):\n    return len(str(main())) + input.x\n`;
      return { language, source: isDamaged ? damagedText(source, random) : source, budget };
    }
    case 'wasm': {
      const { bytes } = new RandomModules(at).module();
      const damaged = isDamaged ? damagedBytes(bytes, random) : bytes;
      return { language, source: Buffer.from(damaged).toString('base64'), budget };
    }
    case 'javascript': {
      const source = new RandomScripts(new Random(at)).program();
      return { language, source: isDamaged ? damagedText(source, random) : source, budget };
    }
  }
}

/** Pieces that mean something in one of the languages, or that readers stumble over. */
const pieces = [
  '(',
  ')',
  '[',
  '{',
  '}',
  '\n',
  '    ',
  '\t',
  '"',
  "'",
  '\\',
  ',',
  ':',
  '=',
  '9'.repeat(30),
  '\0',
  '\u2028',
  '💥',
  '#',
  '//',
  '`${',
  ' in ',
  ' not ',
  'return ',
] as const;

function damagedText(text: string, random: Random): string {
  let damaged = text;
  for (let i = random.between(1, 3); i > 0; i--) {
    const from = random.below(damaged.length + 1);
    const to = Math.min(damaged.length, from + random.below(12));
    const middle = random.pick([
      '',
      random.pick(pieces),
      damaged.slice(from, to).repeat(random.between(2, 40)),
      random.pick(pieces).repeat(random.between(1, 3_000)),
    ]);
    damaged = damaged.slice(0, from) + middle + damaged.slice(to);
  }
  return damaged;
}

function damagedBytes(bytes: Uint8Array, random: Random): Uint8Array {
  const damaged = [...bytes];
  for (let i = random.between(1, 4); i > 0; i--) {
    const at = random.below(damaged.length);
    const how = random.below(4);
    if (how === 0) damaged[at] = random.below(256);
    else if (how === 1) damaged[at] ^= 1 << random.below(8);
    else if (how === 2) damaged.splice(at, random.between(1, 4));
    else damaged.splice(at, 0, ...Array.from({ length: random.between(1, 4) }, () => random.below(256)));
  }
  return Uint8Array.from(damaged);
}
