/** What goes back: whole answers, chunks of a stream, and how many tokens it took. */

import type { Answer } from '../engine/index.ts';

export type Kind = 'completion' | 'chat';

export interface AnswerName {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
}

export function usageOf(answer: Answer): object {
  const { promptTokens, tokens, cachedTokens } = answer;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: tokens.length,
    total_tokens: promptTokens + tokens.length,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

export function wholeBody(kind: Kind, name: AnswerName, answer: Answer, text: string): object {
  // One that goes on is the answer of a prefill leg, whose token another server makes.
  const choice = { index: 0, logprobs: null, finish_reason: answer.finish ?? 'length' };
  const isChat = kind === 'chat';
  const said = isChat ? { message: { role: 'assistant', content: text, refusal: null } } : { text };
  return {
    ...name,
    object: isChat ? 'chat.completion' : 'text_completion',
    choices: [{ ...choice, ...said }],
    usage: usageOf(answer),
  };
}

/** Chunks of one stream: they share id and time of creation. */
export class ChunkBodies {
  readonly #kind: Kind;
  readonly #head: object;
  /** Present where usage was asked for: null in all chunks but the last. */
  readonly #usage: { readonly usage: null } | object;

  constructor(kind: Kind, name: AnswerName, includeUsage: boolean) {
    this.#kind = kind;
    this.#head = { ...name, object: kind === 'chat' ? 'chat.completion.chunk' : 'text_completion' };
    this.#usage = includeUsage ? { usage: null } : {};
  }

  /** The first chunk of a chat names the role; undefined for a completion. */
  first(): object | undefined {
    return this.#kind === 'chat'
      ? this.#chunk({ delta: { role: 'assistant', content: '' } }, null)
      : undefined;
  }

  text(text: string): object {
    return this.#chunk(this.#kind === 'chat' ? { delta: { content: text } } : { text }, null);
  }

  last(answer: Answer): object {
    return this.#chunk(this.#kind === 'chat' ? { delta: {} } : { text: '' }, answer.finish ?? null);
  }

  usage(answer: Answer): object {
    return { ...this.#head, choices: [], usage: usageOf(answer) };
  }

  #chunk(said: object, finish: string | null): object {
    const choice = { index: 0, ...said, logprobs: null, finish_reason: finish };
    return { ...this.#head, choices: [choice], ...this.#usage };
  }
}
