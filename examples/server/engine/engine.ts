/**
 * The engine: requests come in at any time, and one loop plans a step, runs it, samples, and hands out text,
 * for as long as requests are there to serve.
 */

import {
  type KVRuntime,
  type KVRuntimeConfig,
  type KVSchedulerConfig,
  type KVStepOutcome,
  kvLayout,
  type SampledToken,
  TierKVError,
} from '../../../src/index.ts';
import { watchRuntime } from '../../../src/observe/index.ts'; // in your project: 'tierkv/observe'
import { Answer, type AnswerFailure, type FinishReason, type GenerationRequest } from './answer.ts';
import { type Checkpoint, identified, openCheckpoint } from './checkpoint/index.ts';
import { EngineCounters } from './engineCounters.ts';
import { KvCache, type PlannedStep } from './kvCache.ts';
import { sampledLogprob } from './logprobs.ts';
import { Decoder, type DecoderLimits, shadersDigest } from './model/index.ts';
import { areFinite, sampleToken } from './sampling.ts';
import type { ServedEngine } from './servedEngine.ts';
import { StepTimes, shapeOf } from './stepTimes.ts';
import { TextTokenizer } from './text/index.ts';

/** Of a request whose length is not bounded by an option. */
const contextTokensDefault = 8192;

export type CacheConfig = Omit<KVRuntimeConfig, 'layout' | 'model'>;

export interface EngineOptions {
  /** Directory of the checkpoint. */
  readonly directory: string;
  /**
   * What makes the KV another one beside the files of the model, which are in its keys by content. Default:
   * nothing.
   */
  readonly model?: string;
  readonly cache: CacheConfig;
  readonly blockTokens?: number;
  /** Most tokens of a step. Default 256. */
  readonly stepTokens?: number;
  /** Most requests in a step. Default 64. */
  readonly maxSequences?: number;
  /**
   * Prompt and answer together, at most what the model and HBM hold. Default: that, and at most 8192.
   */
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

export class Engine implements ServedEngine {
  readonly checkpoint: Checkpoint;
  readonly tokenizer: TextTokenizer;
  readonly cache: KvCache;
  readonly counters: EngineCounters = new EngineCounters();
  readonly steps: StepTimes = new StepTimes();
  readonly contextTokens: number;
  readonly vocabulary: number;
  readonly without: Readonly<Record<string, string>> = {};
  readonly #options: EngineOptions;
  readonly #limits: DecoderLimits;
  readonly #ends: ReadonlySet<number>;
  readonly #answers: Map<string, Answer> = new Map();
  /** By the answer that computes their prompt: answers that begin when its blocks are there. */
  readonly #followers: Map<string, Answer[]> = new Map();
  /** Of requests that leave with the step that runs. */
  readonly #failures: Map<string, AnswerFailure> = new Map();
  #decoder: Decoder;
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
    this.vocabulary = checkpoint.config.vocabulary;
    this.contextTokens = limits.contextTokens;
    this.#ends = new Set(checkpoint.config.endTokens);
    const { requests, cache: found } = watchRuntime(cache.kv);
    requests.onEnd.add(({ id, story }) => {
      const answer = this.#answers.get(id ?? '');
      if (answer === undefined || story === undefined) return;
      const { blockTokens } = cache.layout;
      const byTier = found.tiers.map(
        ({ tier }, i) => [tier, (story.foundByTier[i] ?? 0) * blockTokens] as const,
      );
      answer.cachedByTier = Object.fromEntries(byTier.filter(([, tokens]) => tokens > 0));
    });
  }

