/** Folders and file names as the workload readers want them. What is in the files is read by `../input`. */

import fs from 'node:fs';
import path from 'node:path';
import { noteRead, unreadable } from '../input/index.ts';

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
    const files = fs
      .readdirSync(folder)
      .filter((name) => pattern.test(name))
      .sort()
      .map((name) => path.join(folder, name));
    for (const file of files) noteRead(file);
    return files;
  } catch (cause) {
    throw unreadable(folder, cause);
  }
}

export function exists(file: string): boolean {
  noteRead(file); // what is found there is read later, and what is missing may come
  return fs.existsSync(file);
}
