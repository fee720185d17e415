/**
 * The text of one answer, piece by piece. It is decode(prompt and answer) less decode(prompt): a decoder may treat
 * the first token of a text otherwise, or change a space at the border, so an answer is never decoded alone.
 *
 * Where decode(prompt) is not a beginning of decode(prompt and answer), for example because the prompt ends in the
 * middle of a character, the answer's text begins at the first character in which the two differ.
 */

import type { TextStream } from './tokenDecoder.ts';

export interface Decoder {
  decode(tokens: readonly number[]): string;
  stream(): TextStream;
}

export class Detokenizer {
  readonly #stream: TextStream;
  /** What is left of decode(prompt) to be skipped. */
  #prompt: string;

  /** @param prompt tokens before the answer */
  constructor(decoder: Decoder, prompt: readonly number[] = []) {
    this.#stream = decoder.stream();
    this.#prompt = prompt.length === 0 ? '' : decoder.decode(prompt);
    for (const token of prompt) this.#skip(this.#stream.push(token));
  }

  /** @returns the text that became certain by this token; may be empty */
  push(token: number): string {
    return this.#skip(this.#stream.push(token));
  }

  /** @returns what was held back: the answer is over */
  end(): string {
    return this.#skip(this.#stream.end());
  }

  /** What of `text` belongs to the answer. */
  #skip(text: string): string {
    if (this.#prompt === '' || text === '') return text;
    let at = 0;
    for (const character of text) {
      if (!this.#prompt.startsWith(character, at)) {
        this.#prompt = '';
        return text.slice(at);
      }
      at += character.length;
    }
    this.#prompt = this.#prompt.slice(at);
    return '';
  }
}
