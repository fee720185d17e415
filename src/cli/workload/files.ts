/**
 * Files as the workload readers want them: text, lines in order without holding a plain file in memory, and the names in a
 * folder. `.gz` and `.zst` are unpacked, whole, since the readers are synchronous.
 */

import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';
import { TierKVError } from '../../runtime/errors.ts';

function unreadable(file: string, cause: unknown): TierKVError {
  const reason = cause instanceof Error ? cause.message.replace(/, \w+( '.*)?$/, '') : String(cause);
  return new TierKVError('TKV_IO', `${file} cannot be read: ${reason}. Name a readable file.`, {
    path: file,
    cause,
  });
}

function unpacked(file: string): Buffer | undefined {
  const unpack = file.endsWith('.gz')
    ? zlib.gunzipSync
    : file.endsWith('.zst')
      ? zlib.zstdDecompressSync
      : undefined;
  if (unpack === undefined) return undefined;
  try {
    return unpack(fs.readFileSync(file));
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

export function readText(file: string): string {
  try {
    return (unpacked(file) ?? fs.readFileSync(file)).toString('utf8');
  } catch (cause) {
    throw cause instanceof TierKVError ? cause : unreadable(file, cause);
  }
}

const CHUNK_BYTES = 1 << 20;

/** Lines of a file, without line ends; every call starts at the first. */
export function* fileLines(file: string): Generator<string> {
  const whole = unpacked(file);
  if (whole !== undefined) {
    let from = 0;
    while (from < whole.length) {
      const end = whole.indexOf(10, from);
      yield whole.toString('utf8', from, end < 0 ? whole.length : end);
      if (end < 0) return;
      from = end + 1;
    }
    return;
  }
  let handle: number;
  try {
    handle = fs.openSync(file, 'r');
  } catch (cause) {
    throw unreadable(file, cause);
  }
  try {
    const chunk = Buffer.alloc(CHUNK_BYTES);
    let rest: Buffer = Buffer.alloc(0);
    for (;;) {
      const count = readChunk(handle, chunk, file);
      if (count === 0) break;
      let from = 0;
      for (let end = chunk.indexOf(10); end >= 0 && end < count; end = chunk.indexOf(10, from)) {
        const piece = chunk.subarray(from, end);
        yield (rest.length > 0 ? Buffer.concat([rest, piece]) : piece).toString('utf8');
        rest = Buffer.alloc(0);
        from = end + 1;
      }
      if (from < count) rest = Buffer.concat([rest, chunk.subarray(from, count)]);
    }
    if (rest.length > 0) yield rest.toString('utf8');
  } finally {
    fs.closeSync(handle);
  }
}

function readChunk(handle: number, chunk: Buffer, file: string): number {
  try {
    return fs.readSync(handle, chunk);
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

/** The first line that holds anything, or ''. */
export function firstLine(file: string): string {
  for (const line of fileLines(file)) if (line.trim() !== '') return line;
  return '';
}

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

/** Writes pieces of text one after the other; a failure names the file. */
export function writeText(file: string, pieces: Iterable<string>): void {
  try {
    const handle = fs.openSync(file, 'w');
    try {
      let block: string[] = [];
      let size = 0;
      for (const piece of pieces) {
        block.push(piece);
        size += piece.length;
        if (size < CHUNK_BYTES) continue;
        fs.writeSync(handle, block.join(''));
        block = [];
        size = 0;
      }
      fs.writeSync(handle, block.join(''));
    } finally {
      fs.closeSync(handle);
    }
  } catch (cause) {
    if (cause instanceof TierKVError) throw cause;
    const reason = cause instanceof Error ? cause.message.replace(/, \w+ '.*$/, '') : String(cause);
    throw new TierKVError('TKV_IO', `${file} cannot be written: ${reason}. Name a file that can.`, {
      path: file,
      cause,
    });
  }
}
