/**
 * Whose turn it is among requests that wait: round robin. Each owner has a line, first come first served; the owner goes next that
 * had its turn, or began to wait, before all others.
 *
 * However long one owner's line is, another owner's first request waits for at most one turn of it, and its k-th for at most k. An
 * owner without a waiting request has no place. Both queues for room go by this: the scheduler's (`tenant-turns`) and the one of
 * `begin`.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';

/** A request that waits in turns. */
export interface InTurn {
  readonly owner: number;
  /** Order of arrival; unique. */
  readonly ticket: number;
}

interface OwnerLine<T> {
  /** Number of the owner's last turn, or of the moment in which it began to wait: the lowest goes next. */
  since: number;
  /** Requests by ticket; never empty. */
  readonly waiting: T[];
}

export class OwnerTurns<T extends InTurn> {
  readonly #lines: Map<number, OwnerLine<T>> = new Map();
  #size = 0;
  #count = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds a request: a new one behind those of its owner, one that was away at its old place there. */
  add(request: T): void {
    const { owner, ticket } = request;
    let line = this.#lines.get(owner);
    if (line === undefined) {
      line = { since: ++this.#count, waiting: [] };
      this.#lines.set(owner, line);
    }
    let at = line.waiting.length;
    while (at > 0 && line.waiting[at - 1].ticket > ticket) at--;
    line.waiting.splice(at, 0, request);
    this.#size++;
  }

  /** The next request that may go; undefined where no request may. */
  first(mayGo: (request: T) => boolean = () => true): T | undefined {
    let since = Number.POSITIVE_INFINITY;
    let first: T | undefined;
    for (const line of this.#lines.values()) {
      if (line.since > since) continue;
      const request = line.waiting.find(mayGo);
      if (request === undefined) continue;
      since = line.since;
      first = request;
    }
    return first;
  }

  /** The request waits no more. @param hadTurn whether this was its owner's turn: then all others go before the next one */
  remove(request: T, hadTurn: boolean): void {
    const line = this.#lines.get(request.owner);
    const at = line?.waiting.indexOf(request) ?? -1;
    invariant(line !== undefined && at !== -1, 'only a request that waits can leave its line');
    line.waiting.splice(at, 1);
    this.#size--;
    if (hadTurn) line.since = ++this.#count;
    if (line.waiting.length === 0) this.#lines.delete(request.owner);
  }

  /** All that wait, in the order in which they would have their turns if no other came. For inspection. */
  toArray(): T[] {
    const turns = [...this.#lines.values()].flatMap(({ since, waiting }) =>
      waiting.map((request, round) => ({ round, since, request })),
    );
    turns.sort((a, b) => a.round - b.round || a.since - b.since);
    return turns.map(({ request }) => request);
  }

  /** @param nameOf the number under which `requestOf` finds a request again */
  visitState(visitor: StateVisitor, nameOf: (request: T) => number, requestOf: (name: number) => T): void {
    this.#count = visitor.number(this.#count);
    visitor.value(
      () =>
        [...this.#lines].map(([owner, { since, waiting }]) => ({
          owner,
          since,
          waiting: waiting.map(nameOf),
        })),
      (lines) => {
        this.#lines.clear();
        this.#size = 0;
        for (const { owner, since, waiting } of lines) {
          this.#lines.set(owner, { since, waiting: waiting.map(requestOf) });
          this.#size += waiting.length;
        }
      },
    );
  }

  checkIntegrity(): void {
    let size = 0;
    for (const [owner, { since, waiting }] of this.#lines) {
      invariant(since <= this.#count && waiting.length > 0, 'an owner has a place while it waits');
      waiting.forEach((request, i) => {
        invariant(request.owner === owner, 'a request stands in the line of its owner');
        invariant(i === 0 || waiting[i - 1].ticket < request.ticket, 'a line is in order of arrival');
      });
      size += waiting.length;
    }
    invariant(size === this.#size, 'each request that waits in turns is in a line');
  }
}
