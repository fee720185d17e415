/**
 * One request after the other through the manager, as the traces' ground truth defines it: look up the whole
 * prefix, bring what lower tiers hold, compute the rest, and let all blocks go from the last to the first.
 * The tiers are exclusive: a block that moves up leaves the tier that it came from, a block that HBM has no
 * room for moves down.
 *
 * The session is the same for every driver. It hands the ends of jobs to the manager in the order of
 * submission (orderedEnds.ts), so its decisions depend on the trace and the configuration alone.
 */

import {
  BlockKeys,
  Entry,
  ExternalKeys,
  JobCarrier,
  type KVManager,
  type Sequence,
} from '../../runtime/index.ts';
import { OrderedEnds } from './orderedEnds.ts';
import type { BlockBytes, BlockPlace, ReplayTiers } from './tiers/index.ts';

export class ReplaySession {
  readonly manager: KVManager;
  verified = 0;
  verifyFailures = 0;
  readonly #driver: OrderedEnds;
  readonly #advance: ReplayTiers['advance'];
  readonly #bytes: BlockBytes | null;
  readonly #chain: ExternalKeys = new ExternalKeys({ tenant: 'replay', epoch: 0 });
  readonly #keys: BlockKeys = new BlockKeys(256);
  readonly #blockTokens: number;
  readonly #hbmBlocks: number;
  readonly #window: number;

  /** @param window most blocks that are brought or computed at a time when a request is larger than HBM */
  constructor(
    manager: KVManager,
    tiers: Pick<ReplayTiers, 'driver' | 'bytes' | 'advance'>,
    sizes: { blockTokens: number; hbmBlocks: number; window: number },
  ) {
    this.manager = manager;
    this.#driver = new OrderedEnds(tiers.driver);
    this.#advance = tiers.advance;
    this.#bytes = tiers.bytes;
    const carrier = new JobCarrier(manager, this.#driver);
    manager.listen({ jobsIssued: () => carrier.submit() });
    this.#blockTokens = sizes.blockTokens;
    this.#hbmBlocks = sizes.hbmBlocks;
    this.#window = sizes.window;
  }

  /**
   * @param arrivalUs when it arrived, in the trace's time
   * @returns leading blocks that were found in any tier
   */
  async request(hashIds: Float64Array, arrivalUs: number): Promise<number> {
    const count = hashIds.length;
    this.#driver.arrivedAt(arrivalUs);
    this.#chain.hashBlocks(hashIds, 0, this.#keys);
    const sequence = this.manager.open(this.#keys.words, count, this.#driver.nowUs());
    const window = count <= this.#hbmBlocks ? count : this.#window;
    for (let to = count; to > 0; to -= window) {
      await this.#blocks(sequence, hashIds, Math.max(0, to - window), to);
    }
    this.manager.release(sequence, this.#driver.nowUs());
    await this.#until(() => this.manager.jobsInFlight === 0);
    return sequence.matched;
  }

  /**
   * Brings blocks [from, to) to HBM, loaded or computed, verifies those that were there before, and lets them
   * go.
   */
  async #blocks(sequence: Sequence, ids: Float64Array, from: number, to: number): Promise<void> {
    const { manager } = this;
    const matched = Math.min(Math.max(sequence.matched, from), to);
    manager.load(sequence, this.#driver.nowUs(), from, matched);
    manager.allocate(sequence, matched, to, this.#driver.nowUs());
    await this.#until(() => sequence.pending === 0);
    const found: BlockPlace[] = [];
    const failed: number[] = [];
    for (let i = from; i < matched; i++) {
      const block = manager.loadedBlock(sequence, i);
      if (block !== undefined) found.push({ slot: block.slot, generation: block.generation, id: ids[i] });
      else failed.push(i);
    }
    for (const i of failed) manager.allocate(sequence, i, i + 1, this.#driver.nowUs());
    if (failed.length > 0) await this.#until(() => sequence.pending === 0);
    this.#compute(sequence, ids, from, to);
    const verdict = this.#bytes === null ? Promise.resolve(0) : this.#bytes.verify(found);
    await this.#until(() => sequence.pending === 0);
    this.verified += found.length;
    this.verifyFailures += await verdict;
    manager.releaseRange(sequence, from, to, this.#driver.nowUs());
  }

  /** Writes and seals every open block of [from, to). */
  #compute(sequence: Sequence, ids: Float64Array, from: number, to: number): void {
    const open: BlockPlace[] = [];
    for (let i = from; i < to; i++) {
      const block = this.manager.openBlock(sequence, i);
      if (block !== undefined) open.push({ slot: block.slot, generation: block.generation, id: ids[i] });
    }
    if (open.length > 0) this.#bytes?.write(open);
    for (let i = from; i < to; ) {
      let end = i;
      while (end < to && sequence.state[end] === Entry.OPEN) end++;
      if (end > i) {
        this.manager.seal(sequence, i, end, this.#keys.words, i * 4, this.#blockTokens, this.#driver.nowUs());
      }
      i = Math.max(end, i + 1);
    }
  }

  /** Lets the driver work until the condition holds, and hands ends to the manager no further than needed. */
  async #until(done: () => boolean): Promise<void> {
    while (!done()) {
      if (this.#driver.handOut()) continue;
      if (this.#advance === null) await this.#driver.arrival();
      else this.#advance();
    }
  }
}
