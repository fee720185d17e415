/**
 * Opens a tier's files in an existing directory, step by step: lock the directory, see whose files are there,
 * keep them or make new ones, set disk space aside, try direct I/O, recover what the files hold. Any step may
 * refuse; then everything that the steps before it have made is removed. New files are made under another
 * name and take their own in one step, the index first: so where `tierkv.blocks` is, it is whole, and a store
 * that was killed while it was made does not exist.
 */

import * as fs from 'node:fs';
import { join } from 'node:path';
import type { Digest } from '../../runtime/digest.ts';
import { configError, requireInteger, TierKVError } from '../../runtime/errors.ts';
import { oneOf, optionNames, requireFunction, requireOptions } from '../../runtime/options.ts';
import type { Libc } from '../host/posix.ts';
import {
  BLOCK_BYTES,
  bytesOnDisk,
  type DataFile,
  DataRanges,
  type DirectoryOps,
  dirError,
  Extents,
  filesystemName,
  IoError,
  isFull,
  NodeDataFile,
  NodeDirectoryOps,
  type RangedFile,
  requireFreeSpace,
  type WrapFile,
} from './dataFile.ts';
import { DirectoryLock } from './directoryLock.ts';
import { geometryOf } from './indexBlocks.ts';
import { probeDirectIo, type StagingPool } from './ioQueue.ts';
import {
  DATA_START_BYTES,
  decodeSuperblock,
  encodeSuperblock,
  type FileLayout,
  factsOf,
  familyOf,
  type RecordFamily,
  recordBytesMax,
  requireSameMeaning,
  SCRATCH_START_BYTES,
  type StoreFacts,
  type StoreIdentity,
  storeIdentityNames,
} from './record.ts';
import { type Recovered, type WarmStarted, type WarmState, warmStart } from './warmState.ts';

const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW, O_TRUNC } = fs.constants;

/** @throws TKV_IO, TKV_LOCKED or TKV_MISMATCH; TKV_CONFIG when direct I/O is a must and refused. */
export async function openDataFile(request: OpenRequest): Promise<OpenedFile> {
  const opening = new Opening(request);
  try {
    return await opening.run();
  } catch (error) {
    await opening.undo();
    throw dirError(request.dir, opening.doing, error);
  }
}

class Opening {
  doing = 'opening the directory';
  readonly #request: OpenRequest;
  readonly #native: Libc | undefined;
  readonly #ops: DirectoryOps;
  readonly #undo: (() => void | Promise<void>)[] = [];

  constructor(request: OpenRequest) {
    this.#request = request;
    this.#native = typeof request.libc === 'string' ? undefined : request.libc;
    this.#ops = request.wrapDirectory(new NodeDirectoryOps(request.dir));
  }

