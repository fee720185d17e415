/**
 * Opens a tier's files in an existing directory, step by step: lock the directory, check whose files are
 * there, keep them or make new ones, reserve disk space, try direct I/O, recover the records. If a step
 * fails, everything that earlier steps made is removed. New files are made under a preliminary name and
 * renamed at the end, the index first: so a file named `tierkv.blocks` is always whole, and a store that was
 * killed while it was made does not exist. Also here: the options of a file store, their defaults, and their
 * checks.
 */

import type { Digest } from '../../runtime/digest.ts';
import { configError, namedError, type TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import { guarded } from '../guarded.ts';
import {
  type DataFile,
  type DirectoryOps,
  Extents,
  type FolderFile,
  IoError,
  isFull,
  type RangedFile,
  type StoreFolder,
  type WrapFile,
} from './dataFile.ts';
import { geometryOf } from './indexBlocks.ts';
import type { StagingPool } from './ioQueue.ts';
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
  storeIdentityTable,
} from './record.ts';
import { type Recovered, type WarmStarted, type WarmState, warmStart } from './warmState.ts';

/**
 * @throws TKV_IO, TKV_LOCKED or TKV_MISMATCH; TKV_CONFIG if `mode` is 'direct' and direct I/O does not work
 */
export async function openDataFile(request: OpenRequest): Promise<OpenedFile> {
  const opening = new Opening(request);
  try {
    return await opening.run();
  } catch (error) {
    await opening.undo();
    throw request.folder.problem(opening.doing, error);
  }
}

class Opening {
  doing = 'opening the directory';
  readonly #request: OpenRequest;
  readonly #ops: DirectoryOps;
  readonly #undo: (() => void | Promise<void>)[] = [];

  constructor(request: OpenRequest) {
    this.#request = request;
    this.#ops = request.wrapDirectory(request.folder.ops);
  }

  async undo(): Promise<void> {
    for (const step of this.#undo.reverse()) await step();
  }

  async run(): Promise<OpenedFile> {
    const { folder, layout, settings } = this.#request;
    this.#undo.push(await folder.requireDirectory());
    this.doing = 'locking it';
    const unlock = await folder.lock();
    this.#undo.push(unlock);

    this.doing = `opening ${BLOCKS_NAME}`;
    const found = await this.#keptFacts();
    const kept = found !== undefined;
    const facts = found ?? factsOf(drawStoreId(), settings.identity, layout, settings.restart);
    if (!kept) await this.#removeOld();
    const path = folder.pathOf(BLOCKS_NAME);
    const from = kept ? BLOCKS_NAME : BLOCKS_NAME + NEW_SUFFIX;
    const opened = await folder.open(from, kept ? 'kept' : 'made');
    if (!kept) this.#undo.push(() => folder.ops.remove(from));
    this.#undo.push(() => opened.close());

    const family = familyOf(facts);
    const spaceReason = await this.#reserve(opened, kept, facts);
    this.doing = 'trying direct I/O';
    const modeReason = this.#probe(opened, kept);
    const file = this.#request.wrapFile(opened, 'blocks');

    const stage = (doing: string): void => {
      this.doing = doing;
    };
    stage('reading what it holds');
    const ranges = opened.ranges();
    const blocks = { file, ranges, family, kept };
    const started =
      settings.restart === 'warm'
        ? await openIndex(this.#request, blocks, this.#ops, (step) => this.#undo.push(step), stage)
        : undefined;
    if (!kept) {
      stage(`making ${BLOCKS_NAME} durable`);
      if (started !== undefined) await file.sync();
      stage(`naming ${BLOCKS_NAME}`);
      this.#undo.push(() => folder.ops.remove(BLOCKS_NAME));
      await this.#ops.rename(BLOCKS_NAME + NEW_SUFFIX, BLOCKS_NAME);
      if (started !== undefined) await this.#ops.sync();
    } else if (ranges.fileBytes > layout.fileBytes) opened.truncate(layout.fileBytes);

    const { pages } = layout.shape;
    const rows = { startBytes: DATA_START_BYTES, strideBytes: layout.pageStrideBytes, pages };
    const reserved = settings.allocation === 'whole' ? pages : 0;
    return {
      file,
      extents: new Extents(file, rows, settings.extentBytes, reserved),
      family,
      folder,
      path,
      facts: {
        mode: modeReason === '' ? 'direct' : 'buffered',
        modeReason,
        space: spaceReason === '' ? 'fallocate' : 'sparse',
        spaceReason,
        filesystem: folder.filesystem,
      },
      warm: started?.warm,
      recovered: started?.recovered,
      isNew: !kept,
      abandon() {
        if (folder.unlockEndsIo) unlock();
      },
      async close() {
        try {
          await started?.index.close();
          await file.close();
        } finally {
          unlock();
        }
      },
    };
  }

  /** Facts of the store in the directory if its records are kept, else undefined. @throws TKV_MISMATCH */
  async #keptFacts(): Promise<StoreFacts | undefined> {
    const { folder, layout, settings } = this.#request;
    const there = await storeThere(folder);
    if (there === undefined || settings.restart !== 'warm') return undefined;
    const wanted = factsOf(there.storeId, settings.identity, layout, settings.restart);
    requireSameMeaning(there, wanted, folder.path, folder.pathOf(BLOCKS_NAME));
    return there.identity.epoch === settings.identity.epoch ? there : undefined;
  }

  async #removeOld(): Promise<void> {
    for (const name of storeFiles) {
      await this.#ops.remove(name);
    }
  }

