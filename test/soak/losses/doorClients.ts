/**
 * Clients of the doors beside sequences and the scheduler, under losses: reuse step by step, the paged cache, states of
 * prefixes, and a tiered storage with a device of its own. Each writes what it was told to write, or now and then forgets to, and
 * wants it published all the same: that must be refused. What is found is compared.
 */

import type { KVRuntime } from '../../../src/index.ts';
import type { KVLayout } from '../../../src/runtime/index.ts';
import { TierKVError } from '../../../src/runtime/index.ts';
import type { SeededRandom } from '../../../src/testing/index.ts';
import type { CrossRequestKVCache, KVBlockDescriptor } from '../../../src/views/index.ts';
import { TieredKVStorage } from '../../../src/views/tieredKVStorage.ts';
import { testAdapter } from '../../adapter.ts';
import { prefixHashes } from '../server/rows.ts';
import type { Oracle, Place } from './oracle.ts';
import { count, type Served, within } from './sequenceClient.ts';

/** Ends that a loss or a full tier explains. */
const EXPLAINED = /^TKV_(FULL|STATE|DEVICE|STALE)$/;
/** How often a client forgets to wait or to write. */
const CARELESS = 0.15;
const STORAGE_BLOCKS = 60;

export class DoorClients {
  /** Devices of the storage that were destroyed. */
  storageLosses = 0;
  readonly #kv: KVRuntime;
  readonly #storage: TieredKVStorage;
  readonly #layout: KVLayout;
  readonly #oracle: Oracle;
  readonly #served: Served;
  readonly #random: SeededRandom;
  readonly #before: () => void;
  readonly #reuse: CrossRequestKVCache;
  readonly #paged: ReturnType<KVRuntime['pagedCache']>;
  #number = 0;
  #storageCalls = 0;

  static async open(
    kv: KVRuntime,
    layout: KVLayout,
    oracle: Oracle,
    served: Served,
    random: SeededRandom,
    before: () => void,
  ): Promise<DoorClients> {
    const capacityBytes = STORAGE_BLOCKS * layout.blockBytes;
    const storage = await TieredKVStorage.open({
      adapter: testAdapter,
      notice: () => {},
      pool: {
        layout,
        blockSize: layout.blockTokens,
        model: 'soak@1',
        secretKey: new Uint8Array(32).fill(19),
      },
      tiers: [
        { tier: 'hbm', capacityBytes },
        { tier: 'ddr', capacityBytes },
      ],
    });
    return new DoorClients(kv, storage, layout, oracle, served, random, before);
  }

  private constructor(
    kv: KVRuntime,
    storage: TieredKVStorage,
    layout: KVLayout,
    oracle: Oracle,
    served: Served,
    random: SeededRandom,
    before: () => void,
  ) {
    this.#kv = kv;
    this.#storage = storage;
    this.#layout = layout;
    this.#oracle = oracle;
    this.#served = served;
    this.#random = random;
    this.#before = before;
    this.#reuse = kv.crossRequestCache();
    this.#paged = kv.pagedCache();
  }

  async close(): Promise<void> {
    this.#paged[Symbol.dispose]();
    await this.#storage.idle();
    this.#storage.pool.checkIntegrity();
    await this.#storage.close();
  }

