/**
 * The cache of one model's prefixes: `restore` makes a cache object out of blocks, `save` puts the blocks of one into
 * the runtime. Everything a caller gets is determined by tokens, tenant, extras and the model's identity: blocks of any
 * other combination are never found.
 *
 * What a cache object holds is remembered beside it (which tokens, whose), so that a later turn copies only new blocks and
 * a cache of other tokens, of another tenant or of another model is refused.
 */

import { hexOf } from '../../embed/assembly.ts';
import type { DeviceBlockTable } from '../../embed/context.ts';
import type { KVRuntime } from '../../embed/kvRuntime.ts';
import type { SaveOptions } from '../../embed/saving.ts';
import type { KVSequence } from '../../embed/sequenceState.ts';
import { described, inputError, TierKVError } from '../../runtime/errors.ts';
import type { KVLayout } from '../../runtime/geometry/layout.ts';
import type { RequestExtras } from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import {
  buffersOfEntries,
  bytesOfEntries,
  copyBlock,
  denseLayers,
  readBuffer,
  requireEntries,
} from './blockCopies.ts';
import type { DensePlace, DeviceCopies } from './deviceCopies.ts';
import {
  type EngineCache,
  type EngineModule,
  type EngineTensor,
  engineDevice,
  entriesOf,
  isCache,
  tensorOver,
} from './engine.ts';
import type { ModelShape } from './modelShape.ts';
import { type RopeRegimes, regimeAt } from './ropeRegime.ts';

/** The tenant and the extras within which a prefix is shared. */
export interface PrefixScope {
  /** From your own authentication. Default: the one given to `withPrefixCache`. */
  readonly tenant?: string | undefined;
  /** Other facts that determine the KV, such as an adapter: see `begin`. */
  readonly extras?: RequestExtras | undefined;
}

const prefixScopeTable = optionTable({
  tenant: is.optional(is.passed()),
  extras: is.optional(is.passed()),
} satisfies Kinds<PrefixScope>);

/** Result of `restore`. */
interface RestoredPrefix {
  /** For `past_key_values` of `generate`; empty where nothing was found. */
  readonly pastKeyValues: EngineCache;
  /** Tokens from the front whose KV it holds: a multiple of the block, and fewer than the prompt has. */
  readonly cachedTokens: number;
  /** Blocks by the tier that held them, from fast to slow. */
  readonly byTier: readonly number[];
  /** Why nothing was looked for. */
  readonly uncached?: string | undefined;
}

interface SavedPrefix {
  /** Blocks that were copied. */
  readonly savedBlocks: number;
  /** Blocks of this prefix that can be found now. */
  readonly blocks: number;
  /** Why nothing was copied. */
  readonly uncached?: string | undefined;
}

/** One call of `generate`: how many tokens of its prompt were found, and in which tier. */
export interface PrefixTurn {
  readonly promptTokens: number;
  /** Prompt tokens that were not computed. */
  readonly cachedTokens: number;
  /** `live`: the cache object of an earlier turn went on; `restored`: out of blocks; `computed`: all of it. */
  readonly from: 'live' | 'restored' | 'computed';
  /** Blocks by the tier that held them, where `from` is `restored`. */
  readonly byTier: readonly number[];
  /** Blocks that were copied into the runtime. */
  readonly savedBlocks: number;
  /** Why the turn, or its saving, went without the prefix cache. */
  readonly uncached?: string | undefined;
}

/** Counts over all turns of a `PrefixCache`: tokens of prompts, tokens that were found, and blocks that were saved. */
export interface PrefixCounters {
  readonly turns: number;
  readonly promptTokens: number;
  readonly liveTokens: number;
  readonly restoredTokens: number;
  readonly savedBlocks: number;
  /** Turns that went without the prefix cache, or were not saved. */
  readonly uncached: number;
}

/** Name under which the model's identity enters the keys. */
const modelExtra = 'transformers.model';
/** Name under which the regime of RoPE does, where it depends on length. */
const ropeExtra = 'transformers.rope';

/** A scope that was checked. */
interface CallerScope {
  readonly tenant: string;
  readonly extras: RequestExtras;
  /** Equal for equal scopes of one model. */
  readonly name: string;
}

/** With all that the length of a sequence adds. */
export interface CheckedScope extends CallerScope {
  /** Tokens from the front whose KV is of this scope. */
  readonly mostTokens: number;
}

/** Facts about a cache object. */
interface KnownCache {
  readonly owner: string;
  readonly scope: string;
  /** The tokens whose KV it holds. */
  readonly ids: Uint32Array;
}