  /** Reserves disk space, and writes the superblock of a new file. @returns why files are sparse; empty if they are not */
  async #reserve(opened: FolderFile, kept: boolean, facts: StoreFacts): Promise<string> {
    const { folder, layout, settings, wrapFile } = this.#request;
    this.doing = 'reserving disk space';
    const firstBytes = DATA_START_BYTES + recordBytesMax(layout);
    const bytes = settings.allocation === 'whole' ? layout.fileBytes : firstBytes;
    const indexBytes = settings.restart === 'warm' ? geometryOf(layout).fileBytes : 0;
    const own = kept ? BLOCKS_NAME : BLOCKS_NAME + NEW_SUFFIX;
    await folder.requireFreeSpace(bytes + indexBytes, [own, INDEX_NAME]);
    const refusal = opened.tryAllocate();
    if (isFull(refusal)) throw new IoError(refusal, 'fallocate');
    const file = wrapFile(opened, 'blocks');
    await file.allocate(0, bytes);
    if (!kept) {
      this.doing = 'writing the superblock';
      await file.writev([encodeSuperblock(facts)], 0);
    }
    return refusal;
  }

  /** @returns why I/O is buffered; empty if it is direct @throws TKV_CONFIG if `mode` demands direct I/O */
  #probe(opened: FolderFile, kept: boolean): string {
    const { layout, settings, staging } = this.#request;
    if (settings.mode === 'buffered') return "mode is 'buffered'";
    const offsets = {
      scratchAt: SCRATCH_START_BYTES,
      recordAt: DATA_START_BYTES,
      recordBytes: recordBytesMax(layout),
      holdsRecords: kept,
    };
    const refusal = opened.tryDirect(offsets, staging);
    if (refusal !== '' && settings.mode === 'direct') {
      const remedy = "Set it to 'auto', or use another file system.";
      throw configError('mode', `is 'direct', but ${refusal}`, remedy);
    }
    return refusal;
  }
}

function drawStoreId(): Digest {
  const [lo, hi] = crypto.getRandomValues(new Uint32Array(2));
  return { lo, hi };
}

// ---- the index file of a store with warm restarts

interface BlocksFile extends RangedFile {
  readonly family: RecordFamily;
  /** True for the file of an earlier run, false for a file that is being made. */
  readonly kept: boolean;
}

/**
 * Opens the index file, or makes a new one under a preliminary name and renames it once it lists the records.
 * @param undo registers a step to run if a later step of opening fails; the last registered runs first
 */
async function openIndex(
  request: OpenRequest,
  blocks: BlocksFile,
  ops: DirectoryOps,
  undo: (step: () => void | Promise<void>) => void,
  stage: (doing: string) => void,
): Promise<WarmStarted> {
  const { folder, layout, settings, staging, wrapFile } = request;
  const open = async (name: string, how: 'kept' | 'replaced'): Promise<RangedFile> => {
    const opened = await folder.open(name, how);
    if (how !== 'kept') undo(() => folder.ops.remove(name));
    const file = wrapFile(opened, 'index');
    undo(() => file.close().catch(() => {}));
    return { file, ranges: opened.ranges() };
  };
  const started = await warmStart({
    blocks,
    layout,
    family: blocks.family,
    settings,
    staging,
    kept: !blocks.kept ? 'new' : (await folder.has(INDEX_NAME)) ? await open(INDEX_NAME, 'kept') : 'none',
    writes: () => stage(`writing ${INDEX_NAME}`),
    create: async () => (await open(INDEX_NAME + NEW_SUFFIX, 'replaced')).file,
  });
  if (started.created) {
    if (!blocks.kept) undo(() => folder.ops.remove(INDEX_NAME));
    stage(`naming ${INDEX_NAME}`);
    await ops.rename(INDEX_NAME + NEW_SUFFIX, INDEX_NAME);
    await ops.sync();
  }
  return started;
}

// ---- request and result of opening