  /** @throws {TierKVError} for a model that is not whole or not supported, and as `KVRuntime.open` */
  static async open(options: EngineOptions): Promise<Engine> {
    const { directory, model = '', blockTokens = 16, stepTokens = 256, maxSequences = 64 } = options;
    const opened = openCheckpoint(directory);
    let cache: KvCache | undefined;
    try {
      const { checkpoint, identity } = identified(directory, opened);
      const { layers, kvHeads, headDim, vocabulary } = checkpoint.config;
      const tokenizer = new TextTokenizer(directory, vocabulary);
      const layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens });
      const hasLowerTier = (options.cache.ddrBytes ?? 0) > 0 || options.cache.nvme !== undefined;
      cache = await KvCache.open(
        { ...options.cache, layout, model: `${model} ${identity} kernels:${shadersDigest()}`.trim() },
        {
          maxBatchedTokens: stepTokens,
          maxSequences,
          preemption: options.preemption ?? (hasLowerTier ? 'offload' : 'recompute'),
          prefixLoads: options.prefixLoads ?? 'overlapped',
        },
      );
      const { kv } = cache;
      requireSlabs(kv, options.cache.hbmBytes ?? 0);
      const contextTokens = contextOf(options.contextTokens, checkpoint, cache.scheduler.tokensMost - 1);
      const entries = maxSequences * Math.ceil(contextTokens / blockTokens);
      const limits = { rows: stepTokens, samples: maxSequences, entries, contextTokens };
      const decoder = await Decoder.open(kv, checkpoint, layout, kv.stores.hbm.slabs, limits);
      return new Engine(options, checkpoint, tokenizer, cache, limits, decoder);
    } catch (error) {
      opened.tensors.close();
      await cache?.kv.close();
      throw error;
    }
  }

  /** Requests that have not ended. */
  get size(): number {
    let size = this.#answers.size;
    for (const followers of this.#followers.values()) size += followers.length;
    return size;
  }

  /** Of these, requests in the batch. */
  get running(): number {
    return this.cache.scheduler.runningCount;
  }

  /**
   * A request begins as soon as there is room. Read the answer, or `cancel` it.
   * @throws TKV_CAPACITY for a prompt and an answer that are together longer than the context, TKV_INPUT for
   * an empty prompt, TKV_STATE when the engine closes
   */
  submit(request: GenerationRequest): Answer {
    this.#requireFits(request);
    const answer = this.#newAnswer(request);
    this.#add(answer);
    return answer;
  }

  /**
   * Several answers to one prompt. The first computes it; when its blocks are there, the others begin, and find all of
   * them: they share its full blocks, and compute the last, partial one for themselves.
   * @param count from 1 on. Each answer's seed is one more than the seed before
   * @throws as `submit`
   */
  submitSeveral(request: GenerationRequest, count: number): Answer[] {
    const [first, ...others] = Array.from({ length: count }, (_, i): GenerationRequest => {
      const { seed } = request.sampling;
      const own = Number.isSafeInteger(Number(seed) + i) ? Number(seed) + i : BigInt(seed) + BigInt(i);
      return { ...request, sampling: { ...request.sampling, seed: own } };
    });
    const leader = this.submit(first);
    const followers = others.map((each) => this.#newAnswer(each));
    if (followers.length > 0) this.#followers.set(leader.id, followers);
    return [leader, ...followers];
  }

  #requireFits({ prompt, maxTokens }: GenerationRequest): void {
    if (prompt.length + maxTokens > this.contextTokens) {
      throw new TierKVError(
        'TKV_CAPACITY',
        `The context has ${this.contextTokens} tokens, but the prompt has ${prompt.length} and ` +
          `max_tokens is ${maxTokens}. Shorten the prompt, or ask for fewer tokens.`,
        { field: 'max_tokens' },
      );
    }
  }

  #newAnswer(request: GenerationRequest): Answer {
    return new Answer(`${++this.#requests}`, request, this.tokenizer, performance.now());
  }

  #add(answer: Answer): void {
    const { id, request } = answer;
    const { prompt, maxTokens } = request;
    const tenant = this.#options.reuse === false ? `request ${id}` : request.tenant;
    this.cache.scheduler.add({ id, tokens: prompt, tenant, maxTokens });
    this.#answers.set(id, answer);
    this.counters.promptTokens += prompt.length;
    this.#loop ??= this.#serve();
  }

  /** The prompt of the answer is computed, or never will be by it: answers that waited for it begin. */
  #release(leader: Answer): void {
    const followers = this.#followers.get(leader.id) ?? [];
    this.#followers.delete(leader.id);
    for (const answer of followers) {
      if (answer.finish === undefined) this.#add(answer);
    }
  }

  /** The client has left: the blocks of its request are free with the step that runs now, or at once. */
  cancel(answer: Answer): void {
    if (answer.finish !== undefined) return;
    if (!this.#answers.has(answer.id))
      this.#end(answer, 'cancelled'); // it had not begun
    else if (this.cache.scheduler.abort(answer.id) === 'ended') this.#end(answer, 'cancelled');
  }

  /**
   * Requests that have not ended are cancelled, and what is cached is saved, so that the next start finds it.
   * @param saves false: no later run goes on with it
   * @returns blocks that the files hold
   * @throws TKV_IO when not all was saved; everything is closed then too
   */
  async close(saves = true): Promise<number> {
    for (const answer of [...this.#followers.values()].flat()) this.cancel(answer);
    for (const answer of [...this.#answers.values()]) this.cancel(answer);
    await this.#loop;
    try {
      return await this.cache.close(saves);
    } finally {
      this.checkpoint.tensors.close();
    }
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
        this.#giveUp(failureOf(error));
      }
    }
    this.#loop = undefined;
  }

  async #run(step: PlannedStep, startMs: number): Promise<void> {
    const { kv } = this.cache;
    const answers = step.requests.map(({ id }) => this.#begin(id, step.admitted.includes(id)));
    const shape = shapeOf(step.requests);
    const { device } = kv;
    let logits: Float32Array;
    try {
      if (kv.devicesLost !== this.#devicesLost) await this.#openDecoder();
      logits = await this.#decoder.run(step.rows);
    } catch (error) {
      const isLost = await Promise.race([device.lost.then(() => true), delay(200, false)]);
      if (!isLost) {
        this.#options.onError?.(error);
        this.#failStep(new Map(step.requests.map(({ id }) => [id, failureOf(error)])));
        return;
      }
      this.#finish(this.cache.scheduler.stepFailed());
      await this.cache.next();
      return;
    }
    const notFinite = this.#notFinite(step, logits);
    if (notFinite.size > 0) {
      for (const [id, { message }] of notFinite) this.#options.onError?.(`request ${id}: ${message}`);
      this.#failStep(notFinite);
      return;
    }
    const nowMs = performance.now();
    const sampled: SampledToken[] = [];
    step.requests.forEach(({ id, start, end, samples }, i) => {
      this.#notePrefill(answers[i], end - start, samples);
      if (!samples) return;
      const from = sampled.length * this.vocabulary;
      sampled.push({
        id,
        ...this.#sample(answers[i], end, logits.subarray(from, from + this.vocabulary), nowMs),
      });
    });
    this.#finish(this.cache.ended(sampled));
    for (const answer of answers) if (answer.tokens.length > 0) this.#release(answer);
    this.steps.record(shape, performance.now() - startMs);
  }

  /** Requests of a step that computed a NaN or an infinity, in KV or in logits, and what they are told. */
  #notFinite({ requests }: PlannedStep, logits: Float32Array): Map<string, AnswerFailure> {
    const found = new Map<string, AnswerFailure>();
    const rows = this.#decoder.notFinite;
    let row = 0;
    let mark = 0;
    let from = 0;
    for (const { id, start, end, samples } of requests) {
      let at = -1;
      row += end - start;
      for (; rows[mark] < row; mark++) if (at === -1) at = end - (row - rows[mark]);
      if (samples) {
        const own = logits.subarray(from, from + this.vocabulary);
        if (at === -1 && !areFinite(own)) at = end - 1;
        from += this.vocabulary;
      }
      if (at === -1) continue;
      const message =
        `The model computed a NaN or an infinity at token ${at} of this request, so it has no token to go on ` +
        'with. Its weights hold one, or its numbers overflow.';
      found.set(id, { message, code: 'not_finite', isPassing: false });
    }
    return found;
  }

  /**
   * The step brought nothing, and nothing of it is published. Requests that failed end; the others are
   * computed again, with the tokens that they had.
   */
  #failStep(failures: ReadonlyMap<string, AnswerFailure>): void {
    const { scheduler } = this.cache;
    for (const [id, failure] of failures) {
      this.#failures.set(id, failure);
      scheduler.abort(id);
    }
    this.#finish(scheduler.stepFailed());
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
      const isEnd = !answer.request.ignoreEnd && this.#ends.has(token);
      const { logprobs: top } = answer.request;
      if (top !== undefined && !isEnd) answer.logprobs.push(sampledLogprob(logits, token, top));
      answer.take(token, isEnd);
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
    const { blockTokens } = this.cache.layout;
    const whole = Math.floor(answer.promptTokens / blockTokens) * blockTokens; // full blocks alone are found by others
    answer.storedTokens = this.#options.reuse === false ? 0 : Math.max(0, whole - answer.cachedTokens);
    this.counters.cachedTokens += answer.cachedTokens;
  }

  #finish({ finished }: KVStepOutcome): void {
    for (const { id, reason } of finished) {
      const answer = this.#answers.get(id);
      const failure = this.#failures.get(id) ?? (reason === 'capacity' ? outgrown : undefined);
      this.#failures.delete(id);
      if (answer !== undefined) this.#end(answer, failure === undefined ? reasons[reason] : 'error', failure);
    }
  }

  #end(answer: Answer, reason: FinishReason, failure?: AnswerFailure): void {
    this.#answers.delete(answer.id);
    answer.end(reason, performance.now(), failure);
    this.counters.noteEnd(answer);
    this.#release(answer);
  }

  /** Another device has other buffers: the weights go up again. */
  async #openDecoder(): Promise<void> {
    const { kv, layout } = this.cache;
    const { devicesLost } = kv;
    this.#decoder = await Decoder.open(kv, this.checkpoint, layout, kv.stores.hbm.slabs, this.#limits);
    this.#devicesLost = devicesLost;
  }

  /** An unexpected error: the requests under way end with it, and the engine goes on. */
  #giveUp(failure: AnswerFailure): void {
    const { scheduler } = this.cache;
    for (const answer of [...this.#answers.values()]) {
      scheduler.abort(answer.id);
      this.#end(answer, 'error', failure);
    }
    try {
      scheduler.stepFailed();
    } catch {
      // No step was computing.
    }
  }
}

