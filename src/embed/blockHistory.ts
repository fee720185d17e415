/**
 * The fate of blocks, and the blocks that each request found: the memory from which a miss is explained. It watches a live manager and
 * one that repeats a decision log alike. Memory is bounded: blocks that were used longest ago are forgotten first, and so are
 * the oldest requests; `forgotBlocks` and `forgotRequests` say how many.
 *
 * The reason of a miss is taken down when the request opens. What happens to the block later changes nothing of it.
 */

import { InputOp, type KVManager, type ManagerObserver, Outcome } from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../runtime/options.ts';
import { UseOrder } from './useOrder.ts';

/** Why a block is not to be found any more. */
type FateKind = 'evicted' | 'damaged' | 'missing' | 'tierLost' | 'notWritten' | 'abandoned' | 'sealFailed';

/** How a block came to be gone. */
export interface Fate {
  readonly kind: FateKind;
  readonly atUs: number;
  /** Position of the tier that had it last; -1 for none. */
  readonly tier: number;
  /** The call that did it. */
  readonly by: InputOp;
  /** Whose call it was; -1 for calls of no sequence. */
  readonly sequence: number;
  /** Owner of that sequence; -1 where it is not known. */
  readonly owner: number;
  /** Microseconds since its last use; -1 where that is not known. */
  readonly idleUs: number;
}

/** The known history of one block. */
interface BlockFacts {
  owner: number;
  tokens: number;
  /** Number of its last use among all uses; 0 for none. */
  lastUse: number;
  lastUseUs: number;
  /** The sequence that computes it now; -1 for none. */
  writer: number;
  writerSinceUs: number;
  /** Replicas that lookups find, by tier: eight bits a tier. */
  copies: number;
  /** On its way to the tier at that position, and in no other; -1 if not. */
  leavingFor: number;
  /** It was sealed, and is not published yet. */
  isSealing: boolean;
  /** How it was lost last; null while it never was. */
  fate: Fate | null;
  /** The sequence that sealed it first; -1 where that is not known. */
  sealedBy: number;
  /** When; -1 before, and where it was sealed before this began. */
  sealedUs: number;
  /** How often it was found. */
  uses: number;
}

/** Why a block of a request was not found when the request opened. */
export interface Miss {
  readonly kind: 'neverSeen' | 'gone' | 'beingWritten' | 'behindGap' | 'lastToken';
  /** For `gone`. */
  readonly fate: Fate | null;
  /** For `beingWritten`: the sequence that computes it, and since when. */
  readonly writer: number;
  readonly writerSinceUs: number;
  /** For `behindGap` and `lastToken`: the tier that has it. */
  readonly tier: number;
  /** For `gone`: other blocks that were used since its last use; -1 where that is not known. */
  readonly usedSince: number;
  /** Whether there may have been more of them, of blocks that are forgotten. */
  readonly atLeast: boolean;
}

/** How a block that was found failed to come. */
interface FailedLoad {
  readonly block: number;
  readonly outcome: Outcome;
  readonly atUs: number;
}

/** The blocks that one sequence asked for, found and missed. */
export interface RememberedRequest {
  readonly sequence: number;
  readonly owner: number;
  readonly openedUs: number;
  /** Four words a block. */
  readonly keys: Uint32Array;
  readonly blocks: number;
  readonly matched: number;
  /** Tier in which each leading block was found, at most `matched`. */
  readonly foundIn: number[];
  /** From block `matched` on. */
  readonly misses: readonly Miss[];
  readonly failed: FailedLoad[];
  /** Blocks [from, to) that were found and computed all the same. */
  readonly recomputed: { readonly from: number; readonly to: number }[];
  /** When its last block was sealed; -1 before. */
  sealedUs: number;
  closedUs: number;
  /** The name that the scheduler or the caller gave it; undefined without one. */
  id: string | undefined;
}

export interface BlockEvent {
  readonly atUs: number;
  readonly what: string;
  /** Position of a tier; -1 for none. */
  readonly tier: number;
  readonly sequence: number;
  readonly by: InputOp;
}

export interface HistoryBounds {
  /** Blocks that are remembered: some 200 bytes each. */
  readonly blocks: number;
  /** Blocks of requests that are remembered, over all requests: some 40 bytes each, and 150 for one that was missed. */
  readonly requestBlocks: number;
}

const historyBoundsTable = optionTable({
  blocks: is.passed(),
  requestBlocks: is.passed(),
} satisfies Kinds<HistoryBounds>);

