/**
 * Writes and reads a decision log as text. The writer collects lines and hands them on in pieces, so that writing
 * costs a call every few hundred lines. The reader goes line by line; damage is an error that names file and line.
 */

import type { SchedulerSink } from '../batching/schedulerSink.ts';
import { maxJsonValues, parseJson } from '../boundedJson.ts';
import { TierKVError } from '../errors.ts';
import * as is from '../kinds.ts';
import { type ManagerConfig, resolveConfig } from '../manager/config.ts';
import { checkInputs } from '../options.ts';
import {
  type DecisionOp,
  type DecisionSink,
  decisionOpNames,
  endMagic,
  hexOf,
  InputOp,
  inputOpNames,
  LineCheck,
  LOG_VERSION,
  logMagic,
  type SchedulerHead,
  wordsOf,
} from './decisionSink.ts';
import { parseSchedulerInput, type RecordedSchedulerInput, SchedulerLog } from './schedulerLog.ts';

const PIECE_CHARACTERS = 1 << 16;

interface LogOutput {
  /** Takes the next piece of the log's text. Absent: no log is made. */
  readonly log?: (text: string) => void;
  /** Takes the decisions alone, without checks: equal for runs that decide alike. */
  readonly decisions?: (text: string) => void;
}

/** Writes a decision log: the inputs of a manager and its decisions, a line each. */
export class LogWriter implements DecisionSink {
  readonly #output: LogOutput;
  readonly #check: LineCheck = new LineCheck();
  #lines = '';
  #decisions = '';
  #count = 0;
  #ended = false;

