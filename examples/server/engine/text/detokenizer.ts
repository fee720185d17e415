/**
 * Tokens of one answer to text, piece by piece. A character may need several tokens, so text that ends in the
 * middle of one is held back until it is whole. Only the last few tokens are decoded again for each new one.
 */

export interface Decoder {
  decode(tokens: readonly number[]): string;
}

const replacement = '\ufffd';

export class Detokenizer {
  readonly #decoder: Decoder;
  readonly #tokens: number[] = [];
  /** Tokens from here on are decoded together; the first of them give context to the rest. */
  #from = 0;
  /** Tokens before this one have been given out as text. */
  #given = 0;

  constructor(decoder: Decoder) {
    this.#decoder = decoder;
  }

  /** @returns the text that became certain by this token; may be empty */
  push(token: number): string {
    this.#tokens.push(token);
    const whole = this.#decoder.decode(this.#tokens.slice(this.#from));
    if (whole.endsWith(replacement) && this.#tokens.length - this.#given < 8) return '';
    return this.#give(whole);
  }

  /** @returns what was held back: the answer is over */
  end(): string {
    return this.#give(this.#decoder.decode(this.#tokens.slice(this.#from)));
  }

  #give(whole: string): string {
    const before = this.#decoder.decode(this.#tokens.slice(this.#from, this.#given));
    this.#from = this.#given;
    this.#given = this.#tokens.length;
    return whole.slice(before.length);
  }
}
