/**
 * Opaque states of whole prefixes, such as what llama.cpp writes of a sequence: one piece of any size, found again by the
 * longest prefix of a prompt for which one was stored. A state lies in blocks of the runtime, so that tiers, quotas,
 * eviction, verification and restart are those of blocks.
 *
 *     head     one block under a key of the prefix: how long prefix and state are, and the SHA-256 of the state
 *     parts    the state's bytes, some blocks at a time, under keys of that SHA-256 and of their number
 *
 * - Parts are sealed before the head is, so a head that is found had all its parts. A part that is gone since makes the
 *   state missing: it is never given in part.
 * - Parts are named by their content: bytes of two states never mix. A head whose parts are gone keeps its place, and a
 *   new one goes into the next place of that prefix.
 * - A state larger than the top tier goes through it part by part.
 */

import { described, inputError } from '../runtime/errors.ts';
import {
  BlockKeys,
  JobPriority,
  type KeyElements,
  type ReadableBlock,
  type RequestExtras,
  TierKVError,
  TOP,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import { begin, type RetentionHint, signalsOf } from './begin.ts';
import { eachBlock, writeBytes } from './blockBytes.ts';
import { bytesOf, type RequestContext } from './context.ts';
import { seal } from './grow.ts';
import { throwIfAborted, type WaitOptions } from './managerLoop.ts';
import { RequestObservers } from './observability.ts';
import { releaseSequence } from './partialPrefill.ts';

export interface StateOptions extends WaitOptions {
  /** Who may share this state: from your own authentication. */
  readonly tenant: string;
  /**
   * Other facts that determine the state, as at `begin`. Name there what made it: the program, its version, its
   * settings.
   */
  readonly extras?: RequestExtras | undefined;
  /** Wait for room instead of being refused with TKV_FULL. Default false. */
  readonly wait?: boolean | undefined;
  /** How its blocks should be kept; a hint to the eviction policy. */
  readonly retention?: RetentionHint | undefined;
}

const stateOptionsTable = optionTable({
  signal: is.optional(is.passed()),
  tenant: is.passed(),
  extras: is.optional(is.passed()),
  wait: is.optional(is.flag()),
  retention: is.optional(is.passed()),
} satisfies Kinds<StateOptions>);

export interface FoundState {
  /** Tokens of the prefix that it is the state of. */
  readonly tokens: number;
  /** A copy. */
  readonly state: Uint8Array;
}

/** The content of a head. */
interface StateHead {
  readonly bytes: number;
  readonly hash: Uint8Array;
  readonly tokens: number;
  /** The key of the prefix: four words. */
  readonly key: Uint32Array;
  /** Blocks of each part but the last. */
  readonly partBlocks: number;
}

/** The extra that keeps keys of states apart from keys of KV. */
const EXTRA = 'tierkv.state';
const MAGIC = 0x544b5653; // "TKVS"
const HEAD_VERSION = 1;
/** Magic, version, bytes of the state (8), blocks of a part, tokens and key of the prefix (4, 16), SHA-256. */
const HEAD_BYTES = 4 + 4 + 8 + 4 + 4 + 16 + 32;
/** Places for heads of prefixes with the same full blocks. One whose parts are gone keeps its place until it is evicted. */
const PLACES = 8;
/** Blocks of a part at most, and the share of the top tier that it takes: others go on beside it. */
const PART_BLOCKS_MAX = 64;
const PART_SHARE = 1 / 4;

/**
 * Stores the state of `tokens`, of which a copy is taken at once. A whole state that the prefix has already stays, whatever
 * its bytes.
 * @returns whether the prefix has a whole state now; false where its first parts had to leave for the last ones
 * @throws TKV_INPUT for malformed tokens, state or options, TKV_CAPACITY for a state that the tiers can never hold,
 * TKV_FULL when its blocks find no room now, TKV_STATE when the runtime is closed, and the reason of the signal
 */
export async function putState(
  runtime: RequestContext,
  tokens: KeyElements,
  given: Uint8Array,
  options: StateOptions,
): Promise<boolean> {
  const context = unwatched(runtime);
  checkOptions(context, options);
  requireState(given);
  const blockBytes = requireBlocks(context);
  requireHolds(context, given.byteLength);
  // memory that is used again meanwhile, or detached as WebAssembly's is where it grows, would leave other bytes than were hashed
  const state = new Uint8Array(given);
  const keys = prefixKeys(context, tokens, options);
  const { length } = tokens;
  const key = keys.ofPrefix(length);
  const full = Math.floor(length / context.blockTokens);
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', state));
  const topBlocks = Math.floor(context.manager.config.tiers[TOP].shape.capacityBytes / blockBytes);
  const partBlocks = Math.max(1, Math.min(PART_BLOCKS_MAX, Math.floor(topBlocks * PART_SHARE)));
  let head: StateHead = { bytes: state.byteLength, hash, partBlocks, tokens: length, key };
  let place = 0;
  for (; place < PLACES; place++) {
    const found = await readHead(context, keys.ofBlocks(full), place, options);
    if (found === undefined) break;
    if (!isOf(found, length, key)) continue;
    const isSame = found.hash.every((byte, i) => byte === hash[i]);
    if (isSame) head = found;
    if (hasParts(context, found, options)) return true;
    if (isSame) break;
  }
  if (place === PLACES) return false;
  const parts = partsOf(context, head);
  const below = parts.length > 1 ? tierFor(context, state.byteLength) : TOP;
  const headAt = headName(context, keys.ofBlocks(full), place);
  const here = presence(context, options);
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const { losses } = context.keeper;
    for (const { name, from, to } of parts) {
      await store(context, name, state.subarray(from, to), options);
      if (below !== TOP) await sendDown(context, name, below, options);
    }
    const arrived = hasParts(context, head, options);
    if (arrived) await store(context, headAt, headBytes(head), options);
    // while a block waited for its room, those before it may have gone: pushed out, or with a device
    if (arrived && here(headAt) && hasParts(context, head, options)) {
      context.stateBlocks?.add(full);
      return true;
    }
    if (context.keeper.losses === losses) return false;
  }
  throw undone();
}

