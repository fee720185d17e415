/**
 * Writes a result as JSON so that a reader sees the old file or the whole new one and never a half: the text goes to a
 * new file in the same directory, reaches the disk, and takes the name in one step. A target that is no regular file
 * (a pipe, /dev/stdout) is written through.
 */

import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { TierKVError } from '../../runtime/errors.ts';

function ioError(target: string, cause: unknown): TierKVError {
  const reason = cause instanceof Error ? cause.message.replace(/, \w+ '.*$/, '') : String(cause);
  return new TierKVError('TKV_IO', `${target} cannot be written: ${reason}. Name a file that can.`, {
    path: target,
    cause,
  });
}

/** Where the bytes will really lie: symbolic links followed, so that they are kept. */
function destination(target: string): { file: string; replaceable: boolean } {
  try {
    const file = fs.realpathSync(target);
    return { file, replaceable: fs.statSync(file).isFile() };
  } catch {
    return { file: target, replaceable: !fs.existsSync(target) };
  }
}

/**
 * Checks, before a long run, that `target` will be writable at its end.
 * @throws {TierKVError} TKV_IO when its directory does not exist or refuses files, or it is itself a directory.
 */
export function requireWritableTarget(target: string): void {
  try {
    const { file, replaceable } = destination(target);
    if (fs.existsSync(file) && fs.statSync(file).isDirectory()) throw new Error('it is a directory');
    // the dot makes a file in place of the directory an error
    const written = replaceable ? `${path.dirname(path.resolve(file))}${path.sep}.` : file;
    fs.accessSync(written, fs.constants.W_OK);
  } catch (cause) {
    throw ioError(target, cause);
  }
}

/**
 * @param value anything that JSON can hold.
 * @throws {TierKVError} TKV_IO with the path; the file keeps what it held.
 */
export function writeJsonFile(target: string, value: unknown): void {
  const text = `${JSON.stringify(value, undefined, 2)}\n`;
  const { file, replaceable } = destination(target);
  if (!replaceable) {
    try {
      fs.appendFileSync(file, text);
    } catch (cause) {
      throw ioError(target, cause);
    }
    return;
  }
  const draft = path.join(
    path.dirname(file),
    `.${path.basename(file)}.${randomBytes(6).toString('hex')}.part`,
  );
  try {
    fs.writeFileSync(draft, text, { flag: 'wx', flush: true });
    fs.renameSync(draft, file);
  } catch (cause) {
    if (fs.existsSync(draft)) fs.rmSync(draft);
    throw ioError(target, cause);
  }
}
