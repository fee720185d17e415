/** `tierkv disk fsck`: everything in the store read and compared. */

import fs from 'node:fs';
import path from 'node:path';
import { type StoreReport, StoreView } from '../../backends/file/inspect.ts';
import { storeFiles } from '../../backends/file/opening.ts';
import { printable } from '../../backends/file/record.ts';
import { openToWrite } from '../../backends/host/posix.ts';
import { requireWritableTargets } from '../../io/files/results.ts';
import { formatBytes, formatCount, formatCounted, formatShare, renderTable } from '../../io/printing/text.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import { keyToHex } from '../../runtime/index.ts';

interface DiskCheckReport extends StoreReport {
  readonly dir: string;
  readonly closed: boolean;
  /**
   * False for a store whose restarts begin empty: it notes neither what lies where nor whether it was closed.
   */
  readonly keepsIndex: boolean;
}

/** @param progress told of each record that was read @throws {TierKVError} TKV_LOCKED, TKV_MISMATCH or TKV_IO */
export async function checkStore(
  dir: string,
  progress?: (checked: number, records: number) => void,
): Promise<DiskCheckReport> {
  await using view = await StoreView.open(dir);
  return { dir, closed: view.recovered.closed, keepsIndex: view.keepsIndex, ...(await view.check(progress)) };
}

export function renderCheck(report: DiskCheckReport): string {
  const lines = [
    `${report.dir}: ${formatCounted(report.recordsChecked, 'records')} checked, ` +
      `${formatBytes(report.bytesRead)} read`,
    ...stateLines(report),
    ...report.leftovers.map(({ where, problem }) => `leftover  ${where}: ${problem}`),
    ...report.faults.map(({ where, problem }) => `fault     ${where}: ${problem}`),
    `leftovers ${report.leftovers.length}`,
    `faults ${report.faults.length}`,
  ];
  return `${lines.map(printable).join('\n')}\n`;
}

function stateLines({ closed, keepsIndex }: DiskCheckReport): string[] {
  if (!keepsIndex)
    return ['it keeps no index: its next start begins empty, and records that are not whole are leftovers'];
  return closed ? [] : ['it was not closed: what a crash interrupted is listed as leftovers'];
}

//  Figures of a disk tier's directory.

interface StoreDescription {
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

//  `tierkv disk export`: the records' metadata as JSON lines, and their bytes as files on request.

interface ExportOptions {
  readonly out?: string;
  readonly payloads?: string;
}

/** @throws {TierKVError} TKV_LOCKED, TKV_MISMATCH or TKV_IO */
export async function exportStore(dir: string, { out: named, payloads }: ExportOptions): Promise<void> {
  const out = named === '-' ? undefined : named; // standard output, as without the option
  requireOutputs(dir, { '--out': out });
  if (payloads !== undefined) requireDirectory(payloads, dir);
  await using view = await StoreView.open(dir);
  const target = out === undefined ? undefined : openToWrite(out, 'w');
  try {
    for (const entry of view.records()) {
      const { slot, sizeClass, generation, sequence, lastUse, tokens, key, parent, digest } = entry;
      const line: Record<string, string | number | null> = {
        slot,
        sizeClass,
        generation,
        sequence,
        lastUse,
        tokens,
        bytes: view.facts.slotBytes[sizeClass],
        key: keyToHex(key, 0),
        parent: parent === undefined ? null : keyToHex(parent, 0),
        digest: hexOf(digest.hi) + hexOf(digest.lo),
      };
      if (payloads !== undefined) {
        const payload = await view.payload(entry);
        line.file = typeof payload === 'string' ? null : `${line.key}.bin`;
        line.problem = typeof payload === 'string' ? payload : null;
        if (typeof payload !== 'string') writeAnew(path.join(payloads, `${line.key}.bin`), payload);
      }
      await write(target, `${JSON.stringify(line)}\n`);
    }
  } finally {
    if (target !== undefined) fs.closeSync(target);
  }
}

/**
 * Writes a file that only its owner may read, as the store itself is. Whatever has the name is removed first,
 * never written to: it may be a link to elsewhere.
 */
function writeAnew(file: string, bytes: Uint8Array): void {
  try {
    fs.rmSync(file, { force: true });
    fs.writeFileSync(file, bytes, { flag: 'wx', mode: 0o600 });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const problem = `--payloads: writing ${file} failed with ${code}`;
    throw new TierKVError('TKV_IO', `${problem}. Name an empty directory that this user may write.`, {
      field: '--payloads',
      path: file,
      cause,
    });
  }
}

/** No output may take the place of a file of the store. @param targets files by the options that name them */
export function requireOutputs(dir: string, targets: Readonly<Record<string, string | undefined>>): void {
  const files = storeFiles.map((name) => [name, path.join(dir, name)]);
  requireWritableTargets(targets, Object.fromEntries(files));
}

function requireDirectory(name: string, dir: string): void {
  const there = fs.statSync(name, { throwIfNoEntry: false });
  if (there?.isDirectory() && fs.existsSync(dir) && fs.realpathSync(name) === fs.realpathSync(dir))
    throw configError('--payloads', `is ${name}, the disk tier itself`, 'Name another directory.');
  if (there?.isDirectory()) return;
  throw new TierKVError('TKV_IO', `--payloads ${name} must be a directory. Create it first.`, {
    field: '--payloads',
    path: name,
  });
}

async function write(target: number | undefined, line: string): Promise<void> {
  if (target !== undefined) fs.writeSync(target, line);
  else if (!process.stdout.write(line)) {
    await new Promise<void>((resolve) => process.stdout.once('drain', resolve));
  }
}

function hexOf(word: number): string {
  return word.toString(16).padStart(8, '0');
}
