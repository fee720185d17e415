/**
 * Keys of token blocks: a chain of keyed BLAKE2s-256, cut to 128 bits.
 *
 *     key[i] = BLAKE2s(namespace key; count, i, key[i - 1], tokens of block i)      key[-1] = 0
 *
 * Equal keys mean equal tokens in the whole prefix, equal positions and one namespace, up to a collision of
 * 128 bits under a key that no client knows. The count makes a partial tail differ from every longer one. A
 * key costs one compression for each 64 bytes of 24 + 4 * tokens, two for 16 tokens, and leaves no garbage;
 * one chain serves any number of sequences.
 */

import { invariant, TierKVError } from '../errors.ts';
import { requireKVLayout } from '../geometry/index.ts';
import { described, requireOptions } from '../options.ts';
import {
  compress,
  digestBytesMax,
  keyedMidstate,
  messageBytes,
  messageWords,
  stateWords,
} from './blake2s.ts';
import { type BlockKeys, wordsPerKey } from './blockKeys.ts';
import { elementAt, type KeyElements, type KeySource, requireElements } from './keySource.ts';
import { deriveNamespaceKey, type KeyNamespace, keyNamespaceNames, tokensPerKey } from './namespace.ts';
import { type RequestExtras, requestExtras } from './requestExtras.ts';

const headerWords = 6;
const digestWords = digestBytesMax / 4;

export class KeyChain implements KeySource {
  readonly elementsPerKey: number;
  readonly #midstate: Uint32Array;
  /** Where the hashes of blocks begin that extras of one request enter. */
  #withExtras: ReadonlyMap<number, Uint32Array> = new Map();
  readonly #state: Uint32Array = new Uint32Array(stateWords);
  readonly #message: Uint32Array = new Uint32Array(messageWords);
  readonly #key: Uint32Array = new Uint32Array(wordsPerKey);

  /** @throws TKV_CONFIG naming the field of the namespace that is missing or malformed. */
  constructor(namespace: KeyNamespace | KeyChain) {
    if (namespace instanceof KeyChain) {
      this.elementsPerKey = namespace.elementsPerKey;
      this.#midstate = namespace.#midstate;
      return;
    }
    requireOptions(namespace, keyNamespaceNames, 'namespace', 'TKV_CONFIG');
    requireKVLayout(namespace.layout);
    this.elementsPerKey = tokensPerKey(namespace);
    const namespaceKey = deriveNamespaceKey(namespace);
    this.#midstate = keyedMidstate(namespaceKey, digestBytesMax);
    namespaceKey.fill(0);
  }

  /**
   * The chain of one request with extras: its keys are those of this chain up to the first block that extras
   * enter. From there on only requests with the same extras have the same keys.
   * @throws TKV_INPUT naming the extra that is none
   */
  withExtras(extras: RequestExtras): KeyChain {
    const digests = requestExtras(extras, this.elementsPerKey);
    if (digests.size === 0) return this;
    const chain = new KeyChain(this);
    chain.#withExtras = new Map([...digests].map(([block, digest]) => [block, this.#midstateOf(digest)]));
    return chain;
  }

  /** A key of the namespace and the digest. Blocks have a count of at least 1 where this message has 0. */
  #midstateOf(digest: Uint8Array): Uint32Array {
    const state = this.#midstate.slice();
    const message = new Uint32Array(messageWords);
    const words = new Uint8Array(4 * digestWords);
    words.set(digest);
    const view = new DataView(words.buffer);
    for (let i = 0; i < digestWords; i++) message[headerWords + i] = view.getUint32(4 * i, true);
    compress(state, message, 2 * messageBytes, true);
    const key = new Uint8Array(digestBytesMax);
    const out = new DataView(key.buffer);
    for (let i = 0; i < stateWords; i++) out.setUint32(4 * i, state[i], true);
    return keyedMidstate(key, digestBytesMax);
  }

  hashBlocks(tokens: KeyElements, from: number, out: BlockKeys, tokenCount: number = tokens?.length): number {
    requireElements(tokens);
    invariant(tokenCount <= tokens.length, 'a sequence has no more tokens than its array');
    const blocks = Math.floor(tokenCount / this.elementsPerKey);
    invariant(from <= blocks, () => `block ${from} is not full yet: there are ${blocks} full blocks`);
    out.truncate(from);
    out.reserve(blocks);
    for (let block = from; block < blocks; block++) {
      this.#hash(tokens, block, this.elementsPerKey, out);
      out.append(this.#key, 0);
    }
    return out.length;
  }

  hashPartial(
    tokens: KeyElements,
    block: number,
    count: number,
    keys: BlockKeys,
    out: Uint32Array,
    at: number = 0,
  ): void {
    invariant(
      count >= 1 && count < this.elementsPerKey,
      'a partial tail is shorter than a block and not empty',
    );
    invariant(block * this.elementsPerKey + count <= tokens.length, 'a partial tail ends within its tokens');
    invariant(block <= keys.length, () => `the tail of block ${block} needs the key of the block before it`);
    this.#hash(tokens, block, count, keys);
    for (let i = 0; i < wordsPerKey; i++) out[at + i] = this.#key[i];
  }

  /** Puts into #key the key of `count` tokens of `block`, whose parent is among `keys`. */
  #hash(tokens: KeyElements, block: number, count: number, keys: BlockKeys): void {
    const state = this.#state;
    const message = this.#message;
    const midstate = this.#withExtras.get(block) ?? this.#midstate;
    for (let i = 0; i < stateWords; i++) state[i] = midstate[i];
    message[0] = count;
    message[1] = block;
    const parents = keys.words;
    const parent = (block - 1) * wordsPerKey;
    for (let i = 0; i < wordsPerKey; i++) message[2 + i] = block > 0 ? parents[parent + i] : 0;

    const start = block * this.elementsPerKey;
    let filled = headerWords;
    let hashedBytes = messageBytes;
    for (let i = start; i < start + count; i++) {
      const token = elementAt(tokens, i);
      if (token >>> 0 !== token) throw badToken(i, tokens[i]);
      if (filled === messageWords) {
        hashedBytes += messageBytes;
        compress(state, message, hashedBytes, false);
        filled = 0;
      }
      message[filled++] = token;
    }
    hashedBytes += 4 * filled;
    while (filled < messageWords) message[filled++] = 0;
    compress(state, message, hashedBytes, true);
    for (let i = 0; i < wordsPerKey; i++) this.#key[i] = state[i];
  }
}

function badToken(index: number, token: unknown): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `tokens[${index}] is ${described(token)}, not an integer from 0 to 4294967295. Pass token ids as the ` +
      `tokenizer gave them.`,
    { field: `tokens[${index}]` },
  );
}
