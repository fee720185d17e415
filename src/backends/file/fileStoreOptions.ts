/**
 * The options of a file store, with their defaults. `checkedOptions` checks them once, when the store is
 * opened.
 */

import { requireInteger } from '../../runtime/errors.ts';
import { oneOf, optionNames, requireFunction, requireOptions } from '../../runtime/options.ts';
import type { DirectoryOps, WrapFile } from './io/dataFile.ts';
import { type StoreIdentity, storeIdentityNames } from './record/superblock.ts';

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
