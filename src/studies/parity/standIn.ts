/**
 * A runner without a model: the runtime, the scheduler and the transfers are real, a step takes what a
 * latency model says. Each block that a step writes is marked with bytes that follow from its tokens, so that what comes
 * back is told from what does not.
 */

import type { KVRuntimeConfig } from '../../embed/config.ts';
import { KVRuntime } from '../../embed/kvRuntime.ts';
import type { KVScheduler, KVSchedulerConfig, KVStepPlan, SampledToken } from '../../embed/scheduler.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import { Outcome, TOP, tierName } from '../../runtime/index.ts';
import { BatchSums, type LatencyModel } from '../../sim/latency/latencyModel.ts';
import type { WorkloadRequest } from '../../sim/workload/request.ts';
import { sizeOption } from '../replay/sizedTiers.ts';
import {
  Arrivals,
  type ParityRunner,
  type RealRun,
  type RunnerJob,
  requestKey,
  type ServedRequest,
  TokenIds,
} from './traffic.ts';

export interface StandInConfig {
  readonly runtime: Omit<KVRuntimeConfig, 'log' | 'migration' | 'notice'>;
  readonly scheduler: KVSchedulerConfig;
  readonly latency: LatencyModel;
}

/** One tenant has all requests: the simulator knows no walls between tenants. */
const TENANT = 'parity';
/** Bytes that mark a block. */
const MARK_BYTES = 256;
/** Timers end within a millisecond or two; the rest of a wait is spent in turns of the event loop. */
const COARSE_US = 2500;

/** A request that is being served. */
interface Open {
  readonly asked: NumberedRequest;
  readonly request: WorkloadRequest;
  readonly answer: Int32Array;
  generated: number;
  firstTokenUs: number;
  /** The mark in each block's bytes, which follows from all tokens up to the block's end. */
  readonly marks: Uint32Array;
  /** Where its last sampled token goes, while it is next to be computed; -1 after it gave way. */
  decodesAt: number;
}

export class StandIn implements ParityRunner {
  readonly name = 'stand-in';
  readonly #config: StandInConfig;

  constructor(config: StandInConfig) {
    this.#config = config;
  }

  async run(job: RunnerJob): Promise<RealRun> {
    const { runtime, latency } = this.#config;
    const { logPath: log, notice } = job;
    await using kv = await KVRuntime.open({ ...runtime, log, migration: false, notice });
    const stream = streamOf(job);
    const serving = new Serving(kv, this.#config, stream, job.signal);
    await serving.toTheEnd();
    await kv.idle();
    const { name, software } = kv.stores.pool.adapter;
    return {
      requests: stream.served,
      latency,
      stepOverheadUs: serving.stepOverheadUs,
      adapter: { name, software },
      wrongBlocks: kv.manager.inspect.counters.loadsFailed[Outcome.CORRUPT],
      interruptedSteps: serving.interruptedSteps,
    };
  }
}

/** A request as a side of a run has it. */
export interface NumberedRequest {
  readonly request: WorkloadRequest;
  /** Tells it from all others, on every side. */
  readonly own: number;
}

/** The queue that a stand-in serves: incoming requests, and a callback for ended ones. */
export interface ServedQueue {
  /** When the next request comes, in microseconds of the traffic; Infinity while none is known. */
  readonly timeUs: number;
  /** No request will come any more. */
  readonly isOver: boolean;
  take(): NumberedRequest | Promise<NumberedRequest>;
  ended(asked: NumberedRequest, served: ServedRequest): void;
  /** Fulfilled when a request has come, or none will, while `timeUs` was Infinity or later. */
  changed(): Promise<void>;
}

/** Requests as the traffic has them. */
function streamOf({ traffic, progress }: RunnerJob): ServedQueue & { readonly served: ServedRequest[] } {
  const arrivals = new Arrivals(traffic.open());
  const served: ServedRequest[] = [];
  let [taken, open] = [0, 0];
  return {
    served,
    get timeUs() {
      return arrivals.timeUs;
    },
    get isOver() {
      return arrivals.timeUs === Infinity && open === 0;
    },
    take() {
      open++;
      return { request: arrivals.take(), own: taken++ };
    },
    ended({ request }, one) {
      open--;
      served.push(one);
      arrivals.ended(request, one.outputTokens, one.lastTokenUs);
      progress(served.length);
    },
    changed: () => new Promise(() => {}),
  };
}

/** One runtime that serves a queue, step by step. */
export class Serving {
  interruptedSteps = 0;
  readonly #overheadsUs: number[] = [];
  readonly #kv: KVRuntime;
  readonly #scheduler: KVScheduler;
  readonly #latency: LatencyModel;
  readonly #blockTokens: number;
  readonly #signal: AbortSignal;
  readonly #queue: ServedQueue;
  readonly #tokens: TokenIds = new TokenIds();
  readonly #open: Map<string, Open> = new Map();
  readonly #sums: BatchSums = new BatchSums();
  readonly #mark: Uint32Array = new Uint32Array(MARK_BYTES / 4);
  readonly #startUs: number;

