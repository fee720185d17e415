/** Runs a program compiled and by the oracle, which must agree in result, error, steps and memory. */

import { type Budget, PolicyError } from '../../../../src/policy/sandbox/program.ts';
import { repr } from '../../../../src/policy/sandbox/starlark/operations.ts';
import {
  type StarlarkInstance,
  StarlarkProgram,
} from '../../../../src/policy/sandbox/starlark/starlarkPolicy.ts';
import { interpret } from '../../../sandbox/starlark/interpreter.ts';

export interface RunResult {
  /** `repr` of what `main()` returned. */
  readonly value?: string;
  /** Kind, line and problem of the error. */
  readonly error?: string;
  readonly steps: number;
  readonly memory: number;
}

const budget = { steps: 50_000, memoryUnits: 50_000 };

type Engine = (source: string, budget: Budget) => StarlarkInstance;

/** The engine that the package has. */
export const compile: Engine = (source, budget) => new StarlarkProgram(source).instantiate(budget);

function runIn(engine: Engine, source: string): RunResult {
  let steps = 0;
  let memory = 0;
  try {
    const instance = engine(source, budget);
    const main = instance.function('main', 0);
    try {
      const value = instance.call(main, []);
      ({ stepsUsed: steps, memoryUsed: memory } = instance.meter);
      instance.meter.refill();
      return { value: repr(instance.meter, value, 0), steps, memory };
    } catch (error) {
      ({ stepsUsed: steps, memoryUsed: memory } = instance.meter);
      throw error;
    }
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error;
    return { error: `${error.kind} ${error.line ?? ''} ${error.problem}`, steps, memory };
  }
}

/** @throws where the engines differ */
export function runInBoth(source: string): RunResult {
  const compiled = runIn(compile, source);
  const interpreted = runIn(interpret, source);
  if (JSON.stringify(compiled) !== JSON.stringify(interpreted)) {
    const results = `compiled ${JSON.stringify(compiled)}\ninterpreted ${JSON.stringify(interpreted)}`;
    throw new Error(`the engines differ on\n${source}\n${results}`);
  }
  return compiled;
}

/** `repr` of an expression. */
export function evaluate(expression: string): string {
  const { value, error } = runInBoth(`def main():\n    return ${expression}\n`);
  return value ?? error ?? '';
}
