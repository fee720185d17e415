/**
 * Clients of a server: conversations of several turns, questions that many ask, and now and then a client
 * that leaves in the middle. Each answer is compared with what the tokens before it have to give.
 */

import type { SeededRandom } from '../../../src/testing/index.ts';
import type { Server } from '../../examples/serverOfDocs.ts';
import { nextToken, prefixHashes } from './rows.ts';

export interface Served {
  requests: number;
  answered: number;
  disconnected: number;
  tokens: number;
  wrongTokens: number;
  /** Requests that rejected although the client stayed, and requests that never ended: a line each. */
  readonly rejected: string[];
  readonly hung: string[];
}

export const tenants: readonly string[] = ['north', 'east', 'south', 'west'];
const TOPICS = 6;
const TOPIC_TOKENS = 35;
const QUESTIONS = 24;
/** Tokens of a conversation, and of one turn's answer. */
const TOKENS_MAX = 200;
const ANSWER_MAX = 24;
/** A request that takes longer hangs. */
const HANG_MS = 120_000;

export class Client {
  readonly #server: () => Server;
  readonly #served: Served;
  readonly #random: SeededRandom;
  readonly #tenant: string;
  #talk: number[] = [];

  constructor(server: () => Server, served: Served, random: SeededRandom, tenant: string) {
    this.#server = server;
    this.#served = served;
    this.#random = random;
    this.#tenant = tenant;
  }

  /** One request from its prompt to its last token, or until its client leaves. */
  async ask(): Promise<void> {
    const random = this.#random;
    const served = this.#served;
    const prompt = this.#prompt();
    const maxTokens = 1 + random.below(ANSWER_MAX);
    const leaves = random.chance(0.15) ? random.below(maxTokens) : -1;
    const stop = new AbortController();
    const answer: number[] = [];
    if (leaves === 0) setTimeout(() => stop.abort(), random.below(100));
    const onToken = (token: number): void => {
      answer.push(token);
      if (answer.length === leaves) stop.abort();
    };
    served.requests++;
    const { signal } = stop;
    const request = { prompt, tenant: this.#tenant, maxTokens, signal, onToken };
    let hangs: NodeJS.Timeout | undefined;
    const hung = new Promise<'hung'>((resolve) => {
      hangs = setTimeout(() => resolve('hung'), HANG_MS);
    });
    try {
      const end = await Promise.race([this.#server().serve(request), hung]);
      if (end === 'hung') served.hung.push(`a prompt of ${prompt.length} tokens, ${answer.length} answered`);
      else served.answered++;
    } catch (error) {
      if (signal.aborted) served.disconnected++;
      else served.rejected.push(String(error));
    } finally {
      clearTimeout(hangs);
    }
    this.#check(prompt, answer);
    this.#talk = [...prompt, ...answer];
  }

  #check(prompt: readonly number[], answer: readonly number[]): void {
    const hashes = prefixHashes(this.#tenant, [...prompt, ...answer], prompt.length + answer.length);
    this.#served.tokens += answer.length;
    answer.forEach((token, i) => {
      if (token !== nextToken(hashes[prompt.length + i - 1])) this.#served.wrongTokens++;
    });
  }

  /** The next turn of the talk, or the first of another. */
  #prompt(): number[] {
    const random = this.#random;
    const said = Array.from({ length: 3 + random.below(40) }, () => random.below(50_000));
    if (this.#talk.length > 0 && this.#talk.length + said.length < TOKENS_MAX && random.chance(0.6)) {
      return [...this.#talk, ...said];
    }
    const topic = random.below(TOPICS);
    const shared = Array.from({ length: TOPIC_TOKENS }, (_, i) => topic * 1000 + i);
    if (random.chance(0.4)) return [...shared, ...said];
    const question = random.below(QUESTIONS);
    return [...shared, ...Array.from({ length: 20 + question * 3 }, (_, i) => 10_000 + question * 100 + i)];
  }
}
