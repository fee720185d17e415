/**
 * The engine: requests come in at any time, and one loop plans a step, runs it, samples, and hands out text,
 * for as long as there is somebody to serve.
 */

import { type KVRuntime, type KVRuntimeConfig, kvLayout, TierKVError } from '../../../src/index.ts';
import type { SchedulerConfig } from '../../../src/runtime/index.ts';
import { Answer, type GenerationRequest } from './answer.ts';
import { type Checkpoint, openCheckpoint } from './checkpoint/index.ts';
import { EngineCounters } from './engineCounters.ts';
import { KvCache, type PlannedStep } from './kvCache.ts';
import { Decoder, type DecoderLimits } from './model/index.ts';
import { sampleToken } from './sampling.ts';
import { StepTimes } from './stepTimes.ts';
import { TextTokenizer } from './text/index.ts';

export type CacheConfig = Omit<KVRuntimeConfig, 'layout' | 'model'>;

export interface EngineOptions {
  /** Directory of the checkpoint. */
  readonly directory: string;
  /** Name and revision of the weights. */
  readonly model: string;
  readonly cache: CacheConfig;
  readonly blockTokens?: number;
  /** Most tokens of a step. Default 256. */
  readonly stepTokens?: number;
  /** Most requests in a step. Default 64. */
  readonly maxSequences?: number;
  /** Prompt and answer together. Default: as the model says, at most 8192, and what HBM holds. */
  readonly contextTokens?: number;
  /** What a request that gives way does: see the scheduler. Default `offload` where there is a lower tier. */
  readonly preemption?: SchedulerConfig['preemption'];
  /** False: requests find nothing, and leave nothing to be found. */
  readonly reuse?: boolean;
  /** Told of the logits of each token, before it is sampled. */
  readonly onLogits?: (id: string, index: number, logits: Float32Array) => void;
  /** Told of errors that ended the requests of a step. */
  readonly onError?: (error: unknown) => void;
}

export class Engine {
  readonly checkpoint: Checkpoint;
  readonly tokenizer: TextTokenizer;
  readonly cache: KvCache<Answer>;
  readonly counters: EngineCounters = new EngineCounters();
  readonly steps: StepTimes = new StepTimes();
  readonly contextTokens: number;
  readonly #options: EngineOptions;
  readonly #limits: DecoderLimits;
  readonly #ends: ReadonlySet<number>;
  readonly #answers: Map<string, Answer> = new Map();
  #decoder: Decoder;
  #requests = 0;
  #loop: Promise<void> | undefined;

  private constructor(
    options: EngineOptions,
    checkpoint: Checkpoint,
    tokenizer: TextTokenizer,
    cache: KvCache<Answer>,
    limits: DecoderLimits,
    decoder: Decoder,
  ) {
    this.#options = options;
    this.checkpoint = checkpoint;
    this.tokenizer = tokenizer;
    this.cache = cache;
    this.#limits = limits;
    this.#decoder = decoder;
    this.contextTokens = limits.contextTokens;
    this.#ends = new Set(checkpoint.config.endTokens);
  }

