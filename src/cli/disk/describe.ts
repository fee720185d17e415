/** What a disk tier's directory holds, in figures. */

import { StoreView } from '../../backends/file/index.ts';
import { printable } from '../../backends/file/record/printable.ts';
import { formatBytes, formatCount, formatShare, renderTable } from '../output/index.ts';

export interface StoreDescription {
  readonly dir: string;
  readonly model: string;
  readonly layout: string;
  readonly extras: string;
  readonly secretKeyFingerprint: string;
  readonly epoch: number;
  readonly blockBytes: readonly number[];
  readonly pages: number;
  readonly records: number;
  readonly payloadBytes: number;
  readonly capacityBytes: number;
  readonly physicalBytes: number;
  /** Closed by its owner, and not opened since. */
  readonly closed: boolean;
  /** False for a store whose restarts begin empty. */
  readonly keepsIndex: boolean;
  readonly checkpointEpoch: number;
  /** Regions that a start would have to read, and the bytes of that. */
  readonly markedRegions: number;
  readonly recoveryReadBytes: number;
  readonly leftovers: number;
  /** Why the index is of no use; empty where it is. */
  readonly indexProblem: string;
}

/** @throws {TierKVError} TKV_LOCKED, TKV_MISMATCH or TKV_IO */
export async function describeStore(dir: string): Promise<StoreDescription> {
  await using view = await StoreView.open(dir);
  const { identity, slotBytes } = view.facts;
  const { recovered, shape } = view;
  let payloadBytes = 0;
  for (const { sizeClass } of view.records()) payloadBytes += slotBytes[sizeClass];
  return {
    dir,
    model: identity.model,
    layout: identity.layout,
    extras: identity.extras,
    secretKeyFingerprint: identity.secretKey,
    epoch: identity.epoch,
    blockBytes: slotBytes,
    pages: shape.pages,
    records: recovered.table.records,
    payloadBytes,
    capacityBytes: shape.capacityBytes,
    physicalBytes: view.physicalBytes,
    closed: recovered.closed,
    keepsIndex: view.keepsIndex,
    checkpointEpoch: recovered.epoch,
    markedRegions: recovered.regionsRead,
    recoveryReadBytes: recovered.bytesRead,
    leftovers: recovered.leftovers.length,
    indexProblem: recovered.indexProblem,
  };
}

export function renderDescription(store: StoreDescription): string {
  const used = `${formatBytes(store.payloadBytes)} of ${formatBytes(store.capacityBytes)}`;
  const start = !store.keepsIndex
    ? 'nothing: it begins empty'
    : store.indexProblem === ''
      ? `${formatCount(store.markedRegions)} regions, ${formatBytes(store.recoveryReadBytes)}`
      : `everything, ${formatBytes(store.recoveryReadBytes)}: ${store.indexProblem}`;
  const rows: [string, string][] = [
    ['model', store.model],
    ['layout', store.layout],
    ['extras', store.extras],
    ['secret key (fingerprint)', store.secretKeyFingerprint],
    ['epoch', String(store.epoch)],
    ['bytes of a block', store.blockBytes.map(formatCount).join(', ')],
    ['records', formatCount(store.records)],
    ['payload', `${used} (${formatShare(store.payloadBytes, store.capacityBytes)})`],
    ['on disk', formatBytes(store.physicalBytes)],
    ['closed cleanly', store.keepsIndex ? (store.closed ? 'yes' : 'no') : 'not noted: it keeps no index'],
    ['checkpoint', String(store.checkpointEpoch)],
    ['a start reads', start],
    ['leftovers of a crash', formatCount(store.leftovers)],
  ];
  const printed = rows.map(([name, text]) => [name, printable(text)] as const);
  return renderTable([{ title: printable(store.dir) }, { title: '', width: 80 }], printed);
}
