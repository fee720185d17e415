/**
 * One connection that fetches the blocks of an offer: each is read and sealed while the one before is on its way, as
 * far as the credits of the other side go, and sent when the socket takes it.
 */

import type { RecordCodec } from '../../backends/remote/sealedRecord.ts';
import type { HeldBlock } from '../../embed/blockPort.ts';
import type { Claimant, Offer, OfferEnd } from './offer.ts';
import { Frame, type Wire } from './wire.ts';

/** Units that are read and sealed beside the one that is sent. */
const PREPARED_MAX = 4;

/** One side that fetches the blocks of an offer. */
export class HandoffClaim implements Claimant {
  readonly #wire: Wire;
  readonly #codec: RecordCodec;
  readonly #offer: Offer;
  readonly #number: number;
  readonly #done: (why: string) => void;
  #credits: number;
  /** The next unit to read, and the next one to be taken. */
  #next: number;
  #taken: number;
  #preparing = 0;
  /** Sends in order. */
  #line: Promise<void> = Promise.resolve();
  #isOver = false;

  constructor(
    wire: Wire,
    codec: RecordCodec,
    offer: Offer,
    claim: {
      readonly number: number;
      readonly first: number;
      readonly credits: number;
      readonly done: (why: string) => void;
    },
  ) {
    this.#wire = wire;
    this.#codec = codec;
    this.#offer = offer;
    this.#number = claim.number;
    this.#done = claim.done;
    this.#credits = claim.credits;
    const { length } = offer.prompt.units;
    this.#next = Math.min(claim.first, length);
    this.#taken = this.#next;
    // Blocks that the other side already has are not held for it.
    for (let i = 0; i < this.#taken; i++) offer.letGo(i, false);
    offer.claimedBy(this);
    this.advance();
  }

  /** Reads and sends what is held, as far as credits go. */
  advance(): void {
    const { units } = this.#offer.prompt;
    while (!this.#isOver && this.#next < units.length) {
      if (this.#credits === 0 || this.#preparing >= PREPARED_MAX) return;
      const held = this.#offer.unit(this.#next);
      if (held === undefined) return;
      if (held === 'gone') {
        this.#line = this.#line.then(() => this.#giveUp('a block could not be computed or held'));
        return;
      }
      this.#credits--;
      this.#preparing++;
      const i = this.#next++;
      const record = this.#prepare(i, held);
      this.#line = this.#line.then(async () => this.#send(i, await record));
    }
    if (!this.#isOver && this.#taken === units.length) {
      this.#end('');
      this.#offer.complete();
    }
  }

  taken(unit: number): void {
    if (this.#isOver || unit !== this.#taken || unit >= this.#next) return;
    this.#taken++;
    this.#credits++;
    this.#offer.letGo(unit, true);
    this.advance();
  }

  /** The other side is gone, or wants no more. */
  leave(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#offer.claimedBy(undefined);
  }

  offerEnded(end: OfferEnd): void {
    if (end !== 'handedOff') this.#end(end === 'expired' ? 'its lease has ended' : 'the prompt was given up');
  }

  async #prepare(i: number, held: HeldBlock): Promise<Uint8Array | undefined> {
    const { key, parent, bytes, tokens } = this.#offer.prompt.units[i];
    const payload = new Uint8Array(bytes);
    const isRead = await held.read(payload).catch(() => false);
    if (!isRead || this.#isOver) return undefined;
    return this.#codec.seal({ key, parent, tokens, digest: held.digest, bytes: payload });
  }

  async #send(i: number, record: Uint8Array | undefined): Promise<void> {
    this.#preparing--;
    if (this.#isOver) return;
    if (record === undefined) {
      this.#giveUp('a block could not be read');
      return;
    }
    const body = Buffer.alloc(8);
    body.writeUInt32LE(this.#number, 0);
    body.writeUInt32LE(i, 4);
    this.#wire.send(Frame.BLOCK, body, record);
    await this.#wire.sent();
    this.advance();
  }

  /** The other side computes the rest, and nothing is held for it. */
  #giveUp(why: string): void {
    if (this.#isOver) return;
    this.#end(why);
    this.#offer.withdraw();
  }

  #end(why: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#offer.claimedBy(undefined);
    this.#done(why);
  }
}