/** `requireFits` refuses what HBM cannot hold; a device that replaces a lost one may hold less. */
const outgrown: AnswerFailure = {
  message: 'The KV of this answer is more than the server holds now, so it was cut. Ask for fewer tokens.',
  code: 'internal',
  isPassing: false,
};

const reasons = { length: 'length', stop: 'stop', capacity: 'length', aborted: 'cancelled' } as const;

/** The kernels bind all buffers of the pool at once. @throws TKV_CONFIG naming the limit */
function requireSlabs({ stores, device }: KVRuntime, hbmBytes: number): void {
  const { maxStorageBuffersPerShaderStage: most, maxStorageBufferBindingSize: each } = device.limits;
  const beside = 3; // tables, queries and partial results of the attention
  const { length } = stores.hbm.slabs;
  if (length <= most - beside) return;
  const problem =
    `hbmBytes of ${hbmBytes} bytes takes ${length} buffers of up to ${each} bytes ` +
    `(maxStorageBufferBindingSize), and a kernel of this device binds ${most - beside} of them ` +
    `(maxStorageBuffersPerShaderStage is ${most})`;
  const remedy = `Give hbmBytes at most ${(most - beside) * each} bytes.`;
  throw new TierKVError('TKV_CONFIG', `${problem}. ${remedy}`, { field: 'hbmBytes' });
}

