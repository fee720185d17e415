/**
 * The stream of requests, which follows from a seed. Each tenant has the same conversations,
 * drawn by Zipf's law, and the conversations of a topic share their first blocks; the tokens of tenants are
 * equal, so that a block that crossed over to another tenant would be found by its bytes, which are not.
 *
 * Block i of a prompt holds the pattern of (tenant, topic, i) within the shared part and of (tenant,
 * conversation, i) after it: what is equal by its keys is equal by its bytes, and nothing else is.
 */

import { SeededRandom } from '../../src/testing/index.ts';
import type { BusyHour } from './hour.ts';

export const tenants: readonly string[] = ['north', 'east', 'south', 'west'];
const CONVERSATIONS = 240;
const TOPICS = 24;
const TOPIC_BLOCKS = 6;
const ZIPF_EXPONENT = 0.9;

/**
 * `serve` goes all the way; `abandon` releases blocks that were never sealed, `abort` releases while the seal
 * is under way, `cancel` calls its loads off, `prefetch` brings blocks up without a request.
 */
export type RequestKind = 'serve' | 'abandon' | 'abort' | 'cancel' | 'prefetch';

export interface SoakRequest {
  readonly kind: RequestKind;
  readonly tenant: number;
  readonly conversation: number;
  readonly promptTokens: number;
  /** Tokens with the answer, which is appended in up to three steps. */
  readonly totalTokens: number;
  /** Blocks to evict from HBM and from the tier below once it has ended: pressure from elsewhere. */
  readonly evictAfter: readonly [number, number];
}

/** Kinds, with the sum of their shares up to each. */
const kinds: readonly (readonly [RequestKind, number])[] = [
  ['serve', 0.8],
  ['abandon', 0.87],
  ['abort', 0.93],
  ['cancel', 0.97],
  ['prefetch', 1],
];

export class RequestStream {
  readonly #random: SeededRandom;
  readonly #hour: BusyHour;
  readonly #blockTokens: number;
  readonly #popularity: Float64Array;

  constructor(hour: BusyHour, blockTokens: number, seed: number) {
    this.#random = new SeededRandom(seed);
    this.#hour = hour;
    this.#blockTokens = blockTokens;
    let sum = 0;
    const ranks = Float64Array.from(
      { length: CONVERSATIONS },
      (_, rank) => (sum += (rank + 1) ** -ZIPF_EXPONENT),
    );
    this.#popularity = ranks.map((upTo) => upTo / sum);
  }

  next(): SoakRequest {
    const random = this.#random;
    const line = random.below(this.#hour.promptBlocks.length);
    const partial = random.below(this.#blockTokens);
    const promptTokens = this.#hour.promptBlocks[line] * this.#blockTokens - partial;
    const answerBlocks = this.#hour.totalBlocks[line] - this.#hour.promptBlocks[line];
    const share = random.word() / 2 ** 32;
    const rank = random.word() / 2 ** 32;
    const evicts = random.chance(0.15);
    return {
      kind: kinds.find(([, upTo]) => share < upTo)![0],
      tenant: random.below(tenants.length),
      conversation: this.#popularity.findIndex((upTo) => rank < upTo),
      promptTokens,
      totalTokens: promptTokens + answerBlocks * this.#blockTokens + random.below(this.#blockTokens),
      evictAfter: evicts ? [random.below(96), random.below(64)] : [0, 0],
    };
  }
}

/** Token ids of the first `count` tokens of a conversation, the same for every tenant. */
export function tokensOf(conversation: number, count: number, blockTokens: number): Uint32Array {
  const topic = conversation % TOPICS;
  const shared = TOPIC_BLOCKS * blockTokens;
  return Uint32Array.from({ length: count }, (_, i) =>
    i < shared ? topic * 65_536 + i : (TOPICS + conversation) * 65_536 + i,
  );
}

/** The seed of the pattern that block `index` of the tenant's conversation holds. */
export function patternOf(
  tenant: number,
  conversation: number,
  index: number,
): { seedLo: number; seedHi: number } {
  const stream = index < TOPIC_BLOCKS ? conversation % TOPICS : TOPICS + conversation;
  return { seedLo: (tenant + 1) * 65_536 + stream, seedHi: index + 1 };
}