  async undo(): Promise<void> {
    for (const step of this.#undo.reverse()) await step();
  }

  async run(): Promise<OpenedFile> {
    const { dir, layout, settings } = this.#request;
    if (!fs.statSync(dir).isDirectory()) throw new IoError('ENOTDIR', 'stat');
    this.doing = 'locking it';
    const lock = await DirectoryLock.acquire(dir, this.#native);
    this.#undo.push(() => lock.release());

    this.doing = `opening ${BLOCKS_NAME}`;
    const found = this.#keptFacts();
    const kept = found !== undefined;
    const facts = found ?? factsOf(drawStoreId(), settings.identity, layout, settings.restart);
    if (!kept) await this.#removeOld();
    const path = join(dir, BLOCKS_NAME);
    const from = kept ? path : path + NEW_SUFFIX;
    const fd = fs.openSync(from, O_RDWR | O_NOFOLLOW | (kept ? 0 : O_CREAT | O_EXCL), 0o600);
    if (!kept) this.#undo.push(() => fs.rmSync(from, { force: true }));
    let current = fd;
    this.#undo.push(() => fs.closeSync(current));

    const family = familyOf(facts);
    const { allocator, spaceReason } = await this.#reserve(fd, kept, facts);
    this.doing = 'trying direct I/O';
    const probed = this.#probe(from, kept);
    if (typeof probed === 'number') {
      fs.closeSync(fd);
      current = probed;
    }
    const modeReason = typeof probed === 'string' ? probed : '';
    const file = this.#request.wrapFile(new NodeDataFile(current, allocator), 'blocks');

    this.doing = 'reading what it holds';
    const ranges = new DataRanges(current, fs.fstatSync(current).size, this.#native);
    const blocks = { file, ranges, family, kept, allocator };
    const started =
      settings.restart === 'warm'
        ? await openIndex(this.#request, blocks, this.#ops, (step) => this.#undo.push(step))
        : undefined;
    this.doing = `naming ${BLOCKS_NAME}`;
    if (!kept) {
      if (started !== undefined) await file.sync();
      this.#undo.push(() => fs.rmSync(path, { force: true }));
      await this.#ops.rename(BLOCKS_NAME + NEW_SUFFIX, BLOCKS_NAME);
      if (started !== undefined) await this.#ops.sync();
    } else if (ranges.fileBytes > layout.fileBytes) fs.ftruncateSync(current, layout.fileBytes);

    const { pages } = layout.shape;
    const rows = { startBytes: DATA_START_BYTES, strideBytes: layout.pageStrideBytes, pages };
    const reserved = settings.allocation === 'whole' ? pages : 0;
    return {
      file,
      extents: new Extents(file, rows, settings.extentBytes, reserved),
      family,
      path,
      facts: {
        mode: modeReason === '' ? 'direct' : 'buffered',
        modeReason,
        space: allocator === undefined ? 'sparse' : 'fallocate',
        spaceReason,
        filesystem: filesystemName(dir),
      },
      warm: started?.warm,
      recovered: started?.recovered,
      isNew: !kept,
      async close() {
        try {
          await started?.index.close();
          await file.close();
        } finally {
          lock.release();
        }
      },
    };
  }

  /** The facts of the store that is there, if it is to be gone on with. @throws TKV_MISMATCH */
  #keptFacts(): StoreFacts | undefined {
    const { dir, layout, settings } = this.#request;
    const there = storeThere(dir);
    if (there === undefined || settings.restart !== 'warm') return undefined;
    const wanted = factsOf(there.storeId, settings.identity, layout, settings.restart);
    requireSameMeaning(there, wanted, dir, join(dir, BLOCKS_NAME));
    return there.identity.epoch === settings.identity.epoch ? there : undefined;
  }

  async #removeOld(): Promise<void> {
    for (const name of [BLOCKS_NAME, INDEX_NAME, BLOCKS_NAME + NEW_SUFFIX, INDEX_NAME + NEW_SUFFIX]) {
      await this.#ops.remove(name);
    }
  }

  /** Sets disk space aside, and writes the superblock of a new file. */
  async #reserve(
    fd: number,
    kept: boolean,
    facts: StoreFacts,
  ): Promise<{ allocator: Libc | undefined; spaceReason: string }> {
    const { dir, layout, settings, libc, wrapFile } = this.#request;
    this.doing = 'reserving disk space';
    const firstBytes = DATA_START_BYTES + recordBytesMax(layout);
    const bytes = settings.allocation === 'whole' ? layout.fileBytes : firstBytes;
    const indexBytes = settings.restart === 'warm' ? geometryOf(layout).fileBytes : 0;
    const haveBytes = bytesOnDisk(join(dir, INDEX_NAME)) + fs.fstatSync(fd).blocks * 512;
    requireFreeSpace(dir, bytes + indexBytes, haveBytes);
    const refusal = this.#native === undefined ? String(libc) : this.#native.tryAllocate(fd, BLOCK_BYTES);
    if (isFull(refusal)) throw new IoError(refusal, 'fallocate');
    const allocator = refusal === '' ? this.#native : undefined;
    const file = wrapFile(new NodeDataFile(fd, allocator), 'blocks');
    await file.allocate(0, bytes);
    if (!kept) {
      this.doing = 'writing the superblock';
      await file.writev([encodeSuperblock(facts)], 0);
    }
    return { allocator, spaceReason: refusal };
  }

  /** A descriptor for direct I/O, or why there is none. @throws TKV_CONFIG when it is a must */
  #probe(path: string, kept: boolean): number | string {
    const { layout, settings, staging } = this.#request;
    if (settings.mode === 'buffered') return 'it was not wanted';
    const offsets = {
      scratchAt: SCRATCH_START_BYTES,
      recordAt: DATA_START_BYTES,
      recordBytes: recordBytesMax(layout),
      holdsRecords: kept,
    };
    const probed = probeDirectIo(path, offsets, staging);
    if (typeof probed === 'string' && settings.mode === 'direct') {
      const remedy = "Set it to 'auto', or use another file system.";
      throw configError('mode', `is 'direct', but ${probed}`, remedy);
    }
    return probed;
  }
}

