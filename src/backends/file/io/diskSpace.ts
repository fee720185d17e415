/** What a directory's file system is, whether a tier fits on it, and what a file takes of it. */

import * as fs from 'node:fs';
import { TierKVError } from '../../../runtime/errors.ts';

/** @param haveBytes what the file has already @throws TKV_IO on `dir` */
export function requireFreeSpace(dir: string, bytes: number, haveBytes: number): void {
  const { blocks, bavail, bsize } = fs.statfsSync(dir);
  const freeBytes = bavail * bsize + haveBytes;
  // A file system without size, such as ramfs, reports no blocks.
  if (blocks === 0 || bytes <= freeBytes) return;
  throw new TierKVError(
    'TKV_IO',
    `dir ${dir} has ${freeBytes} bytes free, the tier needs ${bytes} (ENOSPC). ` +
      'Lower the number of blocks, or name a directory on a larger disk.',
    { field: 'dir', path: dir },
  );
}

/** Bytes that a file takes, 0 when there is none. */
export function bytesOnDisk(path: string): number {
  return (fs.statSync(path, { throwIfNoEntry: false })?.blocks ?? 0) * 512;
}

const filesystems: Record<number, string> = {
  61267: 'ext4',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  16914836: 'tmpfs',
  2035054128: 'overlay',
  801189825: 'zfs',
  26985: 'nfs',
  1702057286: 'fuse',
};

/** By name where it is a known one, else its number. */
export function filesystemName(dir: string): string {
  const { type } = fs.statfsSync(dir);
  return filesystems[type] ?? `0x${type.toString(16)}`;
}
