/**
 * A server's reports of its cache in KV events, in the gateway's own keys. A server names blocks by hashes of its own;
 * its events hold the tokens too, and from these come the keys that prompts are compared by. Blocks whose tokens or
 * whose beginning are not known cannot be compared with a prompt, and are counted.
 */

import { wordsPerKey } from '../../runtime/keys/keyChain.ts';
import { FULL_LAYERS, type KVBlocksStored, type KVEvent } from './events/wire.ts';
import { bytesOfIds, type PromptCutter, putKey } from './prompts.ts';
import { type GatewayInput, keysText, type Untimed } from './records.ts';

/** Tiers by the names that publishers have for them. */
const tierOfMedium: ReadonlyMap<string, number> = new Map([
  ['GPU', 0],
  ['CPU', 1],
  ['CPU_PINNED', 1],
  ['CPU_TIER1', 1],
  ['CPU_TIER2', 2],
  ['DISK', 2],
  ['STORAGE', 2],
]);

interface KnownBlock {
  readonly key: Uint8Array;
  /** Copies of it in each tier. vLLM, which names the kind of its layers, tells of each; others of the block, perhaps twice. */
  readonly copies: number[];
}

interface NewsCounts {
  events: number;
  /** Blocks in them. */
  blocks: number;
  /** Blocks of another size, without tokens, behind a block that is not known, of other layers, or in a tier that is not known. */
  unusable: number;
  /** Blocks that were forgotten, since a server said that it holds more than it can. */
  forgotten: number;
}

type KvInput = Extract<Untimed<GatewayInput>, { readonly in: 'kv' }>;
/** Keys whose change of place is one record. */
const KEYS_A_RECORD = 1024;

export class CacheBook {
  readonly counts: NewsCounts = { events: 0, blocks: 0, unusable: 0, forgotten: 0 };
  readonly #cutter: PromptCutter;
  readonly #tiers: number;
  readonly #mostBlocks: number;
  /** The first layer group that attends to all tokens, by what the server says; undefined before it says. */
  #fullGroup: number | undefined;
  /** Known blocks by the server's hash, in the order in which they became known. */
  readonly #blocks = new Map<string, KnownBlock>();
  /** The same by their keys; null where no prompt is looked up. */
  readonly #byKey: Map<string, KnownBlock> | null;

  /** @param capacityBlocks of the server's tiers @param findsPrompts whether `leadingBlocks` is asked */
  constructor(cutter: PromptCutter, capacityBlocks: readonly number[], findsPrompts: boolean = false) {
    this.#cutter = cutter;
    this.#byKey = findsPrompts ? new Map() : null;
    this.#tiers = capacityBlocks.length;
    // blocks of which only later ones are left are remembered too
    this.#mostBlocks = 2 * capacityBlocks.reduce((sum, blocks) => sum + blocks, 0) + 1024;
  }

