/**
 * Why a request found what it found: block by block the tier that served it, or the cause of the miss in a sentence, what it
 * cost, and what would have kept the block. All of it is plain data.
 */

import {
  InputOp,
  type KVManager,
  keyToHex,
  Outcome,
  outcomeNames,
  type TierName,
  tierName,
} from '../runtime/index.ts';
import type { BlockEvent, BlockHistory, Fate, Miss, RememberedRequest } from './blockHistory.ts';

/**
 * Why a block was computed, or is to be.
 *
 *   neverSeen      no request had it before
 *   evicted        it was dropped to make room
 *   beingWritten   another sequence was computing it
 *   anotherTenant  another tenant has the same tokens; tenants share nothing
 *   anotherModel   the same tokens are there under another model, adapter or other extras
 *   anotherInstance  another instance of the simulation has it
 *   damaged        its bytes were wrong
 *   missing        the tier's store did not hold it any more
 *   late           its load did not end by its deadline
 *   failed         its load failed otherwise: a device, a full disk
 *   tierLost       the tier lost all its bytes, as a device does
 *   notWritten     it was on its way down and could not be written
 *   abandoned      a request began to compute it and ended before it was sealed
 *   chosen         it was found, and computing it was estimated to be faster than loading it
 *   behindGap      it is cached, and a block before it is missing
 *   lastToken      it is cached, and at least one token is always computed
 */
export type MissCause =
  | 'neverSeen'
  | 'evicted'
  | 'beingWritten'
  | 'anotherTenant'
  | 'anotherModel'
  | 'anotherInstance'
  | 'damaged'
  | 'missing'
  | 'late'
  | 'failed'
  | 'tierLost'
  | 'notWritten'
  | 'abandoned'
  | 'chosen'
  | 'behindGap'
  | 'lastToken';

/** Why one block was found or computed. */
export interface BlockExplanation {
  /** Number in the request, from 0. */
  readonly block: number;
  /** 32 hexadecimal digits. */
  readonly key: string;
  /** The tier that had it; null where none did. With a cause, it was found there and computed all the same. */
  readonly tier: TierName | null;
  /** Null where the tier served it. */
  readonly cause: MissCause | null;
  /** A sentence. */
  readonly why: string;
  /** The change that would have kept the block, as a sentence; null where none is known. */
  readonly remedy: string | null;
  /** How it was lost; null unless it was there before. */
  readonly lost: {
    readonly atUs: number;
    readonly tier: TierName | null;
    /** The call that did it: `allocate`, `evict`, ... */
    readonly by: string;
    /** For which sequence; null where no sequence called. */
    readonly sequence: number | null;
    readonly tenant: string | null;
    readonly idleUs: number | null;
  } | null;
  /** Other blocks that were used since its last use: what LRU has to hold to keep it. Null where it is not known. */
  readonly usedSince: number | null;
}

/** Why a request found what it found, block by block. */
export interface CacheExplanation {
  /** The caller's name of the request; null for tokens that were only looked up. */
  readonly request: string | null;
  readonly sequence: number | null;
  readonly tenant: string | null;
  /** When it opened, or now. Microseconds of the runtime's clock. */
  readonly atUs: number;
  readonly blockTokens: number | null;
  readonly blocks: readonly BlockExplanation[];
  readonly cost: {
    /** Blocks that were computed, or are to be. */
    readonly computedBlocks: number;
    /** Bytes that came up from lower tiers. */
    readonly loadedBytes: number;
    /** From opening until all of it was sealed; null where that did not happen. */
    readonly sealedAfterUs: number | null;
  };
  /** Limits of the explanation, as sentences. */
  readonly limits: readonly string[];
}

/** The same tokens under another name. */
export interface Twin {
  readonly cause: 'anotherTenant' | 'anotherModel' | 'anotherInstance';
  /** The tenant, model or instance. */
  readonly name: string;
  readonly tier: TierName | null;
}

