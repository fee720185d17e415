/** Reads the lines of a decision log that a scheduler was given. */

import { SchedulerInput, schedulerInputNames } from '../batching/schedulerSink.ts';
import type { SchedulerHead } from './decisionSink.ts';
import { wordsOf } from './logText.ts';
import { schedulerNumbers } from './schedulerLog.ts';

/** What a scheduler was given. The first one of a log has its head. */
export interface RecordedSchedulerInput {
  readonly of: 'scheduler';
  /** Undefined where the scheduler begins. */
  readonly op: SchedulerInput | undefined;
  readonly nowUs: number;
  readonly head: SchedulerHead | undefined;
  readonly args: readonly number[];
  /** Of an added request. */
  readonly owner: number;
  readonly id: string;
  readonly words: Uint32Array;
}

/**
 * @param body the line without its check
 * @param broken makes the error that names the line
 */
export function parseSchedulerInput(
  body: string,
  broken: (problem: string) => Error,
): RecordedSchedulerInput {
  const [, time = '', name = '', ...rest] = body.split(' ');
  const nowUs = Number(time);
  const plain = { of: 'scheduler', nowUs, head: undefined, args: [], owner: 0, id: '' } as const;
  const none = new Uint32Array();
  if (name === 'scheduler') {
    const head = parsed(rest.join(' ')) as SchedulerHead | undefined;
    if (head === undefined) throw broken('is not a whole scheduler');
    return { ...plain, op: undefined, head, words: none };
  }
  const at = (schedulerInputNames as readonly string[]).indexOf(name);
  if (at === -1) throw broken('is not an input that this version knows');
  const op = at as SchedulerInput;
  if (op === SchedulerInput.RERANK) {
    const args = rest.map(Number);
    const whole = args.length > 0 && args.length % 2 === 0 && Number.isSafeInteger(nowUs);
    const isGood = (arg: number, i: number): boolean =>
      rest[i] !== '' && (i % 2 === 0 ? Number.isSafeInteger(arg) : Number.isFinite(arg));
    if (!whole || !args.every(isGood)) throw broken('is not a whole rerank');
    return { ...plain, op, args, words: none };
  }
  const count = schedulerNumbers[op];
  const isAdd = op === SchedulerInput.ADD;
  const hasWords = isAdd || op === SchedulerInput.KEYS;
  const args = rest.slice(0, count).map(Number);
  const owner = isAdd ? Number(rest[count]) : 0;
  const id = isAdd ? parsed(rest[count + 1] ?? '') : '';
  const words = hasWords ? wordsOf(rest[count + (isAdd ? 2 : 0)] ?? '') : none;
  const length = count + (isAdd ? 2 : 0) + (hasWords ? 1 : 0);
  const whole = rest.length === length && [nowUs, owner, ...args].every(Number.isSafeInteger);
  if (!whole || words === undefined || typeof id !== 'string') throw broken(`is not a whole ${name}`);
  return { ...plain, op, args, owner, id, words };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