/**
 * The state of the longest prefix of `tokens` that has one.
 * @throws as `putState`
 */
export async function getState(
  runtime: RequestContext,
  tokens: KeyElements,
  options: StateOptions,
): Promise<FoundState | undefined> {
  const context = unwatched(runtime);
  checkOptions(context, options);
  requireBlocks(context);
  const keys = prefixKeys(context, tokens, options);
  const here = presence(context, options);
  const most = Math.floor(tokens.length / context.blockTokens);
  for (let full = most; full >= 0; full--) {
    // States of another runtime are asked for under the whole prompt alone.
    const isAsked = context.shared !== undefined && full === most;
    if (!isAsked && context.stateBlocks?.has(full) === false) continue;
    const heads: StateHead[] = [];
    for (let place = 0; place < PLACES; place++) {
      if (!isAsked && !here(headName(context, keys.ofBlocks(full), place))) break;
      const head = await readHead(context, keys.ofBlocks(full), place, options);
      if (head === undefined) break;
      if (head.tokens <= tokens.length && isOf(head, head.tokens, keys.ofPrefix(head.tokens)))
        heads.push(head);
    }
    for (const head of heads.sort((a, b) => b.tokens - a.tokens)) {
      const state = await readParts(context, head, options, isAsked);
      if (state !== undefined) return { tokens: head.tokens, state };
    }
  }
  return undefined;
}

/** Requests alone are watched. */
function unwatched(context: RequestContext): RequestContext {
  return { ...context, observers: new RequestObservers() };
}

function checkOptions(context: RequestContext, options: StateOptions): void {
  stateOptionsTable.read(options);
  throwIfAborted(signalsOf(context, options));
  if (options.extras !== undefined && EXTRA in options.extras) {
    throw inputError(`extras.${EXTRA}`, 'is taken by states. Choose another name for the extra.');
  }
}

