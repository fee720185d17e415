/**
 * Repeats a recorded run: a fresh manager gets the inputs of a decision log, in order, and nothing else. Its
 * decisions equal the recorded ones, unless the log is of another version of the manager.
 */

import { ManagerPort } from '../batching/kvPort.ts';
import type { ServingRequest } from '../batching/request.ts';
import { type RequestRank, Scheduler } from '../batching/scheduler.ts';
import { SchedulerInput } from '../batching/schedulerSink.ts';
import { TierKVError } from '../errors.ts';
import { BlockKeys } from '../keys/keyChain.ts';
import * as is from '../kinds.ts';
import { adoptedFrom } from '../manager/loss.ts';
import { KVManager } from '../manager/manager.ts';
import type { Sequence } from '../manager/sequence.ts';
import { checkInputs } from '../options.ts';
import type { JobId, JobPriority } from '../tables/jobTable.ts';
import type { Outcome } from '../tier/tier.ts';
import { LogReader, type RecordedInput } from './decisionLog.ts';
import { type DecisionSink, InputOp } from './decisionSink.ts';
import type { RecordedSchedulerInput } from './schedulerLog.ts';

interface ReplayListener {
  /** A sequence that asked for `blocks` blocks was opened. */
  opened?(sequence: Sequence, blocks: number): void;
}

export class LogReplayer {
  readonly manager: KVManager;
  readonly #log: LogReader;
  readonly #listener: ReplayListener;
  readonly #sequences: Map<number, Sequence> = new Map();
  readonly #scheduler: SchedulerReplay;

  /** @param log whose head was read. @throws TKV_INPUT for a configuration that no manager takes */
  constructor(log: LogReader, sink: DecisionSink | null = null, listener: ReplayListener = {}) {
    checkInputs(
      { log, listener },
      { log: is.fields({ read: is.func() }), listener: is.optional(is.object()) },
    );
    this.#log = log;
    this.#listener = listener;
    try {
      this.manager = new KVManager(log.config, sink);
      this.#scheduler = new SchedulerReplay(this.manager, sink);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw log.broken(`holds a configuration that no manager takes (${why})`, 1, error);
    }
  }

  /** @throws TKV_INPUT naming the line, for an input that cannot have happened in the run */
  apply(input: RecordedInput | RecordedSchedulerInput): void {
    try {
      if (input.of === 'scheduler') this.#scheduler.apply(input);
      else this.#apply(input);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw this.#log.broken(`cannot be done again (${why})`, this.#log.line, error);
    }
  }