export interface Naming {
  /** The tenant of an owner. */
  tenantOf(owner: number): string | null;
  /** The request of a sequence. */
  requestOf(sequence: number): string | undefined;
  /** Whether others have the tokens of the block, by its number; asked for blocks that were never seen. */
  twinOf?(block: number): Twin | undefined;
  /** Where `tenant` of a remedy stands in the configuration; null where tenants always share. */
  readonly blockTokens: number | null;
}

export function explainRequest(
  history: BlockHistory,
  request: RememberedRequest,
  naming: Naming,
): CacheExplanation {
  const { manager } = history;
  const words = new Words(history, naming);
  const blocks: BlockExplanation[] = [];
  let loadedBytes = 0;
  for (let block = 0; block < request.blocks; block++) {
    const key = keyToHex(request.keys.subarray(block * 4, block * 4 + 4));
    if (block >= request.matched) {
      blocks.push({ block, key, ...words.missed(request.misses[block - request.matched], block) });
      continue;
    }
    const position = request.foundIn[block] ?? 0;
    const failure = request.failed.find((each) => each.block === block);
    const isChosen = request.recomputed.some(({ from, to }) => block >= from && block < to);
    if (failure === undefined && !isChosen && position > 0) loadedBytes += manager.config.unitBytes[0];
    blocks.push({ block, key, ...words.found(position, failure?.outcome, isChosen) });
  }
  return {
    request: request.id ?? null,
    sequence: request.sequence,
    tenant: naming.tenantOf(request.owner),
    atUs: request.openedUs,
    blockTokens: naming.blockTokens,
    blocks,
    cost: {
      computedBlocks: blocks.filter(({ cause }) => cause !== null).length,
      loadedBytes,
      sealedAfterUs: request.sealedUs === -1 ? null : request.sealedUs - request.openedUs,
    },
    limits: words.limits(),
  };
}

/**
 * Explains what a request for these keys would find now.
 * @param byTier leading blocks that are found, by tier
 */
export function explainKeys(
  history: BlockHistory,
  { keys, blocks, limit }: { readonly keys: Uint32Array; readonly blocks: number; readonly limit: number },
  tenant: string | null,
  naming: Naming,
): CacheExplanation {
  const { manager } = history;
  const words = new Words(history, naming);
  const matched = manager.matchLength(keys, Math.min(blocks, limit));
  const explained: BlockExplanation[] = [];
  for (let block = 0; block < blocks; block++) {
    const at = block * 4;
    const key = keyToHex(keys.subarray(at, at + 4));
    if (block < matched) {
      const { byTier } = manager.lookup(keys.subarray(at, at + 4), 1);
      const position = byTier.findIndex((count) => count > 0);
      explained.push({ block, key, ...words.found(Math.max(0, position), undefined, false) });
    } else {
      const miss = history.missOf(keys, at, block > matched);
      explained.push({ block, key, ...words.missed(miss, block) });
    }
  }
  const served = explained.filter(
    ({ cause, tier }) => cause === null && tier !== tierName(manager.inspect.tiers[0]),
  );
  return {
    request: null,
    sequence: null,
    tenant,
    atUs: manager.inspect.nowUs,
    blockTokens: naming.blockTokens,
    blocks: explained,
    cost: {
      computedBlocks: blocks - matched,
      loadedBytes: served.length * manager.config.unitBytes[0],
      sealedAfterUs: null,
    },
    limits: words.limits(),
  };
}

type ToldBlock = Omit<BlockExplanation, 'block' | 'key'>;

