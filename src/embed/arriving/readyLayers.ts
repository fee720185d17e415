/**
 * Layers that are used as they come: group g computes while group g + 1 is loaded. The handle of a group is
 * made only behind the end of all its transfers, each of which was verified, so kernels that ask for one
 * cannot attend over bytes that are still on their way. A unit that failed to come makes the whole sequence
 * `interrupted`: what the groups before it have computed of its block is not used.
 */

import { unlessAborted } from '../abort.ts';
import type { LayerGroup } from '../layerGroups.ts';
import { type DeviceBlockTable, deviceTable, readableBlocks } from '../requests/blockTables.ts';
import type { RequestContext } from '../requests/context.ts';
import type { SequenceState } from '../requests/kvSequence.ts';
import { scrub } from '../requests/scrubbing.ts';
import { tailStage } from './arrivingTail.ts';
import { placedBlocks } from './placed.ts';

const proof: unique symbol = Symbol('all transfers of the group have ended');

/** Layers [first, end) of a sequence, every block of which is in HBM: verified, or open. */
export class ReadyLayers implements LayerGroup {
  readonly group: number;
  readonly first: number;
  readonly end: number;
  readonly blockTable: DeviceBlockTable;
  /** Blocks that are to be written in these layers; no others are. */
  readonly open: readonly number[];

  /** Only `readyLayers` has the proof. */
  constructor(
    _: typeof proof,
    group: number,
    { first, end }: LayerGroup,
    blockTable: DeviceBlockTable,
    open: readonly number[],
  ) {
    this.group = group;
    this.first = first;
    this.end = end;
    this.blockTable = blockTable;
    this.open = open;
  }
}

export async function readyLayers(
  context: RequestContext,
  sequence: SequenceState,
  group: number,
  signals: readonly AbortSignal[],
): Promise<ReadyLayers | 'interrupted'> {
  const { loop, manager, keeper, units } = context;
  const { table } = sequence.groups[group];
  const isTailThere = await tailSettled(context, sequence, group, signals);
  while (table.pending > 0) await unlessAborted(signals, () => loop.settled(table));
  const { blocks } = sequence;
  const isLive = !sequence.ended && !sequence.isRecovering && keeper.present;
  const isHere = isTailThere && isLive && placedBlocks(table) >= blocks;
  if (!isHere) return 'interrupted';
  scrub(context, sequence, 0);
  const open: number[] = [];
  for (let i = 0; i < blocks; i++) if (manager.openBlock(table, i) !== undefined) open.push(i);
  sequence.groups[group].disturbances = table.disturbances;
  if (sequence.isComing) {
    sequence.told[group].tell(0, blocks, sequence.length, context.deviceErrors().count);
    sequence.isComing = !sequence.told.every((told) => told.covers(sequence.length));
  }
  const places = deviceTable(context.hbm(), readableBlocks(manager, table, blocks).blocks);
  return new ReadyLayers(proof, group, units.groups[group], places, open);
}

/** Waits for the sequence's tail in this group. @returns false where it failed to come */
async function tailSettled(
  context: RequestContext,
  sequence: SequenceState,
  group: number,
  signals: readonly AbortSignal[],
): Promise<boolean> {
  const { table } = sequence.groups[group];
  for (;;) {
    const { tail } = sequence;
    const stage = tail === undefined ? 'inPlace' : tailStage(context, sequence, tail, group);
    if (stage === 'inPlace' || stage === 'failed') return stage === 'inPlace';
    // What has come up may still wait for the sequence's own block to get its slot.
    const isUp = tail === undefined || stage !== 'coming' || tail.tables[group].pending === 0;
    const awaited = isUp ? table : tail.tables[group];
    await unlessAborted(signals, () => context.loop.settled(awaited));
  }
}