export interface OpenedFile {
  readonly file: DataFile;
  readonly extents: Extents;
  readonly family: RecordFamily;
  readonly folder: StoreFolder;
  readonly path: string;
  readonly facts: OpenFacts;
  /** Undefined if the store begins empty at each start. */
  readonly warm: WarmState | undefined;
  readonly recovered: Recovered | undefined;
  /** Whether the directory held no store before. */
  readonly isNew: boolean;
  /** For a store that does not come to its end: unlocks the directory where that ends its I/O. */
  abandon(): void;
  /** Closes the files and unlocks the directory. No I/O may be in flight. */
  close(): Promise<void>;
}

/** How the file was opened, for `describe`. */
interface OpenFacts {
  readonly mode: 'direct' | 'buffered';
  /** Why I/O is buffered; empty if it is direct. */
  readonly modeReason: string;
  /** How disk space is reserved. */
  readonly space: 'fallocate' | 'sparse';
  readonly spaceReason: string;
  readonly filesystem: string;
}

interface OpenRequest {
  readonly folder: StoreFolder;
  readonly layout: FileLayout;
  readonly settings: FileStoreSettings;
  readonly staging: StagingPool;
  readonly wrapFile: WrapFile;
  readonly wrapDirectory: (ops: DirectoryOps) => DirectoryOps;
}

// ---- names of a store's files; files that tierkv did not make are not touched

export const BLOCKS_NAME = 'tierkv.blocks';
export const INDEX_NAME = 'tierkv.index';
/** Suffix of a file's name while the file is being made. */
export const NEW_SUFFIX = '.new';
/** All names that files of a store have. */
export const storeFiles: readonly string[] = [BLOCKS_NAME, INDEX_NAME].flatMap((name) => [
  name,
  name + NEW_SUFFIX,
]);

/**
 * Facts of the store in the directory, if it holds one.
 * @param remedy what to do where a file of one of our names is not ours
 * @throws TKV_MISMATCH if one of our names is taken
 */
export async function storeThere(
  folder: Pick<StoreFolder, 'headOf' | 'pathOf'>,
  remedy: string = 'Move it away, or use another directory.',
): Promise<StoreFacts | undefined> {
  for (const name of [INDEX_NAME, INDEX_NAME + NEW_SUFFIX, BLOCKS_NAME + NEW_SUFFIX]) {
    const head = await folder.headOf(name);
    if (typeof head === 'string') throw foreign(folder.pathOf(name), head, remedy);
    // A crash may leave a file that was being made empty, full of zeros or complete.
    const unwritten = head === undefined || head.every((byte) => byte === 0);
    const magic = head === undefined ? '' : new TextDecoder().decode(head.subarray(0, 4));
    if (!unwritten && magic !== 'TKVI' && magic !== 'TKVS')
      throw foreign(folder.pathOf(name), 'is not a tierkv file', remedy);
  }
  const path = folder.pathOf(BLOCKS_NAME);
  const head = await folder.headOf(BLOCKS_NAME);
  if (head === undefined || head.length === 0) return undefined;
  const facts = typeof head === 'string' ? head : decodeSuperblock(head);
  if (typeof facts === 'string') throw foreign(path, facts, remedy);
  return facts;
}

function foreign(path: string, why: string, remedy: string): TierKVError {
  return namedError(
    'TKV_MISMATCH',
    { field: 'dir', path },
    (name) => `${name('dir')} holds ${path}, which ${why}. ${remedy}`,
  );
}

// ---- options, checked once, when the store is opened

const MiB = 1024 * 1024;

