/**
 * Messages of readers that refuse a file, and the limits above which they do. Nothing here reads: the readers of a page
 * (`src/adapters/browser`) have the same words.
 */

import { namedError, TierKVError } from '../../runtime/errors.ts';

// Limits. They lie far above what traces, specs and measurements hold: the longest line of the published traces
// is 0.4 MB.

const mib = 2 ** 20;

/** Limit of a line of a trace. */
export const maxLineBytes: number = 16 * mib;
/** Limit of a file that is read as a whole: a spec, coefficients, a table of measurements. */
export const maxTextBytes: number = 64 * mib;
/** Lines of such a file. */
export const maxTextLines: number = 2 ** 20;
/** Limit of a compressed trace once it is unpacked, where that happens in memory. */
export const maxUnpackedBytes: number = 256 * mib;
/** Limit of a trace that comes through a pipe; it is kept in a file until the run ends. */
export const maxPipeBytes: number = 4096 * mib;

/** Empty lines of a trace; a file of nothing else is refused before it is read to its end. */
export const maxEmptyLines: number = 2 ** 16;

/** `problem` and `remedy` about the file, or about one line of it. */
export function inputError(
  path: string,
  problem: string,
  remedy: string,
  facts: { line?: number; cause?: unknown } = {},
): TierKVError {
  return namedError('TKV_INPUT', { path, ...facts }, (name) =>
    facts.line === undefined
      ? `${name(path)} ${problem}. ${remedy}`
      : `${name(path)}:${facts.line}: ${problem}. ${remedy}`,
  );
}

export function lineTooLong(path: string, line: number): TierKVError {
  const problem = `is longer than ${maxLineBytes / mib} MiB, the most that a line of a trace may have`;
  return inputError(path, problem, 'Name a trace with one request a line.', { line });
}

export function fileTooLarge(path: string, maxBytes: number): TierKVError {
  const problem = `holds more than ${maxBytes / mib} MiB, the most that is read of such a file`;
  return inputError(path, problem, 'Name the right file, or split it.');
}

export function unpacksTooLarge(path: string): TierKVError {
  const problem = `unpacks to more than ${maxUnpackedBytes / mib} MiB, the most that is unpacked in memory`;
  return inputError(path, problem, 'Unpack it to a file and name that file.');
}

/** The system's word on why it refused: the call and the path behind it are left out, since the message names them anyway. */
export function systemReason(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const { syscall } = cause as { readonly syscall?: unknown };
  return typeof syscall === 'string' ? cause.message.split(`, ${syscall}`)[0] : cause.message;
}

export function unreadable(file: string, cause: unknown): TierKVError {
  if (cause instanceof TierKVError) return cause;
  const path = file === '' ? 'a file without a name' : file;
  const isMissing = (cause as { readonly code?: unknown } | undefined)?.code === 'ENOENT';
  return namedError('TKV_IO', { path, cause }, (name) =>
    isMissing
      ? `${name(path)} does not exist. Name a file that is there.`
      : `${name(path)} cannot be read: ${systemReason(cause)}. Name a readable file.`,
  );
}
