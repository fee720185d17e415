/**
 * A model of transformers.js whose `generate` finds prefixes in the tiers, and puts what it computed there. All else of
 * the model is the model's own: streamers, chat sessions and pipelines work as before.
 *
 * The prefix cache never makes a call fail: whatever goes wrong in it is told, and the model computes. Only options that
 * are malformed end a call.
 */

import { guarded } from '../../backends/guarded.ts';
import { hexOf } from '../../embed/assembly.ts';
import type { KVRuntimeConfig } from '../../embed/config.ts';
import { KVRuntime } from '../../embed/kvRuntime.ts';
import { configError } from '../../runtime/errors.ts';
import { layoutFingerprint, requireLayout } from '../../runtime/geometry/layout.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import { type OwnRuntime, ownNames, ownSettings } from '../runtimeSettings.ts';
import {
  type DecoderModel,
  type EngineCache,
  type EngineModule,
  type EngineTensor,
  isCache,
  loadEngine,
} from './engine.ts';
import { identityOf } from './identity.ts';
import { layoutOfShape, type ModelShape, shapeOfModel } from './modelShape.ts';
import {
  type CheckedScope,
  lengthOf,
  PrefixCache,
  type PrefixCounters,
  type PrefixScope,
  type PrefixTurn,
  tokenIds,
} from './prefixCache.ts';
import { ropeRegimesOf } from './ropeRegime.ts';
import { weightsOf } from './weights.ts';

/** Either `runtime`, or the settings of one: `secretKey`, `ddrBytes`, `nvme` and the others of `KVRuntime.open`. */
export interface PrefixCacheOptions extends PrefixScope, Partial<OwnRuntime> {
  /** The model's directory, or its ONNX file. The content of all files that it names is part of the keys. */
  readonly weights: string | readonly string[];
  /** A runtime without a device, whose layout is `layoutOf(model)`. It stays yours to close. */
  readonly runtime?: KVRuntime | undefined;
  /** Tokens of a block, where no runtime is given. Default 16. */
  readonly blockTokens?: number | undefined;
  /** A text that tells this model from an earlier one with the same files. Default: none. */
  readonly revision?: string | undefined;
  /** Cache objects of past turns that are kept as they are, for chats that go on. Default 1. */
  readonly liveCaches?: number | undefined;
  /** The module `@huggingface/transformers`, where it must not be imported by its name. */
  readonly transformers?: EngineModule | undefined;
  /** Receives each turn. */
  readonly report?: ((turn: PrefixTurn) => void) | undefined;
  /** Receives lines that a person should see. */
  readonly notice?: ((line: string) => void) | undefined;
  /** In a page alone, as for `openInBrowser`; refused in Node. There `weights` are addresses. */
  readonly filesElse?: 'fail' | 'without';
}

const cacheTable = optionTable(
  {
    tenant: is.optional(is.name('Leave it out to name one at each call.')),
    extras: is.optional(is.object()),
    weights: is.passed(),
    runtime: is.optional(is.passed()),
    blockTokens: is.optional(is.passed(), 16),
    revision: is.optional(is.name('Leave it out for none.')),
    liveCaches: is.optional(is.integer(0), 1),
    transformers: is.optional(is.passed()),
    report: is.optional(is.func()),
    notice: is.optional(is.func()),
  } satisfies Kinds<Omit<PrefixCacheOptions, keyof OwnRuntime | 'filesElse'>>,
  'TKV_CONFIG',
);

/** Options of one call of `generate` for the prefix cache. */
interface TurnOptions extends PrefixScope {
  readonly report?: ((turn: PrefixTurn) => void) | undefined;
}

const turnTable = optionTable({
  tenant: is.optional(is.passed()),
  extras: is.optional(is.passed()),
  report: is.optional(is.func()),
} satisfies Kinds<TurnOptions>);

/** A model with its prefix cache. `generate` takes `prefixCache: { tenant, extras, report }`, or `false`, besides. */
export type CachedModel<Model extends DecoderModel> = Model & {
  readonly prefixCache: PrefixCache & { readonly counters: PrefixCounters };
};

/**
 * Gives a model whose `generate` restores prefixes and saves them. The model itself is left as it is.
 * @throws TKV_CONFIG naming the option at fault, the kind of a model that cannot be served, or what differs from the
 * runtime's layout; what `KVRuntime.open` throws
 */
export function withPrefixCache<Model extends DecoderModel>(
  model: Model,
  options: PrefixCacheOptions,
): Promise<CachedModel<Model>> {
  return cachedModel(model, options, KVRuntime.open);
}

/** Opens the runtime of a model, beside its engine. */
type OpenBeside = (config: KVRuntimeConfig, engine: EngineModule) => Promise<KVRuntime>;

