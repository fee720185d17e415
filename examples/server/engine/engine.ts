/**
 * The engine: requests come in at any time, and one loop plans a step, runs it, samples, and hands out text,
 * for as long as there is somebody to serve.
 */

import {
  type KVRuntimeConfig,
  type KVSchedulerConfig,
  type KVStepOutcome,
  kvLayout,
  type SampledToken,
  TierKVError,
} from '../../../src/index.ts';
import { Answer, type FinishReason, type GenerationRequest } from './answer.ts';
import { watchLifetimes } from './blockLifetimes.ts';
import { type Checkpoint, openCheckpoint } from './checkpoint/index.ts';
import { EngineCounters } from './engineCounters.ts';
import { KvCache, type PlannedStep } from './kvCache.ts';
import { Decoder, type DecoderLimits } from './model/index.ts';
import { sampleToken } from './sampling.ts';
import { StepTimes, shapeOf } from './stepTimes.ts';
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
  readonly preemption?: KVSchedulerConfig['preemption'];
  /** Whether a prompt is computed from the front while it is loaded from the back. Default `overlapped`. */
  readonly prefixLoads?: KVSchedulerConfig['prefixLoads'];
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
  readonly cache: KvCache;
  readonly counters: EngineCounters = new EngineCounters();
  readonly steps: StepTimes = new StepTimes();
  readonly contextTokens: number;
  readonly #options: EngineOptions;
  readonly #limits: DecoderLimits;
  readonly #ends: ReadonlySet<number>;
  readonly #answers: Map<string, Answer> = new Map();
  #decoder: Decoder;
  readonly #vocabulary: number;
  #devicesLost = 0;
  #requests = 0;
  #loop: Promise<void> | undefined;

  private constructor(
    options: EngineOptions,
    checkpoint: Checkpoint,
    tokenizer: TextTokenizer,
    cache: KvCache,
    limits: DecoderLimits,
    decoder: Decoder,
  ) {
    this.#options = options;
    this.checkpoint = checkpoint;
    this.tokenizer = tokenizer;
    this.cache = cache;
    this.#limits = limits;
    this.#decoder = decoder;
    this.#vocabulary = checkpoint.config.vocabulary;
    this.contextTokens = limits.contextTokens;
    this.#ends = new Set(checkpoint.config.endTokens);
    void watchLifetimes(cache.kv, this.counters);
  }

  /** @throws {TierKVError} for a model that is not whole or not supported, and as `KVRuntime.open` */
  static async open(options: EngineOptions): Promise<Engine> {
    const { directory, model, blockTokens = 16, stepTokens = 256, maxSequences = 64 } = options;
    const checkpoint = openCheckpoint(directory);
    let cache: KvCache | undefined;
    try {
      const { layers, kvHeads, headDim, vocabulary } = checkpoint.config;
      const tokenizer = new TextTokenizer(directory, vocabulary);
      const layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens });
      const hasLowerTier = (options.cache.ddrBytes ?? 0) > 0 || options.cache.nvme !== undefined;
      cache = await KvCache.open(
        { ...options.cache, layout, model },
        {
          maxBatchedTokens: stepTokens,
          maxSequences,
          preemption: options.preemption ?? (hasLowerTier ? 'offload' : 'recompute'),
          prefixLoads: options.prefixLoads ?? 'overlapped',
        },
      );
      const { kv } = cache;
      const contextTokens = Math.min(
        options.contextTokens ?? 8192,
        checkpoint.config.contextTokens,
        kv.room.blocks * blockTokens,
      );
      const entries = maxSequences * Math.ceil(contextTokens / blockTokens);
      const limits = { rows: stepTokens, samples: maxSequences, entries, contextTokens };
      const decoder = await Decoder.open(kv, checkpoint, layout, kv.stores.hbm.slabs, limits);
      return new Engine(options, checkpoint, tokenizer, cache, limits, decoder);
    } catch (error) {
      checkpoint.tensors.close();
      await cache?.kv.close();
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
   * @throws TKV_CAPACITY for a prompt and an answer that are together longer than the context, TKV_INPUT for an
   * empty prompt, TKV_STATE when the engine closes
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
    const id = `${++this.#requests}`;
    const tenant = this.#options.reuse === false ? `request ${id}` : request.tenant;
    this.cache.scheduler.add({ id, tokens: prompt, tenant, maxTokens });
    const answer = new Answer(id, request, this.tokenizer, performance.now());
    this.#answers.set(id, answer);
    this.counters.promptTokens += prompt.length;
    this.#loop ??= this.#serve();
    return answer;
  }

  /** Nobody wants the answer any more: its blocks are free with the step that runs now, or at once. */
  cancel(answer: Answer): void {
    if (answer.finish !== undefined || !this.#answers.has(answer.id)) return;
    if (this.cache.scheduler.abort(answer.id) === 'ended') this.#end(answer, 'cancelled');
  }

  /**
   * Requests that have not ended are cancelled, and what is cached is saved, so that the next start finds it.
   * @param saves false: nobody goes on with it
   * @returns blocks that the files hold
   */
  async close(saves = true): Promise<number> {
    for (const answer of [...this.#answers.values()]) this.cancel(answer);
    await this.#loop;
    const saved = await this.cache.close(saves);
    this.checkpoint.tensors.close();
    return saved;
  }

  async #serve(): Promise<void> {
    while (this.#answers.size > 0) {
      try {
        const startMs = performance.now();
        const step = this.cache.plan();
        if (step === null) await this.cache.next();
        else await this.#run(step, startMs);
      } catch (error) {
        this.#options.onError?.(error);
        this.#giveUp();
      }
    }
    this.#loop = undefined;
  }

  async #run(step: PlannedStep, startMs: number): Promise<void> {
    const { kv } = this.cache;
    const answers = step.requests.map(({ id }) => this.#begin(id, step.admitted.includes(id)));
    const shape = shapeOf(step.requests);
    if (kv.devicesLost !== this.#devicesLost) await this.#openDecoder();
    const { device } = kv;
    let logits: Float32Array;
    try {
      logits = await this.#decoder.run(step.rows);
    } catch (error) {
      const isLost = await Promise.race([device.lost.then(() => true), delay(200, false)]);
      if (!isLost) throw error;
      this.#finish(this.cache.scheduler.stepFailed());
      await this.cache.next();
      return;
    }
    const nowMs = performance.now();
    const sampled: SampledToken[] = [];
    step.requests.forEach(({ id, start, end, samples }, i) => {
      this.#notePrefill(answers[i], end - start, samples);
      if (!samples) return;
      const from = sampled.length * this.#vocabulary;
      sampled.push({
        id,
        ...this.#sample(answers[i], end, logits.subarray(from, from + this.#vocabulary), nowMs),
      });
    });
    this.#finish(this.cache.ended(sampled));
    this.steps.record(shape, performance.now() - startMs);
  }

  /**
   * The token behind the first `end` tokens. One that was drawn in a step that was interrupted is handed out
   * already, and stays what it is.
   */
  #sample(
    answer: Answer,
    end: number,
    logits: Float32Array,
    nowMs: number,
  ): { readonly token: number; readonly stop: boolean } {
    const index = end - answer.promptTokens;
    this.#options.onLogits?.(answer.id, index, logits);
    if (index === answer.tokens.length) {
      const token = answer.request.recorded?.[index] ?? sampleToken(logits, answer.request.sampling, index);
      answer.take(token, !answer.request.ignoreEnd && this.#ends.has(token));
      this.counters.noteToken(answer, nowMs);
    }
    return { token: answer.tokens[index], stop: answer.isComplete };
  }

  #begin(id: string, isAdmitted: boolean): Answer {
    const answer = this.#answers.get(id);
    if (answer === undefined) throw new Error(`request ${id} is planned and has ended`);
    if (Number.isNaN(answer.times.firstStepMs)) answer.times.firstStepMs = performance.now();
    if (isAdmitted) answer.prefilledTokens = 0;
    return answer;
  }

  /** What was not computed of a prompt was found, some of it while the rest was computed. */
  #notePrefill(answer: Answer, computed: number, samples: boolean): void {
    if (answer.tokens.length > 0) return;
    answer.prefilledTokens += computed;
    if (!samples) return;
    answer.cachedTokens = answer.promptTokens - answer.prefilledTokens;
    this.counters.cachedTokens += answer.cachedTokens;
  }

  #finish({ finished }: KVStepOutcome): void {
    for (const { id, reason } of finished) {
      const answer = this.#answers.get(id);
      if (answer !== undefined) this.#end(answer, reasons[reason]);
    }
  }

  #end(answer: Answer, reason: FinishReason): void {
    this.#answers.delete(answer.id);
    answer.end(reason, performance.now());
    this.counters.noteEnd(answer);
  }

  /** Another device has other buffers: the weights go up again. */
  async #openDecoder(): Promise<void> {
    const { kv, layout } = this.cache;
    this.#devicesLost = kv.devicesLost;
    this.#decoder = await Decoder.open(kv, this.checkpoint, layout, kv.stores.hbm.slabs, this.#limits);
  }

  /** An error that nobody expected: the requests under way end with it, and the engine goes on. */
  #giveUp(): void {
    const { scheduler } = this.cache;
    for (const answer of [...this.#answers.values()]) {
      scheduler.abort(answer.id);
      this.#end(answer, 'error');
    }
    try {
      scheduler.stepFailed();
    } catch {
      // No step was computing.
    }
  }
}

const reasons = { length: 'length', stop: 'stop', capacity: 'length', aborted: 'cancelled' } as const;

function delay<T>(ms: number, value: T): Promise<T> {
  return new Promise((resolve) => setTimeout(resolve, ms, value).unref());
}