/** Cache objects of all models, so that one of another model is told apart. */
const knownCaches = new WeakMap<EngineCache, KnownCache>();

interface PrefixCacheParts {
  readonly runtime: KVRuntime;
  /** The runtime is closed with the cache. */
  readonly ownsRuntime: boolean;
  readonly shape: ModelShape;
  readonly engine: EngineModule;
  /** 32 bytes for all that determines KV besides tokens, tenant, extras and length. */
  readonly identity: Uint8Array;
  /** Where KV depends on the length of the sequence. */
  readonly regimes: RopeRegimes | undefined;
  readonly tenant: string | undefined;
  readonly extras: RequestExtras | undefined;
}

/** The cache of a model's prefixes, made by `withPrefixCache`. */
export class PrefixCache implements AsyncDisposable {
  readonly runtime: KVRuntime;
  /** Layout of the blocks. */
  readonly layout: KVLayout;
  /** 64 hexadecimal digits that differ wherever the weights or their settings do. */
  readonly identity: string;
  readonly #parts: PrefixCacheParts;
  #closed: Promise<void> | undefined;
  /** For the pool of the present device. */
  #copies: { readonly slabs: readonly GPUBuffer[]; readonly opened: Promise<DeviceCopies> } | undefined;

  constructor(parts: PrefixCacheParts) {
    checkInputs({ parts }, { parts: is.fields({ ownsRuntime: is.flag(), identity: is.bytes() }) });
    this.#parts = parts;
    this.runtime = parts.runtime;
    this.layout = parts.runtime.layout;
    this.identity = hexOf(parts.identity);
  }

