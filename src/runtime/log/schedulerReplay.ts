/**
 * The scheduler of a recorded run again, on the manager of the run: it makes its calls as it made them then.
 */

import { ManagerPort } from '../batching/kvPort.ts';
import type { RequestRank } from '../batching/ranking.ts';
import { Scheduler } from '../batching/scheduler.ts';
import { SchedulerInput } from '../batching/schedulerSink.ts';
import type { ServingRequest } from '../batching/state/request.ts';
import { TierKVError } from '../errors.ts';
import { BlockKeys } from '../keys/index.ts';
import type { KVManager } from '../manager/kvManager.ts';
import type { DecisionSink } from './decisionSink.ts';
import type { RecordedSchedulerInput } from './schedulerInput.ts';

export class SchedulerReplay {
  readonly #manager: KVManager;
  readonly #sink: DecisionSink | null;
  #scheduler: Scheduler | undefined;
  #requests: Map<number, ServingRequest> = new Map();
  #stopped: string[] = [];

  constructor(manager: KVManager, sink: DecisionSink | null) {
    this.#manager = manager;
    this.#sink = sink;
  }

  /** @throws TKV_INPUT for what no run can have had */
  apply({ op, nowUs, head, args, owner, id, words }: RecordedSchedulerInput): void {
    if (head !== undefined) {
      const { blockTokens, sizeClass, ...config } = head;
      const port = new ManagerPort(this.#manager, { blockTokens, sizeClass });
      const sink = this.#sink?.scheduler?.(head, nowUs) ?? null;
      // Logs from before there was a choice have none: equal requests of a step all computed.
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

  /** Now and then, so that a long log is replayed in bounded memory. */
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