/** The calls of the manager in the words of an operator: what an eviction was for. */
const doings: Readonly<Partial<Record<InputOp, string>>> = {
  [InputOp.OPEN]: 'when a sequence opened',
  [InputOp.ADMIT]: 'to make room for blocks to load and to compute',
  [InputOp.LOAD]: 'to make room for blocks that were loaded',
  [InputOp.LOAD_BACK]: 'to make room for blocks that were loaded',
  [InputOp.ALLOCATE]: 'to make room for blocks to compute',
  [InputOp.COPY]: 'to make room for a copy of a block',
  [InputOp.RECOMPUTE]: 'to make room for blocks to compute',
  [InputOp.SEAL]: 'when a block was sealed',
  [InputOp.KEEP]: 'for a copy that was kept below',
  [InputOp.RELEASE]: 'when blocks were released: the tier was above its threshold',
  [InputOp.CANCEL]: 'when a sequence was cancelled',
  [InputOp.PREEMPT]: 'when a sequence was preempted',
  [InputOp.DEMOTE]: 'when a sequence was preempted',
  [InputOp.TRUNCATE]: 'when a sequence was cut',
  [InputOp.PREFETCH]: 'for a prefetch',
  [InputOp.MOVE]: 'for a block that migration moved',
  [InputOp.SAVE]: 'for a block that was saved',
  [InputOp.DAMAGED]: 'when a block was found to be damaged',
  [InputOp.EVICT]: 'because the server or migration asked for it',
  [InputOp.COMPLETE]: 'for a transfer that ended',
  [InputOp.TICK]: 'for transfers that were late',
  [InputOp.QUOTA]: 'when a quota was set',
  [InputOp.FOUND]: 'for a block that the shared tier has',
  [InputOp.ADOPT]: 'for a block of an earlier run',
  [InputOp.LOSE]: 'when a tier was lost',
};

const inputNames = new Map(Object.entries(InputOp).map(([name, op]) => [op, name.toLowerCase()]));

class Words {
  readonly #history: BlockHistory;
  readonly #manager: KVManager;
  readonly #naming: Naming;
  #isShort = false;

  constructor(history: BlockHistory, naming: Naming) {
    this.#history = history;
    this.#manager = history.manager;
    this.#naming = naming;
  }

  limits(): string[] {
    const { forgotBlocks } = this.#history;
    return [
      ...(forgotBlocks === 0
        ? []
        : [
            `${forgotBlocks} blocks that were used longest ago are forgotten: a block that was "never seen" may be one of them.`,
          ]),
      ...(this.#isShort
        ? [
            'Counts of blocks used since then leave out blocks that are forgotten: there were at least that many.',
          ]
        : []),
    ];
  }

  found(position: number, outcome: Outcome | undefined, isChosen: boolean): ToldBlock {
    const tier = this.#tier(position);
    const plain = { tier, remedy: null, lost: null, usedSince: null };
    if (outcome !== undefined) return this.#failed(tier, outcome);
    if (isChosen) {
      return {
        ...plain,
        cause: 'chosen',
        why: `found in ${tier}; computing it was estimated to be faster than loading it`,
        remedy: `A faster link from ${tier}, or loadOrRecompute 'load'.`,
      };
    }
    return { ...plain, cause: null, why: position === 0 ? `served by ${tier}` : `loaded from ${tier}` };
  }

  missed(miss: Miss, block: number): ToldBlock {
    const plain = { tier: null, remedy: null, lost: null, usedSince: null };
    if (miss.kind === 'neverSeen') {
      const twin = this.#naming.twinOf?.(block);
      if (twin !== undefined) return { ...plain, ...toldOfTwin(twin) };
      const isSure = this.#history.forgotBlocks === 0;
      return {
        ...plain,
        cause: 'neverSeen',
        why: isSure ? 'never seen before' : 'never seen, as far as is remembered',
      };
    }
    if (miss.kind === 'beingWritten') {
      const who = this.#who(miss.writer);
      return {
        ...plain,
        cause: 'beingWritten',
        why: `${who} was computing it since ${seconds(miss.writerSinceUs)}, and had not sealed it`,
        remedy: 'A longer shareWaitMs, or a request that comes later.',
      };
    }
    if (miss.kind === 'behindGap' || miss.kind === 'lastToken') {
      const tier = this.#tier(miss.tier);
      return miss.kind === 'behindGap'
        ? {
            ...plain,
            tier,
            cause: 'behindGap',
            why: `cached in ${tier}, and a block before it is missing: a prefix has no gaps`,
            remedy: 'What keeps the first missing block keeps this one.',
          }
        : {
            ...plain,
            tier,
            cause: 'lastToken',
            why: `cached in ${tier}, and not asked for: at least one token is always computed`,
          };
    }
    return this.#gone(miss.fate as Fate, miss);
  }

