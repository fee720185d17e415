/**
 * Blocks of the prompts that are under way on each instance, as the router that sent them knows: a block that
 * several of them have counts once. Fresh, and blind to what is generated.
 */

import { wordsPerKey } from '../../../../runtime/keys/index.ts';
import { KeyTable } from '../../kvView/index.ts';
import type { PlainState, Stateful } from '../../policy.ts';
import type { RequestView } from '../../request.ts';

interface Blocks {
  readonly table: KeyTable;
  /** By slot of the table: how many requests have the block. */
  counts: Uint32Array;
}

interface SavedBlocks {
  readonly instance: number;
  readonly words: Uint32Array;
  readonly counts: Uint32Array;
}

export class ActiveBlocks implements Stateful {
  readonly #byInstance = new Map<number, Blocks>();
  /** By request: the instances that it was sent to. */
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

  snapshot(): PlainState {
    return {
      byInstance: [...this.#byInstance].map(([instance, blocks]) => ({ instance, ...saved(blocks) })),
      sentTo: [...this.#sentTo].map(([request, instances]) => [request, [...instances]]),
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { byInstance, sentTo } = state as unknown as {
      byInstance: readonly SavedBlocks[];
      sentTo: readonly [number, readonly number[]][];
    };
    this.#byInstance.clear();
    for (const { instance, words, counts } of byInstance) {
      const blocks: Blocks = { table: new KeyTable(), counts: new Uint32Array(0) };
      for (const [i, count] of counts.entries()) add(blocks, words, i * wordsPerKey, count);
      this.#byInstance.set(instance, blocks);
    }
    this.#sentTo.clear();
    for (const [request, instances] of sentTo) this.#sentTo.set(request, [...instances]);
  }
}

function add(blocks: Blocks, words: Uint32Array, at: number, count: number): void {
  const slot = blocks.table.findOrAdd(words, at);
  if (blocks.counts.length < blocks.table.slots) {
    const longer = new Uint32Array(blocks.table.slots);
    longer.set(blocks.counts);
    blocks.counts = longer;
  }
  blocks.counts[slot] += count;
}

function release({ table, counts }: Blocks, request: RequestView): void {
  const { words } = request.keys;
  for (let block = 0; block < request.promptBlocks; block++) {
    const slot = table.find(words, block * wordsPerKey);
    if (slot === -1) continue;
    counts[slot]--;
    if (counts[slot] === 0) table.remove(slot);
  }
}

/** Keys of the table with their counts, by slot. */
function saved({ table, counts }: Blocks): { words: Uint32Array; counts: Uint32Array } {
  const slots = [...counts.keys()].filter((slot) => counts[slot] > 0);
  const words = new Uint32Array(slots.length * wordsPerKey);
  slots.forEach((slot, i) => {
    words.set(table.words.subarray(slot * wordsPerKey, (slot + 1) * wordsPerKey), i * wordsPerKey);
  });
  return { words, counts: Uint32Array.from(slots, (slot) => counts[slot]) };
}