  /** @throws TKV_INPUT for an unknown name, a tenant that is missing, and a malformed extra */
  scopeOf(scope: PrefixScope): CallerScope {
    is.object().read(scope, 'options');
    const { tenant = this.#parts.tenant, extras = this.#parts.extras ?? {} } = scope;
    is.name('Pass who may share this KV, from your own authentication.').read(tenant as string, 'tenant');
    is.object().read(extras, 'extras');
    const own = [modelExtra, ropeExtra].find((name) => Object.hasOwn(extras, name));
    if (own !== undefined) {
      throw inputError(`extras.${own}`, 'belongs to the prefix cache. Choose another name.');
    }
    return {
      tenant: tenant as string,
      extras: { ...extras, [modelExtra]: this.#parts.identity },
      name: JSON.stringify(
        [tenant, Object.entries(extras).sort(([a], [b]) => (a < b ? -1 : 1))],
        textOfBytes,
      ),
    };
  }

  /** The scope of a call that ends at `tokens` tokens, or why its KV has none. */
  scopeAt(scope: CallerScope, tokens: number): CheckedScope | string {
    const { regimes } = this.#parts;
    if (regimes === undefined) return { ...scope, mostTokens: Number.POSITIVE_INFINITY };
    const regime = regimeAt(regimes, tokens);
    if (regime === undefined) return otherAngles(regimes);
    return {
      tenant: scope.tenant,
      extras: { ...scope.extras, [ropeExtra]: regime.name },
      name: `${scope.name} ${regime.name}`,
      mostTokens: regime.mostTokens,
    };
  }

  /**
   * A cache object with the longest stored prefix of a prompt, at most floor((n - 1) / blockTokens) blocks.
   * @param inputIds token ids of one prompt: a tensor of transformers.js, an array, or a typed array
   * @throws TKV_INPUT for malformed ids or options; what the runtime throws, such as TKV_FULL or TKV_STATE
   */
  async restore(inputIds: unknown, options: PrefixScope = {}): Promise<RestoredPrefix> {
    const ids = tokenIds(inputIds, 'inputIds');
    const asked = this.scopeOf(prefixScopeTable.read(options));
    const pastKeyValues = new this.#parts.engine.DynamicCache();
    const scope = this.scopeAt(asked, ids.length);
    if (typeof scope === 'string') return { pastKeyValues, cachedTokens: 0, byTier: [], uncached: scope };
    const { cachedTokens, byTier } = await this.fill(pastKeyValues, ids, scope);
    return { pastKeyValues, cachedTokens, byTier };
  }

  /** Blocks of a prompt that `fill` would restore. */
  found(
    ids: Uint32Array,
    scope: CheckedScope,
  ): { readonly blocks: number; readonly byTier: readonly number[] } {
    const { blockTokens } = this.layout;
    const most = Math.max(0, Math.floor((ids.length - 1) / blockTokens));
    const { tenant, extras } = scope;
    const { blocks, byTier } = this.runtime.lookup(ids.subarray(0, most * blockTokens), { tenant, extras });
    return { blocks, byTier };
  }

  /** Puts the longest stored prefix into an empty cache object. */
  async fill(
    cache: EngineCache,
    ids: Uint32Array,
    scope: CheckedScope,
  ): Promise<{ readonly cachedTokens: number; readonly byTier: readonly number[] }> {
    const match = this.found(ids, scope);
    const layout = this.layout;
    const { blockTokens } = layout;
    let tokens = 0;
    if (match.blocks > 0) {
      // one token more, since the last one is always left to compute
      const sequence = await this.#beginWithin(ids, match.blocks, 1, scope);
      try {
        const blocks = Math.floor(sequence.cachedTokens / blockTokens);
        tokens = blocks * blockTokens;
        if (blocks > 0) cache.update(await this.#tensorsOf(sequence, blocks));
      } finally {
        this.runtime.release(sequence);
      }
    }
    this.remember(cache, ids.slice(0, tokens), scope);
    return { cachedTokens: tokens, byTier: tokens === 0 ? match.byTier.map(() => 0) : match.byTier };
  }

  /**
   * Copies the full blocks of a cache object that are not stored yet into the runtime.
   * @param inputIds all tokens whose KV the cache object holds, from the first on; more may follow
   * @throws TKV_INPUT naming what does not fit: ids that are not the cache's, a tensor of other dims, a cache of another
   * model or tenant. TKV_FULL where blocks in use leave no room, TKV_STATE after `close`
   */
  async save(inputIds: unknown, pastKeyValues: EngineCache, options: PrefixScope = {}): Promise<SavedPrefix> {
    const ids = tokenIds(inputIds, 'ids');
    const asked = this.scopeOf(prefixScopeTable.read(options));
    if (!isCache(pastKeyValues)) {
      throw inputError(
        'pastKeyValues',
        `must be a DynamicCache, and it is ${described(pastKeyValues)}. Pass what restore gave.`,
      );
    }
    const { regimes } = this.#parts;
    const tokens = lengthOf(pastKeyValues);
    // of a longer cache object only generate knows in which regime each of its tokens was computed
    const isMixed = regimes !== undefined && tokens >= regimes.tokens;
    const scope = isMixed ? otherAngles(regimes) : this.scopeAt(asked, tokens);
    if (typeof scope === 'string') return { savedBlocks: 0, blocks: 0, uncached: scope };
    const why = this.mismatch(pastKeyValues, ids, scope);
    if (why !== undefined) {
      const remedy = 'Pass the cache object with the ids, tenant and model that it was computed with.';
      throw new TierKVError('TKV_INPUT', `${why.problem}. ${remedy}`, { field: why.field });
    }
    return this.store(ids, pastKeyValues, scope);
  }

  /** `save` of what was checked. */
  async store(ids: Uint32Array, cache: EngineCache, scope: CheckedScope): Promise<SavedPrefix> {
    const { runtime, layout } = this;
    const { shape, engine } = this.#parts;
    const { tenant, extras } = scope;
    const tokens = lengthOf(cache);
    const blocks = Math.floor(Math.min(tokens, scope.mostTokens) / layout.blockTokens);
    if (tokens > 0) requireEntries(shape, layout, entriesOf(cache), tokens);
    const stored = ids.subarray(0, blocks * layout.blockTokens);
    const before = runtime.lookup(stored, { tenant, extras }).blocks;
    let savedBlocks = 0;
    let within = before;
    if (before < blocks) {
      const entries = entriesOf(cache);
      const buffers = buffersOfEntries(shape, entries);
      const device = buffers === undefined ? undefined : await engineDevice(engine);
      const copies = buffers === undefined ? undefined : await this.#sharedDevice(device);
      const layers = copies === undefined ? await bytesOfEntries(shape, layout, entries, tokens, device) : [];
      const sequence = await this.#beginWithin(ids, blocks, 0, scope);
      try {
        const open = runtime.openBlocks(sequence).map(({ index }) => index);
        savedBlocks = open.length;
        if (copies !== undefined && buffers !== undefined) {
          const places = placesOf(runtime.deviceBlockTable(sequence));
          await copies.scatter(
            buffers,
            tokens,
            open.map((index) => places[index]),
          );
        } else {
          for (const index of open) {
            runtime.writeBlock(sequence, index, (bytes) =>
              copyBlock('block', layout, bytes, layers, tokens, index),
            );
          }
        }
        if ((await runtime.seal(sequence)) !== 'done') savedBlocks = 0;
        within = sequence.blocks;
      } finally {
        runtime.release(sequence);
      }
    }
    this.remember(cache, ids.slice(0, tokens), scope);
    return { savedBlocks, blocks: Math.max(before, savedBlocks === 0 ? 0 : within) };
  }

  /** Begins with `blocks` blocks, or with as many of the leading ones as the runtime can hold at all. */
  async #beginWithin(
    ids: Uint32Array,
    blocks: number,
    more: number,
    { tenant, extras }: CheckedScope,
  ): ReturnType<KVRuntime['begin']> {
    for (let count = blocks; ; count = Math.floor(count / 2)) {
      try {
        const tokens = ids.subarray(0, count * this.layout.blockTokens + more);
        return await this.runtime.begin(tokens, { tenant, extras, shareWaitMs: 0 });
      } catch (error) {
        if (count === 1 || !(error instanceof TierKVError) || error.code !== 'TKV_CAPACITY') throw error;
      }
    }
  }

  // The content of cache objects.

  remember(cache: EngineCache, ids: Uint32Array, scope: CheckedScope): void {
    knownCaches.set(cache, { owner: this.identity, scope: scope.name, ids });
  }

  /** The cache object is in use, or in a state that nothing is known of. */
  forget(cache: EngineCache): void {
    knownCaches.delete(cache);
  }

  /** Whether it is known of which tokens all KV in the cache object is. */
  knows(cache: EngineCache): boolean {
    return knownCaches.get(cache)?.ids.length === lengthOf(cache);
  }

  /** Why a cache object cannot be the KV of the first of `ids`; undefined where it is, or nothing speaks against it. */
  mismatch(
    cache: EngineCache,
    ids: Uint32Array,
    scope: CheckedScope,
  ): { readonly field: string; readonly problem: string } | undefined {
    const tokens = lengthOf(cache);
    if (tokens > ids.length) {
      return {
        field: 'ids',
        problem: `ids has ${ids.length} tokens, and the cache object holds ${tokens}`,
      };
    }
    const known = knownCaches.get(cache);
    if (known === undefined) return undefined;
    if (tokens < known.ids.length) {
      return {
        field: 'pastKeyValues',
        problem: `pastKeyValues holds ${tokens} tokens, and held ${known.ids.length} before`,
      };
    }
    if (known.owner !== this.identity) {
      return { field: 'pastKeyValues', problem: 'pastKeyValues belongs to another model' };
    }
    if (known.scope !== scope.name) {
      return {
        field: 'tenant',
        problem: 'pastKeyValues belongs to another tenant, to other extras or to another length',
      };
    }
    const differs = known.ids.findIndex((id, i) => ids[i] !== id);
    if (differs === -1) return undefined;
    return {
      field: 'ids',
      problem: `ids does not match the cache object: token ${differs} is ${ids[differs]}, and it holds ${known.ids[differs]}`,
    };
  }

  /** Why the tensors of a cache object cannot be used; undefined where they can. */
  damage(cache: EngineCache): string | undefined {
    try {
      requireEntries(this.#parts.shape, this.layout, entriesOf(cache), lengthOf(cache));
      return undefined;
    } catch (error) {
      return (error as Error).message;
    }
  }

  /** Tensors of the first `blocks` blocks: on the session's device where the blocks lie there too, else in host memory. */
  async #tensorsOf(sequence: KVSequence, blocks: number): Promise<Record<string, EngineTensor>> {
    const { runtime, layout } = this;
    const { shape, engine } = this.#parts;
    const tokens = blocks * layout.blockTokens;
    const type = shape.tensorType;
    const dims = [1, shape.kvHeads, tokens, shape.headDim];
    const isOnDevice = shape.session.config?.device === 'webgpu';
    const device = isOnDevice ? await engineDevice(engine) : undefined;
    const copies = await this.#sharedDevice(device);
    let tensors: EngineTensor[];
    if (copies !== undefined) {
      const places = placesOf(runtime.deviceBlockTable(sequence)).slice(0, blocks);
      const bytes = copies.tensorBytes(tokens);
      tensors = (await copies.gather(places, tokens)).map((buffer) => {
        const download = async (): Promise<unknown> =>
          this.#elements(await readBuffer(copies.device, buffer, bytes));
        return tensorOver(engine, buffer, { type, dims, download });
      });
    } else {
      const layers = denseLayers(layout, tokens);
      await runtime.readBlocks(sequence, blocks, (bytes, i) =>
        copyBlock('tensors', layout, bytes, layers, tokens, i),
      );
      tensors = layers
        .flatMap(({ key, value }) => [key, value])
        .map((bytes) => new engine.Tensor(type as never, this.#elements(bytes) as never, dims));
    }
    const names = shape.names.flatMap(({ key, value }) => [key, value]);
    return Object.fromEntries(names.map((name, i) => [name, tensors[i]]));
  }

  #elements({ buffer }: Uint8Array): Float32Array | Uint16Array {
    return this.#parts.shape.tensorType === 'float32' ? new Float32Array(buffer) : new Uint16Array(buffer);
  }

  /** Copies on the session's device, where the runtime's blocks lie on the same one. */
  async #sharedDevice(device: GPUDevice | undefined): Promise<DeviceCopies | undefined> {
    const { stores } = this.runtime;
    const { live } = stores;
    if (device === undefined || live?.device !== device) return undefined;
    const { slabs } = stores.pool;
    if (this.#copies?.slabs !== slabs) {
      // only where blocks and tensors share a device
      const opened = import('./deviceCopies.ts').then((module) =>
        module.DeviceCopies.open(live, slabs, this.layout),
      );
      const copies = { slabs, opened };
      this.#copies = copies;
      opened.catch(() => {
        if (this.#copies === copies) this.#copies = undefined; // the next call tries again
      });
    }
    return await this.#copies.opened;
  }

  /**
   * Makes what is cached durable in the files; it stays where it is. @returns blocks that the files hold; 0 without files
   * @throws TKV_IO when not all could be kept, with how many blocks are and how many are not (`KVRuntime.save`)
   */
  persist(options?: SaveOptions): Promise<number> {
    return this.runtime.save(options);
  }

  /**
   * Makes what is cached durable and closes the runtime, unless the runtime was given. Where the files are full, older
   * blocks go for it. @throws TKV_IO when not all could be kept; the runtime is closed then too
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    if (!this.#parts.ownsRuntime) return;
    try {
      await this.runtime.save({ whenFull: 'replace' });
    } finally {
      await this.runtime.close();
    }
  }
}

function otherAngles({ kind, tokens }: RopeRegimes): string {
  return `RoPE of this model (${kind}) has other angles from ${tokens} tokens on`;
}

function placesOf({ entries, blocks }: DeviceBlockTable): DensePlace[] {
  return Array.from({ length: blocks }, (_, index) => ({
    index,
    slab: entries[2 * index],
    offsetBytes: entries[2 * index + 1],
  }));
}

/** Tokens that a cache object holds. */
export function lengthOf(cache: EngineCache): number {
  return Object.keys(cache).length === 0 ? 0 : cache.get_seq_length();
}

function textOfBytes(_: string, value: unknown): unknown {
  return value instanceof Uint8Array ? { bytes: hexOf(value) } : value;
}

/**
 * Token ids of one sequence.
 * @throws TKV_INPUT for several sequences, and for ids that are not integers from 0 to 2^32 - 1
 */
export function tokenIds(inputIds: unknown, field: string): Uint32Array {
  const isTensor =
    typeof inputIds === 'object' && inputIds !== null && 'dims' in inputIds && 'data' in inputIds;
  const list = isTensor ? (inputIds as EngineTensor).data : inputIds;
  if (isTensor) {
    const { dims } = inputIds as EngineTensor;
    if (dims.length > 2 || (dims.length === 2 && dims[0] !== 1)) {
      throw inputError(field, `must be one sequence, and it is [${dims.join(', ')}]. Pass each one apart.`);
    }
  }
  if (!Array.isArray(list) && !ArrayBuffer.isView(list)) {
    throw inputError(
      field,
      `must be token ids, and it is ${described(inputIds)}. Pass input_ids of a tokenizer.`,
    );
  }
  const values = list as ArrayLike<number | bigint>;
  const ids = new Uint32Array(values.length);
  for (let i = 0; i < ids.length; i++) {
    const id = Number(values[i]);
    if (!Number.isInteger(id) || id < 0 || id > 0xffffffff) {
      throw inputError(
        `${field}[${i}]`,
        `must be an integer from 0 to 2^32 - 1, and it is ${described(values[i])}. Pass token ids.`,
      );
    }
    ids[i] = id;
  }
  return ids;
}
