/**
 * Files that a computation reads: whole or by lines, plain or compressed, each within a limit, so that a wrong or hostile
 * file ends in one line and never in a full memory. Only regular files are read; a pipe is kept in one first. Files count
 * by their bytes: their hashes find a result again, and what was read is noted while a computation asks for it.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import zlib from 'node:zlib';
import { withoutMark } from '../../runtime/boundedJson.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { givenFile } from './givenFiles.ts';
import {
  fileTooLarge,
  inputError,
  lineTooLong,
  maxEmptyLines,
  maxLineBytes,
  maxPipeBytes,
  maxTextBytes,
  maxTextLines,
  maxUnpackedBytes,
  unpacksTooLarge,
  unreadable,
} from './inputErrors.ts';
import { temporaryDirectory } from './temporaryDirectory.ts';

/** Bytes of one read. */
const chunkBytes = 1 << 20;

// Hashes of what is in files: names, sizes and times say nothing about it.

/** The SHA-256 of what a file holds, in hexadecimal digits. */
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

  /** '' for anything but a regular file: a pipe gives its bytes once, and they are not taken here. */
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

// The lines of a trace for readers that are not asynchronous. A plain file is streamed in chunks, a
// compressed one is unpacked whole and so has a limit. Every call starts at the first line.

const newline = 0x0a;

