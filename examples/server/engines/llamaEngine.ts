/**
 * llama.cpp as an engine of the server, through node-llama-cpp: `--engine llama --model FILE.gguf`. Each answer has a sequence of
 * llama.cpp while it is made; what a prompt has in common with earlier ones comes out of the tiers (`tierkv/node-llama-cpp`).
 */

import { LlamaPrefixes, type LlamaPrefixOptions } from '../../../src/adapters/llama/index.ts'; // 'tierkv/node-llama-cpp'
import { TierKVError, tierNames } from '../../../src/index.ts'; // in your project: 'tierkv'
import {
  Answer,
  type AnswerFailure,
  EngineCounters,
  type EngineText,
  type GenerationRequest,
  type ServedEngine,
} from '../engine/index.ts';
import type { TextStream } from '../engine/text/index.ts';

type LlamaModel = LlamaPrefixes['model'];

/** The parts of a model that the server needs beside the adapter's. */
interface ModelOfText extends LlamaModel {
  readonly tokens: {
    readonly bos: number | null;
    readonly bosString: string | null;
    readonly eosString: string | null;
    readonly shouldPrependBosToken: boolean;
  };
  iterateAllTokens(): Iterable<number>;
}

interface LlamaPackage {
  getLlama(options: object): Promise<LlamaPrefixOptions['llama'] & { dispose(): Promise<void> }>;
}

export interface LlamaEngineOptions {
  readonly file: string;
  /** Prompt and answer together. Default: what the model was trained with, and at most 8192. */
  readonly contextTokens: number | undefined;
  readonly sequences: number;
  /** Threads of llama.cpp. Default: its own choice. */
  readonly threads: number | undefined;
  readonly cache: Pick<LlamaPrefixOptions, 'secretKey' | 'ddrBytes' | 'nvme' | 'log' | 'notice'>;
  /** Told of errors that ended an answer. */
  readonly onError: (error: unknown) => void;
}

const contextTokensDefault = 8192;
const blockTokens = 16;

/** Tokens of llama.cpp as text, one at a time. */
class LlamaText implements EngineText {
  readonly settings: Readonly<Record<string, unknown>>;
  readonly #model: ModelOfText;

  constructor(model: ModelOfText) {
    this.#model = model;
    const { tokenizer } = model.fileInfo.metadata as { tokenizer?: Record<string, unknown> };
    const { bosString, eosString } = model.tokens;
    this.settings = {
      chat_template: tokenizer?.chat_template,
      ...(bosString === null ? {} : { bos_token: bosString }),
      ...(eosString === null ? {} : { eos_token: eosString }),
    };
  }

  encode(text: string, special: boolean): number[] {
    const { bos, shouldPrependBosToken } = this.#model.tokens;
    const tokens = this.#model.tokenize(text, true);
    return special && shouldPrependBosToken && bos !== null ? [bos, ...tokens] : [...tokens];
  }

  decode(tokens: readonly number[]): string {
    const stream = this.stream();
    return tokens.map((token) => stream.push(token)).join('') + stream.end();
  }

  /** A token may be part of a character: it waits for the others. */
  stream(): TextStream {
    const before: number[] = [];
    let waiting: number[] = [];
    const textOf = (): string => this.#model.detokenize(waiting, false, before);
    const give = (text: string): string => {
      before.push(...waiting);
      before.splice(0, before.length - 4);
      waiting = [];
      return text;
    };
    return {
      push: (token) => {
        waiting.push(token);
        const text = textOf();
        return text.endsWith('\ufffd') && waiting.length < 4 ? '' : give(text);
      },
      end: () => (waiting.length === 0 ? '' : give(textOf())),
    };
  }
}

export class LlamaEngine implements ServedEngine {
  readonly cache: ServedEngine['cache'];
  readonly tokenizer: EngineText;
  readonly vocabulary: number;
  readonly contextTokens: number;
  readonly counters: EngineCounters = new EngineCounters();
  readonly without: Readonly<Record<string, string>> = { logprobs: 'the llama engine tells none' };
  readonly #prefixes: LlamaPrefixes;
  readonly #options: LlamaEngineOptions;
  readonly #dispose: () => Promise<void>;
  readonly #answers: Map<Answer, { readonly leaving: AbortController; readonly served: Promise<void> }> =
    new Map();
  #requests = 0;
  #isClosing = false;

  private constructor(prefixes: LlamaPrefixes, options: LlamaEngineOptions, dispose: () => Promise<void>) {
    const model = prefixes.model as ModelOfText;
    this.#prefixes = prefixes;
    this.#options = options;
    this.#dispose = dispose;
    this.cache = { kv: prefixes.runtime };
    this.contextTokens = prefixes.contextSize;
    this.tokenizer = new LlamaText(model);
    this.vocabulary = [...model.iterateAllTokens()].length;
  }

