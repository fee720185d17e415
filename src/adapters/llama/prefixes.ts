/**
 * A model of llama.cpp whose prompts find their prefixes in the tiers: several conversations on few sequences, within the tiers'
 * bytes, and going on after a restart.
 *
 *     begin: a free sequence -> what it still holds, or blocks out of the tiers -> the rest is the caller's to evaluate
 *     end:   the state of the sequence -> its new full blocks into the tiers -> free for the next prompt
 *
 * The model is loaded here and not given, so that its file is all that its KV comes of: the content of the file, llama.cpp's
 * release, the device and the types of K and V are in the keys. A block that is damaged is not found, by its digest: llama.cpp
 * itself loads a state with a flipped byte without a word. A fault of the tiers costs no answer: it is told, and the model computes.
 */

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import fs from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { guarded } from '../../backends/guarded.ts';
import { KVRuntime } from '../../embed/kvRuntime.ts';
import type { KVSequence } from '../../embed/sequenceState.ts';
import { described, inputError, TierKVError } from '../../runtime/errors.ts';
import { type KVLayout, kvLayout } from '../../runtime/geometry/layout.ts';
import type { RequestExtras } from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import { type OwnRuntime, ownNames, ownSettings } from '../runtimeSettings.ts';
import {
  type LlamaContext,
  type LlamaEngine,
  type LlamaModel,
  type LlamaSequence,
  removeLeftFiles,
  savedState,
  withFile,
} from './engine.ts';
import { copyRows, readState, rowsText, type StateShape, StateWriter, tokenBytes } from './stateFile.ts';

/** Settings of a runtime beside the model's: `secretKey`, `ddrBytes`, `nvme` and the others of `KVRuntime.open`. */
export interface LlamaPrefixOptions extends Partial<OwnRuntime> {
  /** The result of `getLlama` of node-llama-cpp. It stays yours to dispose of. */
  readonly llama: LlamaEngine;
  /** Path of the GGUF file; of a model in several files, of the first. Their content is part of the keys. */
  readonly model: string;
  /** Tokens that each sequence holds. */
  readonly contextSize: number;
  /** Prompts that are under way at once; further ones wait. Default 1. */
  readonly sequences?: number | undefined;
  /** Tokens of a block. Default 16. */
  readonly blockTokens?: number | undefined;
  /** Threads of llama.cpp. More than there are free cores make it many times slower. Default: the cores of this machine. */
  readonly threads?: number | undefined;
  /**
   * Whether attention is computed in one pass, which is faster on long prompts. On a processor its bits then depend on how a prompt was cut, so
   * that an answer after a hit may differ from one without. Default false.
   */
  readonly flashAttention?: boolean | undefined;
  /** Who shares prefixes, where a call names no tenant. */
  readonly tenant?: string | undefined;
  /** Receives lines that a person should see. */
  readonly notice?: ((line: string) => void) | undefined;
}

const optionTableOfPrefixes = optionTable(
  {
    llama: is.object(),
    model: is.name('Name the GGUF file.'),
    contextSize: is.integer(2),
    sequences: is.optional(is.integer(1, 256), 1),
    blockTokens: is.optional(is.integer(1), 16),
    threads: is.optional(is.integer(1), availableParallelism()),
    flashAttention: is.optional(is.flag(), false),
    tenant: is.optional(is.name('Leave it out to name one at each call.')),
    notice: is.optional(is.func()),
  } satisfies Kinds<Omit<LlamaPrefixOptions, keyof OwnRuntime>>,
  'TKV_CONFIG',
);

/** Whose prompt it is. */
interface BeginLlamaOptions {
  /** From your own authentication. Default: the one given to `LlamaPrefixes.open`. */
  readonly tenant?: string | undefined;
  /** Ends the wait for a sequence. */
  readonly signal?: AbortSignal | undefined;
}

const beginTable = optionTable({
  tenant: is.optional(is.passed()),
  signal: is.optional(is.signal()),
} satisfies Kinds<BeginLlamaOptions>);

