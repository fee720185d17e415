/**
 * One client of the runtime, as a server's worker would be: it takes a request through its life and compares
 * every block of it on the device before letting it go. A lost device interrupts it; then it recovers and
 * goes on.
 */

import type { KVRuntime, KVSequence } from '../../src/index.ts';
import { BlockKeys, KeyChain, Outcome, TierKVError } from '../../src/runtime/index.ts';
import type { SeededRandom } from '../../src/testing/index.ts';
import type { Gate } from './gate.ts';
import { layout, model, secretKey } from './lives.ts';
import { patternOf, type SoakRequest, tenants, tokensOf } from './requests.ts';

export interface Tally {
  requests: number;
  /** Blocks that their prompts name. */
  promptBlocks: number;
  blocksCompared: number;
  wrongBlocks: number;
  /** Blocks that the device would not compare although it is there. */
  unreadable: number;
  interrupted: number;
  /** Requests that waited because others' transfers still held the room. */
  waited: number;
}

const APPENDS = 3;
const ATTEMPTS_MAX = 200;
/** How long a lost device may take to say so, in milliseconds. */
const LOSS_NOTICE_MS = 2000;

export class Client {
  readonly #kv: KVRuntime;
  readonly #gate: Gate;
  readonly #tally: Tally;
  readonly #random: SeededRandom;
  readonly #spoiled: number;
  /** The fill of open blocks that was submitted last. */
  #filled: Promise<unknown> = Promise.resolve();

  /** @param spoiled share of blocks into which wrong bytes are written, to see that they are found */
  constructor(kv: KVRuntime, gate: Gate, tally: Tally, random: SeededRandom, spoiled: number) {
    this.#kv = kv;
    this.#gate = gate;
    this.#tally = tally;
    this.#random = random;
    this.#spoiled = spoiled;
  }

  async run(request: SoakRequest): Promise<void> {
    const blocks = Math.ceil(request.totalTokens / layout.blockTokens);
    this.#tally.requests++;
    this.#tally.promptBlocks += Math.ceil(request.promptTokens / layout.blockTokens);
    await this.#gate.enter(blocks);
    try {
      if (request.kind === 'cancel' || request.kind === 'prefetch') this.#withoutBytes(request);
      else await this.#withBytes(request);
    } finally {
      this.#gate.leave(blocks);
    }
    const [fromHbm, fromDdr] = request.evictAfter;
    const kv = this.#kv;
    if (fromHbm > 0) kv.manager.evict(0, fromHbm, kv.nowUs());
    if (fromDdr > 0) kv.manager.evict(1, fromDdr, kv.nowUs());
  }