/** Most events that are kept of a followed block. */
const EVENTS_MOST = 10_000;
/** Sequences whose owners are remembered after they have closed. */
const OWNERS_MOST = 65_536;

export class BlockHistory {
  readonly manager: KVManager;
  readonly #bounds: HistoryBounds;
  readonly #blocks: Map<string, BlockFacts> = new Map();
  /** Facts by content, for as long as the manager knows the content. */
  readonly #byContent: (BlockFacts | undefined)[] = [];
  readonly #requests: Map<number, RememberedRequest> = new Map();
  readonly #ownerOf: Map<number, number> = new Map();
  readonly #stop: () => void;
  #requestBlocks = 0;
  readonly #order: UseOrder;
  #op: InputOp = InputOp.TICK;
  #sequence = -1;
  #current: RememberedRequest | undefined;
  #followed: string | undefined;
  #events: BlockEvent[] = [];
  /** Blocks and requests that were known and are forgotten. */
  forgotBlocks = 0;
  forgotRequests = 0;

  constructor(manager: KVManager, bounds: HistoryBounds) {
    checkInputs(
      { manager, bounds },
      {
        manager: is.fields({ lookup: is.func() }),
        bounds: is.fields({ blocks: is.number(), requestBlocks: is.number() }),
      },
    );
    historyBoundsTable.read(bounds, 'bounds');
    this.manager = manager;
    this.#bounds = bounds;
    this.#order = new UseOrder(4 * bounds.blocks, () => this.#blocks.values());
    this.#takeStock();
    this.#stop = manager.observe(this.#observer());
  }

  close(): void {
    this.#stop();
  }

  /** The requests that are remembered, the oldest first. */
  get requests(): Iterable<RememberedRequest> {
    return this.#requests.values();
  }

  request(sequence: number): RememberedRequest | undefined {
    return this.#requests.get(sequence);
  }

  get requestCount(): number {
    return this.#requests.size;
  }

  get blockCount(): number {
    return this.#blocks.size;
  }

  /** The facts of the block whose key is four words from `at` on. */
  block(words: Uint32Array, at = 0): BlockFacts | undefined {
    return this.#blocks.get(keyText(words, at));
  }

  /** Position of the fastest tier in which lookups find the block; -1 for none. */
  fastestTier({ copies }: BlockFacts): number {
    return copies === 0 ? -1 : fastestOf(copies);
  }

  ownerOf(sequence: number): number {
    return this.#ownerOf.get(sequence) ?? -1;
  }

  /** Why lookups do not find the block now. @param hasGap whether a block before it is missing */
  missOf(words: Uint32Array, at: number, hasGap: boolean): Miss {
    const facts = this.block(words, at);
    const plain = { fate: null, writer: -1, writerSinceUs: -1, tier: -1, usedSince: -1, atLeast: false };
    if (facts === undefined) return { kind: 'neverSeen', ...plain };
    if (facts.copies > 0) {
      return { kind: hasGap ? 'behindGap' : 'lastToken', ...plain, tier: fastestOf(facts.copies) };
    }
    if (facts.writer !== -1) {
      return { kind: 'beingWritten', ...plain, writer: facts.writer, writerSinceUs: facts.writerSinceUs };
    }
    // on its way down, and not to be found there: the write was given up
    const fate = facts.leavingFor === -1 ? facts.fate : this.#fate('notWritten', facts.leavingFor, facts);
    if (fate === null) return { kind: 'neverSeen', ...plain };
    const usedSince = this.#order.usedAfter(facts);
    return { kind: 'gone', ...plain, fate, usedSince, atLeast: this.#order.isShortOf(facts) };
  }

  /** Follows all that happens to the block from now on. @param key four words */
  follow(key: Uint32Array): void {
    this.#followed = keyText(key, 0);
    this.#events = [];
  }

  /** Events of the followed block, the oldest first. */
  get events(): readonly BlockEvent[] {
    return this.#events;
  }

  /** Notes the blocks that tiers already hold. */
  #takeStock(): void {
    const { manager } = this;
    manager.config.tiers.forEach(({ shape }, tier) => {
      for (let slot = 0; slot < shape.slotLimit; slot++) {
        const content = manager.inspect.contentIn(tier, slot);
        if (content !== -1) this.#published(content, tier);
      }
    });
  }