  constructor(config: ManagerConfig, output: LogOutput) {
    checkInputs({ config, output }, { config: is.fields({ unitBytes: is.array() }), output: is.object() });
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

/** The configuration with each policy and its parameters named, so that a later default changes nothing. */
function plainConfig({ tableMemory: _, ...config }: ManagerConfig): ManagerConfig {
  return { ...config, eviction: resolveConfig(config).eviction };
}

// Reads a decision log line by line: the inputs of the manager, in order.

export interface RecordedInput {
  readonly of: 'manager';
  readonly op: InputOp;
  readonly nowUs: number;
  readonly args: readonly number[];
  readonly words: Uint32Array;
}

const opOf: ReadonlyMap<string, InputOp> = new Map(inputOpNames.map((name, op) => [name, op as InputOp]));

/** Numbers that each input has, and whether words follow them. */
const shapes: Readonly<Record<InputOp, readonly [args: number, words: boolean]>> = {
  [InputOp.OPEN]: [5, true],
  [InputOp.LOAD]: [3, false],
  [InputOp.ALLOCATE]: [4, false],
  [InputOp.SEAL]: [4, true],
  [InputOp.RELEASE]: [3, false],
  [InputOp.PREEMPT]: [1, false],
  [InputOp.PREFETCH]: [2, true],
  [InputOp.EVICT]: [2, false],
  [InputOp.COMPLETE]: [4, false],
  [InputOp.CANCEL]: [1, false],
  [InputOp.TICK]: [0, false],
  [InputOp.DEADLINE]: [2, false],
  [InputOp.LOSE]: [1, false],
  [InputOp.ADOPT]: [4, true],
  [InputOp.COPY]: [4, false],
  [InputOp.TRUNCATE]: [2, false],
  [InputOp.MOVE]: [2, true],
  [InputOp.RETAIN]: [3, false],
  [InputOp.DEMOTE]: [1, false],
  [InputOp.QUOTA]: [3, false],
  [InputOp.KEEP]: [4, false],
  [InputOp.LOAD_BACK]: [3, false],
  [InputOp.RECOMPUTE]: [4, false],
  [InputOp.FOUND]: [3, true],
  [InputOp.ADMIT]: [5, true],
  [InputOp.SAVE]: [2, true],
  [InputOp.DAMAGED]: [3, false],
};

/** Reads a decision log line by line, and refuses what no manager wrote. */
export class LogReader {
  readonly #path: string;
  readonly #check: LineCheck = new LineCheck();
  #line = 0;
  #config: ManagerConfig | undefined;
  #ended = false;
  /** Between the input of a scheduler and its end. */
  #isScheduling = false;

  /** @param path the log's name in errors */
  constructor(path: string) {
    checkInputs({ path }, { path: is.name() });
    this.#path = path;
  }

  /** Whether the end of the log was read. */
  get hasEnded(): boolean {
    return this.#ended;
  }

  /** Number of the line read last, from 1. */
  get line(): number {
    return this.#line;
  }

  /** The configuration in the head. @throws TKV_INPUT before it was read */
  get config(): ManagerConfig {
    if (this.#config === undefined) throw this.broken('is empty', 1);
    return this.#config;
  }

  /**
   * The input on the line; undefined for the head, a decision, the end, and inputs of the manager that the scheduler
   * made.
   * @throws TKV_INPUT for a line that is damaged or of another version
   */
  read(text: string): RecordedInput | RecordedSchedulerInput | undefined {
    this.#line++;
    if (typeof text !== 'string') throw this.broken('is not a text');
    if (this.#line === 1 && !text.startsWith(logMagic))
      throw this.broken('is not the head of a tierkv decision log');
    if (this.#ended) throw this.broken('follows the end of the log');
    const cut = text.lastIndexOf(' ');
    const body = text.slice(0, cut);
    if (this.#line === 1) this.#readHead(body);
    if (this.#check.of(body) !== text.slice(cut + 1)) {
      throw this.broken('does not follow from the lines before it: the log was cut or edited');
    }
    if (body.startsWith('> ')) return this.#isScheduling ? undefined : this.#parse(body);
    if (body.startsWith('( ')) {
      if (this.#isScheduling) throw this.broken('begins before the input before it has ended');
      this.#isScheduling = true;
      return parseSchedulerInput(body, (problem) => this.broken(problem));
    }
    if (body === ')') this.#isScheduling = false;
    if (body.startsWith(endMagic)) this.#ended = true;
    return undefined;
  }

  /** Call it behind the last line. @throws TKV_INPUT if the log has no end */
  finish(): void {
    if (this.#line === 0) throw this.broken('is empty', 1);
    if (!this.#ended) {
      throw this.broken('is the last line, and no end follows: the log was cut, or its run did not close');
    }
  }

  broken(problem: string, line: number = this.#line, cause?: unknown): TierKVError {
    return new TierKVError('TKV_INPUT', `${this.#path}:${line} ${problem}. Record it again.`, {
      path: this.#path,
      line,
      cause,
    });
  }

  #readHead(body: string): void {
    const rest = body.slice(logMagic.length);
    const space = rest.indexOf(' ');
    const version = rest.slice(0, space);
    if (version !== String(LOG_VERSION)) {
      throw this.broken(`is of version ${version}, and this tierkv reads version ${LOG_VERSION}`);
    }
    const error = (problem: string, cause?: unknown): TierKVError =>
      this.broken(`holds a configuration that ${problem}`, 1, cause);
    const config = parseJson(rest.slice(space + 1), error, maxJsonValues, 'is not JSON');
    this.#config = config as ManagerConfig;
  }

  #parse(body: string): RecordedInput {
    const [, time, name, ...rest] = body.split(' ');
    const op = opOf.get(name ?? '');
    if (op === undefined) throw this.broken('is not an input that this version knows');
    const [count, hasWords] = shapes[op];
    const words = wordsOf(hasWords ? (rest[count] ?? '') : '');
    const numbers = [time, ...rest.slice(0, count)].map(Number);
    const whole = rest.length === count + (hasWords ? 1 : 0) && numbers.every(Number.isSafeInteger);
    if (!whole || words === undefined) throw this.broken(`is not a whole ${name}`);
    const [nowUs, ...args] = numbers;
    return { of: 'manager', op, nowUs, args, words };
  }
}
