/**
 * Blocks that requests hold while the scheduler does not have them: those that are loaded for a request on
 * its way, those of a prompt that go to another instance, and room for those that come from one. Each is a
 * sequence of the manager, by the request's row.
 */

import type { KVManager } from '../../../runtime/index.ts';
import type { Sequence, SequenceId } from '../../../runtime/manager/sequences/blockTable/sequence.ts';
import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import type { SimRequest } from '../simRequest.ts';
import type { EngineConfig } from './engineConfig.ts';
import type { ChoosingPort } from './loadChoice.ts';

const HBM = 0;
/** Share of HBM that stays free for the tokens of those that decode when blocks come from elsewhere. */
const HEADROOM_SHARE = 1 / 16;

export class HeldBlocks {
  readonly #announced = new Map<number, Sequence>();
  readonly #leaving = new Map<number, Sequence>();
  readonly #coming = new Map<number, Sequence>();
  readonly #manager: KVManager;
  readonly #port: ChoosingPort;
  readonly #config: EngineConfig;
  readonly #afterCall: (nowUs: number) => void;

  constructor(
    manager: KVManager,
    port: ChoosingPort,
    config: EngineConfig,
    afterCall: (nowUs: number) => void,
  ) {
    this.#manager = manager;
    this.#port = port;
    this.#config = config;
    this.#afterCall = afterCall;
  }

  /** Whether any is room for blocks from elsewhere. */
  get awaitsAny(): boolean {
    return this.#coming.size > 0;
  }

  /** Requests whose loads began before the scheduler looks for them. */
  get announced(): number {
    return this.#announced.size;
  }

  /** Loads blocks of a request that will be added after `slackUs`, where that is worthwhile. */
  announce(request: SimRequest, nowUs: number, slackUs: number): void {
    const manager = this.#manager;
    const { keys } = request;
    const found = manager.matchLength(keys.words, Math.min(request.promptBlocks, keys.length));
    if (found === 0) return;
    const blocks = this.#port.worthwhile(keys, found, slackUs);
    const { byTier } = manager.lookup(keys.words, blocks);
    if (byTier[HBM] === blocks) return;
    // the sequence keeps the blocks from being evicted until the scheduler looks for them
    const before = this.#port.hitsByTier();
    const sequence = manager.open(keys.words, blocks, nowUs, blocks);
    const byTierFound = this.#port.hitsSince(before);
    const { thrashed } = manager.counters;
    const fits = manager.load(sequence, nowUs);
    this.#port.noteThrashing(keys, thrashed);
    if (fits) {
      this.#announced.set(request.number, sequence);
      request.announcedByTier = byTierFound;
    } else manager.release(sequence, nowUs);
    this.#afterCall(nowUs);
  }

  /** The scheduler looks for the blocks of the request now. */
  added(request: SimRequest, nowUs: number): void {
    if (this.#announced.size > 0) this.#release(this.#announced, request.number, nowUs);
  }

  /** Keeps the cached blocks of the request's prompt from being evicted. */
  hold(request: SimRequest, nowUs: number): void {
    const { keys } = request;
    const blocks = Math.min(request.promptBlocks, keys.length);
    this.#leaving.set(request.number, this.#manager.open(keys.words, blocks, nowUs, blocks));
  }

  /**
   * Takes room for the request's prompt.
   * @param isIdle whether nobody runs, so that nobody needs head room
   * @returns false, with nothing taken, when there is none
   */
  reserve(request: SimRequest, isIdle: boolean, nowUs: number): boolean {
    const manager = this.#manager;
    const { keys, promptBlocks } = request;
    const blocks = Math.min(promptBlocks, keys.length);
    const here = this.#port.leadingHere(keys, manager.matchLength(keys.words, blocks));
    const spare = Math.ceil(this.#config.hbmBlocks * HEADROOM_SHARE);
    const isAlone = this.#coming.size === 0 && isIdle;
    if (!manager.canOpen(keys.words, here, blocks + (isAlone ? 0 : spare))) return false;
    const sequence = manager.open(keys.words, blocks, nowUs, here);
    const fits = manager.allocate(sequence, here, blocks, nowUs);
    this.#afterCall(nowUs);
    // a slot whose block is still on its way down is no room yet
    if (!fits || sequence.pending > 0) {
      manager.release(sequence, nowUs);
      this.#afterCall(nowUs);
      return false;
    }
    this.#coming.set(request.number, sequence);
    return true;
  }

  /** The blocks for which room was taken are there. */
  fill(request: SimRequest, nowUs: number): void {
    const sequence = this.#coming.get(request.number);
    if (sequence === undefined) return;
    const { words } = request.keys;
    const { matched, length } = sequence;
    const { blockTokens } = this.#config;
    this.#manager.seal(sequence, matched, length, words, 4 * matched, blockTokens, nowUs);
    this.#afterCall(nowUs);
  }

  /** Ends what `hold` or `reserve` began. */
  letGo(request: SimRequest, nowUs: number): void {
    const held = this.#coming.has(request.number) ? this.#coming : this.#leaving;
    this.#release(held, request.number, nowUs);
  }

  /**
   * Lets the room go that was taken last for a request from elsewhere: it will compute its prompt here.
   * @returns false when there is none
   */
  giveUpNewest(nowUs: number): boolean {
    const newest = [...this.#coming.keys()].at(-1);
    if (newest === undefined) return false;
    this.#release(this.#coming, newest, nowUs);
    return true;
  }

  /** The manager's state is brought back before. */
  visitState(visitor: StateVisitor): void {
    for (const held of [this.#announced, this.#leaving, this.#coming]) {
      visitor.value(
        () => [...held].map(([row, { id }]) => [row, id] as const),
        (saved) => {
          held.clear();
          for (const [row, id] of saved) held.set(row, this.#manager.sequence(id as SequenceId) as Sequence);
        },
      );
    }
  }

  #release(held: Map<number, Sequence>, row: number, nowUs: number): void {
    const sequence = held.get(row);
    if (sequence === undefined) return;
    held.delete(row);
    this.#manager.release(sequence, nowUs);
    this.#afterCall(nowUs);
  }
}
