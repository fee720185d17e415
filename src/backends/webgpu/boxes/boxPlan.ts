/**
 * A box as a regular pattern of runs in the unit that contains it, most often a block. That pattern is the
 * same in every block, so a plan is made once and serves any number of slots:
 *
 *     | . . r0 r0 . . r1 r1 . . | . . r2 r2 . . r3 r3 . . |
 *           ^                         runsPerLayer = 2; r1 lies runStrideBytes after r0, r2 layerStrideBytes
 *           firstOffsetBytes
 *
 * The packed bytes of the box are its runs one behind the other: `[layer][head][K,V][token][headDim]` over
 * its own ranges.
 */

import { configError } from '../../../runtime/errors.ts';
import {
  blockBox,
  boxBytes,
  boxStrides,
  contains,
  countRuns,
  type KVBox,
  type KVLayout,
  requireBox,
  rowOffsetBytes,
} from '../../../runtime/geometry/index.ts';

/** Made here alone, where it is checked that all runs lie in the container. */
export interface BoxPlan {
  /** Packed bytes of the box: what `bytes` of an item must be. */
  readonly boxBytes: number;
  /** Bytes of what contains the box: a slot must have as many. */
  readonly containerBytes: number;
  readonly runs: number;
  readonly runBytes: number;
  readonly firstOffsetBytes: number;
  readonly runsPerLayer: number;
  readonly runStrideBytes: number;
  readonly layerStrideBytes: number;
}

/**
 * @param box tokens count from the start of the container's sequence; within a block, from its first token
 * @param container what lies in the slots, from their first byte on: by default a block
 * @throws TKV_CONFIG when either box is empty or outside of the layout, or the container does not contain the
 * box
 */
export function boxPlan(layout: KVLayout, box: KVBox, container: KVBox = blockBox(layout, 0)): BoxPlan {
  requireBox(layout, box);
  requireBox(layout, container);
  if (!contains(container, box)) {
    throw configError('box', 'reaches out of its container', 'Intersect the two first.');
  }
  const runs = countRuns(box, container);
  const layers = box.layerEnd - box.layerStart;
  const { kvBytes, layerBytes } = boxStrides(layout, container);
  return Object.freeze({
    boxBytes: boxBytes(layout, box),
    containerBytes: boxBytes(layout, container),
    runs,
    runBytes: boxBytes(layout, box) / runs,
    firstOffsetBytes: rowOffsetBytes(layout, container, box.layerStart, box.headStart, 0, box.tokenStart),
    runsPerLayer: Math.max(1, runs / layers),
    runStrideBytes: kvBytes,
    layerStrideBytes: layerBytes,
  });
}

/** A whole slot of `slotBytes` bytes, as a box of one run. */
export function wholePlan(slotBytes: number): BoxPlan {
  return Object.freeze({
    boxBytes: slotBytes,
    containerBytes: slotBytes,
    runs: 1,
    runBytes: slotBytes,
    firstOffsetBytes: 0,
    runsPerLayer: 1,
    runStrideBytes: 0,
    layerStrideBytes: 0,
  });
}

/** Offset of run number `run` in the container. */
export function runOffsetBytes(plan: BoxPlan, run: number): number {
  const inLayer = run % plan.runsPerLayer;
  const layer = (run - inLayer) / plan.runsPerLayer;
  return plan.firstOffsetBytes + layer * plan.layerStrideBytes + inLayer * plan.runStrideBytes;
}

/** Whether every run begins and ends at a multiple of `unitBytes` when the slot begins at `slotOffset`. */
export function inUnitsOf(plan: BoxPlan, unitBytes: number, slotOffset: number): boolean {
  return (
    (slotOffset + plan.firstOffsetBytes) % unitBytes === 0 &&
    plan.runBytes % unitBytes === 0 &&
    (plan.runsPerLayer === 1 || plan.runStrideBytes % unitBytes === 0) &&
    (plan.runs === plan.runsPerLayer || plan.layerStrideBytes % unitBytes === 0)
  );
}
