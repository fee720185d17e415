import { describe, expect, test } from 'vitest';
import { hasExtra } from '../../../extras.ts';
import { attacks } from './known.ts';
import { tryProgram } from './trial.ts';

const languages = ['starlark', 'javascript', 'wasm'] as const;
const written = hasExtra('binaryen', 'attacks in WebAssembly')
  ? languages
  : languages.filter((language) => language !== 'wasm');

describe.each(written)('an attack in %s', (language) => {
  test.each(attacks.filter((attack) => attack.language === language))('$name', async ({ source, ends }) => {
    const budget = { steps: 100_000, memoryUnits: 300_000 };
    const { kind, fault } = await tryProgram(language, source, budget);
    expect(fault).toBe(null);
    expect(ends).toContain(kind);
    const again = await tryProgram(language, source, budget);
    expect(again.kind).toBe(kind);
  });
});
