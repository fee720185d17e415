/** Errors of readers of options and of the library, in the words of a deployment file: file, line and key. */

import { TierKVError } from '../../../runtime/errors.ts';
import type { SpecNode } from '../../../sim/workload/spec/reader.ts';

/** Where a field is said: a key of a mapping. */
export type Place = readonly [node: SpecNode, key: string];

/** Runs `act`; its errors about a field that `placeOf` knows are about that place. */
export function inFile<T>(placeOf: (field: string) => Place | undefined, act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof TierKVError) || error.field === undefined || error.path !== undefined) throw error;
    const { field, message } = error;
    const place = placeOf(field);
    if (place === undefined) throw error;
    const said = message.startsWith(`${field} `) ? message.slice(field.length + 1) : `(${message})`;
    const end = said.indexOf('. ');
    const problem = end === -1 ? said.replace(/\.$/, '') : said.slice(0, end);
    throw place[0].error(place[1], problem, end === -1 ? 'Change it.' : said.slice(end + 2));
  }
}

/** `max_num_seqs` is `maxNumSeqs`. */
export function camel(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}
