/** Errors of opening a tier's directory: which call failed, on what, and what to do about it. */

import * as fs from 'node:fs';
import { TierKVError } from '../../../runtime/errors.ts';
import { errnoOf } from './dataFile.ts';

const remedies: Record<string, string> = {
  ENOENT: 'Create the directory first, or name one that exists.',
  ENOTDIR: 'Name a directory, not a file.',
  EACCES: 'Name a directory that this user may write.',
  EPERM: 'Name a directory that this user may write.',
  EROFS: 'The file system is mounted read-only: name a directory on another one.',
  ENOSPC: 'Lower the number of blocks, or name a directory on a larger disk.',
  EDQUOT: 'Lower the number of blocks, or raise the disk quota.',
  EFBIG: 'Lower the number of blocks: the file would be larger than the file system or limits allow.',
  EMFILE: 'Raise the limit on open files (ulimit -n).',
  ENFILE: 'Close files elsewhere: the system has no more of them.',
  ELOOP: 'Remove the symbolic link: a data file must be a file itself.',
};

/** `error` as a TKV_IO error about the directory. One that is a TierKVError already stays as it is. */
export function dirError(dir: string, doing: string, error: unknown): TierKVError {
  if (error instanceof TierKVError) return error;
  const errno = errnoOf(error);
  const takesNone = errno === 'ENOENT' && fs.existsSync(dir);
  const remedy = takesNone
    ? 'The file system there takes no new files: name a directory on a disk.'
    : (remedies[errno] ?? 'Name another directory.');
  return new TierKVError('TKV_IO', `dir ${dir}: ${doing} failed with ${errno}. ${remedy}`, {
    field: 'dir',
    path: dir,
    cause: error,
  });
}
