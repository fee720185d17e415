/** What was sent where: for each request and instance the tokens it has to compute and what was expected. */

import { invariant } from '../../../runtime/errors.ts';
import type { PlainState, Stateful } from '../policy.ts';

interface Sent {
  readonly instance: number;
  tokens: number;
  /** Blocks that were believed to be cached there; -1 once that was compared, or where nothing was. */
  expectedBlocks: number;
}

export class InFlightBook implements Stateful {
  readonly #byRequest = new Map<number, Sent[]>();

  sent(request: number, instance: number, tokens: number, expectedBlocks: number): void {
    const entry: Sent = { instance, tokens, expectedBlocks };
    const entries = this.#byRequest.get(request);
    if (entries === undefined) this.#byRequest.set(request, [entry]);
    else entries.push(entry);
  }

  /** The tokens that were counted for it there; 0 from the second call on. */
  takeTokens(request: number, instance: number): number {
    const entry = this.#find(request, instance);
    const tokens = entry?.tokens ?? 0;
    if (entry !== undefined) entry.tokens = 0;
    return tokens;
  }

  /** The blocks that were expected there; -1 from the second call on. */
  takeExpected(request: number, instance: number): number {
    const entry = this.#find(request, instance);
    const blocks = entry?.expectedBlocks ?? -1;
    if (entry !== undefined) entry.expectedBlocks = -1;
    return blocks;
  }

  /** It has left the instance. @returns whether it is nowhere now */
  end(request: number, instance: number): boolean {
    const entries = this.#byRequest.get(request);
    const at = entries?.findIndex((entry) => entry.instance === instance) ?? -1;
    invariant(
      entries !== undefined && at !== -1,
      () => `request ${request} is not with instance ${instance}`,
    );
    entries.splice(at, 1);
    if (entries.length === 0) this.#byRequest.delete(request);
    return entries.length === 0;
  }

  /** The instances that have it, or were to get it. */
  instancesOf(request: number): readonly number[] {
    return (this.#byRequest.get(request) ?? []).map(({ instance }) => instance);
  }

  #find(request: number, instance: number): Sent | undefined {
    return this.#byRequest.get(request)?.find((entry) => entry.instance === instance);
  }

  snapshot(): PlainState {
    return [...this.#byRequest].map(([request, entries]) => ({
      request,
      entries: entries.map((entry) => ({ ...entry })),
    }));
  }

  restore(state: PlainState): void {
    this.#byRequest.clear();
    // the state is what `snapshot` made
    for (const { request, entries } of state as unknown as readonly { request: number; entries: Sent[] }[]) {
      this.#byRequest.set(
        request,
        entries.map((entry) => ({ ...entry })),
      );
    }
  }
}
