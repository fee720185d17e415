/**
 * One request to the engine and what comes of it: text piece by piece, as an async iterable, and its end. The
 * engine never waits for a reader: what is not read yet is kept, and is bounded by the request's own length.
 */

import type { SampledLogprob } from './logprobs.ts';
import type { SamplingOptions } from './sampling.ts';
import { type Decoder, Detokenizer, StopStrings } from './text/index.ts';

export interface GenerationRequest {
  readonly prompt: readonly number[];
  readonly tenant: string;
  readonly maxTokens: number;
  readonly sampling: SamplingOptions;
  /** Text at which the answer ends; not part of it. */
  readonly stop: readonly string[];
  /** Tokens that the answer has, whatever the model would say: for traffic whose answers are recorded. */
  readonly recorded?: ArrayLike<number>;
  /** How many of the most likely tokens are told beside each token of the answer. Default: nothing is told. */
  readonly logprobs?: number;
  /** Go on where the model would end its answer. */
  readonly ignoreEnd?: boolean;
}

/** `cancelled` and `error`: what there is of the answer is not the whole of it. */
export type FinishReason = 'stop' | 'length' | 'cancelled' | 'error';

/** Why an answer ended with `error`, as the client is told. */
export interface AnswerFailure {
  readonly message: string;
  readonly code: 'not_finite' | 'device' | 'internal';
  /** The same request may well be answered later. */
  readonly isPassing: boolean;
}

/** Milliseconds of the process's clock at which things happened; NaN before. */
export interface AnswerTimes {
  readonly arrivedMs: number;
  firstStepMs: number;
  firstTokenMs: number;
  lastTokenMs: number;
  endedMs: number;
}

export class Answer {
  readonly id: string;
  readonly request: GenerationRequest;
  readonly times: AnswerTimes;
  /** Tokens that were generated. */
  readonly tokens: number[] = [];
  /** Tokens of the prompt whose KV was found; known from the first token on. */
  cachedTokens = 0;
  /** Tokens of the prompt that were computed and put where later requests find them; known from the first token on. */
  storedTokens = 0;
  /** Tokens of the prompt by the tier in which they were found, where it is known; when it has ended. */
  cachedByTier: Readonly<Record<string, number>> = {};
  /** One for each token, where they were asked for; without the token that ends the answer. */
  readonly logprobs: SampledLogprob[] = [];
  /** Tokens computed since it was admitted, until there is a first token. */
  prefilledTokens = 0;
  /** undefined while it goes on. */
  finish: FinishReason | undefined;
  /** Where `finish` is `error`. */
  failure: AnswerFailure | undefined;
  /** Whether the last token ends the answer, other than by its length. */
  isComplete = false;
  /** Fulfilled with the first token, or with the end where no token came. */
  readonly began: Promise<void>;
  readonly #noteBegun: () => void;
  readonly #detokenizer: Detokenizer;
  readonly #stops: StopStrings;
  #unread = '';
  #wake: () => void = () => {};

  constructor(id: string, request: GenerationRequest, decoder: Decoder, arrivedMs: number) {
    this.id = id;
    this.request = request;
    this.#detokenizer = new Detokenizer(decoder, request.prompt);
    this.#stops = new StopStrings(request.stop);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.began = promise;
    this.#noteBegun = resolve;
    const never = Number.NaN;
    this.times = { arrivedMs, firstStepMs: never, firstTokenMs: never, lastTokenMs: never, endedMs: never };
  }

  get promptTokens(): number {
    return this.request.prompt.length;
  }

  /** The stop string at which it ended; undefined where it ended otherwise. */
  get stoppedAt(): string | undefined {
    return this.#stops.stoppedAt;
  }

  /** The engine's next token. A token that ends the answer has no text. */
  take(token: number, isEnd: boolean): void {
    this.tokens.push(token);
    if (!isEnd) this.#give(this.#stops.push(this.#detokenizer.push(token)));
    this.isComplete = isEnd || this.#stops.stoppedAt !== undefined;
    this.#noteBegun();
  }

  end(finish: FinishReason, nowMs: number, failure?: AnswerFailure): void {
    if (this.finish !== undefined) return;
    this.failure = failure;
    this.#give(this.#stops.push(this.#detokenizer.end()));
    if (this.#stops.stoppedAt === undefined) this.#give(this.#stops.end());
    this.finish = finish;
    this.#noteBegun();
    this.times.endedMs = nowMs;
    this.#wake();
  }

  /** The text as it comes, in pieces that are never empty. For one reader. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for (;;) {
      const text = this.#unread;
      this.#unread = '';
      if (text !== '') yield text;
      else if (this.finish !== undefined) return;
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }

  /** All of the text, when it has ended. */
  async text(): Promise<string> {
    let text = '';
    for await (const piece of this) text += piece;
    return text;
  }

  #give(text: string): void {
    this.#unread += text;
    if (text !== '') this.#wake();
  }
}
