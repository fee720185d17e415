/** A thread that runs cases, one after the other, as the pool hands them out. */

import { parentPort } from 'node:worker_threads';
import type { EvaluationError } from '../../../evolve/fitness/index.ts';
import { TierKVError } from '../../../runtime/errors.ts';
import { PolicyError } from '../../../sim/sandbox/index.ts';
import { Binder } from './runCase.ts';
import { runTask, type Task, type TaskResult } from './task.ts';

export type Answer = { readonly result: TaskResult } | { readonly error: EvaluationError };

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

parentPort?.on('message', async (task: Task) => {
  let answer: Answer;
  try {
    answer = { result: runTask(await binder.bind(task.bundle), task) };
  } catch (error) {
    answer = { error: errorOf(error) };
  }
  parentPort?.postMessage(answer);
});
