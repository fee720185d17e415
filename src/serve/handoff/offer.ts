/**
 * A prompt whose blocks go to another runtime: each is held here, from when it is sealed until it is the other side's.
 *
 * - Blocks are held in their order, as they become ready, and let go in any.
 * - The lease runs from the end of the prompt's computing, and anew from each block that is let go. At its end, and when
 *   the prompt is given up, all is let go.
 */

import { runningClock } from '../../backends/runningClock.ts';
import type { BlockPort, HeldBlock, PromptUnits } from '../../embed/blockPort.ts';
import type { HandoffReference } from './reference.ts';

/**
 * Milliseconds after the end of a prompt's computing after which a block that is not to be found will not come: it was
 * evicted, or its sealing failed.
 */
const SEALED_WITHIN_MS = 2000;
/** Milliseconds between two attempts to write a block for which the shared tier had no room. */
const SHARE_AGAIN_MS = 10;
/** Such attempts of a block: a tier that takes nothing for so long takes it no more. */
const SHARES_OF_BLOCK_MAX = 100;
/** Blocks of one offer that are written to the shared tier at a time: what it may have under way is bounded. */
const SHARES_MAX = 8;

export type OfferEnd = 'handedOff' | 'expired' | 'withdrawn';

/** A prompt whose blocks go to another runtime. */
export interface HandoffOffer {
  readonly reference: HandoffReference;
  /** The prompt is computed: the lease begins. */
  computed(): void;
  /** The prompt will not be computed: everything is let go. */
  withdraw(): void;
  /** Fulfilled when nothing of it is held here any more. */
  readonly ended: Promise<OfferEnd>;
  /**
   * For a hand-off through the shared tier: fulfilled when every block that could be written was.
   * @returns blocks that are there
   */
  readonly shared: Promise<number>;
}

/** The fetcher of an offer's blocks. */
export interface Claimant {
  /** More of them are held, or will not come. */
  advance(): void;
  offerEnded(end: OfferEnd): void;
}

/** The part of its sender that an offer needs. */
interface OfferHost {
  readonly leaseMs: number;
  mayHold(bytes: number): boolean;
  held(bytes: number): void;
  sent(bytes: number): void;
  over(end: OfferEnd): void;
}

export class Offer implements HandoffOffer {
  readonly reference: HandoffReference;
  readonly ended: Promise<OfferEnd>;
  readonly shared: Promise<number>;
  readonly prompt: PromptUnits;
  readonly #port: BlockPort;
  readonly #host: OfferHost;
  /** Hold of each unit, while the unit is ours. */
  readonly #held: (HeldBlock | undefined)[];
  readonly #isGone: boolean[];
  /** Units before it are held or gone. */
  #next = 0;
  #isLooking = false;
  #looksAgain = false;
  #isComputed = false;
  /** Once true, blocks that are not found will not come. */
  #isSettled = false;
  #cancelSettling = (): void => {};
  #heldUnits = 0;
  #end: OfferEnd | undefined;
  #claim: Claimant | undefined;
  #cancelLease = (): void => {};
  #resolve: (end: OfferEnd) => void = () => {};
  #resolveShared: (blocks: number) => void = () => {};
  #sharing = 0;
  #sharedBlocks = 0;

  constructor(port: BlockPort, prompt: PromptUnits, reference: HandoffReference, host: OfferHost) {
    this.#port = port;
    this.prompt = prompt;
    this.reference = reference;
    this.#host = host;
    this.#held = new Array(prompt.units.length).fill(undefined);
    this.#isGone = new Array(prompt.units.length).fill(false);
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    this.shared = new Promise((resolve) => {
      this.#resolveShared = resolve;
    });
  }

  /** Whether it can be claimed. */
  get isFree(): boolean {
    return this.#end === undefined && this.#claim === undefined;
  }

  get isOver(): boolean {
    return this.#end !== undefined;
  }

