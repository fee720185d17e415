/**
 * Puts the messages of a publisher in order, and finds out which are missing. Messages come live, or again in a
 * replay that was asked for. What is delivered is complete: after numbers that cannot be had again comes
 * `cleared`, and the reader begins again with what follows.
 *
 *     live 7, 8, 11          9 is missing: ask for 9, hold 11
 *     replayed 9, 10, end    deliver 9, 10, 11
 *
 * A publisher that is asked for numbers that it has no more either sends what it has left (vLLM: `cleared`, then
 * these), or the whole state under the number of its last message (tierkv: it begins with `cleared` by itself).
 * So number 0 asks for all that there is.
 *
 * Within one life of a publisher live numbers grow. A live number that does not is of a publisher that began again. So is any
 * number behind a connection that was lost, for all that is known: silence does not say that it is the same one.
 */

import { invariant } from '../../../runtime/errors.ts';
import type { KVClearReason, KVEventBatch } from './wire.ts';

export interface OrderCounts {
  /** Times that numbers were missing. */
  readonly gaps: number;
  /** Replays that were asked for, the first one of a subscription among them. */
  readonly replays: number;
  /** Messages that came by a replay and were new. */
  readonly replayedBatches: number;
  /** Replays that did not come to their end. */
  readonly replaysFailed: number;
  /** Times that a publisher began again with lower numbers. */
  readonly restarts: number;
  /** Messages that had been delivered before. */
  readonly duplicates: number;
  /** Number of the last message that was delivered; null before the first. */
  readonly lastNumber: bigint | null;
}

interface OrderParts {
  readonly deliver: (batch: KVEventBatch) => void;
  /**
   * Asks for all messages from a number on. Afterwards comes `replayed` for each, and `replayEnded` or `replayFailed`.
   * A later call ends an earlier one. Undefined where nothing can be had again.
   */
  readonly ask: ((from: bigint) => void) | undefined;
  /** Blocks in live messages that may wait for a replay; beyond that they are dropped, and had again. */
  readonly waitingMax: number;
}

