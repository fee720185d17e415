/**
 * The smallest cache that calls a policy as the manager does: one tier, blocks of one size, one request at a
 * time. Room is made before a block that is missing gets its content, matched blocks are touched when the
 * request begins, and all are let go from the last to the first.
 */

import type {
  EvictionChoice,
  EvictionPolicy,
  EvictionWorld,
} from '../../../src/runtime/eviction/evictionPolicy.ts';
import { makeEvictionPolicy, resolvePolicy } from '../../../src/runtime/eviction/registry.ts';

export class OnePool {
  readonly policy: EvictionPolicy;
  readonly #capacity: number;
  readonly #residentBytes: Float64Array = new Float64Array(1);
  readonly #parent: Int32Array;
  readonly #keys: Uint32Array;
  readonly #owner: Uint16Array;
  readonly #generation: Uint32Array;
  /** Row of each id that is present, and id of each row. */
  readonly #rows: Map<number, number> = new Map();
  readonly #ids: Int32Array;
  readonly #free: number[];
  readonly #ownerOf: (id: number) => number;
  #visits = 0;
  nowUs = 0;

  /** @param longest most blocks of a request, at most `capacity` */
  constructor(choice: EvictionChoice, capacity: number, ownerOf: (id: number) => number = () => 0) {
    this.#capacity = capacity;
    this.#ownerOf = ownerOf;
    this.#parent = new Int32Array(capacity).fill(-1);
    this.#keys = new Uint32Array(capacity * 4);
    this.#owner = new Uint16Array(capacity);
    this.#generation = new Uint32Array(capacity);
    this.#ids = new Int32Array(capacity);
    this.#free = Array.from({ length: capacity }, (_, row) => row).reverse();
    const world: EvictionWorld = {
      whole: false,
      tiers: 1,
      base: [0, capacity],
      unitBytes: [1],
      capacityBytes: [capacity],
      residentBytes: this.#residentBytes,
      contents: capacity,
      nowUs: () => this.nowUs,
      generationOf: (replica) => this.#generation[replica],
      parentOf: (content) => this.#parent[content],
      keys: this.#keys,
      tokens: new Uint16Array(capacity).fill(16),
      owner: this.#owner,
    };
    this.policy = makeEvictionPolicy(resolvePolicy(choice), world);
  }

  /** @returns how many leading blocks were found, and who was evicted for the others, in order */
  request(ids: readonly number[]): { hits: number; evicted: number[] } {
    const { policy } = this;
    const evicted: number[] = [];
    let hits = 0;
    while (hits < ids.length && this.#rows.has(ids[hits])) hits++;
    const visit = { number: ++this.#visits, blocks: ids.length, matched: hits };
    policy.begin?.(visit);
    const rows = ids.slice(0, hits).map((id) => this.#rows.get(id) as number);
    for (const row of rows) {
      policy.touch(row, visit);
      policy.leave(row, 0, 0);
    }
    for (const id of ids.slice(hits)) {
      const known = this.#rows.get(id);
      if (known !== undefined) {
        policy.touch(known, visit);
        policy.leave(known, 0, 0);
        rows.push(known);
        continue;
      }
      if (this.#residentBytes[0] === this.#capacity) evicted.push(this.#evict());
      const row = this.#free.pop() as number;
      this.#parent[row] = rows.length > 0 ? rows[rows.length - 1] : -1;
      this.#keys.set([id, id >>> 3, 5, 7], row * 4);
      this.#owner[row] = this.#ownerOf(id);
      this.#generation[row]++;
      this.#ids[row] = id;
      this.#rows.set(id, row);
      this.#residentBytes[0]++;
      policy.touch(row, visit);
      rows.push(row);
    }
    for (const row of rows.reverse()) policy.enter(row, 0, 0, row);
    return { hits, evicted };
  }

  #evict(): number {
    const victim = this.policy.victim(0);
    if (victim === -1) throw new Error('no replica can be evicted from a full pool');
    this.policy.leave(victim, 0, 0);
    this.#residentBytes[0]--;
    this.policy.forgotten(victim);
    const id = this.#ids[victim];
    this.#rows.delete(id);
    this.#free.push(victim);
    return id;
  }
}
