/**
 * A slot that passes to another tenant is cleared before that tenant can read it. The command goes into the
 * device's queue at once, ahead of whatever the embedder submits later, so nobody waits for it.
 */

import type { Sequence } from '../../runtime/index.ts';
import type { RequestContext } from './context.ts';
import type { SequenceState } from './kvSequence.ts';

/** Clears the foreign slots among the sequence's open blocks from `from` on. */
export function scrub(context: RequestContext, sequence: SequenceState, from: number): void {
  const scrubbing = new Scrubbing(context);
  for (const { table } of sequence.groups) scrubbing.clear(table, from, table.length);
  scrubbing.submit();
}

/** Clears slots of several tables in one submission. */
export class Scrubbing {
  readonly #context: RequestContext;
  #encoder: GPUCommandEncoder | undefined;

  constructor(context: RequestContext) {
    this.#context = context;
  }

  /** The foreign slots among the table's open blocks [from, to). */
  clear(table: Sequence, from: number, to: number): void {
    const { scrubs, keeper, manager, hbm, device } = this.#context;
    if (!scrubs || !keeper.present) return;
    for (let i = from; i < to; i++) {
      const block = manager.openBlock(table, i);
      if (block === undefined || !block.foreign) continue;
      const { buffer, offsetBytes, sizeBytes } = hbm().buffer(block.slot, block.sizeClass);
      this.#encoder ??= device().createCommandEncoder({ label: 'tierkv.scrub' });
      this.#encoder.clearBuffer(buffer, offsetBytes, sizeBytes);
      manager.cleared(table, i);
    }
  }

  submit(): void {
    if (this.#encoder !== undefined) this.#context.device().queue.submit([this.#encoder.finish()]);
    this.#encoder = undefined;
  }
}