  /** One visit of some door. */
  async ask(tenant: string, prompt: readonly number[]): Promise<void> {
    const doors = {
      reuse: () => this.#reused(tenant, prompt),
      paged: () => this.#pagedBlocks(),
      state: () => this.#state(tenant, prompt),
      storage: () => this.#stored(tenant, prompt),
    };
    const names = Object.keys(doors) as (keyof typeof doors)[];
    const name = names[this.#random.below(names.length)];
    this.#served.requests++;
    try {
      count(this.#served, `${name}: ${await within(this.#served, name, doors[name]())}`);
    } catch (error) {
      if (!(error instanceof TierKVError) || !EXPLAINED.test(error.code)) throw error;
      count(this.#served, `${name}: ${error.code}`);
    }
  }

  async #reused(tenant: string, tokens: readonly number[]): Promise<string> {
    const { blockTokens } = this.#layout;
    const id = `reuse ${++this.#number}`;
    this.#before();
    const { matchedTokens } = this.#reuse.tryReuse(id, tokens, tenant);
    try {
      this.#before();
      if (!this.#reuse.allocate(id, tokens.length)) return 'full';
      const isCareless = this.#random.chance(CARELESS);
      if (isCareless) {
        this.#before();
        this.#reuse.commit(id, tokens, null, true, tenant);
        return 'committed unwritten'; // all of it was found, or it is found later that it was not written
      }
      const table = this.#reuse.sequenceOf(id);
      await this.#kv.ready(table);
      const places = this.#placesOf(id);
      const matched = Math.ceil(matchedTokens / blockTokens);
      await this.#oracle.compare(tenant, tokens, matchedTokens, places.slice(0, matched), id);
      this.#before();
      const now = this.#placesOf(id); // of the device that is there now
      for (let i = Math.floor(matchedTokens / blockTokens); i < now.length; i++) {
        const from = Math.max(matchedTokens, i * blockTokens);
        const to = Math.min(tokens.length, (i + 1) * blockTokens);
        this.#oracle.write(tenant, tokens, from, to, now[i]);
      }
      this.#before();
      this.#reuse.commit(id, tokens, null, true, tenant);
      return 'done';
    } finally {
      this.#reuse.release(id);
    }
  }

  #placesOf(id: string): Place[] {
    const { slabs, entries, blocks } = this.#kv.places(this.#reuse.sequenceOf(id));
    return Array.from({ length: blocks }, (_, i) => {
      return { buffer: slabs[entries[2 * i]], offsetBytes: entries[2 * i + 1] };
    });
  }

  async #pagedBlocks(): Promise<string> {
    const half = this.#layout.blockBytes / 2;
    this.#before();
    const [block] = this.#paged.allocateBlock(1);
    if (block === undefined) return 'full';
    try {
      const word = 1 + this.#random.below(200);
      const [keyCache, valueCache] = [new Uint8Array(half).fill(word), new Uint8Array(half).fill(word + 50)];
      this.#before();
      await this.#paged.storeBlockData(block, { keyCache, valueCache, tokenCount: 16 });
      for (let i = this.#random.below(3); i > 0; i--) await new Promise((resolve) => setImmediate(resolve));
      this.#before();
      const found = await this.#paged.getBlockData(block);
      this.#compared(Buffer.compare(found.keyCache, keyCache), 'key of a paged block');
      this.#compared(Buffer.compare(found.valueCache, valueCache), 'value of a paged block');
      return 'done';
    } finally {
      this.#paged.releaseBlock(block);
    }
  }

  async #state(tenant: string, tokens: readonly number[]): Promise<string> {
    const state = stateOf(tenant, tokens);
    this.#before();
    if (!(await this.#kv.putState(tokens, state, { tenant, wait: true }))) return 'no room';
    this.#before();
    const { devicesLost } = this.#kv;
    const found = await this.#kv.getState([...tokens, 1], { tenant, wait: true });
    if (found === undefined) return this.#kv.devicesLost === devicesLost ? 'gone' : 'lost';
    this.#compared(Buffer.compare(found.state, stateOf(tenant, tokens.slice(0, found.tokens))), 'a state');
    return 'done';
  }

  async #stored(tenant: string, tokens: readonly number[]): Promise<string> {
    const { pool } = this.#storage;
    const sequenceId = `stored ${++this.#number}`;
    if (++this.#storageCalls % 40 === 0) {
      this.storageLosses++;
      this.#storage.device.destroy();
    }
    const numTokens = tokens.length;
    const layerIds = Array.from({ length: this.#layout.layers }, (_, i) => i);
    const request = { sequenceId, requestId: sequenceId, numTokens, layerIds, tokenIds: tokens, tenant };
    const blocks = pool.allocate(request);
    try {
      const found = blocks.filter((block) => block.isSealed);
      const read = await this.#storage.readBlocks(found);
      found.forEach((block, i) => {
        this.#compared(
          Buffer.compare(read[i], bytesOf(tenant, tokens, block)),
          `a stored block, tenant ${tenant}`,
        );
      });
      const open = blocks.filter((block) => !block.isSealed);
      if (!this.#random.chance(CARELESS)) {
        await this.#storage.writeBlocks(
          open.map((block) => bytesOf(tenant, tokens, block)),
          open,
        );
      }
      const end = await this.#storage.commit(sequenceId, tokens);
      if (end === 'done') {
        const whole = blocks.filter((block) => block.isSealed);
        const tier = this.#random.chance(0.3) ? 'ddr' : 'hbm';
        const again = await this.#storage.readBlocks(whole, tier);
        whole.forEach((block, i) => {
          this.#compared(
            Buffer.compare(again[i], bytesOf(tenant, tokens, block)),
            `a committed block of ${tenant}`,
          );
        });
      }
      return end;
    } finally {
      pool.deallocate(blocks);
    }
  }

  #compared(difference: number, what: string): void {
    const { compared } = this.#oracle;
    const { blockTokens } = this.#layout;
    compared.tokens += blockTokens;
    if (difference === 0) return;
    compared.wrongTokens += blockTokens;
    if (compared.wrong.length < 10) compared.wrong.push(what);
  }
}

function stateOf(tenant: string, tokens: readonly number[]): Uint8Array {
  const hashes = prefixHashes(tenant, tokens, tokens.length);
  return Uint8Array.from({ length: 3000 }, (_, i) => hashes[i % hashes.length] >>> (i % 24));
}

/** Of each token of the block, the hash of the prompt up to it. */
function bytesOf(
  tenant: string,
  tokens: readonly number[],
  { tokenRange, sizeBytes }: KVBlockDescriptor,
): Uint8Array {
  const [start, end] = tokenRange;
  const hashes = prefixHashes(tenant, tokens, end);
  const words = Uint32Array.from({ length: sizeBytes / 4 }, (_, i) => hashes[start + (i % (end - start))]);
  return new Uint8Array(words.buffer);
}