  #observer(): ManagerObserver {
    const { manager } = this;
    return {
      asked: (op, sequence) => {
        this.#op = op;
        this.#sequence = sequence;
      },
      opened: (sequence, owner, keys, blocks, matched) => {
        this.#sequence = sequence;
        this.#opened(sequence, owner, keys, blocks, matched);
      },
      found: (content, tier) => {
        const facts = this.#factsOf(content);
        this.#used(facts);
        facts.uses++;
        this.#current?.foundIn.push(tier);
        this.#tell(content, 'found', tier);
      },
      sealed: (content) => {
        const facts = this.#factsOf(content);
        facts.writer = -1;
        facts.isSealing = facts.copies === 0;
        facts.owner = manager.inspect.contentOwner(content);
        facts.tokens = manager.inspect.contentTokens(content);
        if (facts.sealedBy === -1) {
          facts.sealedBy = this.#sequence;
          facts.sealedUs = manager.inspect.nowUs;
        }
        this.#used(facts);
        const request = this.#requests.get(this.#sequence);
        if (request !== undefined) request.sealedUs = manager.inspect.nowUs;
        this.#tell(content, 'sealed', 0);
      },
      recomputed: (sequence, blocks, from) => {
        this.#requests.get(sequence)?.recomputed.push({ from, to: from + blocks });
      },
      failed: (sequence, block, content, outcome) => {
        this.#requests.get(sequence)?.failed.push({ block, outcome, atUs: manager.inspect.nowUs });
        if (content !== -1) this.#tell(content, `failed to come to block ${block}`, -1);
      },
      closed: (sequence) => this.#closed(sequence),
      published: (_replica, content, tier) => {
        this.#published(content, tier);
        this.#tell(content, 'published', tier);
      },
      unpublished: (_replica, content, tier) => {
        const facts = this.#factsOf(content);
        if (copiesIn(facts.copies, tier) > 0) facts.copies -= 256 ** tier;
        if (this.#op === InputOp.LOSE && facts.copies === 0) facts.fate = this.#fate('tierLost', tier, facts);
        this.#tell(content, 'unpublished', tier);
      },
      evicted: (_replica, content, tier) => this.#tell(content, 'evicted', tier),
      demoted: (content, _tier, lower) => {
        this.#factsOf(content).leavingFor = lower;
        this.#tell(content, 'sent down', lower);
      },
      dropped: (content, tier) => {
        const facts = this.#factsOf(content);
        facts.fate = this.#fate('evicted', tier, facts);
        this.#tell(content, 'dropped', tier);
      },
      damaged: (content, tier, outcome) => {
        const facts = this.#factsOf(content);
        facts.fate = this.#fate(outcome === Outcome.CORRUPT ? 'damaged' : 'missing', tier, facts);
        this.#tell(content, outcome === Outcome.CORRUPT ? 'found damaged' : 'found missing', tier);
      },
      forgotten: (content) => {
        const facts = this.#byContent[content];
        this.#byContent[content] = undefined;
        if (facts === undefined) return;
        if (facts.leavingFor !== -1) facts.fate = this.#fate('notWritten', facts.leavingFor, facts);
        else if (facts.isSealing) facts.fate = this.#fate('sealFailed', 0, facts);
        facts.leavingFor = -1;
        facts.isSealing = false;
      },
    };
  }

  #opened(sequence: number, owner: number, keys: Uint32Array, blocks: number, matched: number): void {
    const { nowUs } = this.manager.inspect;
    const misses: Miss[] = [];
    for (let block = matched; block < blocks; block++) {
      const miss = this.missOf(keys, block * 4, block > matched);
      misses.push(miss);
      if (miss.kind === 'behindGap' || miss.kind === 'lastToken') continue;
      const facts = this.#factsAt(keys, block * 4);
      if (facts.writer !== -1) continue;
      facts.writer = sequence;
      facts.writerSinceUs = nowUs;
    }
    const request: RememberedRequest = {
      sequence,
      owner,
      openedUs: nowUs,
      keys: keys.slice(0, blocks * 4),
      blocks,
      matched,
      foundIn: [],
      misses,
      failed: [],
      recomputed: [],
      sealedUs: -1,
      closedUs: -1,
      id: undefined,
    };
    this.#current = request;
    this.#requests.set(sequence, request);
    this.#ownerOf.set(sequence, owner);
    if (this.#ownerOf.size > OWNERS_MOST) this.#ownerOf.delete(this.#ownerOf.keys().next().value ?? -1);
    this.#requestBlocks += blocks;
    this.#forgetRequests();
    if (this.#blocks.size > this.#bounds.blocks) this.#forgetBlocks();
  }

  #closed(sequence: number): void {
    const request = this.#requests.get(sequence);
    if (request === undefined) return;
    request.closedUs = this.manager.inspect.nowUs;
    for (let block = request.matched; block < request.blocks; block++) {
      const facts = this.#blocks.get(keyText(request.keys, block * 4));
      if (facts?.writer !== sequence) continue;
      facts.writer = -1;
      facts.fate = this.#fate('abandoned', -1, facts);
    }
  }

