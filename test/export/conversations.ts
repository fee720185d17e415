/**
 * Operations on one cache of chained blocks: several requests at a time open, store piece by piece, and end. No block is
 * stored by two at a time, since our manager computes it twice then, and vLLM stores it once.
 */

import type { Random } from '../fuzz/random.ts';

export type Op = readonly [kind: 'open' | 'store' | 'end', request: number, nowUs: number, ids: number[]];

interface Turn {
  readonly request: number;
  readonly chat: number;
  readonly ids: readonly number[];
  /** Blocks that are found or stored already; unknown until the cache has said what it found. */
  at: number;
}

/** Chats under shared prompts, among requests that never come again. A chat has one turn at a time. */
export class Conversations {
  readonly #random: Random;
  readonly #chats: { ids: number[]; busy: boolean; readonly prompt: number }[];
  readonly #most: number;
  readonly #running: Turn[] = [];
  #next = 1;
  #requests = 0;
  #nowUs = 0;

  /** @param most running requests at a time */
  constructor(random: Random, chats: number, most: number) {
    this.#random = random;
    this.#most = most;
    const prompts = Array.from({ length: 4 }, () => this.#fresh(random.between(1, 4)));
    this.#chats = Array.from({ length: chats }, (_, chat) => {
      const prompt = chat % prompts.length;
      return { ids: prompts[prompt].slice(), busy: false, prompt };
    });
  }

  /** The next operation. `open` must tell how many leading ids were found, by `found`. */
  next(): Op {
    const random = this.#random;
    this.#nowUs += random.below(random.chance(0.02) ? 20_000_000 : 400_000);
    if (this.#running.length < this.#most && (this.#running.length === 0 || random.chance(0.4))) {
      return this.#open();
    }
    const turn = random.pick(this.#running);
    if (turn.at < turn.ids.length) {
      const to = random.chance(0.6) ? turn.ids.length : random.between(turn.at + 1, turn.ids.length);
      const ids = turn.ids.slice(turn.at, to);
      turn.at = to;
      return ['store', turn.request, this.#nowUs, ids];
    }
    this.#running.splice(this.#running.indexOf(turn), 1);
    if (turn.chat >= 0) this.#chats[turn.chat].busy = false;
    return ['end', turn.request, this.#nowUs, []];
  }

  found(request: number, count: number): void {
    const turn = this.#running.find((each) => each.request === request);
    if (turn !== undefined) turn.at = count;
  }

  #open(): Op {
    const random = this.#random;
    const chat = random.chance(0.3) ? -1 : random.below(random.chance(0.5) ? this.#chats.length : 6);
    const own = chat >= 0 && !this.#chats[chat].busy && !this.#isStoring(this.#chats[chat].prompt);
    if (own) {
      const { ids } = this.#chats[chat];
      this.#chats[chat].busy = true;
      if (ids.length > 40) ids.length = 1;
      ids.push(...this.#fresh(random.between(1, 4)));
    }
    const ids = own ? this.#chats[chat].ids.slice() : this.#fresh(random.between(1, 12));
    const request = ++this.#requests;
    this.#running.push({ request, chat: own ? chat : -1, ids, at: 0 });
    return ['open', request, this.#nowUs, ids];
  }

  /** Whether a running request still stores blocks of a chat under the prompt: two that store one block at a time differ. */
  #isStoring(prompt: number): boolean {
    return this.#running.some(
      ({ chat, at, ids }) => chat >= 0 && this.#chats[chat].prompt === prompt && at < ids.length,
    );
  }

  #fresh(count: number): number[] {
    return Array.from({ length: count }, () => this.#next++);
  }
}