/** A prompt that has a sequence, until `end`. */
export interface LlamaTurn {
  /** The sequence of node-llama-cpp: evaluate `rest` on it, and go on. */
  readonly sequence: LlamaSequence;
  /** Tokens of the prompt that are left to evaluate: two at least, of a prompt that has two. */
  readonly rest: number[];
  /** Tokens from the front whose KV is there. */
  readonly cachedTokens: number;
  /** `live`: the sequence held them; `restored`: they came out of the tiers; `computed`: there were none. */
  readonly from: 'live' | 'restored' | 'computed';
  /** Blocks by the tier that held them, where `from` is `restored`. */
  readonly byTier: readonly number[];
  /**
   * Stores the full blocks of what the sequence holds, and gives it to the next prompt.
   * @param options.keeps false: nothing is stored
   * @returns blocks that were stored
   */
  end(options?: { readonly keeps?: boolean }): Promise<number>;
}

/** A sequence, and whose tokens it holds while it is free. */
interface Seat {
  readonly sequence: LlamaSequence;
  tenant: string | undefined;
  isTaken: boolean;
  /** Grows with each use. */
  usedAt: number;
}

const programExtra = 'llama.program';

/** Prefixes of one model in the tiers. */
export class LlamaPrefixes implements AsyncDisposable {
  readonly model: LlamaModel;
  readonly runtime: KVRuntime;
  /** Tokens that a sequence holds. */
  readonly contextSize: number;
  readonly #context: LlamaContext;
  readonly #shape: StateShape;
  readonly #extras: RequestExtras;
  readonly #tenant: string | undefined;
  readonly #notice: (line: string) => void;
  readonly #seats: readonly Seat[];
  readonly #waiting: ((seat: Seat) => void)[] = [];
  #uses = 0;
  #closed: Promise<number> | undefined;

