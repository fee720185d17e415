/**
 * One request's KV in the runtime: which tokens are cached, which blocks are to be computed, and where they
 * lie.
 */

import { runningClock } from '../backends/runningClock.ts';
import { inputError } from '../runtime/errors.ts';
import { type BlockKeys, Entry, type KeyChain, type KVManager, type Sequence } from '../runtime/index.ts';
import { unlessAborted } from './managerLoop.ts';
import type { RequestWatch } from './observability.ts';
import type { TokenList } from './tenancy.ts';

/** The sequence's blocks of one layer group. */
export interface GroupTable {
  /** The manager's block table. */
  readonly table: Sequence;
  readonly sizeClass: number;
  readonly chain: KeyChain;
  /** Keys of the leading full blocks, as far as they were needed. */
  readonly keys: BlockKeys;
  /** Blocks from the front that are sealed or about to be. */
  sealed: number;
  /** `table.disturbances` when the sequence was last whole. */
  disturbances: number;
}

/**
 * A sequence of a runtime as its caller sees it: its tokens, its blocks, and what is to be computed. What it says changes with the calls on it. `using sequence = await kv.begin(...)` releases
 * it where the scope ends, unless it has ended before.
 */
export interface KVSequence extends Disposable {
  readonly tenant: string;
  /** Its tokens: the first `length` of `words`, which are the sequence's own and not to be written. */
  readonly tokens: { readonly words: Uint32Array; readonly length: number };
  /** One for each layer group, for calls of the manager. */
  readonly groups: readonly Readonly<GroupTable>[];
  /** Tokens from the front whose KV was found, or brought back by `recover`: prefill starts here. */
  readonly cachedTokens: number;
  /** It was released or cancelled: no call takes it any more. */
  readonly ended: boolean;
  /** Tokens that have room. */
  readonly length: number;
  /** Blocks that its tokens take. */
  readonly blocks: number;
  /** Units that wait for a transfer. */
  readonly pending: number;
  /** Tokens from the front that every group can read now. */
  readonly readyTokens: number;
  /** Whether all blocks are in HBM, to be read or written. */
  readonly isWhole: boolean;
}

/** The runtime that a sequence belongs to, and what its blocks are. */
interface SequenceHome {
  readonly blockTokens: number;
  /** Ends a sequence: its sealed blocks stay cached. */
  release(sequence: SequenceState): void;
}

/** The same as the runtime keeps it. */
export class SequenceState implements KVSequence {
  readonly tenant: string;
  readonly tokens: TokenList;
  /** One for each layer group. */
  readonly groups: readonly GroupTable[];
  cachedTokens = 0;
  ended = false;
  /** While its found blocks are handed over as they come. */
  arriving: ArrivingPrefix | undefined;
  /** Its cached tail, while it arrives. */
  tail: ArrivingTail | undefined;
  /** Its caller was not told of all blocks yet: they are handed over part by part, or group by group. */
  isComing = false;
  /** A `recover` has begun and has not ended well: what the caller knows of the blocks is void. */
  isRecovering = false;
  /** Fulfilled when the `append` under way has ended; undefined between appends. */
  appending: Promise<void> | undefined;
  /** Receives the moments of the sequence; undefined while it is not watched. */
  watch: RequestWatch | undefined;
  readonly #home: SequenceHome;

  constructor(home: SequenceHome, tenant: string, tokens: TokenList, groups: readonly GroupTable[]) {
    this.#home = home;
    this.tenant = tenant;
    this.tokens = tokens;
    this.groups = groups;
  }

  [Symbol.dispose](): void {
    if (!this.ended) this.#home.release(this);
  }

  /** Whether a call of this runtime may take it: slots and tables of another one mean other bytes here. */
  belongsTo(home: SequenceHome): boolean {
    return this.#home === home;
  }

  get length(): number {
    return this.tokens.length;
  }

  get blocks(): number {
    return Math.ceil(this.tokens.length / this.#home.blockTokens);
  }

  get pending(): number {
    return this.groups.reduce((sum, { table }) => sum + table.pending, 0);
  }

  get readyTokens(): number {
    return Math.min(...this.groups.map(({ table }) => table.readyPrefix())) * this.#home.blockTokens;
  }

  get isWhole(): boolean {
    const { blocks } = this;
    return this.groups.every(({ table }) => {
      if (table.length < blocks) return false;
      for (let i = 0; i < blocks; i++) {
        if (table.state[i] !== Entry.READY && table.state[i] !== Entry.OPEN) return false;
      }
      return true;
    });
  }
}

/**
 * The state behind what a caller passed.
 * @throws TKV_INPUT for what no call of a runtime gave, and for a sequence of another runtime
 */
export function stateOf(home: SequenceHome, sequence: KVSequence, field = 'sequence'): SequenceState {
  if (!(sequence instanceof SequenceState)) {
    throw inputError(field, `must be a sequence. Pass what begin or fork gave.`);
  }
  if (sequence.belongsTo(home)) return sequence;
  throw inputError(field, `belongs to another runtime. Pass it to the runtime whose begin or fork gave it.`);
}

// Blocks that some request is computing now. Another request with the same prompt can wait for them instead
// of computing them once more. It holds no block while it waits, so no request waits for it in turn.

/** Blocks that one sequence computes. */
interface Claim {
  readonly numbers: number[];
  readonly over: Promise<void>;
  readonly end: () => void;
}

export class ComputingBlocks {
  /** Computing sequences by half of the block's key, which tells blocks apart well enough for a wait. */
  readonly #blocks: Map<number, Claim> = new Map();
  readonly #claims: Map<SequenceState, Claim> = new Map();

