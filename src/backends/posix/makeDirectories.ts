/**
 * A directory and those above it that are missing, made one by one. With `recursive`, Node's `mkdirSync`
 * tries for ever in a file system that makes no directories, such as /proc.
 */

import fs from 'node:fs';
import path from 'node:path';

/** @throws an error of the operating system where one cannot be made, or a file has its name */
export function makeDirectories(directory: string, mode = 0o777): void {
  const missing: string[] = [];
  for (let at = path.resolve(directory); !fs.existsSync(at); at = path.dirname(at)) missing.push(at);
  for (const each of missing.reverse()) makeOne(each, mode);
  if (missing.length === 0) makeOne(directory, mode);
}

/** Another process may have made it meanwhile. */
function makeOne(directory: string, mode: number): void {
  try {
    fs.mkdirSync(directory, { mode });
  } catch (error) {
    const isThere = fs.statSync(directory, { throwIfNoEntry: false })?.isDirectory() === true;
    if (!isThere) throw error;
  }
}
