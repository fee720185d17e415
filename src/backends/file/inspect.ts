/**
 * Inspects a store that no process owns: what a start would find, and whether all of it is right. Files are
 * opened for reading only, and nothing is changed, not even claims of dead processes.
 */

import * as fs from 'node:fs';
import { join } from 'node:path';
import { namedError, type TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { type PoolShape, poolShape } from '../../runtime/tables/slotPool.ts';
import { type Libc, loadLibc } from '../host/posix.ts';
import { dirError, type RangedFile } from './dataFile.ts';
import { requireUnowned } from './directoryLock.ts';
import { BlockKind } from './indexBlocks.ts';
import { type IndexFault, storedGeometry } from './indexFile.ts';
import { StagingPool } from './ioQueue.ts';
import { BLOCKS_NAME, INDEX_NAME, NEW_SUFFIX, storeFiles, storeThere } from './opening.ts';
import { bytesOnDisk, headOf, NodeDataFile } from './posixFolder.ts';
import {
  DATA_START_BYTES,
  type FileLayout,
  familyOf,
  fileLayout,
  pageAt,
  recordBytesMax,
  type StoreFacts,
} from './record.ts';
import { type FoundRecord, RecordScan } from './recordIo.ts';
import type { SlotEntry } from './slotTable.ts';
import { type Recovered, recover } from './warmState.ts';

interface StoreFault {
  /** For example `slot 12` or `index: SLOT block 3 of half 1`. */
  readonly where: string;
  readonly problem: string;
}

export interface StoreReport {
  /** Damage: what no crash explains. */
  readonly faults: readonly StoreFault[];
  /** Traces of writes that a crash interrupted. The next start ignores them. */
  readonly leftovers: readonly StoreFault[];
  readonly recordsChecked: number;
  readonly bytesRead: number;
}

const STAGING_BYTES_MIN = 16 * 1024 * 1024;

export class StoreView implements AsyncDisposable {
  readonly dir: string;
  readonly facts: StoreFacts;
  readonly shape: PoolShape;
  readonly recovered: Recovered;
  /** Whether the store should have an index. A store whose restarts begin empty has none. */
  readonly keepsIndex: boolean;
  /** Bytes that the files take on the disk. */
  readonly physicalBytes: number;
  /** Files with a preliminary name: a crash interrupted the making of a store. */
  readonly unfinishedFiles: readonly string[];
  readonly #layout: FileLayout;
  readonly #scan: RecordScan;
  readonly #blocks: RangedFile;
  readonly #staging: StagingPool;

  private constructor(
    dir: string,
    facts: StoreFacts,
    layout: FileLayout,
    recovered: Recovered,
    keepsIndex: boolean,
    blocks: RangedFile,
    staging: StagingPool,
  ) {
    this.dir = dir;
    this.facts = facts;
    this.shape = layout.shape;
    this.recovered = recovered;
    this.keepsIndex = keepsIndex;
    this.#layout = layout;
    this.#scan = new RecordScan(blocks, layout, familyOf(facts), staging);
    this.#blocks = blocks;
    this.#staging = staging;
    this.physicalBytes = bytesOnDisk(join(dir, BLOCKS_NAME)) + bytesOnDisk(join(dir, INDEX_NAME));
    const isUnfinished = (name: string) => name.startsWith('tierkv.') && name.endsWith(NEW_SUFFIX);
    this.unfinishedFiles = fs.readdirSync(dir).filter(isUnfinished);
  }

  /**
   * @throws TKV_LOCKED while a process owns the directory; TKV_MISMATCH if its files are of another version
   * or not tierkv's; TKV_IO if they are missing or cannot be read
   */
  static async open(dir: string): Promise<StoreView> {
    checkInputs({ dir }, { dir: is.name() });
    let blocks: RangedFile | undefined;
    let index: RangedFile | undefined;
    let staging: StagingPool | undefined;
    try {
      const libc = await loadLibc();
      const native = typeof libc === 'string' ? undefined : libc;
      requireUnowned(dir, native, END_FIRST);
      const folder = {
        headOf: async (name: string) => headOf(join(dir, name)),
        pathOf: (name: string) => join(dir, name),
      };
      const facts = await storeThere(folder, NAME_A_TIER);
      if (facts === undefined) throw noStore(dir);
      blocks = openReading(join(dir, BLOCKS_NAME), native);
      if (fs.existsSync(join(dir, INDEX_NAME))) index = openReading(join(dir, INDEX_NAME), native);
      const family = familyOf(facts);
      const one = fileLayout(poolShape(1, facts.pageBytes, facts.slotBytes));
      requireRecord(dir, one, blocks.ranges.fileBytes);
      const geometry = index === undefined ? '' : await storedGeometry(index, one, family.store);
      const pages = typeof geometry === 'string' ? pageAt(one, blocks.ranges.fileBytes) : geometry.pages;
      const layout = fileLayout(poolShape(Math.max(1, pages), facts.pageBytes, facts.slotBytes));
      staging = await StagingPool.open(Math.max(STAGING_BYTES_MIN, 4 * recordBytesMax(layout)), true);
      const recovered = await recover(blocks, index, layout, family, staging);
      requireUnowned(dir, native, END_FIRST);
      await index?.file.close();
      const keepsIndex = index !== undefined || facts.restart !== 'empty';
      return new StoreView(dir, facts, layout, recovered, keepsIndex, blocks, staging);
    } catch (error) {
      await blocks?.file.close();
      await index?.file.close();
      staging?.[Symbol.dispose]();
      throw dirError(dir, 'reading it', error, (errno) => readingRemedies[errno] ?? OTHER_REMEDY);
    }
  }

  /** The records that a start would find, least recently used first. */
  *records(): Generator<SlotEntry> {
    for (const slot of this.recovered.table.byLastUse()) yield this.recovered.table.entry(slot);
  }

  /** The payload of a record, or why it cannot be read. */
  async payload(entry: SlotEntry): Promise<Uint8Array | string> {
    const found = await this.#scan.record(entry.slot, entry.sizeClass);
    const problem = disagreement(entry, found);
    if (problem !== '') return problem;
    return this.#scan.payload(entry.slot, entry.sizeClass);
  }

  /** Reads every record and compares it with its digest and with the index. */
  async check(progress: (checked: number, records: number) => void = () => {}): Promise<StoreReport> {
    const { recovered } = this;
    const faults: StoreFault[] = [];
    const leftovers: StoreFault[] = [];
    if (this.keepsIndex && recovered.indexProblem !== '')
      faults.push({ where: 'index', problem: recovered.indexProblem });
    for (const fault of recovered.indexFaults) {
      const where = `index: ${fault.kind} block ${fault.block} of half ${fault.half}`;
      (this.#mayBeOfACrash(fault) ? leftovers : faults).push({ where, problem: fault.problem });
    }
    const neededBytes = recovered.geometry.pages * this.#layout.pageStrideBytes + DATA_START_BYTES;
    if (recovered.closed && recovered.records !== recovered.table.records) {
      const { table, records } = recovered;
      const problem = `${table.records} records are listed, ${records} were when it was closed`;
      faults.push({ where: 'index', problem });
    }
    const { fileBytes } = this.#blocks.ranges;
    if (fileBytes > neededBytes) {
      const problem = `is ${fileBytes} bytes long, ${neededBytes} are its own`;
      leftovers.push({ where: BLOCKS_NAME, problem });
    }
    for (const { slot, problem } of recovered.leftovers) {
      (recovered.closed ? faults : leftovers).push({ where: `slot ${slot}`, problem });
    }
    let recordsChecked = 0;
    for (const entry of this.records()) {
      progress(++recordsChecked, recovered.table.records);
      const problem = disagreement(entry, await this.#scan.record(entry.slot, entry.sizeClass));
      if (problem !== '') faults.push({ where: `slot ${entry.slot}`, problem });
    }
    for (const name of this.unfinishedFiles) leftovers.push({ where: name, problem: 'was being made' });
    return { faults, leftovers, recordsChecked, bytesRead: recovered.bytesRead + this.#scan.bytesRead };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#blocks.file.close();
    this.#staging[Symbol.dispose]();
  }

  /**
   * Whether a crash can have caused the fault. A crash can tear marks and blocks of the half that was being
   * written, never other blocks of the half that counts. A torn DONE block counts as damage, since without it
   * the store may have been closed.
   */
  #mayBeOfACrash({ kind, half }: IndexFault): boolean {
    if (this.recovered.closed) return false;
    if (kind === BlockKind.DONE) return false;
    return kind === BlockKind.MARK || half !== this.recovered.epoch % 2;
  }
}

const END_FIRST = 'End that process first';
const NAME_A_TIER = 'Name the directory of a disk tier, or give the file back as it was.';
const OTHER_REMEDY = 'Remove the cause, and ask again.';
const MAY_READ = 'Ask as the user that the disk tier runs under.';

/** Remedies of a reader for an errno. A store that is opened has others: it may make what is missing. */
const readingRemedies: Record<string, string> = {
  ENOENT: 'Name the directory of a disk tier.',
  ENOTDIR: 'Name a directory, not a file.',
  EACCES: MAY_READ,
  EPERM: MAY_READ,
  ELOOP: 'Remove the symbolic link: a data file must be a file itself.',
  EMFILE: 'Raise the limit on open files (ulimit -n).',
};

/** A directory without records to look at: nothing was ever there, a first start was cut off, or a file was removed. */
function noStore(dir: string): TierKVError {
  const there = storeFiles.filter((name) => fs.existsSync(join(dir, name)));
  const problem =
    there.length === 0
      ? `holds no ${BLOCKS_NAME}. Name the directory of a disk tier.`
      : `holds ${there.join(' and ')}, and no records: ${BLOCKS_NAME} is ${there[0] === BLOCKS_NAME ? 'empty' : 'missing'}. ` +
        'The next start begins anew; give the file back first where that loses something.';
  return namedError('TKV_IO', { field: 'dir', path: dir }, (name) => `${name('dir')} ${dir} ${problem}`);
}

function disagreement(entry: SlotEntry, found: FoundRecord | string): string {
  if (typeof found === 'string') return found;
  if (found.problem !== '') return found.problem;
  const same =
    found.sequence === entry.sequence &&
    found.generation === entry.generation &&
    found.key.every((word, i) => word === entry.key[i]) &&
    found.digest.lo === entry.digest.lo &&
    found.digest.hi === entry.digest.hi;
  return same ? '' : 'the record differs from what the index says';
}

/** @throws TKV_MISMATCH if the file is too short for one record, which no store makes */
function requireRecord(dir: string, layout: FileLayout, fileBytes: number): void {
  const neededBytes = DATA_START_BYTES + recordBytesMax(layout);
  if (fileBytes >= neededBytes) return;
  const path = join(dir, BLOCKS_NAME);
  throw namedError(
    'TKV_MISMATCH',
    { field: 'dir', path },
    (name) =>
      `${name('dir')} holds ${path}, which is cut off: it has ${fileBytes} bytes, and one record takes ${neededBytes}. ` +
      NAME_A_TIER,
  );
}

function openReading(path: string, libc: Libc | undefined): RangedFile {
  const fd = fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW);
  const file = new NodeDataFile(fd, path, { libc, allocates: false });
  return { file, ranges: file.ranges() };
}
