/**
 * A trace that comes through a pipe: standard input, a process substitution, a FIFO. A replay reads its trace
 * twice, so the pipe is copied to a temporary file first. Waiting for a writer holds no thread, and a stop
 * ends it.
 */

import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { TierKVError } from '../../runtime/errors.ts';
import { temporaryDirectory } from '../process/index.ts';
import { compressionOf } from './fileLines.ts';
import { fileTooLarge, maxPipeBytes } from './limits.ts';
import { unreadable } from './readText.ts';

export interface KeptPipe extends Disposable {
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
 * Copies the pipe to a file that goes when disposed. Undefined for everything that is no pipe.
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

/** An error about the kept file as an error about the pipe. */
export function aboutPipe(error: unknown, kept: KeptPipe, pipe: string): unknown {
  if (!(error instanceof TierKVError) || error.path !== kept.path) return error;
  return new TierKVError(error.code, error.message.replaceAll(kept.path, pipe), {
    path: pipe,
    cause: error,
    ...(error.field === undefined ? {} : { field: error.field }),
    ...(error.line === undefined ? {} : { line: error.line }),
  });
}