  computed(): void {
    if (this.#isComputed || this.#end !== undefined) return;
    this.#isComputed = true;
    this.#renewLease();
    this.#cancelSettling = runningClock.alarm(SEALED_WITHIN_MS, () => {
      this.#isSettled = true;
      this.look();
    });
    this.look();
  }

  withdraw(): void {
    this.#finish('withdrawn');
  }

  claimedBy(claim: Claimant | undefined): void {
    this.#claim = claim;
    if (claim !== undefined) this.look();
  }

  /** The hold of a unit: undefined while it is computed. `gone` where it will not come any more. */
  unit(i: number): HeldBlock | 'gone' | undefined {
    return this.#held[i] ?? (this.#isGone[i] ? 'gone' : undefined);
  }

  /** The unit is the other side's. */
  letGo(i: number, isSent: boolean): void {
    const held = this.#held[i];
    if (held !== undefined) {
      this.#held[i] = undefined;
      this.#heldUnits--;
      held.release();
      this.#host.held(-this.prompt.units[i].bytes);
      if (isSent) this.#host.sent(this.prompt.units[i].bytes);
    }
    this.#isGone[i] = true;
    if (this.#isComputed) this.#renewLease();
  }

  /** Everything was taken. */
  complete(): void {
    this.#finish('handedOff');
  }

  /** Holds what has been sealed since the last look, in order. */
  look(): void {
    this.#looksAgain = true;
    if (this.#isLooking || this.#end !== undefined) return;
    this.#isLooking = true;
    void this.#lookOn().finally(() => {
      this.#isLooking = false;
    });
  }

  async #lookOn(): Promise<void> {
    const { units, owner } = this.prompt;
    while (this.#looksAgain && this.#end === undefined) {
      this.#looksAgain = false;
      const isSettled = this.#isSettled;
      while (this.#next < units.length && this.#end === undefined) {
        const i = this.#next;
        const unit = units[i];
        if (this.#isGone[i]) {
          this.#next++;
          continue;
        }
        // Room is checked before bytes are reserved: giving them back would make all offers look again, for ever.
        if (!this.#port.canHold(unit, owner)) {
          if (!isSettled) break;
          this.#isGone[i] = true;
          this.#next++;
          continue;
        }
        if (this.reference.way === 'shared' && this.#sharing >= SHARES_MAX) break;
        // One that is waited for may always hold a block, however much others hold.
        const isNeeded =
          this.#heldUnits === 0 && (this.#claim !== undefined || this.reference.way === 'shared');
        if (!isNeeded && !this.#host.mayHold(unit.bytes)) break;
        this.#host.held(unit.bytes);
        const held = await this.#port.hold(unit, owner);
        // `letGo` may have come meanwhile: the other side has the unit
        if (held === undefined || this.#end !== undefined || this.#isGone[i]) {
          this.#host.held(-unit.bytes);
          held?.release();
          if (this.#end !== undefined || !(isSettled || this.#isGone[i])) break;
          this.#isGone[i] = true;
        } else {
          this.#held[i] = held;
          this.#heldUnits++;
        }
        this.#next++;
        if (this.reference.way === 'shared') void this.#share(i);
        else this.#claim?.advance();
      }
      this.#claim?.advance();
    }
    this.#tellShared();
  }

  async #share(i: number): Promise<void> {
    const unit = this.prompt.units[i];
    if (this.#held[i] === undefined) return;
    this.#sharing++;
    let why = 'full';
    for (let turn = 0; why === 'full' && turn < SHARES_OF_BLOCK_MAX && this.#end === undefined; turn++) {
      if (turn > 0) await new Promise((resolve) => setTimeout(resolve, SHARE_AGAIN_MS).unref());
      why = await this.#port.share(unit);
    }
    this.#sharing--;
    if (why === '') this.#sharedBlocks++;
    if (this.#end === undefined) this.letGo(i, why === '');
    this.look();
    this.#tellShared();
  }

  #tellShared(): void {
    if (this.reference.way !== 'shared' || this.#sharing > 0 || !this.#isComputed) return;
    if (this.#next < this.prompt.units.length && this.#end === undefined) return;
    this.#resolveShared(this.#sharedBlocks);
    this.#finish('handedOff');
  }

  #renewLease(): void {
    this.#cancelLease();
    if (this.#end !== undefined) return;
    this.#cancelLease = runningClock.alarm(this.#host.leaseMs, () => this.#finish('expired'));
  }

  #finish(end: OfferEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#cancelLease();
    this.#cancelSettling();
    this.#held.forEach((held, i) => {
      if (held === undefined) return;
      this.#held[i] = undefined;
      held.release();
      this.#host.held(-this.prompt.units[i].bytes);
    });
    this.#claim?.offerEnded(end);
    this.#claim = undefined;
    this.#resolveShared(this.#sharedBlocks);
    this.#host.over(end);
    this.#resolve(end);
  }
}
