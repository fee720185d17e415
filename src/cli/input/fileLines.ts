/**
 * The lines of a trace for readers that are not asynchronous. A plain file is streamed in chunks, a
 * compressed one is unpacked whole and so has a limit. Every call starts at the first line, which is why only
 * regular files are taken.
 */

import fs from 'node:fs';
import { inputError, lineTooLong, maxLineBytes } from './limits.ts';
import { noteRead } from './reads.ts';
import { isCompressed, unpackedTrace, unreadable } from './readText.ts';

const chunkBytes = 1 << 20;
const newline = 0x0a;

/** Refuses what cannot be read twice from its beginning. */
function requireRegularFile(file: string): void {
  let stat: fs.Stats;
  try {
    stat = fs.statSync(file);
  } catch (cause) {
    throw unreadable(file, cause);
  }
  if (stat.isFile()) return;
  if (stat.isDirectory()) throw inputError(file, 'is a directory', 'Name a file in it.');
  const problem = 'is a pipe or a device, and a trace is read more than once';
  throw inputError(file, problem, 'Write it to a file and name that file.');
}

function* chunksOf(file: string): Generator<Buffer> {
  noteRead(file);
  requireRegularFile(file);
  if (isCompressed(file)) {
    yield unpackedTrace(file);
    return;
  }
  let handle: number;
  try {
    handle = fs.openSync(file, 'r');
  } catch (cause) {
    throw unreadable(file, cause);
  }
  try {
    const chunk = Buffer.alloc(chunkBytes);
    for (let at = 0; ; ) {
      const count = readChunk(handle, chunk, file);
      if (count === 0) return;
      if (at === 0) refuseHiddenCompression(file, chunk.subarray(0, count));
      at += count;
      yield chunk.subarray(0, count);
    }
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

/** Compressed data under a plain name would be read as a binary line. */
export function refuseHiddenCompression(path: string, head: Buffer): void {
  const suffix = compressionOf(head);
  if (suffix !== '') {
    throw inputError(path, `holds ${suffix} data`, `Give it a name that ends in ${suffix}.`);
  }
}

/** The suffix that the data's first bytes ask for, or ''. */
export function compressionOf(head: Buffer): '' | '.gz' | '.zst' {
  const magic = head.length >= 4 ? head.readUInt32BE(0) : 0;
  return magic >>> 16 === 0x1f8b ? '.gz' : magic === 0x28b52ffd ? '.zst' : '';
}

/**
 * Lines of a file, without their ends.
 * @throws {TierKVError} TKV_IO for a file that cannot be read; TKV_INPUT for a line or a file above its
 * limit, damage, or something that is no regular file.
 */
export function* fileLines(file: string): Generator<string> {
  let pieces: Buffer[] = []; // of a line whose end has not come yet
  let pieceBytes = 0;
  let line = 1;
  for (const chunk of chunksOf(file)) {
    let from = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, from)) {
      const last = chunk.subarray(from, end);
      if (pieceBytes + last.length > maxLineBytes) throw lineTooLong(file, line);
      yield (pieceBytes > 0 ? Buffer.concat([...pieces, last]) : last).toString('utf8');
      pieces = [];
      pieceBytes = 0;
      from = end + 1;
      line++;
    }
    if (from === chunk.length) continue;
    pieceBytes += chunk.length - from;
    if (pieceBytes > maxLineBytes) throw lineTooLong(file, line);
    pieces.push(Buffer.from(chunk.subarray(from))); // a copy: the chunk's memory is used again
  }
  if (pieceBytes > 0) yield Buffer.concat(pieces).toString('utf8');
}

/** The first line that holds anything, or ''. */
export function firstLine(file: string): string {
  for (const line of fileLines(file)) if (line.trim() !== '') return line;
  return '';
}
