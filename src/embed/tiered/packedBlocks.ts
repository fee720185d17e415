/**
 * Blocks as callers have them, packed, and the units of which a pool makes them: a block's bytes taken apart
 * into those of its units, and put together again.
 */

import type { KVBlockDescriptor, KVLayout, PoolUnit } from '../../runtime/index.ts';
import { bytesOfBox, copyBox, packedBox, unitInBlock } from './boxCopies.ts';

/** @param data packed bytes of each block @returns bytes of each unit, zeros behind a block's last token */
export function takenApart(
  layout: KVLayout,
  blocks: readonly KVBlockDescriptor[],
  data: readonly Uint8Array[],
): { unit: PoolUnit; bytes: Uint8Array }[] {
  return blocks.flatMap((block, i) =>
    block.units.map((unit) => {
      const box = unitInBlock(block, unit);
      const bytes = bytesOfBox(layout, box);
      copyBox(layout, { box: packedBox(block), bytes: data[i] }, { box, bytes });
      return { unit, bytes };
    }),
  );
}

/** A unit of a block, as the block was when its bytes were asked for. */
export interface PartOfBlock {
  readonly block: KVBlockDescriptor;
  readonly unit: PoolUnit;
}

export function partsOf(blocks: readonly KVBlockDescriptor[]): PartOfBlock[] {
  return blocks.flatMap((block) => block.units.map((unit) => ({ block, unit })));
}

/** @param read the units' bytes, in the order of `parts` @returns packed bytes of each block */
export function putTogether(
  layout: KVLayout,
  blocks: readonly KVBlockDescriptor[],
  parts: readonly PartOfBlock[],
  read: readonly { readonly bytes: Uint8Array }[],
): Uint8Array[] {
  const packed = new Map(blocks.map((block) => [block, bytesOfBox(layout, packedBox(block))]));
  parts.forEach(({ block, unit }, i) => {
    const bytes = packed.get(block);
    if (bytes === undefined) return;
    const from = { box: unitInBlock(block, unit), bytes: read[i].bytes };
    copyBox(layout, from, { box: packedBox(block), bytes });
  });
  return blocks.map((block) => packed.get(block) ?? new Uint8Array(0));
}
