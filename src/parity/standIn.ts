/**
 * A runner without a model: the runtime, the scheduler and the transfers are real, a step takes what a
 * latency model says. Each block that a step writes is marked with bytes of its own, so that what comes back
 * is told from what does not.
 */

import {
  KVRuntime,
  type KVRuntimeConfig,
  type KVScheduler,
  type KVSchedulerConfig,
  type KVStepPlan,
  type SampledToken,
} from '../embed/index.ts';
import { sizeOption } from '../replay/sizedTiers.ts';
import { configError, TierKVError } from '../runtime/errors.ts';
import { Outcome, TOP, tierName } from '../runtime/index.ts';
import { BatchSums, type LatencyModel } from '../sim/latency/latencyModel.ts';
import type { WorkloadRequest } from '../sim/workload/request.ts';
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
  readonly request: WorkloadRequest;
  readonly answer: Int32Array;
  generated: number;
  firstTokenUs: number;
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
    const serving = new Serving(kv, this.#config, job);
    const requests = await serving.toTheEnd();
    await kv.idle();
    const { name, software } = kv.stores.pool.adapter;
    return {
      requests,
      latency,
      stepOverheadUs: serving.stepOverheadUs,
      adapter: { name, software },
      wrongBlocks: kv.manager.counters.loadsFailed[Outcome.CORRUPT],
      interruptedSteps: serving.interruptedSteps,
    };
  }
}

class Serving {
  interruptedSteps = 0;
  readonly #overheadsUs: number[] = [];
  readonly #kv: KVRuntime;
  readonly #scheduler: KVScheduler;
  readonly #latency: LatencyModel;
  readonly #blockTokens: number;
  readonly #job: RunnerJob;
  readonly #arrivals: Arrivals;
  readonly #tokens: TokenIds = new TokenIds();
  readonly #open: Map<string, Open> = new Map();
  readonly #served: ServedRequest[] = [];
  readonly #sums: BatchSums = new BatchSums();
  readonly #mark: Uint32Array = new Uint32Array(MARK_BYTES / 4);
  readonly #startUs: number;
  #added = 0;
  #step = 0;

  constructor(kv: KVRuntime, { runtime, scheduler, latency }: StandInConfig, job: RunnerJob) {
    this.#kv = kv;
    this.#scheduler = kv.scheduler(scheduler);
    this.#latency = latency;
    this.#blockTokens = runtime.layout.blockTokens;
    this.#job = job;
    this.#arrivals = new Arrivals(job.traffic.open());
    this.#startUs = kv.nowUs();
  }

  get stepOverheadUs(): number {
    return this.#overheadsUs.toSorted((a, b) => a - b)[this.#overheadsUs.length >> 1] ?? 0;
  }

  async toTheEnd(): Promise<readonly ServedRequest[]> {
    const { signal } = this.#job;
    for (;;) {
      signal.throwIfAborted();
      while (this.#arrivals.timeUs <= this.#nowUs()) this.#add(this.#arrivals.take());
      if (this.#scheduler.size === 0) {
        if (this.#arrivals.timeUs === Infinity) return this.#served;
        await this.#sleepUntil(this.#arrivals.timeUs);
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

  #add(request: WorkloadRequest): void {
    const { id } = request;
    const own = this.#added++;
    const answer = this.#tokens.output(request, own);
    try {
      const tokens = this.#tokens.prompt(request, own);
      this.#scheduler.add({ id, tokens, tenant: TENANT, maxTokens: request.outputTokens });
    } catch (error) {
      if (!(error instanceof TierKVError && error.code === 'TKV_CAPACITY')) throw error;
      const problem = `holds no prompt of ${request.inputTokens} tokens`;
      throw configError(
        sizeOption(tierName(this.#kv.manager.tiers[TOP])),
        problem,
        'Raise it, or serve shorter prompts.',
      );
    }
    this.#open.set(id, { request, answer, generated: 0, firstTokenUs: -1, decodesAt: -1 });
  }

  async #compute(plan: KVStepPlan, startUs: number): Promise<void> {
    this.#step++;
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
    const { request, generated, firstTokenUs } = this.#open.get(id) as Open;
    this.#open.delete(id);
    const key = requestKey(id, request.sessionId, request.round);
    const { arrivalUs } = request;
    this.#served.push({ key, arrivalUs, firstTokenUs, lastTokenUs: endUs, outputTokens: generated });
    this.#arrivals.ended(request, generated, endUs);
    this.#job.progress(this.#served.length);
  }

  /** As the simulator sums a step up: who comes back computes its answer again as part of its prompt. */
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
    plan.requests.forEach(({ start, end, blockTable }, i) => {
      const { slabs, entries } = blockTable;
      for (let block = Math.floor(start / blockTokens); block * blockTokens < end; block++) {
        this.#mark.fill(Math.imul(this.#step, 0x9e37_79b1) ^ (i << 20) ^ block);
        const buffer = slabs[entries[2 * block]];
        this.#kv.device.queue.writeBuffer(buffer, entries[2 * block + 1], this.#mark);
      }
    });
  }

  async #sleepUntil(timeUs: number): Promise<void> {
    for (let leftUs = timeUs - this.#nowUs(); leftUs > 0; leftUs = timeUs - this.#nowUs()) {
      this.#job.signal.throwIfAborted();
      const ms = Math.min(Math.floor((leftUs - COARSE_US) / 1000), 1000);
      await new Promise<void>((wake) => {
        if (ms < 1) setImmediate(wake);
        else setTimeout(wake, ms);
      });
    }
  }

  /** Until something of what is there can be planned, or another request comes. */
  async #newsOrArrival(): Promise<void> {
    const { signal } = this.#job;
    const arrived = new AbortController();
    const leftUs = this.#arrivals.timeUs - this.#nowUs();
    const timer =
      leftUs === Infinity
        ? undefined
        : setTimeout(() => arrived.abort(), Math.min(Math.max(0, leftUs / 1000), 2 ** 31 - 1));
    try {
      await this.#scheduler.next({ signal: AbortSignal.any([signal, arrived.signal]) });
    } catch (error) {
      if (!arrived.signal.aborted) throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}
