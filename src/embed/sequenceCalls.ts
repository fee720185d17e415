/**
 * What a request asks of a runtime, from `begin` to `release`: how a sequence gets its blocks, grows,
 * branches and ends.
 */

import { requireInteger } from '../runtime/errors.ts';
import type { KeyElements } from '../runtime/index.ts';
import { optionNames, requireFlag, requireOptions } from '../runtime/options.ts';
import { throwIfAborted, type WaitOptions, waitOptionsNames } from './abort.ts';
import type { PrefillPart } from './arriving/arrivingPrefix.ts';
import { dropTail } from './arriving/arrivingTail.ts';
import { nextPart, PART_TOKENS } from './arriving/prefillParts.ts';
import { type ReadyLayers, readyLayers } from './arriving/readyLayers.ts';
import type { CacheEvents } from './outputs/events.ts';
import { begin, bring } from './requests/beginning.ts';
import { type BeginOptions, type RetentionHint, retain, signalsOf } from './requests/beginOptions.ts';
import { fork, truncate } from './requests/branching.ts';
import { type RequestContext, requireLive, type StepEnd } from './requests/context.ts';
import { append, type EntryEnd, type StepEntry, seal, step } from './requests/growing.ts';
import { type KVSequence, stateOf } from './requests/kvSequence.ts';
import { groupOf, RuntimeViews } from './runtimeViews.ts';
import type { OpenStores } from './stores/openStores.ts';

export interface NextPartOptions extends WaitOptions {
  /** Most tokens of the part. Default 512. */
  readonly maxTokens?: number | undefined;
}

export const nextPartOptionsNames: readonly string[] = optionNames<NextPartOptions>({
  signal: true,
  maxTokens: true,
});

export abstract class SequenceCalls extends RuntimeViews {
  readonly #context: RequestContext;

  protected constructor(stores: OpenStores, context: RequestContext, events: CacheEvents) {
    super(stores, context, events);
    this.#context = context;
  }

