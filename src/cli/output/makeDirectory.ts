/** Directories that an option names, made where they are missing. */

import { makeDirectories } from '../../backends/posix/index.ts';
import { TierKVError } from '../../runtime/errors.ts';

/** @throws TKV_IO naming the option where it cannot be made */
export function makeDirectory(directory: string, option: string): void {
  try {
    makeDirectories(directory);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError(
      'TKV_IO',
      `${option} ${directory} cannot be made: ${why}. Name another directory.`,
      {
        field: option,
        path: directory,
        cause,
      },
    );
  }
}
