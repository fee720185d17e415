/**
 * How blocks leave a runtime for another one, and come into it from there: what `tierkv/serve` works with.
 *
 * - A block that leaves is held: it stays in the top tier, readable, until it is let go. Its bytes are compared with its digest.
 * - A block that comes is put into host memory under its key, and is found and loaded like any other from then on. The device
 *   compares it with its digest when it is loaded, as ever.
 * - Each call is an input of the decision log, so a replay repeats hand-offs with everything else.
 */

import { hkdfSync } from 'node:crypto';
import { hostDigest } from '../backends/host/hostDigest.ts';
import { RecordCodec } from '../backends/remote/sealedRecord.ts';
import type { OpenedTier } from '../backends/tierRow.ts';
import type { Digest } from '../runtime/digest.ts';
import {
  JobPriority,
  type KeyElements,
  layoutFingerprint,
  Outcome,
  type RequestExtras,
  requireElements,
  TOP,
} from '../runtime/index.ts';
import { isHostStore } from '../runtime/tier/tierStore.ts';
import { findShared } from './begin.ts';
import type { KVRuntimeConfig } from './config.ts';
import { freshKeys, type RequestContext } from './context.ts';
import type { OpenStores } from './stores.ts';

/** A unit of a prompt: a block, or a layer group of it. */
interface PromptUnit {
  /** Four words. */
  readonly key: Uint32Array;
  /** Key of the block before it; zeros for the first. */
  readonly parent: Uint32Array;
  readonly sizeClass: number;
  readonly bytes: number;
  /** Tokens of its block. */
  readonly tokens: number;
}

/** The full blocks of a prompt that another request can use, in order. The last token is always left to compute. */
export interface PromptUnits {
  readonly units: readonly PromptUnit[];
  readonly owner: number;
  readonly tokens: number;
}

/** A block that stays where it is until `release`. */
export interface HeldBlock {
  readonly digest: Digest;
  /** @returns false where the bytes could not be read, or are not what the digest says */
  read(into: Uint8Array): Promise<boolean>;
  /** To be called once. */
  release(): void;
}

/** The end of a block that came. */
export type Landing = 'landed' | 'there' | 'full' | 'differs';

export interface PromptOptions {
  readonly tenant: string;
  readonly extras?: RequestExtras | undefined;
}

export class BlockPort {
  readonly #context: RequestContext;
  readonly #stores: OpenStores;
  readonly #secretKey: Uint8Array;
  /** Position of the tier of host memory that blocks come into, and of the tier that is shared; -1 for none. */
  readonly #landing: number;
  readonly #shared: number;
  /** The layout of payloads, as text. */
  readonly layout: string;
  /** Blocks of another generation have other names. */
  readonly generation: number;

  constructor(
    context: RequestContext,
    stores: OpenStores,
    config: Pick<KVRuntimeConfig, 'layout' | 'secretKey' | 'epoch'>,
  ) {
    this.#context = context;
    this.#stores = stores;
    this.#secretKey = new Uint8Array(config.secretKey);
    this.layout = layoutFingerprint(config.layout);
    this.generation = config.epoch ?? 0;
    const tiers = [...stores.tiers.values()];
    // without a device host memory is the top tier, and the only one
    this.#landing = tiers.findIndex(({ store }) => isHostStore(store));
    this.#shared = context.shared?.position ?? -1;
  }

  /** Whether blocks can come in: they do so by host memory. */
  get canLand(): boolean {
    return this.#landing !== -1;
  }

  /** Whether there is a tier that runtimes share. */
  get hasShared(): boolean {
    return this.#shared !== -1;
  }

