/**
 * One request's KV in the runtime: which tokens are cached, which blocks are to be computed, and where they
 * lie.
 */

import {
  type BlockKeys,
  type BlockSealer,
  Entry,
  type KeyChain,
  type Sequence,
  TierKVError,
  ToldBlocks,
} from '../../runtime/index.ts';
import type { ArrivingPrefix, ArrivingTail } from '../arriving/arrivingPrefix.ts';
import type { TokenList } from '../prompts/tokenList.ts';

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

/** A sequence as its caller sees it. What it says changes with the calls on it. */
export interface KVSequence {
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
export interface SequenceHome {
  readonly blockTokens: number;
  readonly manager: BlockSealer;
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
  /** Of each group: the blocks that the caller was told to write. */
  readonly told: readonly ToldBlocks[];
  readonly #home: SequenceHome;

  constructor(home: SequenceHome, tenant: string, tokens: TokenList, groups: readonly GroupTable[]) {
    this.#home = home;
    this.tenant = tenant;
    this.tokens = tokens;
    this.groups = groups;
    this.told = groups.map(({ table }) => new ToldBlocks(home.manager, table));
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
    throw new TierKVError('TKV_INPUT', `${field} is no sequence. Pass what begin or fork gave.`, { field });
  }
  if (sequence.belongsTo(home)) return sequence;
  throw new TierKVError(
    'TKV_INPUT',
    `${field} belongs to another runtime. Pass it to the runtime whose begin or fork gave it.`,
    { field },
  );
}