/** @throws TKV_CONFIG for more than the model has, or HBM holds */
function contextOf(wanted: number | undefined, { config }: Checkpoint, roomTokens: number): number {
  const { contextTokens: ofModel } = config;
  const most = Math.min(ofModel, roomTokens);
  if (wanted === undefined) return Math.min(most, contextTokensDefault);
  if (wanted <= most) return wanted;
  const why =
    wanted > ofModel
      ? `the model has ${ofModel} (max_position_embeddings of config.json). Lower contextTokens.`
      : `HBM holds the KV of ${roomTokens} tokens. Lower contextTokens, or raise hbmBytes.`;
  throw new TierKVError('TKV_CONFIG', `contextTokens is ${wanted}, and ${why}`, { field: 'contextTokens' });
}

/** Errors of the device pass, and are told; of others the log says more than a client may know. */
function failureOf(error: unknown): AnswerFailure {
  if (error instanceof TierKVError && error.code === 'TKV_DEVICE') {
    return { message: `${error.message} Send the request again.`, code: 'device', isPassing: true };
  }
  const message = 'The engine gave the request up. The log of the server says why. Send it again.';
  return { message, code: 'internal', isPassing: false };
}

function delay<T>(ms: number, value: T): Promise<T> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms, value);
    if (typeof timer === 'object') timer.unref(); // a browser has numbers for timers
  });
}