  #gone(fate: Fate, { usedSince, atLeast }: Miss): ToldBlock {
    const at = seconds(fate.atUs);
    const tier = fate.tier === -1 ? null : this.#tier(fate.tier);
    const lost = {
      atUs: fate.atUs,
      tier,
      by: inputNames.get(fate.by) ?? '',
      sequence: fate.sequence === -1 ? null : fate.sequence,
      tenant: fate.owner === -1 ? null : this.#naming.tenantOf(fate.owner),
      idleUs: fate.idleUs === -1 ? null : fate.idleUs,
    };
    const told = (cause: MissCause, why: string, remedy: string | null): ToldBlock => {
      const known = usedSince === -1 ? null : usedSince;
      return { tier: null, cause, why, remedy, lost, usedSince: known };
    };
    if (fate.kind === 'evicted') {
      const rest = fate.idleUs === -1 ? '' : `, ${seconds(fate.idleUs)} after its last use`;
      const forWhom = fate.sequence === -1 ? '' : ` by ${this.#who(fate.sequence)}`;
      const policy = this.#manager.config.eviction.policy;
      const why = `evicted from ${tier} at ${at} by ${policy}, ${doings[fate.by] ?? 'by a call'}${forWhom}${rest}`;
      const below = fate.tier + 1;
      if (below === this.#manager.inspect.tiers.length)
        return told('evicted', why, this.#whatWouldKeep(usedSince, atLeast));
      const lower = this.#tier(below);
      const remedy = `It did not go down: ${lower} was behind (leavingShare), had no room for it, or its writeBudget was spent.`;
      return told('evicted', `${why}, and dropped`, remedy);
    }
    if (fate.kind === 'damaged') {
      const why = `its bytes in ${tier} were found to be wrong at ${at}, and it was dropped`;
      return told(
        'damaged',
        why,
        `Check what stores ${tier}: a tier that damages blocks is not to be trusted.`,
      );
    }
    if (fate.kind === 'missing') {
      const why = `${tier} did not hold it any more when it was read at ${at}`;
      return told('missing', why, `More room in the store behind ${tier}: others evict there, too.`);
    }
    if (fate.kind === 'tierLost') {
      const why = `${tier} lost all its bytes at ${at}, and no other tier had a copy`;
      return told('tierLost', why, "A copy below: offload { policy: 'eager' }.");
    }
    if (fate.kind === 'abandoned') {
      const why = `${this.#who(fate.sequence)} began to compute it and ended at ${at} before it was sealed`;
      return told('abandoned', why, null);
    }
    if (fate.kind === 'sealFailed') {
      const why = `it was computed and could not be sealed: its digest had not come by ${at}`;
      return told('failed', why, 'Look at the device: it was lost, or slower than transferDeadlineMs.');
    }
    const why = `on its way to ${tier} at ${at} it could not be written`;
    return told('notWritten', why, `Look at ${tier}: it was full, slow or refused the write.`);
  }

  /** The size of the last tier or the policy that would have kept it, from the depth of its last use. */
  #whatWouldKeep(usedSince: number, atLeast: boolean): string | null {
    if (usedSince === -1) return null;
    if (atLeast) this.#isShort = true;
    const { tiers, unitBytes, eviction } = this.#manager.config;
    const unit = unitBytes[0];
    const slots = tiers.map(({ capacityBytes }) => Math.floor(capacityBytes / unit));
    const held = slots.reduce((sum, count) => sum + count, 0);
    const others = `${atLeast ? 'at least ' : ''}${usedSince} other blocks were used since`;
    const last = tierName(tiers[tiers.length - 1].tier);
    if (usedSince >= held) {
      const more = usedSince + 1 - held;
      const size = (slots[slots.length - 1] + more) * unit;
      return `${others}, and the tiers hold ${held}: LRU keeps it with ${more} more blocks, ${last} of ${size} bytes.`;
    }
    if (eviction.policy !== 'lru') {
      return `${others}, and the tiers hold ${held}: policy 'lru' might have kept it in the same room.`;
    }
    return `${others}, and the tiers hold ${held}: blocks in use, quotas, or a tier below that was slow took the room.`;
  }

