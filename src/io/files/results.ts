/**
 * Files that results are written to, so that a reader sees the old file or the whole new one and never a half: the text
 * goes to a new file in the same directory, reaches the disk, and takes the name in one step. Files that belong together
 * take their names only when all of them are whole. A target that is not a regular file (a pipe, /dev/stdout) is written
 * through, and `-` is standard output.
 */

import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { makeDirectories, openToWrite, requireReader } from '../../backends/host/posix.ts';
import { packageVersion } from '../../packageFiles.ts';
import { configError, namedError, type TierKVError } from '../../runtime/errors.ts';
import { systemReason } from './inputErrors.ts';

interface Result {
  readonly target: string;
  /** The text in parts, which are written as they come. */
  readonly parts: Iterable<string>;
}

/** A target that is standard output. */
const STDOUT = '-';

/** Characters that are put together before they are written. */
const blockCharacters = 1 << 20;

/** @param option what named the file, where that is known */
function ioError(target: string, cause: unknown, option?: string): TierKVError {
  const lacking = missingFolder(target);
  const why =
    lacking === undefined
      ? `${systemReason(cause)}. Name a file that can.`
      : `the folder ${lacking} does not exist. Make it (mkdir -p ${path.dirname(target)}), or name a file in another one.`;
  return namedError(
    'TKV_IO',
    { ...(option === undefined ? {} : { field: option }), path: target, cause },
    (name) => `${option === undefined ? target : `${name(option)} ${target}`} cannot be written: ${why}`,
  );
}

