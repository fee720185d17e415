/**
 * A thread that runs tasks, one after the other, as the pool hands them out: cases of a suite, points of a sweep, and
 * trials of a plan.
 */

import { parentPort } from 'node:worker_threads';
import type { Unanswered } from '../../io/workerPool.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { answerPoint, type PointTasks, type SweptPoint } from '../../sim/build/point.ts';
import { runTrial, type TrialAnswer, type TrialTasks } from '../../studies/plan/trial.ts';
import { Binder, type CaseTask, runTask, type TaskResult } from '../evaluate/runCase.ts';
import type { EvaluationError } from '../evolve/fitness/evaluation.ts';
import { PolicyError } from '../sandbox/program.ts';

type CaseAnswer = { readonly result: TaskResult } | { readonly error: EvaluationError };

/** Tasks of a thread, and its answers, by kind. */
export interface Tasks extends PointTasks, TrialTasks {
  readonly case: { readonly task: CaseTask; readonly answer: CaseAnswer };
}

export type TaskKind = keyof Tasks;
export type TaskAnswer<K extends TaskKind> = Tasks[K]['answer'] | Unanswered;

type Message = {
  [K in keyof Tasks]: { readonly kind: K; readonly task: Tasks[K]['task'] };
}[keyof Tasks];

const binder = new Binder();

async function answerCase(task: CaseTask): Promise<CaseAnswer> {
  try {
    return { result: runTask(await binder.bind(task.bundle), task) };
  } catch (error) {
    return { error: errorOf(error) };
  }
}

/** The error in the words of an evaluation. */
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

function answerOf(message: Message): Promise<CaseAnswer> | SweptPoint | TrialAnswer {
  switch (message.kind) {
    case 'case':
      return answerCase(message.task);
    case 'point':
      return answerPoint(message.task);
    case 'trial':
      return runTrial(message.task);
  }
}

parentPort?.on('message', async (message: Message) => {
  parentPort?.postMessage(await answerOf(message));
});