  /** Takes an event. @param model that the server serves @returns what changed, for an instance */
  take(news: KVEvent, model: string, instance: number): KvInput[] {
    this.counts.events++;
    if (news.type === 'cleared' && news.medium === null) {
      const gone = this.#inputs(instance, false);
      this.#clear();
      return gone;
    }
    const tier = tierOfMedium.get(news.medium ?? 'GPU') ?? -1;
    if (news.type === 'cleared') return tier === -1 ? [] : this.#cleared(instance, tier);
    this.counts.blocks += news.hashes.length;
    if (news.type === 'stored' && news.layers === FULL_LAYERS) {
      const full = Math.min(this.#fullGroup ?? Infinity, news.group ?? 0);
      const isOther = full !== (this.#fullGroup ?? 0);
      this.#fullGroup = full;
      // what was taken of another group before says nothing of this one
      if (isOther && this.#blocks.size > 0) {
        const gone = this.#inputs(instance, false);
        this.#clear();
        return [...gone, ...this.take(news, model, instance)];
      }
    }
    // other groups hold other layers of the same tokens, perhaps of the last ones alone
    const isWhole = (news.group ?? 0) === (this.#fullGroup ?? 0);
    if (tier === -1 || tier >= this.#tiers || !isWhole) {
      this.counts.unusable += news.hashes.length;
      return [];
    }
    const changed =
      news.type === 'stored' ? this.#stored(news, tier, model) : this.#removed(news.hashes, tier);
    const inputs = inputsOf(instance, tier, news.type === 'stored', changed);
    for (let over = this.#blocks.size - this.#mostBlocks; over > 0; over--)
      inputs.push(...this.#forget(instance));
    return inputs;
  }

  #clear(): void {
    this.#blocks.clear();
    this.#byKey?.clear();
  }

  /**
   * Leading blocks of a prompt that lie in any tier; undefined where no event told of a block that could be compared.
   * @param words of the prompt's keys
   */
  leadingBlocks(words: Uint32Array): number | undefined {
    if (this.#byKey === null || this.counts.blocks === this.counts.unusable) return undefined;
    let blocks = 0;
    for (let at = 0; at < words.length; at += wordsPerKey, blocks++) {
      const known = this.#byKey.get(textOfKey(words, at));
      if (known === undefined || known.copies.every((count) => count === 0)) break;
    }
    return blocks;
  }

  /** All that is known, told to an instance that is new. */
  all(instance: number): KvInput[] {
    return this.#inputs(instance, true);
  }

  #stored(news: KVBlocksStored, tier: number, model: string): Uint8Array[] {
    const { hashes, tokenIds, blockTokens, parent, loraName, salt, extraKeys } = news;
    // a block behind another one may leave out the salt, which the first of its chain has
    if (parent === null || salt !== null) this.#cutter.salts.told(salt);
    // what else a hash covers, such as an image, does not stand in the tokens of a prompt
    const isMore = (key: unknown): boolean =>
      typeof key !== 'string' || !((salt !== null && key.endsWith(salt)) || key === loraName);
    const hasMore = extraKeys?.some((keys) => keys?.some(isMore) === true) === true;
    const before = parent === null ? undefined : this.#blocks.get(parent);
    const isWhole =
      blockTokens === this.#cutter.blockTokens && tokenIds.length === hashes.length * blockTokens;
    if (!isWhole || hasMore || (parent !== null && before === undefined)) {
      this.counts.unusable += hashes.length;
      return [];
    }
    let key = before?.key ?? this.#cutter.root(model, loraName ?? '', salt ?? '');
    const changed: Uint8Array[] = [];
    for (const [i, hash] of hashes.entries()) {
      key = this.#cutter.next(key, bytesOfIds(tokenIds.slice(i * blockTokens, (i + 1) * blockTokens)));
      const known = this.#blocks.get(hash);
      const block = known ?? { key, copies: Array<number>(this.#tiers).fill(0) };
      if (known === undefined) {
        this.#blocks.set(hash, block);
        this.#byKey?.set(textOfKey(wordsOf(key), 0), block);
      }
      if (block.copies[tier] === 0) changed.push(key);
      if (block.copies[tier] === 0 || news.layers !== null) block.copies[tier]++;
    }
    return changed;
  }

  /** One tier is empty. */
  #cleared(instance: number, tier: number): KvInput[] {
    const gone = [...this.#blocks.values()].filter(({ copies }) => copies[tier] > 0);
    for (const { copies } of gone) copies[tier] = 0;
    return inputsOf(
      instance,
      tier,
      false,
      gone.map(({ key }) => key),
    );
  }

  #removed(hashes: readonly string[], tier: number): Uint8Array[] {
    const changed: Uint8Array[] = [];
    for (const hash of hashes) {
      const known = this.#blocks.get(hash);
      if (known === undefined || known.copies[tier] === 0) continue;
      // it stays as the beginning of others while there is room
      if (--known.copies[tier] === 0) changed.push(known.key);
    }
    return changed;
  }

  /** The block that became known first: one that lies nowhere, or else any. */
  #forget(instance: number): KvInput[] {
    let first: string | undefined;
    let looked = 0;
    for (const [hash, { copies }] of this.#blocks) {
      first ??= hash;
      if (copies.every((count) => count === 0)) {
        first = hash;
        break;
      }
      if (++looked === 64) break;
    }
    if (first === undefined) return [];
    const known = this.#blocks.get(first);
    this.#blocks.delete(first);
    this.#byKey?.delete(textOfKey(wordsOf((known as KnownBlock).key), 0));
    this.counts.forgotten++;
    const inputs: KvInput[] = [];
    for (let tier = 0; known !== undefined && tier < this.#tiers; tier++) {
      if (known.copies[tier] > 0) inputs.push(...inputsOf(instance, tier, false, [known.key]));
    }
    return inputs;
  }

  #inputs(instance: number, stored: boolean): KvInput[] {
    const inputs: KvInput[] = [];
    for (let tier = 0; tier < this.#tiers; tier++) {
      const keys = [...this.#blocks.values()].filter(({ copies }) => copies[tier] > 0).map(({ key }) => key);
      inputs.push(...inputsOf(instance, tier, stored, keys));
    }
    return inputs;
  }
}

function wordsOf(key: Uint8Array): Uint32Array {
  const words = new Uint32Array(wordsPerKey);
  putKey(key, words, 0);
  return words;
}

/** A key as a text: 64 bits tell the blocks of a server apart. */
function textOfKey(words: Uint32Array, at: number): string {
  const [a, b] = [words[at], words[at + 1]];
  return String.fromCharCode(a >>> 16, a & 0xffff, b >>> 16, b & 0xffff);
}

function inputsOf(instance: number, tier: number, stored: boolean, keys: readonly Uint8Array[]): KvInput[] {
  const inputs: KvInput[] = [];
  for (let from = 0; from < keys.length; from += KEYS_A_RECORD) {
    const part = keys.slice(from, from + KEYS_A_RECORD);
    const words = new Uint32Array(part.length * 4);
    for (const [i, key] of part.entries()) putKey(key, words, i * 4);
    inputs.push({ in: 'kv', instance, tier, stored, keys: keysText(words, part.length) });
  }
  return inputs;
}