export class BatchOrder {
  readonly #parts: OrderParts;
  /** Number of the last message that was delivered. */
  #last: bigint | null = null;
  /** The highest number that came live, in this life of the publisher. */
  #lastLive: bigint | null = null;
  /** First number of the replay under way; null for none. */
  #asked: bigint | null = null;
  /** Live messages that came during the replay. */
  #waiting: KVEventBatch[] = [];
  #waitingBlocks = 0;
  #counts: Omit<OrderCounts, 'lastNumber'> = {
    gaps: 0,
    replays: 0,
    replayedBatches: 0,
    replaysFailed: 0,
    restarts: 0,
    duplicates: 0,
  };

  constructor(parts: OrderParts) {
    this.#parts = parts;
  }

  get counts(): OrderCounts {
    return { ...this.#counts, lastNumber: this.#last };
  }

  /** Whether a replay is under way. */
  get isAsking(): boolean {
    return this.#asked !== null;
  }

  /** Asks for all that there is, if anything can be had again. */
  resync(): void {
    if (this.#parts.ask !== undefined) this.#ask(0n);
  }

  /**
   * The connection to the publisher was lost: what answers at its address next may be another process, whose numbers may go
   * on where the ones of before ended. Nothing but the whole state says what it holds.
   */
  connectionLost(): void {
    this.#waiting = [];
    this.#waitingBlocks = 0;
    this.#lastLive = null;
    if (this.#last === null) {
      if (this.#asked !== null) this.resync();
      return;
    }
    this.#count('gaps');
    if (this.#parts.ask !== undefined) this.#ask(0n);
    else {
      this.#clear('gap', this.#last);
      this.#last = null;
    }
  }

  live(batch: KVEventBatch): void {
    if (this.#lastLive !== null && batch.number <= this.#lastLive) this.#restarted(batch);
    this.#lastLive = batch.number;
    if (this.#asked === null) this.#take(batch);
    else this.#wait(batch);
  }

  replayed(batch: KVEventBatch): void {
    if (this.#asked === null) return;
    if (this.#isOld(batch)) return;
    const [first] = batch.events;
    const isState = first?.type === 'cleared' && first.medium === null;
    if (this.#last !== null && batch.number !== this.#last + 1n && !isState) this.#clear('gap', batch.number);
    this.#count('replayedBatches');
    this.#deliver(batch);
  }

  /** A message of the replay cannot be read, and would not be the next time. */
  replayUnreadable(number: bigint): void {
    if (this.#asked === null || (this.#last !== null && number <= this.#last)) return;
    this.#clear('gap', number);
    this.#last = number;
  }

  replayEnded(): void {
    const asked = this.#asked;
    if (asked === null) return;
    this.#asked = null;
    this.#release(asked);
  }

  replayFailed(): void {
    if (this.#asked === null) return;
    this.#asked = null;
    this.#count('replaysFailed');
    this.#release(0n);
  }

  /** @param tried what the replay began with; what is missing behind a replay of everything cannot be had */
  #release(tried: bigint): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#waitingBlocks = 0;
    let gaveUp = tried !== 0n;
    for (const batch of waiting) {
      if (this.#asked !== null) this.#wait(batch);
      else if (gaveUp || this.#follows(batch)) this.#take(batch, tried);
      else if (!this.#isOld(batch)) {
        gaveUp = true;
        this.#accept(batch);
      }
    }
  }

  /** @param tried first number of a replay that brought nothing further: the next one is of everything */
  #take(batch: KVEventBatch, tried?: bigint): void {
    if (this.#isOld(batch)) return;
    if (this.#follows(batch)) {
      this.#deliver(batch);
      return;
    }
    if (this.#last !== null) this.#count('gaps');
    if (this.#parts.ask === undefined) {
      this.#accept(batch);
      return;
    }
    const from = this.#last === null ? 0n : this.#last + 1n;
    this.#ask(from === tried ? 0n : from);
    this.#wait(batch);
  }

  /** Goes on with a message although others before it are missing. */
  #accept(batch: KVEventBatch): void {
    if (this.#last !== null) this.#clear('gap', batch.number);
    this.#deliver(batch);
  }

  #follows({ number }: KVEventBatch): boolean {
    return number === (this.#last === null ? 0n : this.#last + 1n);
  }

  #isOld({ number }: KVEventBatch): boolean {
    if (this.#last === null || number > this.#last) return false;
    this.#count('duplicates');
    return true;
  }

  #ask(from: bigint): void {
    const { ask } = this.#parts;
    invariant(ask !== undefined, 'a replay can only be asked for where there is one');
    this.#asked = from;
    if (from === 0n && this.#last !== null) {
      // All that there is begins from nothing: what was known may lack what is missing.
      this.#clear('gap', this.#last);
      this.#last = null;
    }
    this.#count('replays');
    ask(from);
  }

  #wait(batch: KVEventBatch): void {
    this.#waitingBlocks += blocksIn(batch);
    this.#waiting.push(batch);
    if (this.#waitingBlocks <= this.#parts.waitingMax) return;
    this.#waiting = [];
    this.#waitingBlocks = 0;
  }

  #restarted(batch: KVEventBatch): void {
    this.#count('restarts');
    this.#waiting = [];
    this.#waitingBlocks = 0;
    this.#clear('restart', batch.number);
    this.#last = null;
    if (this.#asked !== null) this.#ask(0n);
  }

  #deliver(batch: KVEventBatch): void {
    this.#last = batch.number;
    this.#parts.deliver(batch);
  }

  #clear(reason: KVClearReason, number: bigint): void {
    this.#parts.deliver(clearedBatch(reason, number));
  }

  #count(name: keyof Omit<OrderCounts, 'lastNumber'>): void {
    this.#counts = { ...this.#counts, [name]: this.#counts[name] + 1 };
  }
}

/** A message that no publisher sent: what was known counts for nothing. */
export function clearedBatch(reason: KVClearReason, number: bigint): KVEventBatch {
  return {
    topic: '',
    number,
    publishedAtS: 0,
    rank: null,
    events: [{ type: 'cleared', reason, medium: null }],
  };
}

/** Blocks that a message tells of: what it takes to keep it. At least 1. */
export function blocksIn({ events }: KVEventBatch): number {
  let blocks = 1;
  for (const event of events) if (event.type !== 'cleared') blocks += event.hashes.length;
  return blocks;
}