  async #withBytes(request: SoakRequest): Promise<void> {
    const { tenant, conversation, promptTokens, totalTokens } = request;
    const kv = this.#kv;
    const tokens = tokensOf(conversation, totalTokens, layout.blockTokens);
    const prompt = tokens.subarray(0, promptTokens);
    const sequence = await this.#whenRoom(() => kv.begin(prompt, { tenant: tenants[tenant] }));
    try {
      if (request.kind === 'serve') await this.#serve(sequence, request, tokens);
      else this.#write(sequence, request, request.kind === 'abandon' ? 0.5 : 1);
      if (request.kind !== 'abort') return;
      const sealed = kv.seal(sequence);
      await new Promise((resolve) => setTimeout(resolve, this.#random.below(3)));
      void sealed;
    } finally {
      kv.release(sequence);
    }
  }

  async #serve(sequence: KVSequence, request: SoakRequest, tokens: Uint32Array): Promise<void> {
    const { promptTokens, totalTokens } = request;
    await this.#compute(sequence, request);
    for (let step = 1; step <= APPENDS; step++) {
      const upTo = promptTokens + Math.floor(((totalTokens - promptTokens) * step) / APPENDS);
      if (upTo === sequence.length) continue;
      while ((await this.#kv.append(sequence, tokens.subarray(0, upTo))) === 'interrupted') {
        await this.#recover(sequence, request);
      }
      await this.#compute(sequence, request);
    }
    while (!(await this.#compare(sequence, request))) await this.#recover(sequence, request);
  }

  async #compute(sequence: KVSequence, request: SoakRequest): Promise<void> {
    this.#write(sequence, request, 1);
    if ((await this.#kv.seal(sequence)) === 'interrupted') await this.#recover(sequence, request);
  }

  /** Until the sequence is whole and sealed once more. */
  async #recover(sequence: KVSequence, request: SoakRequest): Promise<void> {
    this.#tally.interrupted++;
    do {
      await this.#whenRoom(() => this.#kv.recover(sequence));
      this.#write(sequence, request, 1);
    } while ((await this.#kv.seal(sequence)) === 'interrupted');
  }

  /** Has the device generate the bytes of the open blocks, or of the first `share` of them. */
  #write(sequence: KVSequence, { tenant, conversation }: SoakRequest, share: number): void {
    const open = this.#kv.openBlocks(sequence);
    const items = open.slice(0, Math.ceil(open.length * share)).map(({ index, block }) => {
      const { seedLo, seedHi } = patternOf(tenant, conversation, index);
      const wrong = this.#spoiled > 0 && this.#random.chance(this.#spoiled);
      return { ...placeOf(block), seedLo, seedHi: wrong ? ~seedHi : seedHi };
    });
    // an earlier fill may end after a later one
    if (items.length > 0) this.#filled = Promise.all([this.#filled, this.#kv.stores.hbm.fillPattern(items)]);
  }

  /** @returns false when the device was lost meanwhile */
  async #compare(sequence: KVSequence, { tenant, conversation }: SoakRequest): Promise<boolean> {
    await this.#filled; // a slot that the device still fills is busy
    const { hbm } = this.#kv.stores;
    const places = Array.from({ length: sequence.blocks }, (_, index) => {
      const { manager } = this.#kv;
      const block =
        manager.loadedBlock(sequence.groups[0].table, index) ??
        manager.openBlock(sequence.groups[0].table, index);
      return block === undefined
        ? undefined
        : { ...placeOf(block), ...patternOf(tenant, conversation, index) };
    });
    const items = places.filter((place) => place !== undefined);
    if (items.length < places.length) return false;
    const ends = await hbm.countMismatches(items);
    if (ends.some(({ outcome }) => outcome !== Outcome.LOADED)) {
      if (await isLost(hbm)) return false;
      this.#tally.unreadable += ends.filter(({ outcome }) => outcome !== Outcome.LOADED).length;
    }
    this.#tally.blocksCompared += ends.length;
    this.#tally.wrongBlocks += ends.filter(({ mismatchedWords }) => mismatchedWords > 0).length;
    return true;
  }

  /**
   * What a router does: brings blocks up ahead of time, or starts loads for a request that is then called
   * off.
   */
  #withoutBytes({ kind, tenant, conversation, promptTokens }: SoakRequest): void {
    const kv = this.#kv;
    const keys = new BlockKeys();
    const chain = new KeyChain({ secretKey, tenant: tenants[tenant], epoch: 0, model, layout });
    chain.hashBlocks(tokensOf(conversation, promptTokens, layout.blockTokens), 0, keys);
    if (kind === 'prefetch') {
      kv.manager.prefetch(keys.words, keys.length, kv.nowUs());
      void kv.idle();
      return;
    }
    const sequence = kv.manager.open(keys.words, keys.length, kv.nowUs());
    kv.manager.load(sequence, kv.nowUs());
    void kv.idle(); // submits the loads, so that it is those under way that are called off
    kv.manager.cancel(sequence, kv.nowUs());
    void kv.idle();
  }

  /**
   * Transfers that were given up hold their room until they end: as long as there are some, tries
   * again.
   */
  async #whenRoom<T>(act: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await act();
      } catch (error) {
        const full = error instanceof TierKVError && error.code === 'TKV_FULL';
        if (!full || attempt === ATTEMPTS_MAX) throw error;
        if (attempt === 1) this.#tally.waited++;
        await new Promise((resolve) => setTimeout(resolve, attempt));
      }
    }
  }
}

function placeOf(block: { slot: number; generation: number; sizeClass: number }): {
  slot: number;
  generation: number;
  sizeClass: number;
} {
  return { slot: block.slot, generation: block.generation, sizeClass: block.sizeClass };
}

function isLost({ lost }: { readonly lost: Promise<string> }): Promise<boolean> {
  return Promise.race([
    lost.then(() => true),
    new Promise<boolean>((resolve) => setTimeout(() => resolve(false), LOSS_NOTICE_MS)),
  ]);
}
