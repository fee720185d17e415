/**
 * A slot that passes to another tenant is cleared before that tenant can read it. The device clears it ahead of whatever the
 * embedder submits later, so nobody waits for it.
 */

import type { RequestContext } from './context.ts';
import type { KVSequence } from './kvSequence.ts';

/** Clears the foreign slots among the sequence's open blocks from `from` on. */
export function scrub(context: RequestContext, sequence: KVSequence, from: number): void {
  if (!context.scrubs) return;
  const { manager } = context;
  const places: { slot: number; sizeClass: number; generation: number }[] = [];
  for (const { table } of sequence.groups) {
    for (let i = from; i < table.length; i++) {
      const block = manager.openBlock(table, i);
      if (block === undefined || !block.foreign) continue;
      places.push({ slot: block.slot, sizeClass: block.sizeClass, generation: block.generation });
      manager.cleared(table, i);
    }
  }
  if (places.length > 0) void context.hbm().clear(places);
}