function requireState(state: Uint8Array): void {
  if (state instanceof Uint8Array && state.byteLength > 0) return;
  const given = state instanceof Uint8Array ? 'has no bytes' : `is ${described(state)}`;
  throw inputError('state', `${given}. Pass its bytes as a Uint8Array whose buffer is not detached.`);
}

/** Bytes of a block over all layer groups. @throws TKV_CONFIG where a block has no room for a head */
function requireBlocks({ units, blockTokens }: RequestContext): number {
  const blockBytes = bytesOf(units, 1);
  if (blockBytes >= HEAD_BYTES) return blockBytes;
  throw new TierKVError(
    'TKV_CONFIG',
    `blockTokens is ${blockTokens}, which makes blocks of ${blockBytes} bytes, and states need ${HEAD_BYTES}. ` +
      'Use larger blocks.',
    { field: 'layout.blockTokens' },
  );
}

function requireHolds({ manager }: RequestContext, bytes: number): void {
  const capacity = manager.config.tiers.reduce((sum, { shape }) => sum + shape.capacityBytes, 0);
  if (bytes <= capacity) return;
  throw new TierKVError(
    'TKV_CAPACITY',
    `state has ${bytes} bytes, and all tiers together hold ${capacity}. Give them more room, or store shorter prefixes.`,
    { field: 'state' },
  );
}

// Keys of prefixes, one for each number of tokens, and the names of blocks that are made of them.

interface PrefixKeys {
  /** The key of the first `length` tokens. */
  ofPrefix(length: number): Uint32Array;
  /** The key of the first `full` blocks, zeros for none: heads are looked for by it. */
  ofBlocks(full: number): Uint32Array;
}

/** @throws TKV_INPUT for malformed tokens, an invalid tenant or malformed extras */
function prefixKeys(
  { chains, blockTokens }: RequestContext,
  tokens: KeyElements,
  { tenant, extras }: StateOptions,
): PrefixKeys {
  const [chain] = chains.of(tenant, { ...extras, [EXTRA]: 'prefix' });
  const keys = new BlockKeys();
  chain.hashBlocks(tokens, 0, keys);
  if (tokens.length === 0) throw inputError('tokens', 'are empty. Pass the tokens of the prefix.');
  const ofBlocks = (full: number): Uint32Array =>
    full === 0 ? new Uint32Array(4) : keys.words.subarray(4 * (full - 1), 4 * full);
  return {
    ofBlocks,
    ofPrefix(length) {
      const full = Math.floor(length / blockTokens);
      if (length % blockTokens === 0) return ofBlocks(full).slice();
      const key = new Uint32Array(4);
      chain.hashPartial(tokens, full, length % blockTokens, keys, key);
      return key;
    },
  };
}

function isOf(head: StateHead, tokens: number, key: Uint32Array): boolean {
  return head.tokens === tokens && head.key.every((word, i) => word === key[i]);
}

/**
 * Elements that stand for tokens in the keys of blocks that hold states. The last token is left to compute, and stays
 * so.
 */
interface BlockName {
  readonly tokens: Uint32Array;
  readonly blocks: number;
  readonly extra: string;
}

function headName({ blockTokens }: RequestContext, key: Uint32Array, place: number): BlockName {
  const blocks = Math.ceil((key.length + 1) / blockTokens);
  const tokens = new Uint32Array(blocks * blockTokens + 1);
  tokens.set(key);
  tokens[key.length] = place;
  return { tokens, blocks, extra: 'head' };
}

/** A part of a state, named by the content of the whole. */
interface StatePart {
  readonly name: BlockName;
  /** Which bytes of the state it has. */
  readonly from: number;
  readonly to: number;
}

function partsOf(
  { units, blockTokens }: RequestContext,
  { bytes, hash, partBlocks }: StateHead,
): StatePart[] {
  const blockBytes = bytesOf(units, 1);
  const hex = Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
  const parts: StatePart[] = [];
  for (let from = 0; from < bytes; from += partBlocks * blockBytes) {
    const to = Math.min(bytes, from + partBlocks * blockBytes);
    const blocks = Math.ceil((to - from) / blockBytes);
    const tokens = new Uint32Array(blocks * blockTokens + 1);
    parts.push({ name: { tokens, blocks, extra: `part ${hex} ${partBlocks} ${parts.length}` }, from, to });
  }
  return parts;
}