/** `withPrefixCache` with its way to open a runtime. */
export async function cachedModel<Model extends DecoderModel>(
  model: Model,
  options: PrefixCacheOptions,
  open: OpenBeside,
): Promise<CachedModel<Model>> {
  const read = cacheTable.read(options, 'options', undefined, ownNames());
  const { runtime: given, liveCaches, revision } = read;
  const notice = guarded(read.notice);
  const shape = shapeOfModel(model);
  const regimes = ropeRegimesOf(model.config);
  const engine = await loadEngine(options.transformers);
  const { dtype, device } = shape.session.config ?? {};
  const versions = versionsOf(engine);
  const identity = identityOf({
    weights: await weightsOf(options.weights, { model, shape, engine, versions, notice }),
    dtype,
    device,
    revision,
    config: model.config,
    engine: versions,
  });
  const runtime =
    given === undefined
      ? await open(runtimeConfig(options, shape, identity), engine)
      : checkedRuntime(given, options, shape);
  const { tenant, extras } = options;
  const cache = new PrefixCache({
    runtime,
    ownsRuntime: given === undefined,
    shape,
    engine,
    identity,
    regimes,
    tenant,
    extras,
  });
  return new CachedCalls(model, cache, engine, { liveCaches, notice, report: options.report }).proxy();
}

function versionsOf({ env }: EngineModule): string {
  const { version, backends } = env as {
    readonly version?: string;
    readonly backends?: { readonly onnx?: { readonly versions?: object } };
  };
  return JSON.stringify([version, backends?.onnx?.versions]);
}

function runtimeConfig(
  options: PrefixCacheOptions,
  shape: ModelShape,
  identity: Uint8Array,
): KVRuntimeConfig {
  const { blockTokens = 16, notice } = options;
  return {
    ...ownSettings(options),
    layout: layoutOfShape(shape, blockTokens),
    model: `transformers.js ${hexOf(identity)}`,
    ...(notice === undefined ? {} : { notice }),
  };
}

function checkedRuntime(runtime: KVRuntime, options: PrefixCacheOptions, shape: ModelShape): KVRuntime {
  const layout = (runtime as KVRuntime | null)?.layout;
  if (layout === undefined) {
    throw configError('runtime', 'must be a KVRuntime', 'Pass what KVRuntime.open gave.');
  }
  const own = [...ownNames(), 'blockTokens'].find((name) => name in options);
  if (own !== undefined) {
    throw configError(
      own,
      'is given beside runtime',
      'Set it where the runtime is opened, or leave runtime out.',
    );
  }
  requireLayout(layout, layoutFingerprint(layoutOfShape(shape, layout.blockTokens)));
  return runtime;
}

type GenerateOptions = Record<string, unknown> & {
  readonly inputs?: unknown;
  readonly input_ids?: unknown;
  readonly attention_mask?: unknown;
  readonly past_key_values?: unknown;
};

/** Inputs of `generate` that the KV depends on, and that say more than token ids. */
const otherInputs = [
  'position_ids',
  'inputs_embeds',
  'encoder_outputs',
  'decoder_input_ids',
  'token_type_ids',
  'pixel_values',
  'input_features',
  'audio_values',
];

/** A cache object that no caller holds, of a turn that may go on. */
interface LiveCache {
  readonly cache: EngineCache;
  readonly ids: Uint32Array;
  readonly scope: string;
}

/** The prompt of a call that the prefix cache can serve. */
interface ServedPrompt {
  readonly ids: Uint32Array;
  /** The caller's own cache object. */
  readonly given: EngineCache | undefined;
}

