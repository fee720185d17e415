/** Where goldens lie: a few beside the tests, all of them in the shared folder where that is there. */

import { existsSync } from 'node:fs';

/** Copies of a few goldens, in folders of the same names. */
export const copies: URL = new URL('./fixtures/', import.meta.url);
/** Copies of traces of one tier. */
export const fixtures: URL = new URL('../runtime/batching/fixtures/', import.meta.url);
const all = new URL('../../../shared/goldens/blis/', import.meta.url);
const shared = new URL('micro/', all);

/** The shared folder's traces, or undefined, which is said aloud, when it is not here. */
export function sharedGoldens(what: string): URL | undefined {
  if (existsSync(shared)) return shared;
  console.warn(`SKIPPED: ${what} in goldens/blis/micro are not here to compare with`);
  return undefined;
}

/** All goldens, or the copies, which is said aloud, where there are no others. */
export function goldens(what: string): URL {
  if (existsSync(all)) return all;
  console.warn(
    `SKIPPED: goldens/blis is not here; of ${what} only what is copied into the project is compared`,
  );
  return copies;
}
