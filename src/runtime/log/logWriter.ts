/**
 * Writes a decision log: lines are collected and handed on in pieces, so that writing costs a call every few
 * hundred lines.
 */

import type { SchedulerSink } from '../batching/schedulerSink.ts';
import { type ManagerConfig, resolveConfig } from '../manager/config.ts';
import {
  type DecisionOp,
  type DecisionSink,
  decisionOpNames,
  type InputOp,
  inputOpNames,
  type SchedulerHead,
} from './decisionSink.ts';
import { endMagic, hexOf, LineCheck, LOG_VERSION, logMagic } from './logText.ts';
import { SchedulerLog } from './schedulerLog.ts';

const PIECE_CHARACTERS = 1 << 16;

export interface LogOutput {
  /** Takes the next piece of the log's text. Absent: no log is made. */
  readonly log?: (text: string) => void;
  /** Takes the decisions alone, without checks: equal for runs that decide alike. */
  readonly decisions?: (text: string) => void;
}

export class LogWriter implements DecisionSink {
  readonly #output: LogOutput;
  readonly #check: LineCheck = new LineCheck();
  #lines = '';
  #decisions = '';
  #count = 0;
  #ended = false;

  constructor(config: ManagerConfig, output: LogOutput) {
    this.#output = output;
    if (output.log !== undefined)
      this.#append(`${logMagic}${LOG_VERSION} ${JSON.stringify(plainConfig(config))}`);
  }

  input(op: InputOp, nowUs: number, args: readonly number[], words?: Uint32Array): void {
    if (this.#output.log === undefined) return;
    const tail = words === undefined ? '' : ` ${hexOf(words)}`;
    this.#append(`> ${nowUs} ${inputOpNames[op]}${args.length === 0 ? '' : ' '}${args.join(' ')}${tail}`);
  }

  decision(op: DecisionOp, a: number, b: number, c: number, d: number, e: number): void {
    this.#decide(`< ${decisionOpNames[op]} ${a} ${b} ${c} ${d} ${e}`);
  }

  scheduler(head: SchedulerHead, nowUs: number): SchedulerSink {
    const given = (line: string): void => {
      if (this.#output.log !== undefined) this.#append(line);
    };
    return new SchedulerLog(head, nowUs, { given, decided: (line) => this.#decide(line) });
  }

  #decide(line: string): void {
    if (this.#output.log !== undefined) this.#append(line);
    if (this.#output.decisions === undefined) return;
    this.#decisions += `${line}\n`;
    if (this.#decisions.length > PIECE_CHARACTERS) this.flush();
  }

  /** Hands on what is collected. */
  flush(): void {
    if (this.#lines !== '') this.#output.log?.(this.#lines);
    if (this.#decisions !== '') this.#output.decisions?.(this.#decisions);
    this.#lines = '';
    this.#decisions = '';
  }

  /** The log is whole: nothing follows. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#output.log !== undefined) this.#append(`${endMagic}${this.#count}`);
    this.flush();
  }

  #append(line: string): void {
    this.#count++;
    this.#lines += `${line} ${this.#check.of(line)}\n`;
    if (this.#lines.length > PIECE_CHARACTERS) this.flush();
  }
}

/**
 * As it was given, but with each policy and its parameters named, so that a later default changes nothing.
 */
function plainConfig({ tableMemory: _, ...config }: ManagerConfig): ManagerConfig {
  return { ...config, eviction: resolveConfig(config).eviction };
}