  /** Bytes of the largest unit. */
  get unitBytesMax(): number {
    return Math.max(...this.#context.manager.config.unitBytes);
  }

  /** 32 bytes for one purpose, which only runtimes with the same secret key can derive. */
  keyFor(purpose: string): Uint8Array {
    return new Uint8Array(hkdfSync('sha256', this.#secretKey, 'tierkv hand-off', purpose, 32));
  }

  /** Seals blocks for the way, and opens them. */
  codec(encrypt: boolean): RecordCodec {
    const { layout, generation } = this;
    return new RecordCodec({ secretKey: this.#secretKey, layout, generation, encrypt });
  }

  /** @throws TKV_INPUT for invalid tokens, an invalid tenant or invalid extras */
  unitsOf(tokens: KeyElements, { tenant, extras }: PromptOptions): PromptUnits {
    requireElements(tokens);
    const { chains, owners, units, blockTokens } = this.#context;
    const blocks = Math.floor(Math.max(tokens.length - 1, 0) / blockTokens);
    const keys = chains.of(tenant, extras).map((chain) => {
      const own = freshKeys(blocks);
      chain.hashBlocks(tokens, 0, own, blocks * blockTokens);
      return own.words;
    });
    const { sizeClass: classes, unitBytes } = units;
    const all: PromptUnit[] = [];
    for (let block = 0; block < blocks; block++) {
      classes.forEach((sizeClass, g) => {
        const key = keys[g].slice(4 * block, 4 * block + 4);
        const parent = block === 0 ? new Uint32Array(4) : keys[g].slice(4 * block - 4, 4 * block);
        all.push({ key, parent, sizeClass, bytes: unitBytes[sizeClass], tokens: blockTokens });
      });
    }
    return { units: all, owner: owners.of(tenant), tokens: tokens.length };
  }

  /** Whether some tier of this runtime has the block, or awaits it. */
  has({ key }: PromptUnit): boolean {
    return this.#context.manager.matchLength(key, 1) === 1;
  }

  /** Whether some tier has the block, and the top tier has room for it: `hold` can then begin. */
  canHold(unit: PromptUnit, owner: number): boolean {
    return this.has(unit) && this.#context.manager.canOpen(unit.key, 1, 1, unit.sizeClass, owner);
  }

  /** Holds the block in the top tier, once it is there. @returns undefined without it, and without room */
  async hold(unit: PromptUnit, owner: number): Promise<HeldBlock | undefined> {
    const held = await this.#holdOnce(unit, owner);
    // A sequence that computed the block with other bytes than those of its name keeps them to itself: the name's are meant.
    if (held !== 'diverged') return held;
    const again = await this.#holdOnce(unit, owner);
    return again === 'diverged' ? undefined : again;
  }

  async #holdOnce(
    { key, tokens, sizeClass }: PromptUnit,
    owner: number,
  ): Promise<HeldBlock | 'diverged' | undefined> {
    const { manager, loop, nowUs } = this.#context;
    const table = manager.open(key, 1, nowUs(), 1, owner);
    const drop = (): undefined => {
      manager.release(table, nowUs());
      return undefined;
    };
    if (table.matched === 0 || !manager.load(table, nowUs())) return drop();
    await loop.settled(table);
    const digest = manager.inspect.digestOf(key);
    if (manager.loadedBlock(table, 0) === undefined || digest === undefined) return drop();
    if (manager.inspect.place(table, 0)?.diverged === true) return drop() ?? 'diverged';
    return {
      digest,
      read: async (bytes) => {
        const place = manager.loadedBlock(table, 0); // not there any more after the loss of a device
        if (place === undefined) return false;
        const { slot, generation } = place;
        const [end] = await this.#tierAt(TOP).store.read([
          { slot, generation, sizeClass, key, digest, tokens, bytes },
        ]);
        if (end.outcome !== Outcome.LOADED) return false;
        const found = hostDigest(bytes);
        return found.lo === digest.lo && found.hi === digest.hi;
      },
      release: drop,
    };
  }

  /**
   * Puts a block that has come into host memory.
   * @returns `there` where this runtime has it already, `full` where host memory has no room for it now, `differs` where
   * this runtime had it with other bytes, on which later blocks may rest
   */
  land(unit: PromptUnit, digest: Digest, bytes: Uint8Array, owner: number): Landing {
    const { manager, nowUs } = this.#context;
    const { key } = unit;
    if (this.has(unit)) return 'there';
    if (this.#landing === -1) return 'full';
    const known = manager.inspect.digestOf(key);
    if (known !== undefined && (known.lo !== digest.lo || known.hi !== digest.hi)) return 'differs';
    const place = manager.adoptFound(this.#landing, { ...unit, digest, owner }, nowUs());
    if (place === undefined) return this.has(unit) ? 'there' : 'full';
    void this.#tierAt(this.#landing).store.write([{ ...place, key, digest, bytes }]); // copied within the call
    return 'landed';
  }

  /** Keeps the block in the tier where it lies, if some tier has it. @returns lets it go, to be called once */
  keep({ key }: PromptUnit, owner: number): () => void {
    const { manager, nowUs } = this.#context;
    const table = manager.open(key, 1, nowUs(), 1, owner);
    return () => manager.release(table, nowUs());
  }

  /** Writes the block to the shared tier. @returns why it is not there, empty where it is */
  share({ key }: PromptUnit): Promise<string> {
    const { moves, nowUs } = this.#context;
    return new Promise((resolve) => {
      moves.move(key, this.#shared, JobPriority.WRITE_THROUGH, nowUs(), ({ reason }) => resolve(reason));
    });
  }

  /**
   * Asks the shared tier for the blocks of a prompt that no tier of this runtime has, and makes known what it has, so
   * that requests of a scheduler find them. Nothing without a shared tier.
   * @returns leading blocks that are there then
   */
  async findShared(tokens: KeyElements, { tenant, extras }: PromptOptions): Promise<number> {
    requireElements(tokens);
    const context = this.#context;
    const { chains, owners, units, blockTokens, manager } = context;
    const groups = chains.of(tenant, extras).map((chain, g) => {
      const keys = freshKeys(Math.ceil(tokens.length / blockTokens));
      chain.hashBlocks(tokens, 0, keys, tokens.length);
      return { keys, sizeClass: units.sizeClass[g] };
    });
    await findShared(context, groups, tokens.length, owners.of(tenant), [context.closing]);
    const most = Math.floor(Math.max(tokens.length - 1, 0) / blockTokens);
    return Math.min(...groups.map(({ keys }) => manager.matchLength(keys.words, most)));
  }

  /**
   * Calls `news` after a block has come to a tier, or room came free. It does so in a later turn of the event loop: a caller
   * may cause news itself by trying again, and timers and sockets must have their turn between. @returns unsubscribe
   */
  onNews(news: () => void): () => void {
    let isTold = false;
    let isOver = false;
    const stop = this.#context.loop.onRoom(() => {
      if (isTold) return;
      isTold = true;
      setImmediate(() => {
        isTold = false;
        if (!isOver) news();
      });
    });
    return () => {
      isOver = true;
      stop();
    };
  }

  #tierAt(position: number): OpenedTier {
    return [...this.#stores.tiers.values()][position];
  }

  /** Raised when the runtime closes. */
  get closing(): AbortSignal {
    return this.#context.closing;
  }
}