  private constructor(
    parts: {
      model: LlamaModel;
      context: LlamaContext;
      sequences: readonly LlamaSequence[];
      shape: StateShape;
    },
    runtime: KVRuntime,
    extras: RequestExtras,
    { tenant, notice }: Pick<LlamaPrefixOptions, 'tenant' | 'notice'>,
  ) {
    this.model = parts.model;
    this.#context = parts.context;
    this.#shape = parts.shape;
    this.runtime = runtime;
    this.contextSize = parts.sequences[0].contextSize;
    this.#extras = extras;
    this.#tenant = tenant;
    this.#notice = guarded(notice);
    this.#seats = parts.sequences.map((sequence) => ({
      sequence,
      tenant: undefined,
      isTaken: false,
      usedAt: 0,
    }));
  }

  /**
   * Loads the model and opens its tiers.
   * @throws TKV_CONFIG naming the option at fault, TKV_IO for a file that cannot be read or changes meanwhile, TKV_MISMATCH for a model
   * whose states cannot be taken apart, and what `KVRuntime.open` throws
   */
  static async open(options: LlamaPrefixOptions): Promise<LlamaPrefixes> {
    const read = optionTableOfPrefixes.read(options, 'options', undefined, ownNames());
    const { llama, contextSize, sequences: count, blockTokens, threads, flashAttention } = read;
    const settings = ownSettings(options);
    const files = filesOf(read.model);
    const before = await statesOf(files);
    const weights = await digestOf(files);
    await removeLeftFiles();
    const model = await llama.loadModel({ modelPath: path.resolve(read.model) });
    let context: LlamaContext | undefined;
    try {
      context = await model.createContext({
        contextSize,
        sequences: count,
        flashAttention,
        threads,
      });
      if ((await statesOf(files)).join() !== before.join()) {
        throw new TierKVError('TKV_IO', `${read.model} changed while it was loaded. Open it again.`, {
          field: 'model',
          path: read.model,
        });
      }
      const sequences = Array.from({ length: count }, () => (context as LlamaContext).getSequence());
      const shape = await shapeOf(model, sequences[0]);
      const { repo, release } = llama.llamaCppRelease;
      const program = [
        `${repo} ${release} gpu ${llama.gpu} flash ${flashAttention}`,
        `types ${context.kvCacheKeyType} ${context.kvCacheValueType} rows ${rowsText(shape)} weights ${weights}`,
      ].join(' ');
      const runtime = await KVRuntime.open({
        ...settings,
        layout: layoutOfState(shape, blockTokens),
        model: `llama.cpp ${weights}`,
        ...(options.notice === undefined ? {} : { notice: options.notice }),
      });
      return new LlamaPrefixes(
        { model, context, sequences, shape },
        runtime,
        { [programExtra]: program },
        options,
      );
    } catch (error) {
      await context?.dispose();
      await model.dispose();
      throw error;
    }
  }

  /** Prompts that have a sequence. */
  get running(): number {
    return this.#seats.filter(({ isTaken }) => isTaken).length;
  }

  /**
   * Gives a prompt a sequence that holds as much of it as is known: what the sequence still has, or blocks of the tiers.
   * @throws TKV_INPUT for malformed tokens or a tenant that is missing, TKV_CAPACITY for a prompt that leaves no room in a
   * sequence, TKV_STATE after `close`, and the reason of the signal
   */
  async begin(tokens: ArrayLike<number>, options: BeginLlamaOptions = {}): Promise<LlamaTurn> {
    const { tenant = this.#tenant, signal } = beginTable.read(options);
    is.name('Pass who may share this KV, from your own authentication.').read(tenant as string, 'tenant');
    const prompt = promptOf(tokens, this.contextSize);
    const match = this.runtime.lookup(this.#blocksOf(prompt), {
      tenant: tenant as string,
      extras: this.#extras,
    });
    const seat = await this.#seat(
      prompt,
      tenant as string,
      match.blocks * this.runtime.layout.blockTokens,
      signal,
    );
    try {
      return await this.#begin(seat, prompt, tenant as string);
    } catch (error) {
      this.#release(seat, undefined);
      throw error;
    }
  }

  /**
   * Makes what is cached durable and closes runtime, context and model. Where the files are full, older blocks go for it.
   * @returns blocks that the files hold
   * @throws TKV_IO when not all could be kept; all is closed then too. TKV_STATE while a turn has not ended
   */
  close(): Promise<number> {
    if (this.#closed === undefined && this.running > 0) {
      const message = `${this.running} turns have not ended. End them, and close then.`;
      return Promise.reject(new TierKVError('TKV_STATE', message));
    }
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<number> {
    try {
      return await this.runtime.save({ whenFull: 'replace' });
    } finally {
      await this.runtime.close();
      await this.#context.dispose();
      await this.model.dispose();
    }
  }

  /** Tokens of a prompt that blocks may hold: some are always left to compute. */
  #blocksOf(prompt: readonly number[]): readonly number[] {
    const { blockTokens } = this.runtime.layout;
    const most = Math.max(0, prompt.length - LEFT_TOKENS);
    return prompt.slice(0, Math.floor(most / blockTokens) * blockTokens);
  }

  /** The free sequence that fits best, or the next one that is free. */
  async #seat(
    prompt: readonly number[],
    tenant: string,
    stored: number,
    signal: AbortSignal | undefined,
  ): Promise<Seat> {
    signal?.throwIfAborted();
    if (this.#closed !== undefined)
      throw new TierKVError('TKV_STATE', 'The prefixes are closed. Open them again.');
    const free = this.#seats.filter(({ isTaken }) => !isTaken);
    // what no tier holds should stay: of equals the one used longest ago
    const worth = (seat: Seat): number => {
      const live = liveTokens(seat, prompt, tenant);
      return live > stored ? live : 0;
    };
    const [best] = free.toSorted((a, b) => worth(b) - worth(a) || a.usedAt - b.usedAt);
    if (best !== undefined) {
      best.isTaken = true;
      return best;
    }
    const { promise, resolve, reject } = Promise.withResolvers<Seat>();
    this.#waiting.push(resolve);
    const leave = (): void => {
      const at = this.#waiting.indexOf(resolve);
      if (at === -1) return;
      this.#waiting.splice(at, 1);
      reject(signal?.reason);
    };
    signal?.addEventListener('abort', leave);
    try {
      return await promise;
    } finally {
      signal?.removeEventListener('abort', leave);
    }
  }

  #release(seat: Seat, tenant: string | undefined): void {
    seat.tenant = tenant;
    seat.usedAt = ++this.#uses;
    const next = this.#waiting.shift();
    if (next === undefined) seat.isTaken = false;
    else next(seat);
  }

  async #begin(seat: Seat, prompt: readonly number[], tenant: string): Promise<LlamaTurn> {
    const { sequence } = seat;
    const live = liveTokens(seat, prompt, tenant);
    const known = sequence.contextTokens.length;
    let turn: Pick<LlamaTurn, 'cachedTokens' | 'from' | 'byTier'>;
    const restored = await this.#restore(sequence, prompt, tenant, live);
    if (restored !== undefined) turn = restored;
    else if (live > 0) {
      if (live < known) await sequence.eraseContextTokenRanges([{ start: live, end: known }]);
      turn = { cachedTokens: sequence.contextTokens.length, from: 'live', byTier: [] };
    } else {
      await sequence.clearHistory();
      turn = { cachedTokens: 0, from: 'computed', byTier: [] };
    }
    let ended: Promise<number> | undefined;
    return {
      ...turn,
      sequence,
      rest: prompt.slice(turn.cachedTokens),
      end: ({ keeps = true } = {}) => {
        ended ??= this.#end(seat, tenant, keeps);
        return ended;
      },
    };
  }

  /** @param least tokens that are there without it; undefined where the tiers have no more */
  async #restore(
    sequence: LlamaSequence,
    prompt: readonly number[],
    tenant: string,
    least: number,
  ): Promise<Pick<LlamaTurn, 'cachedTokens' | 'from' | 'byTier'> | undefined> {
    const { blockTokens } = this.runtime.layout;
    const scope = { tenant, extras: this.#extras };
    const match = this.runtime.lookup(this.#blocksOf(prompt), scope);
    if (match.blocks * blockTokens <= least) return undefined;
    let state: StateWriter | undefined;
    let tokens = 0;
    try {
      const begun = await this.#beginWithin(prompt, match.blocks, 1, tenant);
      try {
        const blocks = Math.floor(begun.cachedTokens / blockTokens);
        tokens = blocks * blockTokens;
        if (tokens > least) {
          const writer = new StateWriter(this.#shape, prompt.slice(0, tokens));
          await this.runtime.readBlocks(begun, blocks, (bytes, i) =>
            writer.put(i * blockTokens, blockTokens, bytes),
          );
          state = writer;
        }
      } finally {
        this.runtime.release(begun);
      }
    } catch (error) {
      this.#told('Nothing was restored', error);
    }
    if (state === undefined) return undefined;
    await sequence.clearHistory();
    try {
      await withFile(state.bytes, (file) => sequence.loadStateFromFile(file, { acceptRisk: true }));
      if (sequence.contextTokens.length === tokens)
        return { cachedTokens: tokens, from: 'restored', byTier: match.byTier };
      throw new Error(`llama.cpp took ${sequence.contextTokens.length} of ${tokens} tokens`);
    } catch (error) {
      this.#told('A state was not taken', error);
      await sequence.clearHistory();
      return { cachedTokens: 0, from: 'computed', byTier: [] };
    }
  }

  async #end(seat: Seat, tenant: string, keeps: boolean): Promise<number> {
    let stored = 0;
    try {
      if (keeps) stored = await this.#store(seat.sequence, tenant);
    } catch (error) {
      this.#told('What was computed is not stored', error);
    } finally {
      this.#release(seat, tenant);
    }
    return stored;
  }

  async #store(sequence: LlamaSequence, tenant: string): Promise<number> {
    const { runtime } = this;
    const { blockTokens } = runtime.layout;
    const held = [...sequence.contextTokens];
    const blocks = Math.floor(held.length / blockTokens);
    const full = held.slice(0, blocks * blockTokens);
    if (blocks === 0 || runtime.lookup(full, { tenant, extras: this.#extras }).blocks === blocks) return 0;
    const state = readState(await savedState(sequence));
    const isSame = state.tokens.length >= full.length && full.every((token, i) => state.tokens[i] === token);
    if (!isSame || rowsText(state.shape) !== rowsText(this.#shape))
      throw new Error('the state is not the one of the sequence');
    const begun = await this.#beginWithin(held, blocks, 0, tenant);
    try {
      const open = runtime.openBlocks(begun);
      for (const { index } of open)
        runtime.writeBlock(begun, index, (bytes) => copyRows(state, index * blockTokens, blockTokens, bytes));
      return (await runtime.seal(begun)) === 'done' ? open.length : 0;
    } finally {
      runtime.release(begun);
    }
  }

  /** Begins with `blocks` blocks, or with as many of the leading ones as the runtime can hold at all. */
  async #beginWithin(
    tokens: readonly number[],
    blocks: number,
    more: number,
    tenant: string,
  ): Promise<KVSequence> {
    for (let count = blocks; ; count = Math.floor(count / 2)) {
      try {
        const asked = tokens.slice(0, count * this.runtime.layout.blockTokens + more);
        return await this.runtime.begin(asked, { tenant, extras: this.#extras, shareWaitMs: 0 });
      } catch (error) {
        if (count <= 1 || !(error instanceof TierKVError) || error.code !== 'TKV_CAPACITY') throw error;
      }
    }
  }

  #told(what: string, error: unknown): void {
    this.#notice(`${what}: ${error instanceof Error ? error.message : described(error)}`);
  }
}

/**
 * Tokens of a prompt that are left to compute at least: llama.cpp computes a single one by other kernels, whose bits differ from
 * those of the same token among others.
 */
const LEFT_TOKENS = 2;

/** Tokens of a prompt that a free sequence still holds, some of it left to compute. */
function liveTokens({ sequence, tenant: owner }: Seat, prompt: readonly number[], tenant: string): number {
  if (owner !== tenant) return 0;
  const held = sequence.contextTokens;
  const most = Math.max(0, Math.min(held.length, prompt.length - LEFT_TOKENS));
  let same = 0;
  while (same < most && held[same] === prompt[same]) same++;
  return same;
}

function promptOf(tokens: ArrayLike<number>, most: number): number[] {
  if (!Array.isArray(tokens) && !ArrayBuffer.isView(tokens))
    throw inputError(
      'tokens',
      `must be token ids, and it is ${described(tokens)}. Pass model.tokenize(text).`,
    );
  const prompt = Array.from(tokens);
  const wrong = prompt.findIndex((id) => !Number.isInteger(id) || id < 0 || id > 0x7fffffff);
  if (wrong !== -1) {
    const given = described(prompt[wrong]);
    throw inputError(
      `tokens[${wrong}]`,
      `must be a token id, and it is ${given}. Pass model.tokenize(text).`,
    );
  }
  if (prompt.length === 0) throw inputError('tokens', 'are empty. Pass a prompt.');
  if (prompt.length < most) return prompt;
  const message = `The prompt has ${prompt.length} tokens, and a sequence holds ${most}. Shorten it, or raise contextSize.`;
  throw new TierKVError('TKV_CAPACITY', message, { field: 'tokens' });
}

/** Bytes as `[layer][K, V][token]`; where layers differ, as one layer. */
function layoutOfState(shape: StateShape, blockTokens: number): KVLayout {
  const { keys, values } = shape;
  const isEven = [keys, values].every((rows) => rows.every(({ rowBytes }) => rowBytes === rows[0].rowBytes));
  const sum = (rows: StateShape['keys']): number => rows.reduce((bytes, { rowBytes }) => bytes + rowBytes, 0);
  const [layers, headDim, valueDim] = isEven
    ? [keys.length, keys[0].rowBytes, values[0].rowBytes]
    : [1, sum(keys), sum(values)];
  return kvLayout({ layers, kvHeads: 1, headDim, valueDim, dtype: 'u8', blockTokens });
}

/** The shape of the states of a context, from one of a few tokens. */
async function shapeOf(model: LlamaModel, sequence: LlamaSequence): Promise<StateShape> {
  if (sequence.needsCheckpoints) {
    const message =
      'This model has layers that are recurrent or see a window of tokens, whose states cannot be cut at a token. Use another model.';
    throw new TierKVError('TKV_CONFIG', message, { field: 'model' });
  }
  const [first] = model.tokenize('a');
  await sequence.evaluateWithoutGeneratingNewTokens([first]);
  const bytes = await savedState(sequence);
  await sequence.clearHistory();
  const { shape } = readState(bytes);
  const state = readState(new StateWriter(shape, [first]).bytes);
  if (tokenBytes(state.shape) !== tokenBytes(shape))
    throw new Error('a state that is written is read otherwise');
  return shape;
}

/** The parts of a model in several files are named by their number. */
function filesOf(model: string): string[] {
  const [, stem, , total] = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/.exec(model) ?? [];
  if (stem === undefined) return [model];
  return Array.from(
    { length: Number(total) },
    (_, i) => `${stem}-${String(i + 1).padStart(5, '0')}-of-${total}.gguf`,
  );
}

async function statesOf(files: readonly string[]): Promise<string[]> {
  return Promise.all(
    files.map(async (file) => {
      try {
        const { ino, size, mtimeNs } = await fs.stat(file, { bigint: true });
        return `${ino} ${size} ${mtimeNs}`;
      } catch (cause) {
        throw new TierKVError(
          'TKV_IO',
          `model ${file} cannot be read. Name a GGUF file, and all of its parts.`,
          {
            field: 'model',
            path: file,
            cause,
          },
        );
      }
    }),
  );
}

async function digestOf(files: readonly string[]): Promise<string> {
  const hash = createHash('sha256');
  for (const file of files) for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex');
}
