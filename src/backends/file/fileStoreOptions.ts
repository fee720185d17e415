/** What a file store may be told, with the defaults, checked once. */

import { configError, requireInteger } from '../../runtime/errors.ts';
import type { DataFile } from './dataFile.ts';

export interface FileStoreOptions {
  /** `direct` insists on direct I/O, `buffered` on the page cache; `auto` takes direct I/O where a probe succeeds. */
  readonly mode?: 'auto' | 'direct' | 'buffered';
  /** `extents` allocates disk space as slots are touched, `whole` all of it at open. Default `whole`. */
  readonly allocation?: 'whole' | 'extents';
  /** Disk space taken at once under `extents`. Default 64 MiB. */
  readonly extentBytes?: number;
  /** What gives the bytes their meaning (model, dtype, geometry): records of another layout are never read. */
  readonly layout?: string;
  /** I/Os in flight at once. More than UV_THREADPOOL_SIZE threads cannot run at once. Default 16. */
  readonly queueDepth?: number;
  /** Records that lie side by side are moved in one I/O of at most this size. Default 1 MiB. */
  readonly coalescedBytes?: number;
  /** An I/O that takes longer has failed, and its slot waits for it. Default 30,000 ms. */
  readonly deadlineMs?: number;
  /** Told when an I/O passes its deadline, and again when it retires. */
  readonly onStuck?: (stuck: StuckIo) => void;
  /** Whether native calls (fallocate, flock, addresses) may be used. Default true. */
  readonly native?: boolean;
  /** Stands between the store and its file, to count or to inject faults. */
  readonly wrapFile?: (file: DataFile) => DataFile;
}

export interface StuckIo {
  readonly operation: 'read' | 'write';
  readonly slots: readonly number[];
  readonly retired: boolean;
}

export type FileStoreSettings = Required<Omit<FileStoreOptions, 'onStuck' | 'wrapFile'>>;

/** @throws TKV_CONFIG naming the option at fault. */
export function checkedOptions(options: FileStoreOptions): FileStoreSettings {
  const mode = options.mode ?? 'auto';
  if (!['auto', 'direct', 'buffered'].includes(mode)) {
    throw configError('mode', `is '${mode}'`, "Set it to 'auto', 'direct' or 'buffered'.");
  }
  const allocation = options.allocation ?? 'whole';
  if (!['whole', 'extents'].includes(allocation)) {
    throw configError('allocation', `is '${allocation}'`, "Set it to 'whole' or 'extents'.");
  }
  return {
    mode,
    allocation,
    extentBytes: requireInteger('extentBytes', options.extentBytes ?? 64 * 1024 * 1024, 4096),
    layout: options.layout ?? '',
    queueDepth: requireInteger('queueDepth', options.queueDepth ?? 16, 1, 1024),
    coalescedBytes: requireInteger('coalescedBytes', options.coalescedBytes ?? 1024 * 1024, 0),
    deadlineMs: requireInteger('deadlineMs', options.deadlineMs ?? 30_000, 1, 2 ** 31 - 1),
    native: options.native ?? true,
  };
}
