/** Folders and file names as the workload readers want them. What is in the files is read by `../input`. */

import fs from 'node:fs';
import path from 'node:path';
import { unreadable } from '../input/index.ts';

export function isFolder(file: string): boolean {
  try {
    return fs.statSync(file).isDirectory();
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

/** Paths in a folder whose names match, in the order of their names. */
export function folderFiles(folder: string, pattern: RegExp): string[] {
  try {
    return fs
      .readdirSync(folder)
      .filter((name) => pattern.test(name))
      .sort()
      .map((name) => path.join(folder, name));
  } catch (cause) {
    throw unreadable(folder, cause);
  }
}

export function exists(file: string): boolean {
  return fs.existsSync(file);
}
