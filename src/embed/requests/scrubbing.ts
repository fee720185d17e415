/**
 * A slot that passes to another tenant is cleared before that tenant can read it. The command goes into the
 * device's queue at once, ahead of whatever the embedder submits later, so nobody waits for it.
 */

import type { RequestContext } from './context.ts';
import type { SequenceState } from './kvSequence.ts';

/** Clears the foreign slots among the sequence's open blocks from `from` on. */
export function scrub(context: RequestContext, sequence: SequenceState, from: number): void {
  if (!context.scrubs || !context.keeper.present) return;
  const { manager } = context;
  const device = context.device();
  let encoder: GPUCommandEncoder | undefined;
  for (const { table } of sequence.groups) {
    for (let i = from; i < table.length; i++) {
      const block = manager.openBlock(table, i);
      if (block === undefined || !block.foreign) continue;
      const { buffer, offsetBytes, sizeBytes } = context.hbm().buffer(block.slot, block.sizeClass);
      encoder ??= device.createCommandEncoder({ label: 'tierkv.scrub' });
      encoder.clearBuffer(buffer, offsetBytes, sizeBytes);
      manager.cleared(table, i);
    }
  }
  if (encoder !== undefined) device.queue.submit([encoder.finish()]);
}
