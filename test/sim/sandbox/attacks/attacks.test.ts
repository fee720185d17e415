import { describe, expect, test } from 'vitest';
import { attacks } from './known.ts';
import { tryProgram } from './trial.ts';

describe.each(['starlark', 'javascript', 'wasm'] as const)('an attack in %s', (language) => {
  test.each(attacks.filter((attack) => attack.language === language))('$name', async ({ source, ends }) => {
    const budget = { steps: 100_000, memoryUnits: 300_000 };
    const { kind, fault } = await tryProgram(language, source, budget);
    expect(fault).toBe(null);
    expect(ends).toContain(kind);
    const again = await tryProgram(language, source, budget);
    expect(again.kind).toBe(kind);
  });
});