export interface FileStoreOptions {
  /** Direct I/O, or I/O through the page cache; `auto` is direct if a probe succeeds. Default `auto`. */
  readonly mode?: 'auto' | 'direct' | 'buffered';
  /** `whole` allocates all disk space when opened, `extents` as slots are first written. Default `whole`. */
  readonly allocation?: 'whole' | 'extents';
  /** Bytes of an extent, the unit of allocation under `extents`. Default 64 MiB. */
  readonly extentBytes?: number;
  /**
   * `warm` keeps the records that an earlier run left in the directory, after a crash too. `empty` drops
   * them, and saves the index file and the durability points that a warm restart needs. Default `empty`.
   */
  readonly restart?: 'empty' | 'warm';
  /** Identity of the bytes; a warm restart refuses another one. Default: empty texts, epoch 0. */
  readonly identity?: Partial<StoreIdentity>;
  /** Bytes written after which a durability point (fdatasync) is taken. Default 64 MiB. */
  readonly syncBytes?: number;
  /** Longest wait of a written record for the next durability point to begin. Default 1,000 ms. */
  readonly syncMs?: number;
  /**
   * Bytes written after which a checkpoint is taken, or 32 times the checkpoint's size if that is more. The
   * next start after a crash reads about that many bytes. Default 1 GiB.
   */
  readonly checkpointBytes?: number;
  /** Most I/Os in flight. No more than UV_THREADPOOL_SIZE of them run at once. Default 16. */
  readonly queueDepth?: number;
  /**
   * Bytes of payload to aim for in an I/O: neighbours are merged until they reach it, and a block of twice as
   * many bytes or more is cut. Default 2 MiB.
   */
  readonly ioBytes?: number;
  /**
   * Whether each payload is compared with its digest when read, unless its receiver does that. Headers are
   * always checked. Default true.
   */
  readonly verifyReads?: boolean;
  /** An I/O that takes longer has failed; its slot stays locked until the I/O retires. Default 30,000 ms. */
  readonly deadlineMs?: number;
  /**
   * Note to keep with the record of a block, by its key: opaque to the store, and read back by `FileStore.note`. A note
   * that a record has no room for is left out and counted in `describe`: at most 3,968 bytes where a block is whole
   * blocks of 4096, else the rest up to the next. Default: no note.
   */
  readonly noteOf?: (key: Uint32Array) => Uint8Array | undefined;
  /** Called when an I/O passes its deadline, and again when it retires. */
  readonly onStuck?: (stuck: StuckIo) => void;
  /** Called at the end of each durability point, with the errno where it failed. */
  readonly onPoint?: (errno: string | undefined) => void;
  /** Whether native calls (fallocate, flock, addresses) may be used. Default true. */
  readonly native?: boolean;
  /** Wraps the store's files, to count calls or to inject faults. */
  readonly wrapFile?: WrapFile;
  /** Wraps the changes of names in the directory, to inject crashes. */
  readonly wrapDirectory?: (ops: DirectoryOps) => DirectoryOps;
}

const fileStoreOptionsTable = optionTable(
  {
    mode: is.optional(is.oneOf(['auto', 'direct', 'buffered']), 'auto'),
    allocation: is.optional(is.oneOf(['whole', 'extents']), 'whole'),
    extentBytes: is.optional(is.integer(4096), 64 * MiB),
    restart: is.optional(is.oneOf(['empty', 'warm']), 'empty'),
    identity: is.optional(storeIdentityTable),
    syncBytes: is.optional(is.integer(1), 64 * MiB),
    syncMs: is.optional(is.integer(1, 2 ** 31 - 1), 1000),
    checkpointBytes: is.optional(is.integer(1), 1024 * MiB),
    queueDepth: is.optional(is.integer(1, 1024), 16),
    ioBytes: is.optional(is.integer(4096, 2 ** 30), 2 * MiB),
    verifyReads: is.optional(is.flag(), true),
    deadlineMs: is.optional(is.integer(1, 2 ** 31 - 1), 30_000),
    noteOf: is.optional(is.func()),
    onPoint: is.optional(is.func()),
    onStuck: is.optional(is.func()),
    native: is.optional(is.flag(), true),
    wrapFile: is.optional(is.func()),
    wrapDirectory: is.optional(is.func()),
  } satisfies Kinds<FileStoreOptions>,
  'TKV_CONFIG',
);

export interface StuckIo {
  readonly operation: 'read' | 'write';
  readonly slots: readonly number[];
  readonly retired: boolean;
}

export type FileStoreSettings = Required<
  Omit<FileStoreOptions, 'noteOf' | 'onStuck' | 'onPoint' | 'wrapFile' | 'wrapDirectory' | 'identity'>
> & {
  readonly onPoint?: FileStoreOptions['onPoint'];
  readonly identity: StoreIdentity;
};

/** @throws TKV_CONFIG naming the option at fault */
export function checkedOptions(options: FileStoreOptions): FileStoreSettings {
  const { noteOf, onStuck, wrapFile, wrapDirectory, onPoint, identity, ...read } =
    fileStoreOptionsTable.read(options);
  return {
    ...read,
    identity: { model: '', layout: '', secretKey: '', extras: '', epoch: 0, ...identity },
    ...(onPoint === undefined ? {} : { onPoint: guarded(onPoint) }),
  };
}

/** Facts about the start and the index. */
export function describeWarm({
  warm,
  recovered,
  isNew,
}: OpenedFile): Record<string, string | number | boolean> {
  if (warm === undefined || recovered === undefined) return { restart: 'empty' };
  return {
    restart: 'warm',
    recoveredFrom: isNew
      ? 'nothing: the store is new'
      : recovered.indexProblem === ''
        ? 'checkpoint'
        : `all records: ${recovered.indexProblem}`,
    recoveredClosed: recovered.closed,
    recoveryReadBytes: recovered.bytesRead,
    recoveryReadRegions: recovered.regionsRead,
    recoveryLeftovers: recovered.leftovers.length,
    ...warm.describe(),
  };
}
