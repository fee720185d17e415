/**
 * What is in files, as hashes. A result that is kept is found again by the bytes of its inputs: names, sizes
 * and times of files say nothing about what is in them.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { unreadable } from './readText.ts';

const chunkBytes = 1 << 20;

function hashFile(file: string): string {
  const hash = createHash('sha256');
  const handle = fs.openSync(file, 'r');
  try {
    const chunk = Buffer.allocUnsafe(chunkBytes);
    for (let count = fs.readSync(handle, chunk); count > 0; count = fs.readSync(handle, chunk)) {
      hash.update(chunk.subarray(0, count));
    }
  } finally {
    fs.closeSync(handle);
  }
  return hash.digest('hex');
}

/** SHA-256 of files, each read once for one object of this class. */
export class FileContents {
  readonly #hashes = new Map<string, string>();

  /** '' for what is no regular file: a pipe gives its bytes once, and they are not taken here. */
  of(file: string): string {
    let hash = this.#hashes.get(file);
    if (hash === undefined) {
      hash = isRegular(file) ? this.#read(file) : '';
      this.#hashes.set(file, hash);
    }
    return hash;
  }

  /** The first file that was asked for and has other bytes now. */
  changed(): string | undefined {
    for (const [file, hash] of this.#hashes) {
      if (hash !== (isRegular(file) ? this.#read(file) : '')) return file;
    }
    return undefined;
  }

  #read(file: string): string {
    try {
      return hashFile(file);
    } catch (cause) {
      throw unreadable(file, cause);
    }
  }
}

function isRegular(file: string): boolean {
  return file !== '' && fs.statSync(file, { throwIfNoEntry: false })?.isFile() === true;
}

/** SHA-256 over names and bytes of all files below folders. */
export function hashOfFolders(folders: readonly string[]): string {
  const hash = createHash('sha256');
  for (const folder of folders) {
    const names = fs.readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort();
    for (const name of names) {
      const file = path.join(folder, name);
      if (isRegular(file)) hash.update(`${name}\0${hashFile(file)}\n`);
    }
  }
  return hash.digest('hex');
}
