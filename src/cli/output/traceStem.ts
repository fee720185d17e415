/** The two files of a TraceV2 have one name but for their ends. */

import { configError } from '../../runtime/errors.ts';

/** @param named by the option, as a stem or with the end of one of the files */
export function traceStem(option: string, named: string): string {
  const stem = named.replace(/\.(csv|ya?ml)$/, '');
  if (!/(^|[\\/])$/.test(stem)) return stem;
  throw configError(option, `is "${named}", which names no file`, 'Give a name before .yaml and .csv.');
}
