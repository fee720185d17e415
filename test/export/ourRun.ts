/** What our manager finds and evicts under `Conversations`. */

import type { EvictionChoice } from '../../src/runtime/eviction/evictionPolicy.ts';
import { KVManager } from '../../src/runtime/manager/manager.ts';
import type { Sequence } from '../../src/runtime/manager/sequence.ts';
import { Outcome } from '../../src/runtime/tier/tier.ts';
import { Random } from '../fuzz/random.ts';
import { Conversations, type Op } from './conversations.ts';

/** Tokens of a block. */
export const TOKENS = 512;

interface Turn {
  readonly ids: readonly number[];
  readonly keys: Uint32Array;
  sequence: Sequence | null;
}

/** Our manager over one tier, as a server drives it; blocks are named by ids. */
class OurCache {
  readonly manager: KVManager;
  readonly #running = new Map<number, Turn>();
  readonly #idOf = new Map<number, number>();
  #sealing: number[] = [];
  #evicted: number[] = [];

  constructor(choice: EvictionChoice, capacity: number) {
    this.manager = new KVManager({
      unitBytes: [64],
      hbm: { capacityBytes: 64 * capacity },
      eviction: choice,
    });
    this.manager.observe({
      sealed: (content) => void this.#idOf.set(content, this.#sealing.shift() ?? -1),
      evicted: (_, content) => void this.#evicted.push(this.#idOf.get(content) ?? -1),
    });
  }

  /** @returns ids that an open found, ids that a store evicted */
  apply([kind, request, nowUs, ids]: Op): readonly number[] {
    const { manager } = this;
    if (kind === 'open') {
      const keys = Uint32Array.from(ids.flatMap((id) => [id, 3, 5, 7]));
      const turn: Turn = { ids, keys, sequence: null };
      this.#running.set(request, turn);
      if (manager.matchLength(keys, ids.length) === 0) return [];
      const sequence = this.#begin(turn, nowUs);
      manager.load(sequence, nowUs);
      return ids.slice(0, sequence.matched);
    }
    const turn = this.#running.get(request);
    if (turn === undefined) throw new Error(`request ${request} does not run`);
    const sequence = turn.sequence ?? this.#begin(turn, nowUs);
    const { keys } = turn;
    if (kind === 'end') {
      this.#running.delete(request);
      manager.release(sequence, nowUs);
      return [];
    }
    const from = turn.ids.indexOf(ids[0]);
    const to = from + ids.length;
    this.#evicted = [];
    if (!manager.allocate(sequence, from, to, nowUs)) throw new Error('the cache is too small for what runs');
    this.#sealing = ids.slice();
    manager.seal(sequence, from, to, keys, from * 4, TOKENS, nowUs);
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, nowUs);
    }
    return this.#evicted;
  }

  /** vLLM tells a policy of a request that finds nothing when that first stores, and so does this cache. */
  #begin(turn: Turn, nowUs: number): Sequence {
    turn.sequence = this.manager.open(turn.keys, turn.ids.length, nowUs);
    return turn.sequence;
  }
}

export interface Run {
  readonly ops: readonly Op[];
  readonly answers: readonly (readonly number[])[];
}

/** @param most running requests at a time */
export function ourRun(
  choice: EvictionChoice,
  capacity: number,
  most: number,
  seed: number,
  operations: number,
): Run {
  const load = new Conversations(new Random(seed), Math.ceil(capacity / 8), most);
  const cache = new OurCache(choice, capacity);
  const ops: Op[] = [];
  const answers: (readonly number[])[] = [];
  for (let i = 0; i < operations; i++) {
    const op = load.next();
    const answer = cache.apply(op);
    if (op[0] === 'open') load.found(op[1], answer.length);
    ops.push(op);
    answers.push(answer);
  }
  cache.manager.checkIntegrity();
  return { ops, answers };
}
