/**
 * A recorded run again: the inputs of a decision log are given to a fresh manager, in order, and nothing else is. Its
 * decisions are then the recorded ones, or the log is not of this version of the manager.
 */

import {
  adoptedFrom,
  type DecisionSink,
  InputOp,
  inputOpNames,
  type JobId,
  KVManager,
  type ManagerConfig,
  type Outcome,
  type Sequence,
  TierKVError,
} from '../../runtime/index.ts';
import { readLines } from '../trace/lines.ts';
import { logMagic } from './decisionLog.ts';

const opOf = new Map<string, InputOp>(inputOpNames.map((name, op) => [name, op as InputOp]));

/** The lines of a log that are inputs, with the configuration that its first line names. */
export async function* readInputs(path: string): AsyncGenerator<ManagerConfig | RecordedInput> {
  let line = 0;
  for await (const text of readLines(path, { bytesRead: 0, bytesTotal: 0, lines: 0 })) {
    line++;
    if (line === 1) yield parseConfig(text, path);
    else if (text.startsWith('> ')) yield parseInput(text, path, line);
  }
  if (line === 0) throw broken(path, 1, 'is empty');
}

export interface RecordedInput {
  readonly op: InputOp;
  readonly nowUs: number;
  readonly args: readonly number[];
  readonly keys: Uint32Array;
}

export class RecordedRun {
  readonly manager: KVManager;
  requests = 0;
  blockLookups = 0;
  readonly hitCounts: number[] = [];
  readonly #sequences: Map<number, Sequence> = new Map();

  constructor(config: ManagerConfig, log: DecisionSink) {
    this.manager = new KVManager(config, log);
  }

  apply({ op, nowUs, args, keys }: RecordedInput): void {
    const { manager } = this;
    const [a = 0, b = 0, c = 0, d = 0] = args;
    if (op === InputOp.OPEN) {
      const sequence = manager.open(keys, a, nowUs, b);
      this.#sequences.set(sequence.id, sequence);
      this.requests++;
      this.blockLookups += a;
      this.hitCounts.push(sequence.matched);
    } else if (op === InputOp.LOAD) manager.load(this.#sequence(a), nowUs, b, c);
    else if (op === InputOp.ALLOCATE) manager.allocate(this.#sequence(a), b, c, nowUs, d);
    else if (op === InputOp.SEAL) manager.seal(this.#sequence(a), b, c, keys, 0, d, nowUs);
    else if (op === InputOp.PREFETCH) manager.prefetch(keys, a, nowUs);
    else if (op === InputOp.EVICT) manager.evict(a, b, nowUs);
    else if (op === InputOp.LOSE) manager.loseTier(a, nowUs);
    else if (op === InputOp.ADOPT) manager.adopt(a, adoptedFrom(b, c, d, keys), nowUs);
    else if (op === InputOp.EXPIRE) manager.expire(nowUs, a as Outcome);
    else if (op === InputOp.DEADLINE) manager.setDeadline(a as JobId, b);
    else if (op === InputOp.PREEMPT) manager.preempt(this.#take(a), nowUs);
    else if (op === InputOp.CANCEL) manager.cancel(this.#take(a), nowUs);
    else if (op === InputOp.RELEASE && c === -1) manager.release(this.#take(a), nowUs);
    else if (op === InputOp.RELEASE) manager.releaseRange(this.#sequence(a), b, c, nowUs);
    else if (op === InputOp.COMPLETE) {
      while (manager.nextJob() !== 0);
      manager.complete(a as JobId, b as Outcome, nowUs, c, d);
    }
  }

  #sequence(id: number): Sequence {
    const sequence = this.#sequences.get(id);
    if (sequence === undefined) {
      throw new TierKVError(
        'TKV_INPUT',
        `sequence ${id} is used before it is opened. Replay the log unchanged.`,
      );
    }
    return sequence;
  }

  #take(id: number): Sequence {
    const sequence = this.#sequence(id);
    this.#sequences.delete(id);
    return sequence;
  }
}

function parseConfig(text: string, path: string): ManagerConfig {
  if (!text.startsWith(logMagic)) throw broken(path, 1, 'is not the head of a tierkv decision log');
  try {
    return JSON.parse(text.slice(logMagic.length)) as ManagerConfig;
  } catch (cause) {
    throw broken(path, 1, 'holds a configuration that is not JSON', cause);
  }
}

function parseInput(text: string, path: string, line: number): RecordedInput {
  const words = text.split(' ');
  const op = opOf.get(words[2] ?? '');
  const numbers = [words[1], ...words.slice(3, 7)].map(Number);
  if (op === undefined || numbers.length !== 5 || !numbers.every(Number.isFinite)) {
    throw broken(path, line, 'is not an input that this version knows');
  }
  const bytes = Buffer.from(words[7] ?? '', 'hex');
  const keys = new Uint32Array(bytes.length / 4);
  new Uint8Array(keys.buffer).set(bytes);
  const [nowUs, ...args] = numbers;
  return { op, nowUs: nowUs, args, keys };
}

function broken(path: string, line: number, problem: string, cause?: unknown): TierKVError {
  return new TierKVError('TKV_INPUT', `${path}:${line} ${problem}. Record it again with --log.`, {
    path,
    line,
    cause,
  });
}
