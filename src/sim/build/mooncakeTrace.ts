/**
 * Traces in Mooncake's format (JSON lines, plain, `.gz` or `.zst`), read as a stream: memory stays at a few chunks
 * however long the file is, and stopping early closes it. Each line is a checked request or an error. What cannot be read
 * to its end is an error and never a short trace: a cut compressed stream, a directory, binary data without line ends.
 */

import { type FileHandle, open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import zlib from 'node:zlib';
import { inputError, lineTooLong, maxEmptyLines, maxLineBytes } from '../../io/files/inputErrors.ts';
import { refuseHiddenCompression, refuseWideText } from '../../io/files/inputs.ts';
import { withoutMark } from '../../runtime/boundedJson.ts';
import { namedError, requireInteger, TierKVError } from '../../runtime/errors.ts';
import { type MooncakeRow, MooncakeRows } from '../workload/importers.ts';
import { TraceLine } from '../workload/traceLines.ts';

/** How far the reading is. `bytesTotal` is the file's size, or 0 while unknown (a pipe). */
export interface ReadProgress {
  bytesRead: number;
  bytesTotal: number;
  lines: number;
}

// The lines of a text file, plain or compressed.

const newline = 0x0a;
const chunkBytes = 64 * 1024;

function unreadable(path: string, problem: string, remedy: string, cause?: unknown): TierKVError {
  return inputError(path, problem, remedy, { cause });
}

function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

async function openForReading(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'r');
  } catch (cause) {
    const code = errorCode(cause);
    if (code === 'ENOENT' || code === 'ENOTDIR') {
      throw unreadable(path, 'does not exist', 'Name an existing trace file.', cause);
    }
    throw unreadable(path, `cannot be opened (${code})`, 'Check its permissions.', cause);
  }
}

function damage(path: string, cause: unknown, lines: number): TierKVError {
  const code = errorCode(cause);
  const after = `after line ${lines}`;
  if (code === 'Z_BUF_ERROR') {
    return unreadable(
      path,
      `is cut short ${after}: its compressed data have no end`,
      'Fetch it again.',
      cause,
    );
  }
  if (code.startsWith('Z_') || code.startsWith('ZSTD_')) {
    return unreadable(path, `holds damaged compressed data ${after} (${code})`, 'Fetch it again.', cause);
  }
  return unreadable(path, `cannot be read ${after} (${code})`, 'Check the disk and the file.', cause);
}

function createZstdEngine(path: string): zlib.ZstdDecompress {
  if (typeof zlib.createZstdDecompress === 'function') return zlib.createZstdDecompress();
  throw unreadable(path, 'is zstd data, which this Node cannot read', 'Use Node 22.15 or newer.');
}

/** The file's bytes from `start`; a pipe (`start` undefined) is read from where it stands. */
async function* stored(file: FileHandle, start: number | undefined): AsyncGenerator<Buffer> {
  for (let at = start; ; ) {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(chunkBytes), 0, chunkBytes, at ?? null);
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
    if (at !== undefined) at += bytesRead;
  }
}

/**
 * Decompressed chunks of what begins at `start` and ends where the engine says: all members of gzip, one zstd
 * frame.
 */
async function* inflate(
  file: FileHandle,
  engine: zlib.Gunzip | zlib.ZstdDecompress,
  start: number | undefined,
  progress: ReadProgress,
): AsyncGenerator<Buffer> {
  const source = Readable.from(stored(file, start), { objectMode: false });
  source.on('error', (error) => engine.destroy(error));
  source.pipe(engine);
  const before = progress.bytesRead;
  try {
    for await (const chunk of engine) {
      progress.bytesRead = before + engine.bytesWritten;
      yield chunk as Buffer;
    }
  } finally {
    source.destroy();
  }
  progress.bytesRead = before + engine.bytesWritten;
}

async function* plain(
  file: FileHandle,
  path: string,
  start: number | undefined,
  progress: ReadProgress,
): AsyncGenerator<Buffer> {
  for await (const chunk of stored(file, start)) {
    if (progress.bytesRead === 0) {
      refuseHiddenCompression(path, chunk);
      refuseWideText(path, chunk);
    }
    progress.bytesRead += chunk.length;
    yield chunk;
  }
}

async function* chunks(path: string, progress: ReadProgress): AsyncGenerator<Buffer> {
  const file = await openForReading(path);
  try {
    const stat = await file.stat();
    if (stat.isDirectory()) throw unreadable(path, 'is a directory', 'Name a trace file.');
    if (stat.isFile() && stat.size === 0) return;
    progress.bytesTotal = stat.isFile() ? stat.size : 0;
    const start = stat.isFile() ? 0 : undefined;
    if (path.endsWith('.gz')) {
      yield* inflate(file, zlib.createGunzip(), start, progress);
    } else if (path.endsWith('.zst')) {
      if (start === undefined) throw unreadable(path, 'is a pipe of zstd data', 'Write it to a file first.');
      while (progress.bytesRead < stat.size) {
        yield* inflate(file, createZstdEngine(path), progress.bytesRead, progress);
      }
    } else {
      yield* plain(file, path, start, progress);
    }
  } catch (cause) {
    if (cause instanceof TierKVError || errorCode(cause) === '') throw cause;
    throw damage(path, cause, progress.lines);
  } finally {
    await file.close();
  }
}