function drawStoreId(): Digest {
  const [lo, hi] = crypto.getRandomValues(new Uint32Array(2));
  return { lo, hi };
}

// Opens the index file beside the blocks file of a store whose restarts are warm, or makes a new one under
// another name, which takes its own once it says what the blocks file holds.

export interface BlocksFile extends RangedFile {
  readonly family: RecordFamily;
  /** Whether it is that of an earlier run, rather than one that is being made. */
  readonly kept: boolean;
  /** What allocates disk space; undefined where files are sparse. */
  readonly allocator: Libc | undefined;
}

/** @param undo takes what must be done should a later step of opening fail; the last first */
export async function openIndex(
  request: OpenRequest,
  blocks: BlocksFile,
  ops: DirectoryOps,
  undo: (step: () => void | Promise<void>) => void,
): Promise<WarmStarted> {
  const { dir, layout, settings, staging, libc, wrapFile } = request;
  const native = typeof libc === 'string' ? undefined : libc;
  const open = (name: string, flags: number): RangedFile => {
    const path = join(dir, name);
    const fd = fs.openSync(path, O_RDWR | O_NOFOLLOW | flags, 0o600);
    if (flags !== 0) undo(() => fs.rmSync(path, { force: true }));
    const file = wrapFile(new NodeDataFile(fd, blocks.allocator), 'index');
    undo(() => file.close().catch(() => {}));
    return { file, ranges: new DataRanges(fd, fs.fstatSync(fd).size, native) };
  };
  const path = join(dir, INDEX_NAME);
  const started = await warmStart({
    blocks,
    layout,
    family: blocks.family,
    settings,
    staging,
    kept: !blocks.kept ? 'new' : fs.existsSync(path) ? open(INDEX_NAME, 0) : 'none',
    create: async () => open(INDEX_NAME + NEW_SUFFIX, O_CREAT | O_TRUNC).file,
  });
  if (started.created) {
    if (!blocks.kept) undo(() => fs.rmSync(path, { force: true }));
    await ops.rename(INDEX_NAME + NEW_SUFFIX, INDEX_NAME);
    await ops.sync();
  }
  return started;
}

//  What opening a tier's files asks for and gives.

export interface OpenedFile {
  readonly file: DataFile;
  readonly extents: Extents;
  readonly family: RecordFamily;
  readonly path: string;
  readonly facts: OpenFacts;
  /** Undefined when the store is to begin empty at each start. */
  readonly warm: WarmState | undefined;
  readonly recovered: Recovered | undefined;
  /** Nothing was there before. */
  readonly isNew: boolean;
  /** Closes the files and leaves the directory to others. Nothing may be in flight. */
  close(): Promise<void>;
}

/** What the system granted, for `describe`. */
export interface OpenFacts {
  readonly mode: 'direct' | 'buffered';
  /** Why it is buffered, where direct I/O was wanted. */
  readonly modeReason: string;
  /** How disk space is set aside. */
  readonly space: 'fallocate' | 'sparse';
  readonly spaceReason: string;
  readonly filesystem: string;
}