  /** @throws {TierKVError} for a model that is not whole or not supported, and as `KVRuntime.open` */
  static async open(options: EngineOptions): Promise<Engine> {
    const { directory, model, blockTokens = 16, stepTokens = 256, maxSequences = 64 } = options;
    const checkpoint = openCheckpoint(directory);
    let kv: KVRuntime | undefined;
    try {
      const { layers, kvHeads, headDim, vocabulary } = checkpoint.config;
      const tokenizer = new TextTokenizer(directory, vocabulary);
      const layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens });
      const hasLowerTier = (options.cache.ddrBytes ?? 0) > 0 || options.cache.nvme !== undefined;
      const cache = await KvCache.open<Answer>(
        { ...options.cache, layout, model },
        {
          maxBatchedTokens: stepTokens,
          maxSequences,
          preemption: options.preemption ?? (hasLowerTier ? 'offload' : 'recompute'),
        },
      );
      kv = cache.kv;
      const contextTokens = Math.min(
        options.contextTokens ?? 8192,
        checkpoint.config.contextTokens,
        kv.room.blocks * blockTokens,
      );
      const entries = maxSequences * Math.ceil(contextTokens / blockTokens);
      const limits = { rows: stepTokens, samples: maxSequences, entries, contextTokens };
      const decoder = await Decoder.open(kv.device, checkpoint, layout, kv.stores.hbm.slabs, limits);
      return new Engine(options, checkpoint, tokenizer, cache, limits, decoder);
    } catch (error) {
      checkpoint.tensors.close();
      await kv?.close();
      throw error;
    }
  }

  /** Requests that have not ended. */
  get size(): number {
    return this.#answers.size;
  }

  /** Of these, requests in the batch. */
  get running(): number {
    return this.cache.scheduler.runningCount;
  }

  /**
   * A request begins as soon as there is room. Read the answer, or `cancel` it.
   * @throws TKV_CAPACITY for a prompt and an answer that are together longer than the context
   */
  submit(request: GenerationRequest): Answer {
    const { prompt, maxTokens } = request;
    if (prompt.length + maxTokens > this.contextTokens) {
      throw new TierKVError(
        'TKV_CAPACITY',
        `The context has ${this.contextTokens} tokens, but the prompt has ${prompt.length} and ` +
          `max_tokens is ${maxTokens}. Shorten the prompt, or ask for fewer tokens.`,
        { field: 'max_tokens' },
      );
    }
    if (prompt.length === 0) {
      throw new TierKVError('TKV_INPUT', 'The prompt is empty. Give it a token or more.', {
        field: 'prompt',
      });
    }
    const chain = this.#options.reuse === false ? null : this.cache.chainOf(request.tenant);
    const id = `${++this.#requests}`;
    const answer = new Answer(id, request, chain, this.tokenizer, performance.now());
    this.cache.scheduler.add(answer, this.cache.kv.nowUs());
    this.#answers.set(id, answer);
    this.counters.promptTokens += prompt.length;
    this.#loop ??= this.#serve();
    return answer;
  }

  /** Nobody wants the answer any more: its blocks are free with the step that runs now, or at once. */
  cancel(answer: Answer): void {
    if (answer.finish !== undefined) return;
    if (this.cache.scheduler.abort(answer.id, this.cache.kv.nowUs()) === 'ended')
      this.#end(answer, 'cancelled');
  }

  /** What can be saved is saved, so that the next start finds it. All requests must have ended. */
  async close(): Promise<number> {
    for (const answer of this.#answers.values()) this.cancel(answer);
    await this.#loop;
    const saved = await this.cache.kv.save();
    await this.cache.kv.close();
    this.checkpoint.tensors.close();
    return saved;
  }

  async #serve(): Promise<void> {
    while (this.#answers.size > 0) {
      try {
        const startMs = performance.now();
        const step = this.cache.plan();
        if (step === null) await this.cache.arrival();
        else await this.#run(step, startMs);
      } catch (error) {
        this.#options.onError?.(error);
        await this.#giveUp();
      }
    }
    this.#loop = undefined;
  }

  async #run(step: PlannedStep<Answer>, startMs: number): Promise<void> {
    const { device } = this.cache.kv;
    const { plan } = step;
    for (let seat = plan.first(); seat !== -1; seat = plan.next(seat))
      this.#begin(plan.request(seat), plan.from(seat));
    const shape = this.steps.shapeOf(plan);
    let logits: Float32Array;
    try {
      logits = await this.#decoder.run(step.rows);
    } catch (error) {
      const lost = await Promise.race([device.lost.then(() => true), delay(200, false)]);
      if (!lost) throw error;
      await this.#replaceDevice();
      return;
    }
    const nowMs = performance.now();
    const { vocabulary } = this.checkpoint.config;
    const stopped = step.sampling.filter((answer, i) => {
      const own = logits.subarray(i * vocabulary, (i + 1) * vocabulary);
      return this.#sample(answer, own, nowMs);
    });
    const outcome = this.cache.ended(stopped);
    outcome.finished.forEach((answer, i) => {
      this.#end(answer, reasons[outcome.reasons[i]]);
    });
    this.steps.record(shape, performance.now() - startMs);
  }

  /** @returns whether the answer is complete, other than by its length */
  #sample(answer: Answer, logits: Float32Array, nowMs: number): boolean {
    const index = answer.outputTokens;
    this.#options.onLogits?.(answer.id, index, logits);
    const token = sampleToken(logits, answer.request.sampling, index);
    this.counters.noteToken(answer, nowMs);
    return answer.take(token, !answer.request.ignoreEnd && this.#ends.has(token));
  }

  /** The first step of an answer: what was found of its prompt is known now. */
  #begin(answer: Answer, from: number): void {
    if (!Number.isNaN(answer.times.firstStepMs)) return;
    answer.times.firstStepMs = performance.now();
    answer.cachedTokens = from;
    this.counters.cachedTokens += from;
  }

  #end(answer: Answer, reason: 'stop' | 'length' | 'cancelled' | 'error'): void {
    this.#answers.delete(answer.id);
    answer.end(reason, performance.now());
    this.counters.noteEnd(answer);
  }

  /** Another device has other buffers: the weights go up again. */
  async #replaceDevice(): Promise<void> {
    await this.cache.failed();
    const { kv, layout } = this.cache;
    const { slabs } = kv.stores.hbm;
    this.#decoder = await Decoder.open(kv.device, this.checkpoint, layout, slabs, this.#limits);
  }

  /** An error that nobody expected: the requests under way end with it, and the engine goes on. */
  async #giveUp(): Promise<void> {
    const { scheduler, kv } = this.cache;
    if (scheduler.isComputing) scheduler.stepFailed(kv.nowUs());
    for (const answer of [...this.#answers.values()]) {
      scheduler.abort(answer.id, kv.nowUs());
      this.#end(answer, 'error');
    }
    await kv.idle();
  }
}

/** By the scheduler's reasons: length, stop, capacity, aborted. */
const reasons = ['length', 'stop', 'length', 'cancelled'] as const;

function delay<T>(ms: number, value: T): Promise<T> {
  return new Promise((resolve) => setTimeout(resolve, ms, value).unref());
}