  #failed(tier: TierName, outcome: Outcome): ToldBlock {
    const plain = { tier, lost: null, usedSince: null };
    const { transferDeadlineUs } = this.#manager.config;
    if (outcome === Outcome.TIMED_OUT) {
      const after = Number.isFinite(transferDeadlineUs) ? ` of ${seconds(transferDeadlineUs)}` : '';
      const why = `found in ${tier}; its load did not end by its deadline${after}, and it was computed`;
      return {
        ...plain,
        cause: 'late',
        why,
        remedy: 'A longer transferDeadlineMs, or a tier that answers sooner.',
      };
    }
    if (outcome === Outcome.CORRUPT) {
      const why = `found in ${tier}; its bytes were wrong, and it was computed`;
      return { ...plain, cause: 'damaged', why, remedy: `Check what stores ${tier}.` };
    }
    if (outcome === Outcome.MISSING) {
      const why = `found in ${tier}; the store did not hold it any more, and it was computed`;
      return { ...plain, cause: 'missing', why, remedy: `More room in the store behind ${tier}.` };
    }
    const why = `found in ${tier}; its load ended as ${outcomeNames[outcome]}, and it was computed`;
    return { ...plain, cause: 'failed', why, remedy: `Look at ${tier} and at the device.` };
  }

  #who(sequence: number): string {
    const request = this.#naming.requestOf(sequence);
    const owner = this.#history.ownerOf(sequence);
    const tenant = owner === -1 ? null : this.#naming.tenantOf(owner);
    const name = request === undefined ? `sequence ${sequence}` : `request ${request}`;
    return tenant === null ? name : `${name} of ${tenant}`;
  }

  #tier(position: number): TierName {
    return tierName(this.#manager.inspect.tiers[position]);
  }
}

function toldOfTwin({ cause, name, tier }: Twin): Pick<ToldBlock, 'cause' | 'why' | 'remedy'> {
  const where = tier === null ? 'had it before' : `has it in ${tier}`;
  if (cause === 'anotherTenant') {
    const remedy = 'A sharing group of both tenants, where they trust each other.';
    return { cause, why: `never seen for this tenant; ${name} ${where}, and tenants share nothing`, remedy };
  }
  if (cause === 'anotherModel') {
    const why = `never seen for this model; the same tokens are known under ${name}, which ${where}`;
    return {
      cause,
      why,
      remedy: 'KV of another model, adapter or image is of no use: route to where it was computed.',
    };
  }
  const why = `never seen on this instance; ${name} ${where}`;
  return { cause, why, remedy: `Routing by prefix to ${name}, or a tier that both share.` };
}

export function seconds(us: number): string {
  if (us < 1000) return `${us} us`;
  return us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(2)} s`;
}

// The life of one block.

export interface BlockLife {
  readonly key: string;
  /** Whether lookups find it at the end. */
  readonly tier: TierName | null;
  readonly events: readonly {
    readonly atUs: number;
    readonly what: string;
    readonly tier: TierName | null;
    readonly sequence: number | null;
    readonly request: string | null;
    readonly by: string;
  }[];
}

export function lifeOf(history: BlockHistory, key: Uint32Array, naming: Naming): BlockLife {
  const { manager } = history;
  const { byTier } = manager.lookup(key, 1);
  const position = byTier.findIndex((count) => count > 0);
  return {
    key: keyToHex(key),
    tier: position === -1 ? null : tierName(manager.inspect.tiers[position]),
    events: history.events.map(({ atUs, what, tier, sequence, by }: BlockEvent) => ({
      atUs,
      what,
      tier: tier === -1 ? null : tierName(manager.inspect.tiers[tier]),
      sequence: sequence === -1 ? null : sequence,
      request: naming.requestOf(sequence) ?? null,
      by: inputNames.get(by) ?? '',
    })),
  };
}
