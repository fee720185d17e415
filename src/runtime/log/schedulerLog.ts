/**
 * The scheduler's part of a decision log as text. A line that begins with `(` is an input of the scheduler, `|` its
 * decision, `)` the end of an input. Inputs of the manager between `(` and `)` are the scheduler's own calls: a
 * replay skips them, since the scheduler makes them again.
 *
 *     ( 0 scheduler {"maxBatchedTokens":2048,...}
 *     )
 *     ( 12 add 1 40 8 0 12 0 "first" <keys in hex>
 *     )
 *     ( 15 step
 *     > 15 open 2 2 0 0 0 <keys in hex>
 *     < match 1 2 0 0 0
 *     | admit 1 0 40
 *     | plan 1 40 0
 *     )
 *     ( 20 rerank 1 -7.5 3 2
 *     )
 */

import {
  type AddedRequest,
  type SchedulerDecision,
  SchedulerInput,
  type SchedulerSink,
  schedulerDecisionNames,
  schedulerInputNames,
} from '../batching/schedulerSink.ts';
import { hexOf, type SchedulerHead, wordsOf } from './decisionSink.ts';

/** Takes whole lines, without their checks. */
interface SchedulerLines {
  given(line: string): void;
  decided(line: string): void;
}

/** Numbers that an input writes. */
const schedulerNumbers: Readonly<Record<SchedulerInput, number>> = {
  [SchedulerInput.ADD]: 5,
  [SchedulerInput.ABORT]: 1,
  [SchedulerInput.STEP]: 0,
  [SchedulerInput.STOP]: 1,
  [SchedulerInput.STEP_ENDED]: 0,
  [SchedulerInput.REQUEUE]: 1,
  [SchedulerInput.STEP_FAILED]: 0,
  [SchedulerInput.KEYS]: 1,
  [SchedulerInput.RERANK]: 0,
  [SchedulerInput.SHARED_STEP]: 1,
};

export class SchedulerLog implements SchedulerSink {
  readonly #lines: SchedulerLines;

  constructor(head: SchedulerHead, nowUs: number, lines: SchedulerLines) {
    this.#lines = lines;
    lines.given(`( ${nowUs} scheduler ${JSON.stringify(head)}`);
    this.done();
  }

  input(
    op: SchedulerInput,
    nowUs: number,
    a: number,
    b: number,
    c: number,
    d: number,
    e: number,
    added?: AddedRequest,
    ranks: readonly number[] = [],
  ): void {
    let line = `( ${nowUs} ${schedulerInputNames[op]}`;
    const numbers = [a, b, c, d, e];
    for (let i = 0; i < schedulerNumbers[op]; i++) line += ` ${numbers[i]}`;
    if (op === SchedulerInput.ADD && added !== undefined) line += ` ${added.owner} ${wordOf(added.id)}`;
    if (added !== undefined) line += ` ${hexOf(added.keys)}`;
    for (const number of ranks) line += ` ${number}`;
    this.#lines.given(line);
  }

  decision(op: SchedulerDecision, a: number, b: number, c: number): void {
    this.#lines.decided(`| ${schedulerDecisionNames[op]} ${a} ${b} ${c}`);
  }

  done(): void {
    this.#lines.given(')');
  }
}

/** The text as one word of a line: JSON without spaces. */
function wordOf(text: string): string {
  return JSON.stringify(text).replaceAll(' ', '\\u0020');
}

// Reads the scheduler's lines of a decision log.

/** An input of the scheduler. The first one of a log has its head. */
export interface RecordedSchedulerInput {
  readonly of: 'scheduler';
  /** Undefined where the scheduler begins. */
  readonly op: SchedulerInput | undefined;
  readonly nowUs: number;
  readonly head: SchedulerHead | undefined;
  readonly args: readonly number[];
  /** Owner of an added request. */
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