  #apply({ op, nowUs, args, words }: RecordedInput): void {
    const { manager } = this;
    const [a, b, c, d] = args;
    if (op === InputOp.OPEN || op === InputOp.ADMIT) this.#open(op, nowUs, args, words);
    else if (op === InputOp.LOAD) manager.load(this.#sequence(a), nowUs, b, c);
    else if (op === InputOp.LOAD_BACK) manager.loadFromBack(this.#sequence(a), b, c, nowUs);
    else if (op === InputOp.RECOMPUTE) manager.recompute(this.#sequence(a), b, c, nowUs, d);
    else if (op === InputOp.ALLOCATE) manager.allocate(this.#sequence(a), b, c, nowUs, d);
    else if (op === InputOp.SEAL) manager.seal(this.#sequence(a), b, c, words, 0, d, nowUs);
    else if (op === InputOp.COPY) manager.copy(this.#sequence(a), b, this.#sequence(c), d, nowUs);
    else if (op === InputOp.TRUNCATE) manager.truncate(this.#sequence(a), b, nowUs);
    else if (op === InputOp.KEEP) manager.keepIn(this.#sequence(a), b, c, d, nowUs);
    else if (op === InputOp.PREFETCH) manager.prefetch(words, a, nowUs, b as JobPriority);
    else if (op === InputOp.QUOTA) manager.setQuota(a, b, c === -1 ? null : c, nowUs);
    else if (op === InputOp.EVICT) manager.evict(a, b, nowUs);
    else if (op === InputOp.MOVE) manager.move(words, a, b as JobPriority, nowUs);
    else if (op === InputOp.SAVE) manager.save(words, a, b === 1, nowUs);
    else if (op === InputOp.DAMAGED) manager.damaged(a, b, c, nowUs);
    else if (op === InputOp.RETAIN) {
      manager.retain(this.#sequence(a), { priority: b, keepUntilUs: c }, nowUs);
    } else if (op === InputOp.LOSE) manager.loseTier(a, nowUs);
    else if (op === InputOp.ADOPT) manager.adopt(a, adoptedFrom(b, c, d, words), nowUs);
    else if (op === InputOp.FOUND) {
      manager.adoptFound(a, { ...adoptedFrom(0, 0, b, words), owner: c }, nowUs);
    } else if (op === InputOp.TICK) manager.tick(nowUs);
    else if (op === InputOp.DEADLINE) manager.setDeadline(a as JobId, b);
    else if (op === InputOp.PREEMPT) manager.preempt(this.#take(a), nowUs);
    else if (op === InputOp.DEMOTE) manager.demote(this.#take(a), nowUs);
    else if (op === InputOp.CANCEL) manager.cancel(this.#take(a), nowUs);
    else if (op === InputOp.RELEASE && c === -1) manager.release(this.#take(a), nowUs);
    else if (op === InputOp.RELEASE) manager.releaseRange(this.#sequence(a), b, c, nowUs);
    else if (op === InputOp.COMPLETE) {
      while (manager.nextJob() !== 0);
      manager.complete(a as JobId, b as Outcome, nowUs, c, d);
    }
  }

  #open(
    op: InputOp,
    nowUs: number,
    [count, matchLimit, owner, units, sizeClass]: readonly number[],
    keys: Uint32Array,
  ): void {
    const { manager } = this;
    let sequence: Sequence | null;
    if (op === InputOp.ADMIT)
      sequence = manager.admit(keys, count, nowUs, matchLimit, units, sizeClass, owner);
    else if (units === 0) sequence = manager.open(keys, count, nowUs, matchLimit, owner);
    else sequence = manager.openIfFits(keys, count, nowUs, matchLimit, units, sizeClass, owner);
    if (sequence === null) return;
    this.#sequences.set(sequence.id, sequence);
    this.#listener.opened?.(sequence, count);
  }

  #sequence(id: number): Sequence {
    const sequence = this.#sequences.get(id);
    if (sequence === undefined) throw new TierKVError('TKV_INPUT', `sequence ${id} is not open`);
    return sequence;
  }

  #take(id: number): Sequence {
    const sequence = this.#sequence(id);
    this.#sequences.delete(id);
    return sequence;
  }
}

/**
 * Repeats the inputs of a decision log on a manager of its own, which decides as the recorded one did.
 * @param lines of the log, without their line ends
 * @param path the log's name in errors
 * @returns the manager as the run left it
 * @throws TKV_INPUT for a log that is damaged, cut or of another version
 */
export function replayLog(
  lines: Iterable<string>,
  path: string,
  sink: DecisionSink | null = null,
  listener: ReplayListener = {},
): KVManager {
  checkInputs(
    { lines, path, listener },
    { lines: is.iterable(), path: is.name(), listener: is.optional(is.object()) },
  );
  const log = new LogReader(path);
  let replayer: LogReplayer | undefined;
  for (const line of lines) {
    const input = log.read(line);
    replayer ??= new LogReplayer(log, sink, listener);
    if (input !== undefined) replayer.apply(input);
  }
  log.finish();
  return (replayer as LogReplayer).manager;
}

// Repeats the scheduler of a recorded run on the manager of the run: it makes the same calls again.

class SchedulerReplay {
  readonly #manager: KVManager;
  readonly #sink: DecisionSink | null;
  #scheduler: Scheduler | undefined;
  #requests: Map<number, ServingRequest> = new Map();
  #stopped: string[] = [];

  constructor(manager: KVManager, sink: DecisionSink | null) {
    this.#manager = manager;
    this.#sink = sink;
  }

  /** @throws TKV_INPUT for an input that cannot have happened */
  apply({ op, nowUs, head, args, owner, id, words }: RecordedSchedulerInput): void {
    if (head !== undefined) {
      const { blockTokens, sizeClass, ...config } = head;
      const port = new ManagerPort(this.#manager, { blockTokens, sizeClass });
      const sink = this.#sink?.scheduler?.(head, nowUs) ?? null;
      // Logs written before this choice existed have none: equal requests of a step all computed.
      const sharedPrefixes = config.sharedPrefixes ?? 'computed';
      this.#scheduler = new Scheduler({ ...config, sharedPrefixes }, port, sink);
      this.#requests = new Map();
      return;
    }
    const scheduler = this.#scheduler;
    if (scheduler === undefined) throw new TierKVError('TKV_INPUT', 'no scheduler has begun');
    if (op === SchedulerInput.ADD) {
      const [number, promptTokens, maxOutputTokens, priority, arrivalUs] = args;
      const keys = keysOf(words);
      const request = { id, promptTokens, maxOutputTokens, priority, arrivalUs, owner, keys };
      this.#requests.set(number, request);
      scheduler.add(request, nowUs);
    } else if (op === SchedulerInput.KEYS) {
      append(this.#request(args[0]).keys, words);
    } else if (op === SchedulerInput.STEP) {
      scheduler.step(nowUs);
    } else if (op === SchedulerInput.SHARED_STEP) {
      scheduler.step(nowUs, args[0]);
    } else if (op === SchedulerInput.STOP) {
      this.#stopped.push(this.#request(args[0]).id);
    } else if (op === SchedulerInput.STEP_ENDED) {
      scheduler.stepEnded({ stopped: this.#stopped.splice(0) }, nowUs);
    } else if (op === SchedulerInput.STEP_FAILED) {
      scheduler.stepFailed(nowUs);
    } else if (op === SchedulerInput.RERANK) {
      scheduler.rerank(this.#ranks(args), nowUs);
    } else if (op === SchedulerInput.ABORT) {
      scheduler.abort(this.#request(args[0]).id, nowUs);
    } else {
      scheduler.requeue(this.#request(args[0]).id, nowUs);
    }
    this.#forgetEnded(scheduler);
  }

  #ranks(pairs: readonly number[]): RequestRank[] {
    const ranks: RequestRank[] = [];
    for (let i = 0; i < pairs.length; i += 2) {
      ranks.push({ id: this.#request(pairs[i]).id, rank: pairs[i + 1] });
    }
    return ranks;
  }

  #request(number: number): ServingRequest {
    const request = this.#requests.get(number);
    if (request === undefined) throw new TierKVError('TKV_INPUT', `request ${number} was not added`);
    return request;
  }

  /** Called now and then, so that a long log is replayed in bounded memory. */
  #forgetEnded(scheduler: Scheduler): void {
    if (this.#requests.size < 2 * scheduler.size + 64) return;
    for (const [number, { id }] of this.#requests) {
      if (scheduler.progress(id) === undefined) this.#requests.delete(number);
    }
  }
}

function keysOf(words: Uint32Array): BlockKeys {
  const keys = new BlockKeys(words.length / 4 + 1);
  append(keys, words);
  return keys;
}

function append(keys: BlockKeys, words: Uint32Array): void {
  for (let at = 0; at < words.length; at += 4) keys.append(words, at);
}
