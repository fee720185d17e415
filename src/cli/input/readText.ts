/**
 * Files that are read as a whole, plain or compressed (`.gz`, `.zst`). Only regular files are taken: a pipe
 * that nobody writes would hold the process, whatever signal comes. Reading stops at a limit, also where the
 * size is not known before: compressed data that unpack to a thousand times their size. A byte-order mark is
 * left out.
 */

import fs from 'node:fs';
import zlib from 'node:zlib';
import { withoutMark } from '../../runtime/boundedJson.ts';
import { TierKVError } from '../../runtime/errors.ts';
import {
  fileTooLarge,
  inputError,
  maxTextBytes,
  maxTextLines,
  maxUnpackedBytes,
  unpacksTooLarge,
} from './limits.ts';
import { noteRead } from './reads.ts';

/** The system's word on why it refused, without the path, which the message names anyway. */
export function systemReason(cause: unknown): string {
  return cause instanceof Error ? cause.message.replace(/, \w+( '.*)?$/, '') : String(cause);
}

export function unreadable(file: string, cause: unknown): TierKVError {
  if (cause instanceof TierKVError) return cause;
  return new TierKVError('TKV_IO', `${file} cannot be read: ${systemReason(cause)}. Name a readable file.`, {
    path: file,
    cause,
  });
}

const chunkBytes = 1 << 20;

/**
 * Opens a file that can be read to its end without waiting for another process.
 * @throws {TierKVError} TKV_IO for a file that cannot be opened; TKV_INPUT for a directory, pipe or device
 */
export function openRegular(file: string | URL, name: string): number {
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
    if (engine.bytesWritten === 0) throw new Error('the data after a frame are none');
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

export function isCompressed(name: string): boolean {
  return /\.(gz|zst)$/.test(name);
}

/** A compressed trace, unpacked whole. */
export function unpackedTrace(file: string): Buffer {
  try {
    const packed = readBytes(file, file, maxUnpackedBytes);
    return unpack(file, packed, maxUnpackedBytes, () => unpacksTooLarge(file));
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

const newline = 0x0a;

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