function* chunksOf(file: string): Generator<Buffer> {
  const given = givenFile(file);
  if (given !== undefined) {
    yield Buffer.from(given);
    return;
  }
  if (isCompressed(file)) {
    yield unpackedTrace(file);
    return;
  }
  const handle = openRegular(file, file);
  try {
    const chunk = Buffer.alloc(chunkBytes);
    for (let at = 0; ; ) {
      const count = readChunk(handle, chunk, file);
      if (count === 0) return;
      if (at === 0) {
        refuseHiddenCompression(file, chunk.subarray(0, count));
        refuseWideText(file, chunk.subarray(0, count));
      }
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
function compressionOf(head: Buffer): '' | '.gz' | '.zst' {
  const magic = head.length >= 4 ? head.readUInt32BE(0) : 0;
  return magic >>> 16 === 0x1f8b ? '.gz' : magic === 0x28b52ffd ? '.zst' : '';
}

/**
 * Lines of a file, without their ends.
 * @throws {TierKVError} TKV_IO for a file that cannot be read; TKV_INPUT for a line or a file above its
 * limit, damage, or anything but a regular file.
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
      const text = (pieceBytes > 0 ? Buffer.concat([...pieces, last]) : last).toString('utf8');
      yield line === 1 ? withoutMark(text) : text;
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
  if (pieceBytes === 0) return;
  const text = Buffer.concat(pieces).toString('utf8');
  yield line === 1 ? withoutMark(text) : text;
}

/** The first line that holds anything, or ''. */
export function firstLine(file: string): string {
  let empty = 0;
  for (const line of fileLines(file)) {
    if (line.trim() !== '') return line;
    if (++empty > maxEmptyLines) {
      throw inputError(file, `begins with more than ${maxEmptyLines} empty lines`, 'Leave them out.');
    }
  }
  return '';
}

// A trace that comes through a pipe: standard input, a process substitution, a FIFO. A replay reads its trace
// twice, so the pipe is copied to a temporary file first. Waiting for a writer holds no thread, and a stop
// ends it.

interface KeptPipe extends Disposable {
  /** The file with what came through the pipe. */
  readonly path: string;
}

const standardInput = /^(\/dev\/stdin|\/dev\/fd\/0|\/proc\/self\/fd\/0)$/;

function openPipe(pipe: string): Readable | undefined {
  const stat = fs.statSync(pipe, { throwIfNoEntry: false });
  if (stat === undefined || stat.isFile()) return undefined;
  if (standardInput.test(pipe)) return process.stdin;
  if (!stat.isFIFO()) return undefined;
  // A FIFO opened in this way does not wait for its writer; the event loop does.
  const handle = fs.openSync(pipe, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  return new net.Socket({ fd: handle, readable: true, writable: false });
}

/** Passes bytes on, up to the limit, and keeps the first ones. */
function bounded(pipe: string, head: { bytes: Buffer }): Transform {
  let bytes = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      if (head.bytes.length < 4) head.bytes = Buffer.concat([head.bytes, chunk.subarray(0, 4)]);
      if (bytes > maxPipeBytes) done(fileTooLarge(pipe, maxPipeBytes));
      else done(null, chunk);
    },
  });
}

/**
 * Copies the pipe to a file that goes when disposed. Undefined for anything but a pipe.
 * @throws {TierKVError} TKV_IO when it cannot be read or kept, TKV_INPUT above the limit; the signal's reason
 * after a stop.
 */
export async function keepPipe(pipe: string, signal: AbortSignal): Promise<KeptPipe | undefined> {
  let source: Readable | undefined;
  try {
    source = openPipe(pipe);
  } catch (cause) {
    throw unreadable(pipe, cause);
  }
  if (source === undefined) return undefined;
  const folder = temporaryDirectory('tierkv-pipe-');
  try {
    const file = path.join(folder.path, 'trace.jsonl');
    const head = { bytes: Buffer.alloc(0) };
    await pipeline(source, bounded(pipe, head), fs.createWriteStream(file, { flags: 'wx', mode: 0o600 }), {
      signal,
    });
    const suffix = compressionOf(head.bytes);
    if (suffix !== '') fs.renameSync(file, `${file}${suffix}`);
    return { path: `${file}${suffix}`, [Symbol.dispose]: () => folder[Symbol.dispose]() };
  } catch (cause) {
    folder[Symbol.dispose]();
    signal.throwIfAborted();
    throw unreadable(pipe, cause);
  }
}

// Files that are read as a whole, plain or compressed (`.gz`, `.zst`). Only regular files are taken: a pipe
// without a writer would hold the process, whatever signal comes. Reading stops at a limit, also where the
// size is not known before: compressed data that unpack to a thousand times their size. A byte-order mark is
// left out.

/**
 * Opens a file that can be read to its end without waiting for another process.
 * @throws {TierKVError} TKV_IO for a file that cannot be opened; TKV_INPUT for a directory, pipe or device
 */
function openRegular(file: string | URL, name: string): number {
  noteRead(file);
  let handle: number;
  try {
    // a pipe opened in this way does not wait for its writer
    handle = fs.openSync(file, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  } catch (cause) {
    // a socket cannot be opened at all
    const stat = fs.statSync(file, { throwIfNoEntry: false });
    throw stat === undefined || stat.isFile() || stat.isDirectory()
      ? unreadable(name, cause)
      : notRegular(name, stat);
  }
  try {
    const stat = fs.fstatSync(handle);
    if (!stat.isFile()) throw notRegular(name, stat);
    return handle;
  } catch (cause) {
    fs.closeSync(handle);
    throw cause;
  }
}

function notRegular(name: string, stat: fs.Stats): TierKVError {
  if (stat.isDirectory()) return inputError(name, 'is a directory', 'Name a file in it.');
  const what = stat.isSocket() ? 'a socket' : 'a pipe or a device';
  return inputError(name, `is ${what}, not a file`, 'Write it to a file and name that file.');
}

/** Text in units of two bytes would be read as characters with gaps between them. */
export function refuseWideText(name: string, head: Buffer): void {
  if (head.length < 2) return;
  const mark = head.readUInt16BE(0);
  if (mark === 0xfffe || mark === 0xfeff) throw inputError(name, 'is UTF-16 text', 'Save it as UTF-8.');
}

/** The bytes of the file, at most `maxBytes`. */
export function readBytes(file: string | URL, name: string, maxBytes: number = maxTextBytes): Buffer {
  const given = givenFile(file);
  if (given !== undefined) return Buffer.from(given);
  const handle = openRegular(file, name);
  try {
    if (fs.fstatSync(handle).size > maxBytes) throw fileTooLarge(name, maxBytes);
    const pieces: Buffer[] = [];
    for (let bytes = 0; ; ) {
      const piece = Buffer.allocUnsafe(chunkBytes);
      const count = fs.readSync(handle, piece);
      if (count === 0) return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
      bytes += count;
      if (bytes > maxBytes) throw fileTooLarge(name, maxBytes);
      pieces.push(piece.subarray(0, count));
    }
  } finally {
    fs.closeSync(handle);
  }
}

function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

/** All frames of zstd data; Node's own call stops after the first. */
function unpackZstd(packed: Buffer, maxBytes: number, tooLarge: () => TierKVError): Buffer {
  const frames: Buffer[] = [];
  let left = maxBytes;
  for (let at = 0; at < packed.length; ) {
    const options = { maxOutputLength: left + 1, info: true };
    // With `info` Node returns this object; its types know the plain buffer alone.
    const { buffer, engine } = zlib.zstdDecompressSync(packed.subarray(at), options) as unknown as {
      buffer: Buffer;
      engine: { bytesWritten: number };
    };
    left -= buffer.length;
    if (left < 0) throw tooLarge();
    if (engine.bytesWritten === 0) throw new Error('the data after a frame cannot be unpacked');
    at += engine.bytesWritten;
    frames.push(buffer);
  }
  return frames.length === 1 ? frames[0] : Buffer.concat(frames);
}

/** Unpacks data whose file is named `.gz` or `.zst`; `tooLarge` makes the error for more than `maxBytes`. */
function unpack(name: string, packed: Buffer, maxBytes: number, tooLarge: () => TierKVError): Buffer {
  if (name.endsWith('.zst') && typeof zlib.zstdDecompressSync !== 'function') {
    throw inputError(name, 'is zstd data, which this Node cannot read', 'Use Node 22.15 or newer.');
  }
  try {
    if (name.endsWith('.gz')) return zlib.gunzipSync(packed, { maxOutputLength: maxBytes });
    return unpackZstd(packed, maxBytes, tooLarge);
  } catch (cause) {
    if (cause instanceof TierKVError) throw cause;
    if (errorCode(cause) === 'ERR_BUFFER_TOO_LARGE') throw tooLarge();
    const cut = errorCode(cause) === 'Z_BUF_ERROR';
    const problem = cut ? 'is cut short: its compressed data have no end' : 'holds damaged compressed data';
    throw inputError(name, problem, 'Fetch it again.', { cause });
  }
}

function isCompressed(name: string): boolean {
  return /\.(gz|zst)$/.test(name);
}

/** A compressed trace, unpacked whole. */
function unpackedTrace(file: string): Buffer {
  try {
    const packed = readBytes(file, file, maxUnpackedBytes);
    return unpack(file, packed, maxUnpackedBytes, () => unpacksTooLarge(file));
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

/** Readers hold each line of such a file. */
function refuseManyLines(name: string, bytes: Buffer): void {
  let lines = 0;
  for (let at = bytes.indexOf(newline); at >= 0; at = bytes.indexOf(newline, at + 1)) {
    if (++lines <= maxTextLines) continue;
    const problem = `holds more than ${maxTextLines} lines, the most that is read of such a file`;
    throw inputError(name, problem, 'Name the right file, or split it.');
  }
}

/**
 * The text of a file, unpacked if its name says so.
 * @param name how errors name it.
 * @throws {TierKVError} TKV_IO for a file that cannot be read; TKV_INPUT for one above the limit, or damaged.
 */
export function readText(file: string | URL, name: string = String(file)): string {
  try {
    const packed = readBytes(file, name);
    const bytes = isCompressed(name)
      ? unpack(name, packed, maxTextBytes, () => fileTooLarge(name, maxTextBytes))
      : packed;
    refuseWideText(name, bytes);
    refuseManyLines(name, bytes);
    return withoutMark(bytes.toString('utf8'));
  } catch (cause) {
    throw unreadable(name, cause);
  }
}

// Which files a computation reads. Readers of this folder note each file that they open, so a specification
// that names further files is covered with them.

/** Files of the innermost `filesReadBy`; null outside one. */
let noted: Set<string> | null = null;

/** Notes a file that is read, or of which only the existence decides something. */
function noteRead(file: string | URL): void {
  if (noted === null) return;
  noted.add(typeof file === 'string' ? path.resolve(file) : fileURLToPath(file));
}

/** The files that a synchronous `act` reads, in the order in which it does; up to its error if it throws. */
export function filesReadBy(act: () => void): readonly string[] {
  const before = noted;
  const own = new Set<string>();
  noted = own;
  try {
    act();
  } catch {
    // the run itself meets the error again
  } finally {
    noted = before;
  }
  for (const file of own) before?.add(file);
  return [...own];
}

// Folders and file names as the readers of workloads and of data files want them.

export function isFolder(file: string): boolean {
  if (givenFile(file) !== undefined) return false;
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

export function exists(file: string | URL): boolean {
  if (givenFile(file) !== undefined) return true;
  noteRead(file); // what is found there is read later, and what is missing may come
  return fs.existsSync(file);
}

/** Names of the files of a folder of the package. */
export function namesInFolder(folder: URL): readonly string[] {
  return fs.readdirSync(folder);
}