/** Tells whether all blocks of a name are in some tier of this runtime. */
function presence(context: RequestContext, { tenant }: StateOptions): (name: BlockName) => boolean {
  let known = '';
  let chains = context.chains.of(tenant);
  const keys = new BlockKeys();
  return ({ tokens, blocks, extra }) => {
    if (extra !== known) chains = context.chains.of(tenant, { [EXTRA]: extra });
    known = extra;
    return chains.every((chain) => {
      chain.hashBlocks(tokens, 0, keys);
      return context.manager.matchLength(keys.words, blocks) === blocks;
    });
  };
}

// Blocks under a name: written and sealed, or found and copied.

/** A state that the device undoes this often is given up. */
const ATTEMPTS_MAX = 8;

/**
 * Written once, and again for as long as losses of the device and its errors undo it: the bytes are here.
 * @throws TKV_DEVICE when the device undoes them every time
 */
async function store(
  context: RequestContext,
  name: BlockName,
  bytes: Uint8Array,
  options: StateOptions,
): Promise<void> {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    if (await isStored(context, name, bytes, options)) return;
  }
  throw undone();
}

function undone(): TierKVError {
  return new TierKVError(
    'TKV_DEVICE',
    `the device was lost ${ATTEMPTS_MAX} times while the state was written or read. Ask again later.`,
    { field: 'state' },
  );
}

/** Whether the device was lost under the call: `begin` waits for another one, or says that none is to be had. */
function isOfLoss(error: unknown): boolean {
  return error instanceof TierKVError && error.code === 'TKV_DEVICE';
}

/** @returns false where the device undid it */
async function isStored(
  context: RequestContext,
  { tokens, blocks, extra }: BlockName,
  bytes: Uint8Array,
  { tenant, wait, signal, retention }: StateOptions,
): Promise<boolean> {
  const sequence = await begin(context, tokens, {
    tenant,
    extras: { [EXTRA]: extra },
    wait,
    signal,
    retention,
  });
  try {
    let at = 0;
    for (let index = 0; index < blocks; index++) {
      for (const { table, sizeClass } of sequence.groups) {
        const size = context.units.unitBytes[sizeClass];
        const block = context.manager.openBlock(table, index);
        if (block !== undefined) writeBytes(context, block, padded(bytes.subarray(at, at + size), size));
        at += size;
      }
    }
    return (await seal(context, sequence)) === 'done';
  } catch (error) {
    if (isOfLoss(error)) return false;
    throw error;
  } finally {
    releaseSequence(context, sequence);
  }
}

/** The first tier that can hold `bytes`; the last one where none can. */
function tierFor({ manager }: RequestContext, bytes: number): number {
  const { tiers } = manager.config;
  const found = tiers.findIndex(({ shape }, i) => (i === TOP ? 2 : 1) * bytes <= shape.capacityBytes);
  return found === -1 ? tiers.length - 1 : found;
}

/** Moves the blocks of a name to a lower tier, so that those behind them do not push them out of the top one. */
async function sendDown(
  { chains, moves, nowUs }: RequestContext,
  { tokens, blocks, extra }: BlockName,
  position: number,
  { tenant }: StateOptions,
): Promise<void> {
  const ends: Promise<void>[] = [];
  for (const chain of chains.of(tenant, { [EXTRA]: extra })) {
    const keys = new BlockKeys(blocks);
    chain.hashBlocks(tokens, 0, keys);
    for (let i = 0; i < blocks; i++) {
      const key = keys.words.slice(4 * i, 4 * i + 4);
      const { promise, resolve } = Promise.withResolvers<void>();
      moves.move(key, position, JobPriority.WRITE_THROUGH, nowUs(), () => resolve());
      ends.push(promise);
    }
  }
  await Promise.all(ends);
}

