/**
 * `src/io/files/inputs.ts` in a page, where a build for browsers puts it in that file's place: the files of the package, which
 * the build made a part of the code, and the files that a caller gives. A page has no disk, so everything else is refused.
 */

import packageTexts from 'tierkv:files';
import { givenFile } from '../../io/files/givenFiles.ts';
import { withoutMark } from '../../runtime/boundedJson.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { dataFolder } from './packageFiles.ts';

const inPackage = String(dataFolder());

function find(file: string | URL): string | undefined {
  const name = String(file);
  return (
    givenFile(file) ?? (name.startsWith(inPackage) ? packageTexts[name.slice(inPackage.length)] : undefined)
  );
}

/** @throws {TierKVError} TKV_IO for a file that neither the package has nor the caller gave */
export function readText(file: string | URL, name: string = String(file)): string {
  const text = find(file);
  if (text !== undefined) return withoutMark(text);
  throw new TierKVError(
    'TKV_IO',
    `${name} cannot be read: a page has no disk. Give its text in the option files, under that name.`,
    { path: name },
  );
}

export function* fileLines(file: string): Generator<string> {
  const lines = readText(file).split('\n');
  if (lines.at(-1) === '') lines.pop();
  yield* lines;
}

export function firstLine(file: string): string {
  for (const line of fileLines(file)) if (line.trim() !== '') return line;
  return '';
}

export function exists(file: string | URL): boolean {
  return find(file) !== undefined;
}

/** A page has no folders. */
export function isFolder(): boolean {
  return false;
}

export function folderFiles(): string[] {
  return [];
}

/** Names of the files of a folder of the package. */
export function namesInFolder(folder: URL): readonly string[] {
  const start = String(folder).slice(inPackage.length);
  return Object.keys(packageTexts).flatMap((name) =>
    name.startsWith(start) ? [name.slice(start.length)] : [],
  );
}
