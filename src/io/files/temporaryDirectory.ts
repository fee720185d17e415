/**
 * A fresh directory, by default under the system's temporary directory, that goes with all it holds when disposed or at
 * process exit. A process that is killed leaves its directory: the next one that makes a directory of that kind there
 * removes it. Names tell whose they are: `PREFIX` `PLACE` `-PID-` and six letters.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { namedError } from '../../runtime/errors.ts';

export interface TemporaryDirectory extends Disposable {
  readonly path: string;
}

/**
 * @param parent where it is made; default: the system's temporary directory.
 * @throws {TierKVError} TKV_IO when none can be made.
 */
export function temporaryDirectory(prefix: string, parent: string = os.tmpdir()): TemporaryDirectory {
  const ours = `${prefix}${placeOfPids()}-`;
  let made: string;
  try {
    made = fs.mkdtempSync(path.join(parent, `${ours}${process.pid}-`));
  } catch (cause) {
    throw namedError(
      'TKV_IO',
      { path: parent, field: 'dir', cause },
      (name) => `no directory can be made in ${parent}. Name another with ${name('dir')}, or set TMPDIR.`,
    );
  }
  removeLeftBehind(parent, ours);
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

/** Where the numbers of processes are unique: a machine, and on Linux a container of it, which may share the directory. */
function placeOfPids(): string {
  let space = '';
  try {
    space = fs.readlinkSync('/proc/self/ns/pid');
  } catch {
    // only Linux has it
  }
  return createHash('sha256').update(`${os.hostname()} ${space}`).digest('hex').slice(0, 8);
}

/** Removes directories of processes of this place that have ended. What cannot be removed stays. */
function removeLeftBehind(parent: string, ours: string): void {
  try {
    for (const name of fs.readdirSync(parent)) {
      const pid = name.startsWith(ours) ? /^([1-9]\d*)-\w{6}$/.exec(name.slice(ours.length))?.[1] : undefined;
      if (pid === undefined || isRunning(Number(pid))) continue;
      fs.rmSync(path.join(parent, name), { recursive: true, force: true });
    }
  } catch {
    // another user's, or another process removes it now: the next one tries again
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
