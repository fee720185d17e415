/** What goes back: whole answers, chunks of a stream, and how many tokens it took. */

import type { Answer, SampledLogprob, TokenLogprob } from '../engine/index.ts';
import type { Decoder } from '../engine/text/index.ts';

export type Kind = 'completion' | 'chat';

export interface AnswerName {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
}

/**
 * The prompt counts once, however many answers it has. `cached_tokens_by_tier` is this server's own. What was found is told
 * once it is known: not in the answer to a leg that is answered while its prompt is computed.
 */
export function usageOf(answers: readonly Answer[]): object {
  const [{ promptTokens, cachedTokens, cachedByTier, tokens, finish }] = answers;
  const found = { cached_tokens: cachedTokens, cached_tokens_by_tier: cachedByTier };
  const isKnown = tokens.length > 0 || finish !== undefined;
  const generated = answers.reduce((sum, { tokens }) => sum + tokens.length, 0);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: generated,
    total_tokens: promptTokens + generated,
    prompt_tokens_details: isKnown ? found : null,
  };
}

/** @param texts one for each answer, as its choices have them */
export function wholeBody(
  kind: Kind,
  name: AnswerName,
  answers: readonly Answer[],
  texts: readonly string[],
  words: Decoder,
): object {
  const isChat = kind === 'chat';
  const choices = answers.map((answer, index) => {
    const text = texts[index];
    const said = isChat ? { message: { role: 'assistant', content: text, refusal: null } } : { text };
    const logprobs = new LogprobBodies(kind, answer, words).next();
    // An answer that goes on belongs to a prefill leg: another server makes its token.
    return { index, logprobs, finish_reason: answer.finish ?? 'length', ...said };
  });
  return {
    ...name,
    object: isChat ? 'chat.completion' : 'text_completion',
    choices,
    usage: usageOf(answers),
  };
}

/** The log probabilities of an answer's tokens in the form of the API, part by part. */
class LogprobBodies {
  readonly #kind: Kind;
  readonly #answer: Answer;
  readonly #words: Decoder;
  #told = 0;
  /** Characters of the tokens that were told. */
  #offset = 0;

  constructor(kind: Kind, answer: Answer, words: Decoder) {
    this.#kind = kind;
    this.#answer = answer;
    this.#words = words;
  }

  /** Of the tokens that came since the last call; null where none were asked for. */
  next(): object | null {
    const { logprobs, request } = this.#answer;
    if (request.logprobs === undefined) return null;
    const news = logprobs.slice(this.#told);
    this.#told = logprobs.length;
    return this.#kind === 'chat' ? this.#content(news) : this.#lists(news);
  }

  #content(news: readonly SampledLogprob[]): object {
    const entry = ({ token, logprob }: TokenLogprob): object => {
      const text = this.#words.decode([token]);
      // of a character that has several tokens none has the bytes alone
      const bytes = text.includes('\ufffd') ? null : [...Buffer.from(text)];
      return { token: text, logprob, bytes };
    };
    return {
      content: news.map((each) => ({ ...entry(each), top_logprobs: each.top.map(entry) })),
      refusal: null,
    };
  }

  /** By text, the token itself among them. Of tokens with one text, such as parts of characters, the likeliest counts. */
  #likeliest(sampled: SampledLogprob): object {
    const byText = new Map<string, number>();
    for (const { token, logprob } of [...sampled.top, sampled]) {
      const text = this.#words.decode([token]);
      if (!byText.has(text)) byText.set(text, logprob);
    }
    return Object.fromEntries(byText);
  }

  #lists(news: readonly SampledLogprob[]): object {
    const texts = news.map(({ token }) => this.#words.decode([token]));
    const offsets = texts.map((text) => {
      const at = this.#offset;
      this.#offset += text.length;
      return at;
    });
    const isAsked = (this.#answer.request.logprobs ?? 0) > 0;
    return {
      tokens: texts,
      token_logprobs: news.map(({ logprob }) => logprob),
      top_logprobs: isAsked ? news.map((each) => this.#likeliest(each)) : null,
      text_offset: offsets,
    };
  }
}

/** Chunks of one choice of a stream: all chunks share id and time of creation. */
export class ChunkBodies {
  readonly #kind: Kind;
  readonly #head: object;
  /** Present where usage was asked for: null in all chunks but the last. */
  readonly #usage: { readonly usage: null } | object;

  readonly #index: number;
  readonly #logprobs: LogprobBodies;

  constructor(
    kind: Kind,
    name: AnswerName,
    includeUsage: boolean,
    index: number,
    answer: Answer,
    words: Decoder,
  ) {
    this.#kind = kind;
    this.#index = index;
    this.#logprobs = new LogprobBodies(kind, answer, words);
    this.#head = { ...name, object: kind === 'chat' ? 'chat.completion.chunk' : 'text_completion' };
    this.#usage = includeUsage ? { usage: null } : {};
  }

  /** The first chunk of a chat names the role; undefined for a completion. */
  first(): object | undefined {
    return this.#kind === 'chat'
      ? this.#chunk({ delta: { role: 'assistant', content: '' } }, null, null)
      : undefined;
  }

  text(text: string): object {
    const said = this.#kind === 'chat' ? { delta: { content: text } } : { text };
    return this.#chunk(said, null, this.#logprobs.next());
  }

  last(answer: Answer): object {
    const said = this.#kind === 'chat' ? { delta: {} } : { text: '' };
    return this.#chunk(said, answer.finish ?? null, this.#logprobs.next());
  }

  usage(answers: readonly Answer[]): object {
    return { ...this.#head, choices: [], usage: usageOf(answers) };
  }

  #chunk(said: object, finish: string | null, logprobs: object | null): object {
    const choice = { index: this.#index, ...said, logprobs, finish_reason: finish };
    return { ...this.#head, choices: [choice], ...this.#usage };
  }
}
