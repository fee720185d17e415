/** Memory of routing rules: prompts under way, a hash ring, means over ended requests, and recent amounts. */

import { wordsPerKey } from '../../../runtime/keys/keyChain.ts';
import type { Stateful, StateVisitor } from '../../../runtime/snapshot.ts';
import { KeyTable } from '../keyTables.ts';
import type { RequestOutcome, RequestView } from '../policy.ts';

interface InstanceBlocks {
  readonly table: KeyTable;
  /** Requests that have the block, by slot of the table. */
  counts: Uint32Array;
}

/**
 * Blocks of the prompts that are under way on each instance, as the router that sent them knows: a block that
 * several of them have counts once. Fresh, and blind to what is generated.
 */
export class ActiveBlocks implements Stateful {
  readonly #byInstance = new Map<number, InstanceBlocks>();
  /** The instances that a request was sent to, by request. */
  readonly #sentTo = new Map<number, number[]>();

  /** Blocks that would be under way there with the request. */
  withRequest(request: RequestView, instance: number): number {
    const blocks = this.#byInstance.get(instance);
    if (blocks === undefined) return request.promptBlocks;
    const { words } = request.keys;
    let added = 0;
    for (let block = 0; block < request.promptBlocks; block++) {
      if (blocks.table.find(words, block * wordsPerKey) === -1) added++;
    }
    return blocks.table.size + added;
  }

  sent(request: RequestView, instance: number): void {
    let blocks = this.#byInstance.get(instance);
    if (blocks === undefined) {
      blocks = { table: new KeyTable(), counts: new Uint32Array(0) };
      this.#byInstance.set(instance, blocks);
    }
    const { words } = request.keys;
    for (let block = 0; block < request.promptBlocks; block++) add(blocks, words, block * wordsPerKey, 1);
    const sentTo = this.#sentTo.get(request.number);
    if (sentTo === undefined) this.#sentTo.set(request.number, [instance]);
    else sentTo.push(instance);
  }

  ended(request: RequestView): void {
    for (const instance of this.#sentTo.get(request.number) ?? []) {
      const blocks = this.#byInstance.get(instance);
      if (blocks !== undefined) release(blocks, request);
    }
    this.#sentTo.delete(request.number);
  }

  removed(instance: number): void {
    this.#byInstance.delete(instance);
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#byInstance].map(([instance, blocks]) => ({ instance, ...saved(blocks) })),
      (state) => {
        this.#byInstance.clear();
        for (const { instance, words, counts } of state) {
          const blocks: InstanceBlocks = { table: new KeyTable(), counts: new Uint32Array(0) };
          for (const [i, count] of counts.entries()) add(blocks, words, i * wordsPerKey, count);
          this.#byInstance.set(instance, blocks);
        }
      },
    );
    visitor.value(
      () => [...this.#sentTo].map(([request, instances]) => ({ request, instances: [...instances] })),
      (state) => {
        this.#sentTo.clear();
        for (const { request, instances } of state) this.#sentTo.set(request, [...instances]);
      },
    );
  }
}

function add(blocks: InstanceBlocks, words: Uint32Array, at: number, count: number): void {
  const slot = blocks.table.findOrAdd(words, at);
  if (blocks.counts.length < blocks.table.slots) {
    const longer = new Uint32Array(blocks.table.slots);
    longer.set(blocks.counts);
    blocks.counts = longer;
  }
  blocks.counts[slot] += count;
}

function release({ table, counts }: InstanceBlocks, request: RequestView): void {
  const { words } = request.keys;
  for (let block = 0; block < request.promptBlocks; block++) {
    const slot = table.find(words, block * wordsPerKey);
    if (slot === -1) continue;
    counts[slot]--;
    if (counts[slot] === 0) table.remove(slot);
  }
}

/** Keys of the table with their counts, by slot. */
function saved({ table, counts }: InstanceBlocks): { words: Uint32Array; counts: Uint32Array } {
  const slots = [...counts.keys()].filter((slot) => counts[slot] > 0);
  const words = new Uint32Array(slots.length * wordsPerKey);
  slots.forEach((slot, i) => {
    words.set(table.words.subarray(slot * wordsPerKey, (slot + 1) * wordsPerKey), i * wordsPerKey);
  });
  return { words, counts: Uint32Array.from(slots, (slot) => counts[slot]) };
}

// A ring of instances for consistent hashing: each stands at several places that its number gives, and a hash
// belongs to the first place at or after it. It depends on the set of instances alone.

const PLACES = 160;

interface RingPlace {
  readonly at: number;
  readonly instance: number;
}

export class HashRing {
  #instances: readonly number[] = [];
  #places: readonly RingPlace[] = [];

  /** Number of the instance, of these, that the hash belongs to. @param instances at least one */
  owner(hash: number, instances: readonly number[]): number {
    const same =
      instances.length === this.#instances.length &&
      instances.every((each, i) => each === this.#instances[i]);
    if (!same) this.#place(instances);
    const places = this.#places;
    let low = 0;
    let high = places.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (places[middle].at < hash) low = middle + 1;
      else high = middle;
    }
    return places[low % places.length].instance;
  }