  #published(content: number, tier: number): void {
    const facts = this.#factsOf(content);
    facts.copies += 256 ** tier;
    facts.leavingFor = -1;
    facts.isSealing = false;
    facts.owner = this.manager.inspect.contentOwner(content);
    facts.tokens = this.manager.inspect.contentTokens(content);
  }

  #used(facts: BlockFacts): void {
    this.#order.used(facts);
    facts.lastUseUs = this.manager.inspect.nowUs;
  }

  #fate(kind: FateKind, tier: number, facts: BlockFacts): Fate {
    const { nowUs } = this.manager.inspect;
    const owner = this.#ownerOf.get(this.#sequence) ?? -1;
    const idleUs = facts.lastUse === 0 ? -1 : nowUs - facts.lastUseUs;
    return { kind, atUs: nowUs, tier, by: this.#op, sequence: this.#sequence, owner, idleUs };
  }

  #factsOf(content: number): BlockFacts {
    let facts = this.#byContent[content];
    if (facts === undefined) {
      facts = this.#factsAt(this.manager.inspect.contentKey(content), 0);
      this.#byContent[content] = facts;
    }
    return facts;
  }

  #factsAt(words: Uint32Array, at: number): BlockFacts {
    const key = keyText(words, at);
    let facts = this.#blocks.get(key);
    if (facts === undefined) {
      facts = {
        owner: -1,
        tokens: -1,
        lastUse: 0,
        lastUseUs: -1,
        writer: -1,
        writerSinceUs: -1,
        copies: 0,
        leavingFor: -1,
        isSealing: false,
        fate: null,
        sealedBy: -1,
        sealedUs: -1,
        uses: 0,
      };
      this.#blocks.set(key, facts);
    }
    return facts;
  }

  /** The oldest ones that have closed. */
  #forgetRequests(): void {
    if (this.#requestBlocks <= this.#bounds.requestBlocks) return;
    for (const [sequence, { blocks, closedUs }] of this.#requests) {
      if (closedUs === -1) continue;
      this.#requests.delete(sequence);
      this.#requestBlocks -= blocks;
      this.forgotRequests++;
      if (this.#requestBlocks <= this.#bounds.requestBlocks) return;
    }
  }

  /** A quarter of them: the blocks that lie in no tier and were used longest ago. */
  #forgetBlocks(): void {
    const gone = [...this.#blocks].filter(([, { copies, writer }]) => copies === 0 && writer === -1);
    gone.sort(([, a], [, b]) => a.lastUse - b.lastUse);
    const surplus = Math.ceil(this.#blocks.size - this.#bounds.blocks * (3 / 4));
    for (const [key, facts] of gone.slice(0, Math.max(0, surplus))) {
      this.#blocks.delete(key);
      this.#order.forget(facts);
      this.forgotBlocks++;
    }
  }

  #tell(content: number, what: string, tier: number): void {
    if (this.#followed === undefined || this.#events.length >= EVENTS_MOST) return;
    if (keyText(this.manager.inspect.contentKey(content), 0) !== this.#followed) return;
    this.#events.push({
      atUs: this.manager.inspect.nowUs,
      what,
      tier,
      sequence: this.#sequence,
      by: this.#op,
    });
  }
}

/** The four words as a text of eight characters: a key of a map that costs less than the digits. */
function keyText(words: Uint32Array, at: number): string {
  const a = words[at];
  const b = words[at + 1];
  const c = words[at + 2];
  const d = words[at + 3];
  return String.fromCharCode(
    a & 0xffff,
    a >>> 16,
    b & 0xffff,
    b >>> 16,
    c & 0xffff,
    c >>> 16,
    d & 0xffff,
    d >>> 16,
  );
}

function copiesIn(copies: number, tier: number): number {
  return Math.floor(copies / 256 ** tier) % 256;
}

function fastestOf(copies: number): number {
  let tier = 0;
  while (copiesIn(copies, tier) === 0) tier++;
  return tier;
}
