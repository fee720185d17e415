/** Where a command prints to: standard output, or stderr while a result has that. */

import { coloured, hasColours } from '../io/printing/colours.ts';
import { configError } from '../runtime/errors.ts';

let isStdoutTaken = false;

/** Standard output is for one result alone from now on: what people read goes to stderr. */
export function takeStandardOutput(): void {
  isStdoutTaken = true;
}

/** Writes what people read: to standard output, or to stderr while a result has that. */
export function printText(text: string): void {
  const stream = isStdoutTaken ? process.stderr : process.stdout;
  stream.write(hasColours(stream) ? coloured(text) : text);
}

//  The two files of a TraceV2 have one name but for their ends.

/** @param named by the option, as a stem or with the end of one of the files */
export function traceStem(option: string, named: string): string {
  const stem = named.replace(/\.(csv|ya?ml)$/, '');
  if (!/(^|[\\/])$/.test(stem)) return stem;
  throw configError(option, `is "${named}", which names no file`, 'Give a name before .yaml and .csv.');
}
