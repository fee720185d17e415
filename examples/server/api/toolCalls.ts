/**
 * The text of a model, split into what it says and the tools that it calls. A call stands between two marks, as the templates
 * of `ChatTemplate.takesTools` teach it; a text that may be the beginning of a mark is held back. Other words between the
 * marks, and calls of unknown tools, are text, unchanged.
 */

import { randomBytes } from 'node:crypto';
import { callMarks, overlap } from '../engine/text/index.ts';

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly input: object;
}

/** Something that the model said, in its order. */
export type Saying = { readonly text: string } | { readonly call: ToolCall };

export class ToolCalls {
  readonly #names: ReadonlySet<string>;
  #held = '';
  /** Spaces before the mark that is open: they are text unless a call follows. */
  #gap = '';
  #isInside = false;

  /** @param names of the tools; none: all is text */
  constructor(names: readonly string[]) {
    this.#names = new Set(names);
  }

  push(piece: string): Saying[] {
    if (this.#names.size === 0) return piece === '' ? [] : [{ text: piece }];
    this.#held += piece;
    const said: Saying[] = [];
    for (;;) {
      const mark = this.#isInside ? callMarks.close : callMarks.open;
      const at = this.#held.indexOf(mark);
      if (at === -1) break;
      const before = this.#held.slice(0, at);
      this.#held = this.#held.slice(at + mark.length);
      if (this.#isInside) said.push(this.#sayingOf(before));
      else {
        const text = before.trimEnd();
        if (text !== '') said.push({ text });
        this.#gap = before.slice(text.length);
      }
      this.#isInside = !this.#isInside;
    }
    if (this.#isInside) return said;
    const sure = this.#held.slice(0, this.#held.length - overlap(this.#held, callMarks.open)).trimEnd();
    this.#held = this.#held.slice(sure.length);
    if (sure !== '') said.push({ text: sure });
    return said;
  }

  /** What was held back: no more text comes. */
  end(): Saying[] {
    const text = this.#isInside ? this.#gap + callMarks.open + this.#held : this.#held;
    this.#held = '';
    return text === '' ? [] : [{ text }];
  }

  #sayingOf(text: string): Saying {
    try {
      const { name, arguments: given = {} } = JSON.parse(text) as Record<string, unknown>;
      if (typeof name === 'string' && this.#names.has(name) && typeof given === 'object' && given !== null)
        return { call: { id: `toolu_${randomBytes(12).toString('hex')}`, name, input: given } };
    } catch {
      // no JSON: it is told as the text that it is
    }
    return { text: this.#gap + callMarks.open + text + callMarks.close };
  }
}
