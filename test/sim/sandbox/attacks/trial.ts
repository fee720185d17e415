/** One program, tried as a policy: loaded, bound and called, until it ends in a decision or in an error. */

import { type Engine, newEngine } from '../../../../src/policy/sandbox/javascript/engine.ts';
import { JavaScriptPolicy } from '../../../../src/policy/sandbox/javascript/javascriptPolicy.ts';
import { loadProgram } from '../../../../src/policy/sandbox/loadProgram.ts';
import {
  type Budget,
  PolicyError,
  type PolicyInstance,
  type PolicyLanguage,
  type PolicyProgram,
  type Signature,
} from '../../../../src/policy/sandbox/program.ts';

export const run: Signature = {
  name: 'run',
  inputs: [{ name: 'input', kind: 'record', fields: { x: 'float' } }],
  decision: { kind: 'number' },
};

export interface Outcome {
  /** Kind of the error, or `decided`. */
  readonly kind: string;
  /** Of the last call. */
  readonly steps: number;
  readonly memory: number;
  /** What the calls returned. */
  readonly decisions: readonly number[];
  /** What is wrong with the sandbox, not with the program. */
  readonly fault: string | null;
}

const kinds: ReadonlySet<string> = new Set([
  'compile',
  'contract',
  'step_limit',
  'memory_limit',
  'policy_runtime',
  'invalid_decision',
]);

let engine: Engine | null = null;

/** JavaScript programs share one engine, until one of them breaks it. */
async function load(language: PolicyLanguage, source: string): Promise<PolicyProgram> {
  if (language !== 'javascript') return await loadProgram(language, source);
  if (engine === null || engine.isBroken) engine = await newEngine();
  engine.forget();
  return new JavaScriptPolicy(engine, source);
}

export async function tryProgram(
  language: PolicyLanguage,
  source: string,
  budget: { readonly steps: number; readonly memoryUnits: number },
): Promise<Outcome> {
  let instance: PolicyInstance | null = null;
  const decisions: number[] = [];
  let kind = 'decided';
  let fault: string | null = null;
  try {
    instance = (await load(language, source)).instantiate(budget satisfies Budget);
    const policy = instance.bind(run);
    for (const x of [1, 250, -3]) {
      policy.inputs[0].values[0] = x;
      decisions.push(policy.call()[0]);
    }
  } catch (error) {
    kind = error instanceof PolicyError ? error.kind : 'untyped';
    if (!kinds.has(kind)) fault = `ended in ${String(error)}`;
    else if (String((error as Error).message).includes('\n')) fault = 'has an error of several lines';
  }
  const steps = instance?.stepsUsed ?? 0;
  const memory = instance === null || engine?.isBroken === true ? 0 : instance.memoryUsed;
  if (steps > budget.steps) fault = `took ${steps} steps of ${budget.steps}`;
  if (memory > budget.memoryUnits) fault = `took ${memory} units of ${budget.memoryUnits}`;
  return { kind, steps, memory, decisions, fault };
}
