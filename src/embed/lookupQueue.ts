/**
 * Requests of the scheduler for whose blocks the shared tier is being asked. Each is asked for once, when it is added,
 * and joins the scheduler's queue behind the answer, in the order in which requests were added.
 *
 * - Without a shared tier, and where the runtime has all blocks of a prompt itself, no request waits here.
 * - A lookup ends by its deadline, so a server that is gone or slow holds no request up for longer.
 */

import { type RequestRank, TierKVError } from '../runtime/index.ts';
import { findShared, partsToFind } from './begin.ts';
import type { RequestContext } from './context.ts';
import type { ScheduledRequest } from './scheduledRequest.ts';

interface AskedRequest {
  readonly request: ScheduledRequest;
  /** Given while it waits here. */
  rank: number | undefined;
  isAnswered: boolean;
}

export class LookupQueue {
  readonly #context: RequestContext;
  readonly #join: (request: ScheduledRequest, rank: number | undefined) => void;
  /** In the order in which they were added. */
  readonly #asked: Map<string, AskedRequest> = new Map();

  /** @param join lets a request into the scheduler's queue */
  constructor(context: RequestContext, join: (request: ScheduledRequest, rank: number | undefined) => void) {
    this.#context = context;
    this.#join = join;
  }

  get size(): number {
    return this.#asked.size;
  }

  holds(id: string): boolean {
    return this.#asked.has(id);
  }

  /** No request that is here joins any more. */
  dropAll(): void {
    this.#asked.clear();
  }

  /** @returns whether the request waits here: if not, it may join at once */
  take(request: ScheduledRequest): boolean {
    const context = this.#context;
    const groups = [{ keys: request.keys, sizeClass: context.units.sizeClass[0] }];
    const isWhole = partsToFind(context, groups, request.promptTokens) === undefined;
    if (isWhole && this.#asked.size === 0) return false;
    const asked: AskedRequest = { request, rank: undefined, isAnswered: false };
    this.#asked.set(request.id, asked);
    const answered = (): void => {
      asked.isAnswered = true;
      this.#letGo();
    };
    void findShared(context, groups, request.promptTokens, request.owner, [context.closing]).then(
      answered,
      answered,
    );
    return true;
  }

  /** @returns the request, which joins no more; undefined where it is not here */
  remove(id: string): ScheduledRequest | undefined {
    const asked = this.#asked.get(id);
    this.#asked.delete(id);
    if (asked !== undefined) this.#letGo(); // it may have stood before others
    return asked?.request;
  }

  /**
   * Takes the ranks of requests that are here, once `others` has taken those of the others.
   * @throws TKV_INPUT for a rank that is not finite, and what `others` throws; no rank is taken then
   */
  rank(ranks: readonly RequestRank[], others: (ranks: readonly RequestRank[]) => void): void {
    const here = ranks.filter(({ id }) => this.#asked.has(id));
    for (const { id, rank } of here) {
      if (Number.isFinite(rank)) continue;
      throw new TierKVError('TKV_INPUT', `the rank of ${id} must be a finite number. Pass one.`, {
        field: 'rank',
      });
    }
    others(here.length === 0 ? ranks : ranks.filter(({ id }) => !this.#asked.has(id)));
    for (const { id, rank } of here) {
      const asked = this.#asked.get(id);
      if (asked !== undefined) asked.rank = rank;
    }
  }

  #letGo(): void {
    for (const [id, { request, rank, isAnswered }] of this.#asked) {
      if (!isAnswered) return;
      this.#asked.delete(id);
      this.#join(request, rank);
    }
  }
}