  /**
   * Begins a sequence: its cached blocks are pinned, those in lower tiers are brought up and verified, and
   * the rest get open blocks to write. What cannot be brought is among the open blocks. The last token is
   * always left to compute. When `signal` is raised, nothing of the call stays: loads that nobody else waits
   * for are called off, and slots on the way are free again when their last transfer has ended.
   * @throws TKV_INPUT for tokens or a tenant that are none, TKV_CAPACITY for a request that can never fit,
   * TKV_FULL when the blocks in use leave no room now and `wait` is not set, TKV_DEVICE when the device is
   * lost and no other is to be had, or undoes its blocks every time, TKV_STATE when the runtime is closed,
   * and the reason of `signal`
   */
  begin(tokens: KeyElements, options: BeginOptions): Promise<KVSequence> {
    return begin(this.#context, tokens, options);
  }

  /**
   * The next tokens to compute of a sequence that was begun with `arriving`, as soon as there are some; call
   * it when the kernels of the part before are submitted.
   * @param options.maxTokens of the part (512)
   * @returns null when nothing is left to compute, and for a sequence that was begun otherwise. `interrupted`
   * when blocks were lost: `recover` it, or release it
   * @throws TKV_CONFIG for a part without a token, TKV_FULL when its blocks find no room, TKV_UNKNOWN_ID,
   * TKV_STATE, and the reason of `signal`
   */
  async nextPart(
    sequence: KVSequence,
    options: NextPartOptions = {},
  ): Promise<PrefillPart | null | 'interrupted'> {
    const signals = signalsOf(this.#context, requireOptions(options, nextPartOptionsNames));
    const most = requireInteger('maxTokens', options.maxTokens ?? PART_TOKENS, 1);
    throwIfAborted(signals);
    const state = stateOf(this.#context, sequence);
    requireLive(state);
    return nextPart(this.#context, state, most, signals);
  }

  /**
   * Waits until a layer group of a sequence that was begun with `arriving` is in HBM, all of it verified.
   * Groups come in their order, so compute one while the next is on its way.
   * @returns `interrupted` when some of it failed to come: `recover` the sequence, and compute all layers of
   * what is open then
   * @throws TKV_INPUT for a group that is not there, TKV_UNKNOWN_ID, TKV_STATE, and the reason of `signal`
   */
  async readyLayers(
    sequence: KVSequence,
    group: number,
    options: WaitOptions = {},
  ): Promise<ReadyLayers | 'interrupted'> {
    const signals = signalsOf(this.#context, requireOptions(options, waitOptionsNames));
    throwIfAborted(signals);
    const state = stateOf(this.#context, sequence);
    requireLive(state);
    groupOf(this.#context, state, group);
    return readyLayers(this.#context, state, group, signals);
  }

  /**
   * Room for tokens up to `tokens.length`, as a decode appends them. `tokens` are all tokens of the sequence
   * and the new ones behind them. Seals nothing.
   * @throws TKV_FULL when there is no room, TKV_INPUT when a token that the sequence has is another one in
   * `tokens`, TKV_UNKNOWN_ID when the sequence has ended; so do the calls below
   */
  async append(sequence: KVSequence, tokens: KeyElements): Promise<StepEnd> {
    return append(this.#context, stateOf(this.#context, sequence), tokens);
  }

  /**
   * A decode step of a batch, after the device was given the work that writes the KV of all tokens so far:
   * blocks that are full are sealed behind that work, and each sequence gets room for its new tokens.
   * @returns the end of each entry, in order
   * @throws TKV_INPUT for a token that is no id, TKV_CAPACITY for a sequence that HBM cannot hold,
   * TKV_UNKNOWN_ID for one that has ended; no sequence has grown then
   */
  step(entries: readonly StepEntry[]): Promise<EntryEnd[]> {
    return step(this.#context, entries);
  }

  /**
   * Another sequence with the first `atToken` tokens of this one: full blocks are shared, the partial one is
   * copied.
   * @returns `interrupted` when the sequence is to be recovered first
   * @throws TKV_FULL when the copy finds no room
   */
  async fork(sequence: KVSequence, atToken?: number): Promise<KVSequence | 'interrupted'> {
    const state = stateOf(this.#context, sequence);
    return fork(this.#context, state, atToken === undefined ? state.length : atToken);
  }

  /**
   * Takes tokens back, such as drafts that were not accepted: the sequence ends after `tokens` of them.
   * @throws TKV_FULL when a sealed last block has to be copied and finds no room
   */
  async truncate(sequence: KVSequence, tokens: number): Promise<StepEnd> {
    return truncate(this.#context, stateOf(this.#context, sequence), tokens);
  }

  /**
   * Gives an interrupted sequence back: blocks that other tiers hold are loaded, all others are open. Waits
   * for a device. After an error the sequence stays interrupted and is still to be released or cancelled.
   * @returns the open blocks, by number in the sequence: each has to be written again, also if it was before
   * @throws TKV_DEVICE when no device is to be had, TKV_FULL when the blocks find no room, TKV_UNKNOWN_ID
   * when the sequence has ended, TKV_STATE when the runtime is closed, and the reason of `signal`
   */
  async recover(sequence: KVSequence, options: WaitOptions = {}): Promise<number[]> {
    const signals = signalsOf(this.#context, requireOptions(options, waitOptionsNames));
    throwIfAborted(signals);
    const state = stateOf(this.#context, sequence);
    requireLive(state);
    dropTail(this.#context, state);
    state.isRecovering = true;
    await bring(this.#context, state, signals);
    state.cachedTokens = state.readyTokens;
    state.arriving = undefined;
    state.isComing = false;
    for (const group of state.groups) group.sealed = Math.min(group.sealed, group.table.readyPrefix());
    const { count } = this.#context.deviceErrors();
    for (const told of state.told) told.tellAnew(state.length, count);
    state.isRecovering = false;
    return [...new Set(this.openBlocks(sequence).map(({ index }) => index))];
  }

  /**
   * The device work submitted so far has written all full open blocks: their digests are taken behind it, and
   * from then on others find them.
   * @param options.tail seals the partial last block too, under the tokens that it has: for prompts that go
   * on from there
   */
  async seal(sequence: KVSequence, options: { readonly tail?: boolean } = {}): Promise<StepEnd> {
    const { tail = false } = requireOptions(options, ['tail']);
    requireFlag(tail, 'tail');
    return seal(this.#context, stateOf(this.#context, sequence), tail);
  }

  /**
   * Ends the sequence. Its sealed blocks stay cached, here and below; blocks never sealed are gone.
   * @param options.retention how its blocks should be kept; a hint to the eviction policy
   */
  release(sequence: KVSequence, options: { readonly retention?: RetentionHint } = {}): void {
    const { retention } = requireOptions(options, ['retention']);
    const state = stateOf(this.#context, sequence);
    if (retention !== undefined) retain(this.#context, state, retention);
    this.#context.computing.end(state);
    dropTail(this.#context, state);
    for (const { table } of state.groups) this.manager.release(table, this.nowUs());
    state.ended = true;
  }

  /**
   * Ends the sequence of a request that nobody wants any more: as `release`, and loads of a `recover` under
   * way that no other sequence waits for are called off. Calls that wait for the sequence end too: `seal` and
   * `append` say `interrupted`, `recover` rejects with TKV_UNKNOWN_ID.
   */
  cancel(sequence: KVSequence): void {
    const state = stateOf(this.#context, sequence);
    this.#context.computing.end(state);
    dropTail(this.#context, state);
    for (const { table } of state.groups) this.manager.cancel(table, this.nowUs());
    state.ended = true;
  }
}
