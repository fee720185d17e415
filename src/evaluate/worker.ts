/** A thread that runs cases, one after the other, as the pool hands them out. */

import { parentPort } from 'node:worker_threads';
import type { EvaluationError } from '../evolve/fitness/evaluation.ts';
import { TierKVError } from '../runtime/errors.ts';
import { PolicyError } from '../sandbox/program.ts';
import { Binder, type CaseTask, runTask, type TaskResult } from './runCase.ts';

export type CaseAnswer = { readonly result: TaskResult } | { readonly error: EvaluationError };

/** What went wrong, in the words of an evaluation. */
function errorOf(error: unknown): EvaluationError {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof PolicyError) {
    return { kind: error.kind, message, ...(error.line === undefined ? {} : { line: error.line }) };
  }
  // a setting at fault; anything else is a mistake of the simulator that this policy brought to light
  return error instanceof TierKVError
    ? { kind: 'contract', message }
    : { kind: 'policy_runtime', message: `the simulation failed: ${message}` };
}

const binder = new Binder();

parentPort?.on('message', async (task: CaseTask) => {
  let answer: CaseAnswer;
  try {
    answer = { result: runTask(await binder.bind(task.bundle), task) };
  } catch (error) {
    answer = { error: errorOf(error) };
  }
  parentPort?.postMessage(answer);
});
