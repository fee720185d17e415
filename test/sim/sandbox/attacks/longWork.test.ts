import { describe, expect, test } from 'vitest';
import { longWork } from './longWork.ts';
import { programOf } from './programs.ts';
import { tryProgram } from './trial.ts';

const budget = { steps: 100_000, memoryUnits: 1_000_000 };

describe('long work of the engine that takes few steps of the program ends by its budget', () => {
  test.each(Object.entries(longWork))('%s', async (_, body) => {
    const source = `function run(input) { ${body} }`;
    const outcome = await tryProgram('javascript', source, budget);
    expect(outcome.fault).toBe(null);
    expect(['step_limit', 'memory_limit', 'policy_runtime']).toContain(outcome.kind);
    expect(await tryProgram('javascript', source, budget)).toEqual(outcome);
  });
});

test('a random program that a worker had to be killed for ends by its budget', async () => {
  const { language, source, budget } = programOf(4, 1814);
  expect(language).toBe('javascript');
  const { kind, steps, fault } = await tryProgram(language, source, budget);
  expect({ kind, steps, fault }).toEqual({ kind: 'step_limit', steps: budget.steps, fault: null });
});

test('a built-in method pays for the length of its text or array', async () => {
  const steps = async (length: number): Promise<number> => {
    const source = `const s = 'x'.repeat(${length}); function run() { return s.indexOf('y'); }`;
    const outcome = await tryProgram('javascript', source, budget);
    expect(outcome.decisions).toEqual([-1, -1, -1]);
    return outcome.steps;
  };
  const [short, long] = [await steps(10_000), await steps(100_000)];
  expect(long).toBeGreaterThan(9 * short);
  expect(long).toBeLessThan(11 * short);
});
