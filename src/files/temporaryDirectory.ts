/**
 * A fresh directory, by default under the system's temporary directory, that goes with all it holds when disposed or at
 * process exit.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { TierKVError } from '../runtime/errors.ts';

export interface TemporaryDirectory extends Disposable {
  readonly path: string;
}

/**
 * @param parent where it is made; default: the system's temporary directory.
 * @throws {TierKVError} TKV_IO when none can be made.
 */
export function temporaryDirectory(prefix: string, parent: string = os.tmpdir()): TemporaryDirectory {
  let made: string;
  try {
    made = fs.mkdtempSync(path.join(parent, prefix));
  } catch (cause) {
    throw new TierKVError(
      'TKV_IO',
      `no directory can be made in ${parent}. Name another with --dir, or set TMPDIR.`,
      { path: parent, field: '--dir', cause },
    );
  }
  const remove = (): void => fs.rmSync(made, { recursive: true, force: true });
  process.once('exit', remove);
  return {
    path: made,
    [Symbol.dispose]() {
      process.off('exit', remove);
      remove();
    },
  };
}