  constructor(
    kv: KVRuntime,
    { runtime, scheduler, latency }: StandInConfig,
    queue: ServedQueue,
    signal: AbortSignal,
  ) {
    this.#kv = kv;
    this.#scheduler = kv.scheduler(scheduler);
    this.#latency = latency;
    this.#blockTokens = runtime.layout.blockTokens;
    this.#queue = queue;
    this.#signal = signal;
    this.#startUs = kv.nowUs();
  }

  get stepOverheadUs(): number {
    return this.#overheadsUs.toSorted((a, b) => a - b)[this.#overheadsUs.length >> 1] ?? 0;
  }

  async toTheEnd(): Promise<void> {
    for (;;) {
      this.#signal.throwIfAborted();
      while (this.#queue.timeUs <= this.#nowUs()) this.#add(await this.#queue.take());
      if (this.#scheduler.size === 0) {
        if (this.#queue.isOver) return;
        const changed = this.#queue.changed();
        if (this.#queue.timeUs === Infinity) await orAborted(changed, this.#signal);
        else await Promise.race([this.#sleepUntil(this.#queue.timeUs), changed]);
        continue;
      }
      const startUs = this.#nowUs();
      const plan = this.#scheduler.step();
      for (const id of plan.preempted) (this.#open.get(id) as Open).decodesAt = -1;
      if (plan.requests.length === 0) await this.#newsOrArrival();
      else await this.#compute(plan, startUs);
    }
  }

  #nowUs(): number {
    return this.#kv.nowUs() - this.#startUs;
  }

  #add(asked: NumberedRequest): void {
    const { request, own } = asked;
    const { id } = request;
    const answer = this.#tokens.output(request, own);
    const tokens = this.#tokens.prompt(request, own);
    const marks = marksOf([tokens, answer], this.#blockTokens);
    try {
      this.#scheduler.add({ id, tokens, tenant: TENANT, maxTokens: request.outputTokens });
    } catch (error) {
      if (!(error instanceof TierKVError && error.code === 'TKV_CAPACITY')) throw error;
      const problem = `holds no prompt of ${request.inputTokens} tokens`;
      throw configError(
        sizeOption(tierName(this.#kv.manager.inspect.tiers[TOP])),
        problem,
        'Raise it, or serve shorter prompts.',
      );
    }
    this.#open.set(id, { asked, request, answer, marks, generated: 0, firstTokenUs: -1, decodesAt: -1 });
  }

  async #compute(plan: KVStepPlan, startUs: number): Promise<void> {
    this.#markBlocks(plan);
    const stepUs = this.#latency.stepTimeUs(this.#sumsOf(plan));
    await this.#sleepUntil(startUs + stepUs);
    const sampled: SampledToken[] = [];
    for (const { id, samples } of plan.requests) {
      const open = this.#open.get(id) as Open;
      if (samples) sampled.push({ id, token: open.answer[open.generated] });
    }
    const { interrupted, finished } = this.#scheduler.stepEnded(sampled);
    const endUs = this.#nowUs();
    this.#overheadsUs.push(Math.max(0, endUs - startUs - stepUs));
    if (interrupted) this.interruptedSteps++;
    else for (const { id } of sampled) this.#sampled(this.#open.get(id) as Open, endUs);
    for (const { id } of finished) this.#finish(id, endUs);
  }

  #sampled(open: Open, timeUs: number): void {
    if (open.generated++ === 0) open.firstTokenUs = timeUs;
    open.decodesAt = open.request.inputTokens + open.generated - 1;
  }

  #finish(id: string, endUs: number): void {
    const { asked, request, generated, firstTokenUs } = this.#open.get(id) as Open;
    this.#open.delete(id);
    const key = requestKey(id, request.sessionId, request.round);
    const { arrivalUs } = request;
    const served = { key, arrivalUs, firstTokenUs, lastTokenUs: endUs, outputTokens: generated };
    this.#queue.ended(asked, served);
  }

  /** Sums a step as the simulator does: a request that comes back computes its answer again as part of its prompt. */
  #sumsOf(plan: KVStepPlan): BatchSums {
    const sums = this.#sums;
    sums.clear();
    for (const { id, start, end, tokens } of plan.requests) {
      const open = this.#open.get(id) as Open;
      if (start === open.decodesAt) sums.addDecodes(1, start);
      else {
        const { outputTokens } = open.request;
        const [promptTokens, newTokens] = [tokens.length, end - start];
        sums.add({ promptTokens, progressTokens: start, newTokens, outputTokens });
      }
    }
    return sums;
  }

  #markBlocks(plan: KVStepPlan): void {
    const blockTokens = this.#blockTokens;
    plan.requests.forEach(({ id, start, end, blockTable }) => {
      const { slabs, entries } = blockTable;
      const { marks } = this.#open.get(id) as Open;
      for (let block = Math.floor(start / blockTokens); block * blockTokens < end; block++) {
        this.#mark.fill(marks[block]);
        const buffer = slabs[entries[2 * block]];
        this.#kv.device.queue.writeBuffer(buffer, entries[2 * block + 1], this.#mark);
      }
    });
  }

  async #sleepUntil(timeUs: number): Promise<void> {
    for (let leftUs = timeUs - this.#nowUs(); leftUs > 0; leftUs = timeUs - this.#nowUs()) {
      this.#signal.throwIfAborted();
      const ms = Math.min(Math.floor((leftUs - COARSE_US) / 1000), 1000);
      await new Promise<void>((wake) => {
        if (ms < 1) setImmediate(wake);
        else setTimeout(wake, ms);
      });
    }
  }

  /** Until something of what is there can be planned, or another request comes. */
  async #newsOrArrival(): Promise<void> {
    const arrived = new AbortController();
    const changed = this.#queue.changed();
    const leftUs = this.#queue.timeUs - this.#nowUs();
    const timer =
      leftUs === Infinity
        ? undefined
        : setTimeout(() => arrived.abort(), Math.min(Math.max(0, leftUs / 1000), 2 ** 31 - 1));
    void changed.then(() => arrived.abort());
    try {
      await this.#scheduler.next({ signal: AbortSignal.any([this.#signal, arrived.signal]) });
    } catch (error) {
      if (!arrived.signal.aborted) throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** A block that is computed again gets the bytes that it had, as of an engine that repeats itself bit by bit. */
function marksOf(texts: readonly Int32Array[], blockTokens: number): Uint32Array {
  const length = texts.reduce((sum, text) => sum + text.length, 0);
  const marks = new Uint32Array(Math.ceil(length / blockTokens));
  let [sum, at] = [0x811c_9dc5, 0];
  for (const text of texts) {
    for (const token of text) {
      sum = Math.imul(sum ^ token, 0x0100_0193) >>> 0;
      marks[Math.floor(at++ / blockTokens)] = sum;
    }
  }
  return marks;
}

async function orAborted(what: Promise<void>, signal: AbortSignal): Promise<void> {
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener('abort', abort, { once: true });
  try {
    await Promise.race([what, promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