  #place(instances: readonly number[]): void {
    this.#instances = [...instances];
    this.#places = instances
      .flatMap((instance) =>
        Array.from(
          { length: PLACES },
          (_, i): RingPlace => ({ at: mixed(mixed(instance + 1) ^ i), instance }),
        ),
      )
      .sort((a, b) => a.at - b.at || a.instance - b.instance);
  }
}

/** 32 bits of a block's key. */
export function keyHash(words: Uint32Array, block: number): number {
  let hash = 0;
  for (let i = 0; i < wordsPerKey; i++) hash = mixed(hash ^ words[block * wordsPerKey + i]);
  return hash;
}

/** 32 bits of a text, by FNV-1a over its code units. */
export function textHash(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return mixed(hash);
}

function mixed(value: number): number {
  let h = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

// Means over the requests that have completed on each instance since the start, as the router saw them end.

interface OutcomeMean {
  readonly requests: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** From arrival to the first token. */
  readonly ttftUs: number;
  /** From the first token to the end. */
  readonly decodeUs: number;
}

type Sums = { -readonly [K in keyof OutcomeMean]: number };

const zero: OutcomeMean = { requests: 0, promptTokens: 0, outputTokens: 0, ttftUs: 0, decodeUs: 0 };

function meanOf(sums: OutcomeMean): OutcomeMean {
  const { requests } = sums;
  if (requests === 0) return zero;
  return {
    requests,
    promptTokens: sums.promptTokens / requests,
    outputTokens: sums.outputTokens / requests,
    ttftUs: sums.ttftUs / requests,
    decodeUs: sums.decodeUs / requests,
  };
}

export class OutcomeMeans implements Stateful {
  readonly #byInstance = new Map<number, Sums>();

  /** All zeros before the first. */
  of(instance: number): OutcomeMean {
    return meanOf(this.#byInstance.get(instance) ?? zero);
  }

  /** Over all instances. */
  get overall(): OutcomeMean {
    const sums: Sums = { ...zero };
    for (const each of this.#byInstance.values()) addTo(sums, each);
    return meanOf(sums);
  }

  completed({ request, instance, completed, outputTokens, ttftUs, e2eUs }: RequestOutcome): void {
    if (!completed || ttftUs < 0) return;
    let sums = this.#byInstance.get(instance);
    if (sums === undefined) this.#byInstance.set(instance, (sums = { ...zero }));
    const decodeUs = e2eUs - ttftUs;
    addTo(sums, { requests: 1, promptTokens: request.promptTokens, outputTokens, ttftUs, decodeUs });
  }

  removed(instance: number): void {
    this.#byInstance.delete(instance);
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#byInstance].map(([instance, sums]) => ({ instance, sums: { ...sums } })),
      (saved) => {
        this.#byInstance.clear();
        for (const { instance, sums } of saved) this.#byInstance.set(instance, { ...sums });
      },
    );
  }
}

function addTo(sums: Sums, other: OutcomeMean): void {
  sums.requests += other.requests;
  sums.promptTokens += other.promptTokens;
  sums.outputTokens += other.outputTokens;
  sums.ttftUs += other.ttftUs;
  sums.decodeUs += other.decodeUs;
}

//  Amounts by name over a window that slides: each counts until it is as old as the window.

interface RecentAmount {
  readonly timeUs: number;
  readonly name: number | string;
  readonly amount: number;
}

export class RecentAmounts implements Stateful {
  readonly #windowUs: number;
  /** In order of time. */
  #entries: RecentAmount[] = [];
  readonly #sums = new Map<number | string, { entries: number; sum: number }>();

  constructor(windowUs: number) {
    this.#windowUs = windowUs;
  }

  add(name: number | string, amount: number, timeUs: number): void {
    this.#entries.push({ timeUs, name, amount });
    const kept = this.#sums.get(name);
    if (kept === undefined) this.#sums.set(name, { entries: 1, sum: amount });
    else {
      kept.entries++;
      kept.sum += amount;
    }
  }

  /** Sum of what was added under the name in the window that ends at `nowUs`. */
  sum(name: number | string, nowUs: number): number {
    this.#forget(nowUs);
    return this.#sums.get(name)?.sum ?? 0;
  }

  /** The sums of all names of the window, in order of their first entries. */
  sums(nowUs: number): readonly number[] {
    this.#forget(nowUs);
    return [...this.#sums.values()].map(({ sum }) => sum);
  }

  #forget(nowUs: number): void {
    let old = 0;
    for (; old < this.#entries.length && this.#entries[old].timeUs <= nowUs - this.#windowUs; old++) {
      const { name, amount } = this.#entries[old];
      const kept = this.#sums.get(name);
      if (kept === undefined) continue;
      kept.entries--;
      kept.sum -= amount;
      // so that no rest of a rounding is left of a name
      if (kept.entries === 0) this.#sums.delete(name);
    }
    if (old > 0) this.#entries.splice(0, old);
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => this.#entries.map((entry) => ({ ...entry })),
      (saved) => {
        this.#entries = [...saved];
      },
    );
    visitor.value(
      () => [...this.#sums].map(([name, kept]) => ({ name, kept: { ...kept } })),
      (saved) => {
        this.#sums.clear();
        for (const { name, kept } of saved) this.#sums.set(name, { ...kept });
      },
    );
  }
}