  /**
   * The sequence computes its full blocks from `from` on, except blocks that another one computes. Call it in
   * the turn in which their room is taken, and again for blocks that could not be brought.
   */
  begin(sequence: SequenceState, keys: BlockKeys, from: number): void {
    const { promise, resolve } = Promise.withResolvers<void>();
    const fresh: Claim = { numbers: [], over: promise, end: resolve };
    const claim = this.#claims.get(sequence) ?? fresh;
    for (let i = from; i < keys.length; i++) {
      const number = numberOf(keys, i);
      if (this.#blocks.has(number)) continue;
      this.#blocks.set(number, claim);
      claim.numbers.push(number);
    }
    if (claim.numbers.length > 0) this.#claims.set(sequence, claim);
  }

  /** The sequence has sealed its blocks, or never will: requests that wait for them look again. */
  end(sequence: SequenceState): void {
    const claim = this.#claims.get(sequence);
    if (claim === undefined) return;
    this.#claims.delete(sequence);
    for (const number of claim.numbers) this.#blocks.delete(number);
    claim.end();
  }

  /** Fulfilled when block `i` is no longer being computed; undefined unless a sequence computes it. */
  wait(keys: BlockKeys, i: number): Promise<void> | undefined {
    return i < keys.length ? this.#blocks.get(numberOf(keys, i))?.over : undefined;
  }
}

/** The part of the runtime that a wait needs. */
interface SharingContext {
  readonly manager: Pick<KVManager, 'matchLength'>;
  readonly computing: ComputingBlocks;
  readonly blockTokens: number;
  nowUs(): number;
}

/** How long one request waits, all in all, for blocks that others compute. */
export class SharedWait {
  readonly #context: SharingContext;
  readonly #groups: readonly { readonly keys: BlockKeys }[];
  /** Blocks that can be found at most: the last token is always left to compute. */
  readonly #limit: number;
  #leftMs: number;

  constructor(
    context: SharingContext,
    groups: readonly { readonly keys: BlockKeys }[],
    tokens: number,
    waitMs: number,
  ) {
    this.#context = context;
    this.#groups = groups;
    this.#limit = Math.min(groups[0].keys.length, Math.floor(Math.max(tokens - 1, 0) / context.blockTokens));
    this.#leftMs = waitMs;
  }

  /**
   * The computation of the first block that the request misses; undefined where no one computes it, or the request has
   * waited long enough. A request that gets undefined takes its room in the same turn, or another request of that turn
   * does as well.
   */
  other(): Promise<void> | undefined {
    if (this.#leftMs <= 0) return undefined;
    const { manager, computing } = this.#context;
    let matched = this.#limit;
    for (const { keys } of this.#groups) {
      matched = Math.min(matched, manager.matchLength(keys.words, matched));
    }
    return matched < this.#limit ? computing.wait(this.#groups[0].keys, matched) : undefined;
  }

  /** Waits for what `other` gave, or until the request has waited long enough. */
  async wait(other: Promise<void>, signals: readonly AbortSignal[]): Promise<void> {
    const { nowUs } = this.#context;
    const fromUs = nowUs();
    let stop: (() => void) | undefined;
    const late = new Promise<void>((resolve) => {
      const over = (): void => {
        this.#leftMs = 0;
        resolve();
      };
      stop = runningClock.alarm(this.#leftMs, over);
    });
    try {
      await unlessAborted(signals, () => Promise.race([other, late]));
    } finally {
      stop?.();
      this.#leftMs = Math.max(0, this.#leftMs - (nowUs() - fromUs) / 1000);
    }
  }
}

function numberOf(keys: BlockKeys, i: number): number {
  return keys.words[i * 4] * 2 ** 21 + (keys.words[i * 4 + 1] >>> 11);
}

// State of a sequence while its found blocks arrive and the others are computed.

/**
 * Tokens of the sequence to be computed next: all KV before `start` is in HBM, and blocks up to `end` open.
 */
export interface PrefillPart {
  readonly start: number;
  readonly end: number;
}

/** Progress of a sequence while it arrives. */
export class ArrivingPrefix {
  /** Tokens whose KV is in place without a gap, those of the part that is computed now included. */
  computed = 0;
  /** Tokens that were handed out to be computed. */
  handedOut = 0;
  part: PrefillPart | null = null;
  /** When the part was handed out, and when the device had done the one before. */
  handedOutUs = 0;
  doneUs = 0;

  /** The sequence ends after `tokens` tokens. */
  truncate(tokens: number): void {
    this.computed = Math.min(this.computed, tokens);
    this.handedOut = Math.min(this.handedOut, tokens);
  }
}

/** A cached tail that may be taken over behind the found blocks. */
export interface ArrivingTail {
  readonly tokens: number;
  /** The sequence's block that it is the beginning of. */
  readonly block: number;
  /** Table of each layer group, which pins the tail and brings it up, and how far it is. */
  readonly tables: readonly Sequence[];
  readonly stages: TailStage[];
}

/**
 * `coming`: on its way up, pinned by a table of its own. `copying`: from there into the sequence's own block.
 * `failed`: that block is to be computed from its first token.
 */
export type TailStage = 'coming' | 'copying' | 'inPlace' | 'failed';

// Blocks that kernels may use: loaded, open or being sealed.

/** The leading blocks that are in place. */
export function placedBlocks(table: Sequence): number {
  let placed = 0;
  while (placed < table.length && isPlaced(table.state[placed])) placed++;
  return placed;
}

function isPlaced(state: number): boolean {
  return state === Entry.READY || state === Entry.OPEN || state === Entry.SEALING;
}