/**
 * Copies what a name has, and again for as long as losses of the device undo it: another tier may have its blocks too.
 * @returns false where a block of the name is gone
 * @throws TKV_DEVICE when the device undoes it every time
 */
async function load(
  context: RequestContext,
  name: BlockName,
  options: StateOptions,
  take: (bytes: Uint8Array, at: number) => void,
): Promise<boolean> {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const found = await isLoaded(context, name, options, take);
    if (found !== 'interrupted') return found;
  }
  throw undone();
}

async function isLoaded(
  context: RequestContext,
  { tokens, blocks, extra }: BlockName,
  { tenant, wait, signal }: StateOptions,
  take: (bytes: Uint8Array, at: number) => void,
): Promise<boolean | 'interrupted'> {
  const sequence = await begin(context, tokens, { tenant, extras: { [EXTRA]: extra }, wait, signal });
  try {
    if (sequence.cachedTokens < blocks * context.blockTokens) return false;
    const places: ReadableBlock[] = [];
    for (let index = 0; index < blocks; index++) {
      for (const { table } of sequence.groups) {
        const place = context.manager.readableBlock(table, index);
        if (place === undefined) return 'interrupted';
        places.push(place);
      }
    }
    let at = 0;
    await eachBlock(context, places, (bytes) => {
      take(bytes, at);
      at += bytes.byteLength;
    });
    return true;
  } catch (error) {
    if (isOfLoss(error)) return 'interrupted';
    throw error;
  } finally {
    releaseSequence(context, sequence);
  }
}

function padded(bytes: Uint8Array, size: number): Uint8Array {
  if (bytes.byteLength === size) return bytes;
  const whole = new Uint8Array(size);
  whole.set(bytes);
  return whole;
}

// Heads and parts.

function headBytes({ bytes, hash, partBlocks, tokens, key }: StateHead): Uint8Array {
  const head = new Uint8Array(HEAD_BYTES);
  const view = new DataView(head.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint32(4, HEAD_VERSION, true);
  view.setFloat64(8, bytes, true);
  view.setUint32(16, partBlocks, true);
  view.setUint32(20, tokens, true);
  key.forEach((word, i) => {
    view.setUint32(24 + 4 * i, word, true);
  });
  head.set(hash, 40);
  return head;
}

async function readHead(
  context: RequestContext,
  key: Uint32Array,
  place: number,
  options: StateOptions,
): Promise<StateHead | undefined> {
  const name = headName(context, key, place);
  const head = new Uint8Array(name.blocks * bytesOf(context.units, 1));
  const found = await load(context, name, options, (bytes, at) => head.set(bytes, at));
  const view = new DataView(head.buffer);
  if (!found || view.getUint32(0, true) !== MAGIC || view.getUint32(4, true) !== HEAD_VERSION)
    return undefined;
  return {
    bytes: view.getFloat64(8, true),
    partBlocks: view.getUint32(16, true),
    tokens: view.getUint32(20, true),
    key: Uint32Array.from({ length: 4 }, (_, i) => view.getUint32(24 + 4 * i, true)),
    hash: head.slice(40, HEAD_BYTES),
  };
}

function hasParts(context: RequestContext, head: StateHead, options: StateOptions): boolean {
  const here = presence(context, options);
  return partsOf(context, head).every(({ name }) => here(name));
}

/** @param isAsked of a shared tier too: what is not here may be there */
async function readParts(
  context: RequestContext,
  head: StateHead,
  options: StateOptions,
  isAsked: boolean,
): Promise<Uint8Array | undefined> {
  if (!isAsked && !hasParts(context, head, options)) return undefined;
  const state = new Uint8Array(head.bytes);
  for (const { name, from, to } of partsOf(context, head)) {
    const found = await load(context, name, options, (bytes, at) => {
      state.set(bytes.subarray(0, Math.max(0, to - from - at)), Math.min(from + at, to));
    });
    if (!found) return undefined;
  }
  return state;
}