export interface OpenRequest {
  readonly dir: string;
  readonly layout: FileLayout;
  readonly settings: FileStoreSettings;
  readonly staging: StagingPool;
  /** The C library, or why there is none. */
  readonly libc: Libc | string;
  readonly wrapFile: WrapFile;
  readonly wrapDirectory: (ops: DirectoryOps) => DirectoryOps;
}

//  Names of a store's files, and whose files they are. What this tierkv did not make is not touched.

export const BLOCKS_NAME = 'tierkv.blocks';
export const INDEX_NAME = 'tierkv.index';
/** Behind a name while the file is made. */
export const NEW_SUFFIX = '.new';

/** The store there, if any. @throws TKV_MISMATCH when a file of our name is somebody else's */
export function storeThere(dir: string): StoreFacts | undefined {
  for (const name of [INDEX_NAME, INDEX_NAME + NEW_SUFFIX, BLOCKS_NAME + NEW_SUFFIX]) {
    const path = join(dir, name);
    const head = headOf(path);
    if (typeof head === 'string') throw foreign(path, head);
    // A file that was being made may hold anything from nothing to all of it.
    const unwritten = head === undefined || head.every((byte) => byte === 0);
    const magic = head === undefined ? '' : new TextDecoder().decode(head.subarray(0, 4));
    if (!unwritten && magic !== 'TKVI' && magic !== 'TKVS') throw foreign(path, 'is not a tierkv file');
  }
  const path = join(dir, BLOCKS_NAME);
  const head = headOf(path);
  if (head === undefined || head.length === 0) return undefined;
  const facts = typeof head === 'string' ? head : decodeSuperblock(head);
  if (typeof facts === 'string') throw foreign(path, facts);
  return facts;
}

/** The first block of a file; undefined when there is no file, a sentence when it is not a plain one. */
function headOf(path: string): Uint8Array | string | undefined {
  const stats = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return undefined;
  if (!stats.isFile()) return 'is not a regular file';
  const fd = fs.openSync(path, 'r');
  try {
    const head = new Uint8Array(BLOCK_BYTES);
    return head.subarray(0, fs.readSync(fd, head, 0, BLOCK_BYTES, 0));
  } finally {
    fs.closeSync(fd);
  }
}

function foreign(path: string, why: string): TierKVError {
  return new TierKVError(
    'TKV_MISMATCH',
    `dir holds ${path}, which ${why}. Move it away, or use another directory.`,
    { field: 'dir', path },
  );
}

// The options of a file store, with their defaults. `checkedOptions` checks them once, when the store is
// opened.

const MiB = 1024 * 1024;

export interface FileStoreOptions {
  /** Direct I/O, or the page cache; `auto` takes direct I/O where a probe succeeds. Default `auto`. */
  readonly mode?: 'auto' | 'direct' | 'buffered';
  /** `extents` allocates disk space as slots are touched, `whole` all of it at open. Default `whole`. */
  readonly allocation?: 'whole' | 'extents';
  /** Disk space taken at once under `extents`. Default 64 MiB. */
  readonly extentBytes?: number;
  /**
   * `warm` goes on with what an earlier run left in the directory, after a crash too; `empty` forgets it, and
   * spares the index file and the durability points that a warm restart needs. Default `empty`.
   */
  readonly restart?: 'empty' | 'warm';
  /** What gives the bytes their meaning; a warm restart refuses another. Default: empty texts, epoch 0. */
  readonly identity?: Partial<StoreIdentity>;
  /** A durability point (fdatasync) follows after so many bytes were written. Default 64 MiB. */
  readonly syncBytes?: number;
  /** No written record waits longer than this for a durability point to begin. Default 1,000 ms. */
  readonly syncMs?: number;
  /**
   * A checkpoint follows after so many bytes were written, or 32 times its own size if that is more: the next
   * start after a crash reads about so much. Default 1 GiB.
   */
  readonly checkpointBytes?: number;
  /** I/Os in flight at once. More than UV_THREADPOOL_SIZE threads cannot run at once. Default 16. */
  readonly queueDepth?: number;
  /**
   * Bytes of payload in an I/O, where so many lie side by side: neighbours go together until they are that
   * many, and a block of twice as many or more is cut. Default 2 MiB.
   */
  readonly ioBytes?: number;
  /**
   * Whether the payload of every read is compared with its digest, unless whoever gets it does that. Headers
   * are checked either way. Default true.
   */
  readonly verifyReads?: boolean;
  /** An I/O that takes longer has failed, and its slot waits for it. Default 30,000 ms. */
  readonly deadlineMs?: number;
  /** Called when an I/O passes its deadline, and again when it retires. */
  readonly onStuck?: (stuck: StuckIo) => void;
  /** Whether native calls (fallocate, flock, addresses) may be used. Default true. */
  readonly native?: boolean;
  /** Stands between the store and its file, to count or to inject faults. */
  readonly wrapFile?: WrapFile;
  /** Stands between the store and the names in its directory. */
  readonly wrapDirectory?: (ops: DirectoryOps) => DirectoryOps;
}

