/**
 * A Mooncake-format trace (JSON lines, plain, `.gz` or `.zst`) as a stream of checked requests in file order.
 * Empty lines pass unnoticed. Every other line is a request or an error; with `skipBad` it is a request or is
 * counted. A trace without a single request is an error too: nothing that could be replayed is never reported
 * as a run.
 */

import { requireInteger, TierKVError } from '../../runtime/errors.ts';
import { inputError } from '../input/index.ts';
import { type ReadProgress, readLines } from './lines.ts';
import { parseMooncakeLine } from './mooncakeLine.ts';
import type { TraceRequest } from './request.ts';

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

  let requests = 0;
  let skipped = 0;
  for await (const text of readLines(path, progress)) {
    options.signal?.throwIfAborted();
    if (text.trim() === '') continue;
    let request: TraceRequest;
    try {
      request = parseMooncakeLine(text, { path, line: progress.lines }, blockTokens);
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
    throw new TierKVError('TKV_INPUT', `${path} ${why}: there is no request to replay. Name another trace.`, {
      path,
    });
  }
}