/**
 * Yields each line without its end; a byte-order mark is left out, and a last line need not end.
 * `progress.lines` is the number of the line just yielded, from 1.
 * @throws {TierKVError} TKV_INPUT when the file is missing, a directory, unreadable, damaged or cut short, or
 * has a line above the limit or more empty lines than a trace may have.
 */
export async function* readLines(path: string, progress: ReadProgress): AsyncGenerator<string> {
  let pieces: Buffer[] = []; // of a line whose end has not come yet
  let pieceBytes = 0;
  let empty = 0;
  const take = (last: Buffer): string => {
    const whole = pieceBytes === 0 ? last : Buffer.concat([...pieces, last]);
    if (whole.length > maxLineBytes) throw lineTooLong(path, progress.lines + 1);
    pieces = [];
    pieceBytes = 0;
    const text = whole.toString('utf8');
    progress.lines++;
    if (whole.length < 2 && text.trim() === '' && ++empty > maxEmptyLines) {
      const problem = `is one of more than ${maxEmptyLines} empty lines`;
      throw inputError(path, problem, 'Leave them out.', { line: progress.lines });
    }
    return progress.lines === 1 ? withoutMark(text) : text;
  };
  for await (const chunk of chunks(path, progress)) {
    let start = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
      yield take(chunk.subarray(start, end));
      start = end + 1;
    }
    if (start === chunk.length) continue;
    pieces.push(chunk.subarray(start));
    pieceBytes += chunk.length - start;
    if (pieceBytes > maxLineBytes) throw lineTooLong(path, progress.lines + 1);
  }
  if (pieceBytes > 0) yield take(Buffer.alloc(0));
}

// The whole trace, in file order. Empty lines pass unnoticed. Every other line is a request or an error; with
// `skipBad` it is a request or is counted. A trace without a request is an error too.

export interface ReadTraceOptions {
  /** Tokens of one block; ceil(input_length / blockTokens) ids are expected a line. Default 512. */
  readonly blockTokens?: number;
  /** Stop after this many requests. */
  readonly limit?: number;
  /** Leave malformed lines out. Damage to the file itself still ends the reading. */
  readonly skipBad?: boolean;
  /** Called with the error of each line left out. */
  readonly onSkip?: (error: TierKVError) => void;
  /** Kept up to date while reading, for a progress bar. */
  readonly progress?: ReadProgress;
  /** Ends the reading with its reason, also while no line holds a request. */
  readonly signal?: AbortSignal;
}

/** Lines that may be left out of a trace; a file of nothing else ends before it is read to its end. */
const maxBadLines = 2 ** 17;

export const mooncakeBlockTokens = 512;

/**
 * @throws {TierKVError} TKV_INPUT for a file that is missing, unreadable, damaged or without requests, and
 * for the first malformed line unless `skipBad`; TKV_CONFIG for an option out of range. Throws the signal's
 * reason after a stop.
 */
export async function* readMooncakeTrace(
  path: string,
  options: ReadTraceOptions = {},
): AsyncGenerator<TraceRequest> {
  const blockTokens = requireInteger('blockTokens', options.blockTokens ?? mooncakeBlockTokens, 1);
  const limit = options.limit ?? Number.POSITIVE_INFINITY;
  if (options.limit !== undefined) requireInteger('limit', options.limit, 1);
  const progress = options.progress ?? { bytesRead: 0, bytesTotal: 0, lines: 0 };

  const rows = new MooncakeRows(blockTokens, undefined, (name) => `Stop earlier with ${name('requests')}`);
  let requests = 0;
  let skipped = 0;
  for await (const text of readLines(path, progress)) {
    options.signal?.throwIfAborted();
    if (text.trim() === '') continue;
    let request: TraceRequest;
    try {
      const at = new TraceLine(
        path,
        progress.lines,
        (name) => `Or leave such lines out with ${name('skipBad')}`,
      );
      const row = rows.read(at.json(text), at);
      if (row === undefined) continue;
      const { ids, ...rest } = row;
      request = { ...rest, hashIds: idsOf(ids), line: progress.lines };
    } catch (error) {
      if (options.skipBad !== true || !(error instanceof TierKVError)) throw error;
      if (++skipped > maxBadLines) {
        const remedy = 'Name a trace with one request a line.';
        throw inputError(path, `is one of more than ${maxBadLines} bad lines`, remedy, {
          line: progress.lines,
        });
      }
      options.onSkip?.(error);
      continue;
    }
    requests++;
    yield request;
    if (requests >= limit) return;
  }
  if (requests === 0) {
    const why = skipped === 0 ? 'is empty' : `has no good line among ${skipped}`;
    throw namedError(
      'TKV_INPUT',
      { path },
      (name) => `${name(path)} ${why}: it has no request to replay. Name another trace.`,
    );
  }
}

/** A key is made of the bits of an id, and -0 has others than 0. */
function idsOf(ids: readonly number[]): Float64Array {
  const hashIds = new Float64Array(ids.length);
  for (let i = 0; i < ids.length; i++) hashIds[i] = ids[i] + 0;
  return hashIds;
}

/** One request of a Mooncake-format trace, as a command hands it on. */
export interface TraceRequest extends Omit<MooncakeRow, 'ids'> {
  /** One id a block of the prompt, the last block perhaps partial. An equal id means an equal whole prefix. */
  readonly hashIds: Float64Array;
  /** Number of the line in the file, from 1. */
  readonly line: number;
}
