/**
 * The scheduler's part of a decision log as text. A line that begins with `(` is what the scheduler was
 * given, `|` what it decided, `)` that it is done. Inputs of the manager between the two are the scheduler's
 * own calls: who runs the log again gives them to nobody, since the scheduler makes them again.
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
import type { SchedulerHead } from './decisionSink.ts';
import { hexOf } from './logText.ts';

/** Takes whole lines, without their checks. */
export interface SchedulerLines {
  given(line: string): void;
  decided(line: string): void;
}

/** Numbers that an input writes. */
export const schedulerNumbers: Readonly<Record<SchedulerInput, number>> = {
  [SchedulerInput.ADD]: 5,
  [SchedulerInput.ABORT]: 1,
  [SchedulerInput.STEP]: 0,
  [SchedulerInput.STOP]: 1,
  [SchedulerInput.STEP_ENDED]: 0,
  [SchedulerInput.REQUEUE]: 1,
  [SchedulerInput.STEP_FAILED]: 0,
  [SchedulerInput.KEYS]: 1,
  [SchedulerInput.RERANK]: 0,
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