export const fileStoreOptionsNames: readonly string[] = optionNames<FileStoreOptions>({
  mode: true,
  allocation: true,
  extentBytes: true,
  restart: true,
  identity: true,
  syncBytes: true,
  syncMs: true,
  checkpointBytes: true,
  queueDepth: true,
  ioBytes: true,
  verifyReads: true,
  deadlineMs: true,
  onStuck: true,
  native: true,
  wrapFile: true,
  wrapDirectory: true,
});

export interface StuckIo {
  readonly operation: 'read' | 'write';
  readonly slots: readonly number[];
  readonly retired: boolean;
}

export type FileStoreSettings = Required<
  Omit<FileStoreOptions, 'onStuck' | 'wrapFile' | 'wrapDirectory' | 'identity'>
> & {
  readonly identity: StoreIdentity;
};

/** @throws TKV_CONFIG naming the option at fault. */
export function checkedOptions(options: FileStoreOptions): FileStoreSettings {
  requireOptions(options, fileStoreOptionsNames, 'options', 'TKV_CONFIG');
  if (options.identity !== undefined) {
    requireOptions(options.identity, storeIdentityNames, 'identity', 'TKV_CONFIG');
  }
  for (const name of ['onStuck', 'wrapFile', 'wrapDirectory'] as const) {
    const given = options[name];
    if (given !== undefined) requireFunction(given, name, 'TKV_CONFIG');
  }
  return {
    mode: oneOf('mode', options.mode ?? 'auto', ['auto', 'direct', 'buffered']),
    allocation: oneOf('allocation', options.allocation ?? 'whole', ['whole', 'extents']),
    restart: oneOf('restart', options.restart ?? 'empty', ['empty', 'warm']),
    extentBytes: requireInteger('extentBytes', options.extentBytes ?? 64 * MiB, 4096),
    identity: { model: '', layout: '', secretKey: '', extras: '', epoch: 0, ...options.identity },
    syncBytes: requireInteger('syncBytes', options.syncBytes ?? 64 * MiB, 1),
    syncMs: requireInteger('syncMs', options.syncMs ?? 1000, 1, 2 ** 31 - 1),
    checkpointBytes: requireInteger('checkpointBytes', options.checkpointBytes ?? 1024 * MiB, 1),
    queueDepth: requireInteger('queueDepth', options.queueDepth ?? 16, 1, 1024),
    ioBytes: requireInteger('ioBytes', options.ioBytes ?? 2 * MiB, 4096, 2 ** 30),
    deadlineMs: requireInteger('deadlineMs', options.deadlineMs ?? 30_000, 1, 2 ** 31 - 1),
    verifyReads: options.verifyReads ?? true,
    native: options.native ?? true,
  };
}