  /** @throws TKV_CONFIG without the package or for a model that cannot be served, and as `LlamaPrefixes.open` */
  static async open(options: LlamaEngineOptions): Promise<LlamaEngine> {
    const { file, contextTokens, sequences, threads, cache } = options;
    const { getLlama } = await packageOfLlama();
    const llama = await getLlama({
      gpu: 'auto',
      build: 'never',
      logLevel: 'error',
      ...(threads === undefined ? {} : { maxThreads: threads }),
    });
    try {
      const prefixes = await LlamaPrefixes.open({
        ...cache,
        llama,
        model: file,
        contextSize: contextTokens ?? (await trainedContext(llama, file)),
        sequences,
        blockTokens,
        ...(threads === undefined ? {} : { threads }),
      });
      return new LlamaEngine(prefixes, options, () => llama.dispose());
    } catch (error) {
      await llama.dispose();
      throw error;
    }
  }

  get size(): number {
    return this.#answers.size;
  }

  get running(): number {
    return this.#prefixes.running;
  }

  submitSeveral(request: GenerationRequest, count: number): Answer[] {
    const { prompt, maxTokens, sampling } = request;
    if (this.#isClosing)
      throw new TierKVError('TKV_STATE', 'The engine is closing, and takes no more requests.');
    if (prompt.length + maxTokens > this.contextTokens) {
      throw new TierKVError(
        'TKV_CAPACITY',
        `The context has ${this.contextTokens} tokens, but the prompt has ${prompt.length} and ` +
          `max_tokens is ${maxTokens}. Shorten the prompt, or ask for fewer tokens.`,
        { field: 'max_tokens' },
      );
    }
    return Array.from({ length: count }, (_, i) => {
      const seed = Number(BigInt.asUintN(32, BigInt(sampling.seed) + BigInt(i)));
      const own = { ...request, sampling: { ...sampling, seed } };
      const answer = new Answer(`${++this.#requests}`, own, this.tokenizer, performance.now());
      const leaving = new AbortController();
      this.#answers.set(answer, { leaving, served: this.#serve(answer, leaving.signal) });
      return answer;
    });
  }

  cancel(answer: Answer): void {
    this.#answers.get(answer)?.leaving.abort(new Error('the client has left'));
  }

  async close(): Promise<number> {
    this.#isClosing = true;
    for (const answer of this.#answers.keys()) this.cancel(answer);
    await Promise.all([...this.#answers.values()].map(({ served }) => served));
    try {
      return await this.#prefixes.close();
    } finally {
      await this.#dispose();
    }
  }

  async #serve(answer: Answer, signal: AbortSignal): Promise<void> {
    await Promise.resolve(); // the answer is among the others by then
    try {
      await this.#generate(answer, signal);
    } catch (error) {
      if (!signal.aborted) this.#options.onError(error);
      answer.end(signal.aborted ? 'cancelled' : 'error', performance.now(), failed);
    }
    this.#answers.delete(answer);
    this.counters.noteEnd(answer);
  }

  async #generate(answer: Answer, signal: AbortSignal): Promise<void> {
    const { prompt, tenant, maxTokens, ignoreEnd, sampling } = answer.request;
    const { temperature, topK, topP, seed } = sampling;
    const turn = await this.#prefixes.begin(prompt, { tenant, signal });
    try {
      answer.times.firstStepMs = performance.now();
      answer.cachedTokens = turn.cachedTokens;
      const whole = Math.floor(prompt.length / blockTokens) * blockTokens;
      answer.storedTokens = Math.max(0, whole - turn.cachedTokens);
      this.counters.promptTokens += prompt.length;
      this.counters.cachedTokens += turn.cachedTokens;
      const { tiers } = this.cache.kv.manager.config;
      const found = turn.byTier.map((blocks, i) => [tierNames[tiers[i].tier], blocks * blockTokens] as const);
      answer.cachedByTier = Object.fromEntries(found.filter(([, tokens]) => tokens > 0));
      const options = { temperature, topK, topP, seed: Number(seed), yieldEogToken: true };
      for await (const token of turn.sequence.evaluate(turn.rest, options)) {
        if (signal.aborted) break;
        answer.take(token, ignoreEnd !== true && this.#prefixes.model.isEogToken(token));
        this.counters.noteToken(answer, performance.now());
        if (answer.isComplete || answer.tokens.length === maxTokens) break;
      }
    } finally {
      await turn.end(); // before the client hears of the end: its next turn finds this one
    }
    const finish = answer.isComplete ? 'stop' : 'length';
    answer.end(signal.aborted ? 'cancelled' : finish, performance.now());
  }
}

const failed: AnswerFailure = {
  message: 'The engine gave the request up. The log of the server says why. Send it again.',
  code: 'internal',
  isPassing: false,
};

/** Tokens that the model was trained with, and at most the default. */
async function trainedContext(llama: LlamaPrefixOptions['llama'], file: string): Promise<number> {
  const model = await llama.loadModel({ modelPath: file, vocabOnly: true } as never);
  const { trainContextSize } = model;
  await model.dispose();
  return Math.min(trainContextSize, contextTokensDefault);
}

async function packageOfLlama(): Promise<LlamaPackage> {
  const name: string = 'node-llama-cpp'; // few have it, so its types are not asked for
  try {
    return (await import(name)) as LlamaPackage;
  } catch (cause) {
    const message =
      'The llama engine needs the package node-llama-cpp. Install it: npm install node-llama-cpp.';
    throw new TierKVError('TKV_CONFIG', message, { field: '--engine', cause });
  }
}
