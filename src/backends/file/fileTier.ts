/**
 * The row of NVMe: files in a directory that the embedder names. What they hold is found again by the next start, also
 * after a crash, unless `restart` is `empty`.
 */

import type { WriteBudgetConfig } from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import { poolShape } from '../../runtime/tables/slotPool.ts';
import { LastingRefusal } from '../engine/refusals.ts';
import type { OpenedTier, TierRequest, TierRow } from '../tierRow.ts';
import { geometryOf } from './indexBlocks.ts';
import type { FileStoreOptions } from './opening.ts';
import { DATA_START_BYTES, fileLayout } from './record.ts';
import type { SlotEntry } from './slotTable.ts';

interface NvmeConfig {
  /** Its last folder is made, for this user alone, where it is missing. */
  readonly dir: string;
  /**
   * Most bytes that the files take together. Each block has a header beside it and is padded to whole 4,096 bytes, and 64 to
   * 128 bytes of index: a block of 16 KiB takes 20 KiB, one of 2 MiB takes 4 KiB more. What fits is in `usage` as capacity.
   */
  readonly bytes: number;
  /**
   * `warm` begins with the blocks that an earlier run left, also after a crash; `empty` forgets them.
   * Default `warm`.
   */
  readonly restart?: 'warm' | 'empty' | undefined;
  /** Bounds what is written to the files by what is read from them. Default: no bound. */
  readonly writeBudget?: WriteBudgetConfig | undefined;
  /**
   * `whole` takes the disk space now, so that it cannot be missing later; `extents` takes it as it is
   * needed. Default `whole`.
   */
  readonly allocation?: 'whole' | 'extents' | undefined;
}

export interface NvmeOptions {
  /** Files for blocks that host memory has no room for. Default: off. */
  readonly nvme?: NvmeConfig | undefined;
}

const nvmeTable = optionTable(
  {
    dir: is.name('Name a directory that exists.'),
    bytes: is.passed(),
    restart: is.optional(is.oneOf(['warm', 'empty']), 'warm'),
    writeBudget: is.optional(is.passed()),
    allocation: is.optional(is.oneOf(['whole', 'extents']), 'whole'),
  } satisfies Kinds<NvmeConfig>,
  'TKV_CONFIG',
);

export const nvmeTier: TierRow<NvmeOptions> = {
  name: 'nvme',
  title: 'NVMe',
  optionNames: ['nvme'] satisfies (keyof NvmeOptions)[],
  fieldNames: {
    'nvme.capacityBytes': 'nvme.bytes',
    dir: 'nvme.dir',
    restart: 'nvme.restart',
    allocation: 'nvme.allocation',
  },
  canBeTop: false,
  asked: {
    size: { option: 'nvme', about: 'disk, in blocks or as 10GiB, 0 for none' },
    place: {
      option: 'dir',
      about: 'directory for the disk tier (default: a temporary one, removed at the end)',
      isDirectory: true,
    },
    options: (bytes, dir) => ({ nvme: { dir, bytes, restart: 'empty' } }),
  },
  check({ nvme }) {
    if (nvme !== undefined) nvmeTable.read(nvme, 'nvme');
  },
  wish({ nvme }) {
    if (nvme === undefined) return undefined;
    const { bytes, writeBudget } = nvme;
    return { field: 'nvme.bytes', bytes, ...(writeBudget === undefined ? {} : { writeBudget }) };
  },
  bytesOf(pages, pageBytes, unitBytes) {
    const one = fileLayout(poolShape(1, pageBytes, unitBytes));
    const index = geometryOf({ ...one, shape: { ...one.shape, pages } });
    return DATA_START_BYTES + pages * one.pageStrideBytes + index.fileBytes;
  },
  async requireRoom(bytes, { nvme }) {
    const { requireDiskHolds } = await import('./posixFolder.ts');
    await requireDiskHolds(bytes, nvme?.dir ?? '');
  },
  open: (request) => openFiles(request),
};

/** @param more what tests put between the store and its disk */
export async function openFiles(
  { options, shape, facts, notice }: TierRequest<NvmeOptions>,
  more: Pick<FileStoreOptions, 'wrapFile'> = {},
): Promise<OpenedTier> {
  const [{ FileStore }, { hasDirectIo }] = await Promise.all([
    import('./fileStore.ts'),
    import('./posixFolder.ts'),
  ]);
  const { dir, restart, allocation } = nvmeTable.read(options.nvme, 'nvme'); // the row is on
  const { identity, noteOf } = facts ?? {};
  const warm: FileStoreOptions = identity === undefined ? {} : { restart, identity };
  const noted: FileStoreOptions = noteOf === undefined ? {} : { noteOf };
  const unsure = new LastingRefusal(
    (errno) => notice(`NVMe: what is written is not durable (${errno}): a loss of power may lose it`),
    () => notice('NVMe: what is written is durable again'),
    0,
  );
  const onPoint = (errno: string | undefined): void =>
    errno === undefined ? unsure.succeeded() : unsure.failed(errno);
  const store = await FileStore.open(dir, shape, { allocation, onPoint, ...warm, ...noted, ...more });
  const files = store.describe();
  if (hasDirectIo && files.mode === 'buffered') notice(`NVMe: files are buffered (${files.modeReason})`);
  if (hasDirectIo && files.space === 'sparse') {
    notice(`NVMe: disk space is not set aside (${files.spaceReason}): a full disk refuses writes later on`);
  }
  if (files.restart === 'warm' && String(files.recoveredFrom).startsWith('all records')) {
    notice(`NVMe: what the files hold was found by reading ${files.recoveredFrom}`);
  }
  return {
    store,
    durable: {
      records: () => store.records(),
      async save() {
        const damaged = await store.prove();
        await store.requireInPlace();
        return damaged;
      },
      notes: {
        missing: store.hasNotes
          ? undefined
          : `nvme.dir ${dir} was made by an older tierkv, and its records carry no token ids`,
        read: (block: SlotEntry) => store.note(block),
      },
    },
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}