/** The folder of `target`, as a whole path, where nothing has that name. */
function missingFolder(target: string): string | undefined {
  const folder = path.dirname(path.resolve(target));
  return fs.existsSync(folder) ? undefined : folder;
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
 * @param option what named the file, for the error
 * @throws {TierKVError} TKV_IO when its directory does not exist or refuses files, or it is itself a
 * directory, or a pipe that no program reads.
 */
export function requireWritableTarget(target: string, option?: string): void {
  if (target === STDOUT) return;
  try {
    const { file, replaceable } = destination(target);
    if (fs.existsSync(file) && fs.statSync(file).isDirectory()) throw new Error('it is a directory');
    // the dot makes a file in place of the directory an error
    const written = replaceable ? `${path.dirname(path.resolve(file))}${path.sep}.` : file;
    fs.accessSync(written, fs.constants.W_OK);
    requireReader(file);
  } catch (cause) {
    throw ioError(target, cause, option);
  }
}

/**
 * The same for all files that a command may write. None of them may be a file that it reads, or another that it writes:
 * one would be lost.
 * @param targets the file by the option that names it; other values than text stand for files that were not asked for
 * @param read the files that it reads, in the same form
 * @throws {TierKVError} TKV_CONFIG naming the option, for a file that two options name; else as `requireWritableTarget`
 */
export function requireWritableTargets(
  targets: Readonly<Record<string, unknown>>,
  read: Readonly<Record<string, unknown>> = {},
): void {
  const seen = new Map<string, string>();
  for (const [option, file] of Object.entries(read)) {
    if (typeof file === 'string' && file !== STDOUT) seen.set(placeOf(file), option);
  }
  for (const [option, target] of Object.entries(targets)) {
    if (typeof target !== 'string') continue;
    if (target !== STDOUT && destination(target).replaceable) {
      const place = placeOf(target);
      const other = seen.get(place);
      if (other !== undefined)
        throw configError(option, `is ${target}, the same file as ${other}`, 'Name another.');
      seen.set(place, option);
    }
    requireWritableTarget(target, option);
  }
}

/** The path without symbolic links, as far as it exists. */
function placeOf(file: string): string {
  const whole = path.resolve(file);
  if (fs.existsSync(whole)) return fs.realpathSync(whole);
  const folder = path.dirname(whole);
  return path.join(fs.existsSync(folder) ? fs.realpathSync(folder) : folder, path.basename(whole));
}

/** The system's refusal becomes an error about `target`; an error in making the parts passes as it is. */
function system<T>(target: string, act: () => T): T {
  try {
    return act();
  } catch (cause) {
    throw ioError(target, cause);
  }
}

function writeParts(handle: number, { target, parts }: Result): void {
  let block: string[] = [];
  let characters = 0;
  const flush = (): void => {
    system(target, () => fs.writeFileSync(handle, block.join('')));
    block = [];
    characters = 0;
  };
  for (const part of parts) {
    block.push(part);
    characters += part.length;
    if (characters >= blockCharacters) flush();
  }
  flush();
}

/** A new file with the permissions of the one that it will replace, where that is there. It never has more than those. */
function newFileAs(draft: string, replaced: string): number {
  const mode = fs.statSync(replaced, { throwIfNoEntry: false })?.mode;
  if (mode === undefined) return fs.openSync(draft, 'wx');
  const handle = fs.openSync(draft, 'wx', mode & 0o777);
  try {
    fs.fchmodSync(handle, mode & 0o777); // a new file lacks what the process masks
  } catch {
    // a file system without permissions
  }
  return handle;
}

/** Writes to a new file beside the target, or through a target that cannot be replaced. */
class Draft {
  readonly #target: string;
  readonly #file: string;
  readonly #draft: string | undefined;
  #renamed = false;

  constructor(result: Result) {
    const { file, replaceable } = destination(result.target);
    this.#target = result.target;
    this.#file = file;
    this.#draft = replaceable
      ? path.join(path.dirname(file), `.${path.basename(file)}.${randomBytes(6).toString('hex')}.part`)
      : undefined;
    const handle = system(result.target, () =>
      this.#draft === undefined ? openToWrite(file, 'a') : newFileAs(this.#draft, file),
    );
    try {
      writeParts(handle, result);
      if (replaceable) system(result.target, () => fs.fsyncSync(handle));
    } catch (error) {
      this.discard();
      throw error;
    } finally {
      fs.closeSync(handle);
    }
  }

  publish(): void {
    const draft = this.#draft;
    if (draft !== undefined) system(this.#target, () => fs.renameSync(draft, this.#file));
    this.#renamed = true;
  }

  discard(): void {
    if (!this.#renamed && this.#draft !== undefined) fs.rmSync(this.#draft, { force: true });
  }
}

/**
 * Writes the results one after the other; whatever fails, files keep what they held.
 * @throws {TierKVError} TKV_IO with the path; errors in making the parts as they are.
 */
export function writeResults(results: readonly Result[]): void {
  const drafts: Draft[] = [];
  try {
    const files = results.filter(({ target }) => target !== STDOUT);
    for (const result of files) drafts.push(new Draft(result));
    for (const draft of drafts) draft.publish();
    for (const { target, parts } of results) {
      if (target === STDOUT) for (const part of parts) process.stdout.write(part);
    }
  } finally {
    for (const draft of drafts) draft.discard();
  }
}

/** Writes one text. @throws {TierKVError} TKV_IO with the path; the file keeps what it held. */
export function writeText(target: string, text: string): void {
  writeResults([{ target, parts: [text] }]);
}

/**
 * @param value anything that JSON can hold.
 * @throws {TierKVError} TKV_IO with the path; the file keeps what it held.
 */
export function writeJsonFile(target: string, value: unknown): void {
  writeText(target, `${JSON.stringify(value, undefined, 2)}\n`);
}

//  The JSON of every command has one shape: `docs/reference/result.schema.json`.

/** Version of that shape. */
const resultSchema = 'tierkv.result/1';

/** @param command with its subcommand, as `workload describe` */
export function resultJson(command: string, result: object): string {
  const shape = { schema: resultSchema, command, tierkv: packageVersion(), result };
  return `${JSON.stringify(shape, undefined, 2)}\n`;
}

/** The result of a command as JSON. @throws {TierKVError} TKV_IO with the path; the file keeps what it held. */
export function writeResultJson(target: string, command: string, result: object): void {
  writeText(target, resultJson(command, result));
}

// Directories that an option names, made where they are missing.

/** @throws TKV_IO naming the option where it cannot be made */
export function makeDirectory(directory: string, option: string): void {
  try {
    makeDirectories(directory);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw namedError(
      'TKV_IO',
      { field: option, path: directory, cause },
      (name) => `${name(option)} ${directory} cannot be made: ${why}. Name another directory.`,
    );
  }
}