class CachedCalls<Model extends DecoderModel> {
  readonly #model: Model;
  readonly #cache: PrefixCache;
  readonly #engine: EngineModule;
  readonly #liveMost: number;
  readonly #notice: (line: string) => void;
  readonly #report: ((turn: PrefixTurn) => void) | undefined;
  /** The one used last is last. */
  readonly #live: LiveCache[] = [];
  #counters: PrefixCounters = {
    turns: 0,
    promptTokens: 0,
    liveTokens: 0,
    restoredTokens: 0,
    savedBlocks: 0,
    uncached: 0,
  };

  constructor(
    model: Model,
    cache: PrefixCache,
    engine: EngineModule,
    settings: {
      readonly liveCaches: number;
      readonly notice: (line: string) => void;
      readonly report: ((turn: PrefixTurn) => void) | undefined;
    },
  ) {
    this.#model = model;
    this.#cache = cache;
    this.#engine = engine;
    this.#liveMost = settings.liveCaches;
    this.#notice = settings.notice;
    this.#report = settings.report;
    Object.defineProperty(cache, 'counters', { get: () => this.#counters });
  }

  /** The model in all respects but `generate`. */
  proxy(): CachedModel<Model> {
    const generate = (options: GenerateOptions = {}): Promise<unknown> => this.#generate(options);
    return new Proxy(this.#model, {
      get: (model, name, receiver) => {
        if (name === 'generate') return generate;
        return name === 'prefixCache' ? this.#cache : Reflect.get(model, name, receiver);
      },
      has: (model, name) => name === 'prefixCache' || Reflect.has(model, name),
    }) as CachedModel<Model>;
  }

  async #generate({ prefixCache, ...options }: GenerateOptions): Promise<unknown> {
    if (prefixCache === false) return this.#compute(options);
    const { report = this.#report, ...asked } = turnTable.read(prefixCache ?? {}, 'prefixCache');
    const caller = this.#cache.scopeOf(asked);
    const prompt = this.#promptOf(options);
    const scope = typeof prompt === 'string' ? prompt : this.#cache.scopeAt(caller, prompt.ids.length);
    if (typeof prompt === 'string' || typeof scope === 'string') {
      const result = await this.#compute(options);
      const tokens = typeof prompt === 'string' ? 0 : prompt.ids.length;
      this.#tell(turnOf(tokens, { uncached: String(scope) }), report);
      return result;
    }
    return this.#serve(options, prompt, scope, report);
  }

  #compute(options: object): Promise<unknown> {
    return this.#model.generate(options as never);
  }

  async #serve(
    options: GenerateOptions,
    { ids, given }: ServedPrompt,
    scope: CheckedScope,
    report: TurnOptions['report'],
  ): Promise<unknown> {
    const start = await this.#start(ids, given, scope);
    const { cache } = start;
    this.#cache.forget(cache); // until it is known again what it holds
    let result: unknown;
    try {
      result = await this.#compute({
        ...options,
        attention_mask: options.attention_mask ?? this.#mask(ids.length),
        past_key_values: cache,
      });
    } catch (error) {
      if (given === undefined) await cache.dispose();
      throw error;
    }
    const returned = isReturned(result);
    const all = tokenIds(isReturned(result) ? result.sequences : result, 'sequences');
    const turn = { ...start.turn, ...(await this.#keep(all, cache, scope, start.turn.uncached)) };
    if (given === undefined && !returned) await this.#keepLive(cache, all, scope);
    this.#tell(turn, report);
    return result;
  }

  /** The cache object with which the model begins. */
  async #start(
    ids: Uint32Array,
    given: EngineCache | undefined,
    scope: CheckedScope,
  ): Promise<{ readonly cache: EngineCache; readonly turn: PrefixTurn }> {
    const cache = given ?? new this.#engine.DynamicCache();
    let uncached: string | undefined;
    if (given !== undefined && lengthOf(given) > 0) {
      const tokens = lengthOf(given);
      const why =
        this.#cache.mismatch(given, ids, scope)?.problem ??
        this.#cache.damage(given) ??
        (tokens < ids.length
          ? undefined
          : 'it holds the whole prompt, and one token must be left to compute');
      if (why === undefined) {
        return { cache, turn: turnOf(ids.length, { from: 'live', cachedTokens: tokens }) };
      }
      uncached = `past_key_values was emptied: ${why}`;
      await empty(given);
    }
    try {
      const live = given === undefined ? await this.#takeLive(ids, scope) : undefined;
      if (live !== undefined) {
        return {
          cache: live.cache,
          turn: turnOf(ids.length, { from: 'live', cachedTokens: live.ids.length }),
        };
      }
      const { cachedTokens, byTier } = await this.#cache.fill(cache, ids, scope);
      const from = cachedTokens > 0 ? 'restored' : 'computed';
      return { cache, turn: turnOf(ids.length, { from, cachedTokens, byTier, uncached }) };
    } catch (error) {
      await empty(cache);
      return { cache, turn: turnOf(ids.length, { uncached: this.#told('nothing was restored', error) }) };
    }
  }

  /** Saves what a turn computed. A fault of the runtime costs no answer. */
  async #keep(
    all: Uint32Array,
    cache: EngineCache,
    scope: CheckedScope,
    before: string | undefined,
  ): Promise<{ readonly savedBlocks: number; readonly uncached: string | undefined }> {
    const tokens = lengthOf(cache);
    // the last token was sampled and not computed
    if (tokens !== all.length - 1) {
      const uncached = `the cache object holds ${tokens} tokens after ${all.length - 1} were computed, as sliding windows do`;
      return { savedBlocks: 0, uncached };
    }
    try {
      const { savedBlocks } = await this.#cache.store(all, cache, scope);
      return { savedBlocks, uncached: before };
    } catch (error) {
      this.#cache.remember(cache, all.slice(0, tokens), scope);
      return { savedBlocks: 0, uncached: this.#told('nothing was saved', error) };
    }
  }

  #told(what: string, error: unknown): string {
    const why = error instanceof Error ? error.message : String(error);
    const line = `${what}: ${why}`;
    this.#notice(`tierkv/transformers: ${line}`);
    return line;
  }

  #tell(turn: PrefixTurn, report: TurnOptions['report']): void {
    const sum = this.#counters;
    this.#counters = {
      turns: sum.turns + 1,
      promptTokens: sum.promptTokens + turn.promptTokens,
      liveTokens: sum.liveTokens + (turn.from === 'live' ? turn.cachedTokens : 0),
      restoredTokens: sum.restoredTokens + (turn.from === 'restored' ? turn.cachedTokens : 0),
      savedBlocks: sum.savedBlocks + turn.savedBlocks,
      uncached: sum.uncached + (turn.uncached === undefined ? 0 : 1),
    };
    guarded(report)(turn); // the answer is there, whatever becomes of this
  }

  /** The prompt of a call, or why the prefix cache cannot serve it. */
  #promptOf(options: GenerateOptions): ServedPrompt | string {
    const other = otherInputs.find((name) => options[name] !== undefined && options[name] !== null);
    if (other !== undefined) return `${other} is given, on which KV may depend`;
    const input = (options.inputs ?? options.input_ids) as EngineTensor | undefined | null;
    if (typeof input !== 'object' || input === null || !Array.isArray(input.dims)) {
      return 'there are no input_ids';
    }
    const { dims } = input;
    if (dims.length !== 2 || dims[0] !== 1) return `input_ids has ${dims[0]} sequences, and one is served`;
    const mask = options.attention_mask as EngineTensor | undefined | null;
    if (mask !== undefined && mask !== null) {
      const isWhole =
        mask.dims?.[1] === dims[1] &&
        Array.from(mask.data as BigInt64Array).every((each) => Number(each) === 1);
      if (!isWhole) return 'attention_mask hides tokens, or is longer than input_ids';
    }
    const past = options.past_key_values;
    if (past === undefined || past === null) return { ids: tokenIds(input, 'input_ids'), given: undefined };
    if (!isCache(past)) return 'past_key_values is not a DynamicCache';
    if (lengthOf(past) > 0 && !this.#cache.knows(past)) {
      return 'past_key_values holds tokens that the prefix cache has not seen';
    }
    return { ids: tokenIds(input, 'input_ids'), given: past };
  }

  #mask(tokens: number): EngineTensor {
    return new this.#engine.Tensor('int64' as never, new BigInt64Array(tokens).fill(1n) as never, [
      1,
      tokens,
    ]);
  }

  // Cache objects that no caller holds.

  /** The live cache that holds the most of a prompt, unless blocks hold more. */
  async #takeLive(ids: Uint32Array, scope: CheckedScope): Promise<LiveCache | undefined> {
    const fits = this.#live
      .filter((live) => live.scope === scope.name && live.ids.length < ids.length)
      .filter((live) => live.ids.every((id, i) => ids[i] === id))
      .sort((a, b) => b.ids.length - a.ids.length);
    const [longest] = fits;
    if (longest === undefined) return undefined;
    const { blocks } = this.#cache.found(ids, scope);
    if (blocks * this.#cache.layout.blockTokens > longest.ids.length) return undefined;
    this.#live.splice(this.#live.indexOf(longest), 1);
    return longest;
  }

  async #keepLive(cache: EngineCache, all: Uint32Array, scope: CheckedScope): Promise<void> {
    if (!this.#cache.knows(cache)) {
      await cache.dispose();
      return;
    }
    this.#live.push({ cache, ids: all.slice(0, lengthOf(cache)), scope: scope.name });
    while (this.#live.length > this.#liveMost) await this.#live.shift()?.cache.dispose();
  }
}

function turnOf(promptTokens: number, facts: Partial<PrefixTurn>): PrefixTurn {
  return { promptTokens, cachedTokens: 0, from: 'computed', byTier: [], savedBlocks: 0, ...facts };
}

function isReturned(result: unknown): result is { readonly sequences: unknown } {
  return typeof result === 'object' && result !== null && 'sequences' in result;
}

/** Takes all tensors out of a cache object, which its owner keeps. */
async function empty(cache: EngineCache): Promise<void> {
  await cache.dispose();
  // a cache of the package has a property for each tensor, by names that its type does not know
  for (const name of Object.keys(cache)) delete (cache as unknown as Record<string, unknown>)[name];
}
