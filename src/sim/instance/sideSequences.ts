/**
 * Blocks that sequences hold beside those of their tokens: the windows of layers with a sliding window, and the states of
 * linear layers. Each sequence has a second one in the same pool, private and never found by others, which grows and shrinks
 * with what a step computes and goes with the first.
 */

import type { KVManager } from '../../runtime/index.ts';
import type { Sequence, SequenceId } from '../../runtime/manager/sequence.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import { type SideBlocks, sideBlockCount } from '../latency/kvLayout.ts';

const noKeys = new Uint32Array(0);

export class SideSequences {
  readonly #side: SideBlocks;
  readonly #manager: KVManager;
  readonly #blockTokens: number;
  readonly #sideOf = new Map<Sequence, Sequence>();

  constructor(side: SideBlocks, manager: KVManager, blockTokens: number) {
    this.#side = side;
    this.#manager = manager;
    this.#blockTokens = blockTokens;
  }

  /** Side blocks of a sequence of `blocks` blocks while a step opens `newBlocks` of them. */
  count(blocks: number, newBlocks: number): number {
    return sideBlockCount(this.#side, blocks, newBlocks, this.#blockTokens);
  }

  /** Most blocks that `blocks` blocks of running requests may come to with what lies beside them. */
  most(blocks: number): number {
    return blocks * (1 + Math.ceil(this.#side.windowGroups / this.#side.fullGroups));
  }

  /** Brings the side blocks of a sequence to this number. False, with nothing changed, where they do not fit. */
  resize(sequence: Sequence, count: number, nowUs: number): boolean {
    const manager = this.#manager;
    let side = this.#sideOf.get(sequence);
    if (side === undefined) {
      if (count === 0) return true;
      side = manager.open(noKeys, 0, nowUs, 0, 0, count);
      this.#sideOf.set(sequence, side);
    }
    const { length } = side;
    if (count < length) manager.truncate(side, count, nowUs);
    if (count <= length || manager.allocate(side, length, count, nowUs)) return true;
    if (length === 0) this.close(sequence, nowUs);
    return false;
  }

  /** Blocks that lie beside the sequence. */
  heldBy(sequence: Sequence): number {
    return this.#sideOf.get(sequence)?.length ?? 0;
  }

  /** The sequence is about to end. */
  close(sequence: Sequence, nowUs: number): void {
    const side = this.#sideOf.get(sequence);
    if (side === undefined) return;
    this.#sideOf.delete(sequence);
    this.#manager.release(side, nowUs);
  }

  /** The manager's state is brought back before. */
  visitState(visitor: StateVisitor): void {
    const named = (id: number): Sequence => this.#manager.inspect.sequence(id as SequenceId) as Sequence;
    visitor.value(
      () => [...this.#sideOf].map(([{ id }, side]) => [id, side.id] as const),
      (saved) => {
        this.#sideOf.clear();
        for (const [id, side] of saved) this.#sideOf.set(named(id), named(side));
      },
    );
  }
}
