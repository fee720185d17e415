/** Where golden traces lie: a few beside the tests, all of them in the shared folder where that is there. */

import { existsSync } from 'node:fs';

export const fixtures: URL = new URL('../runtime/batching/fixtures/', import.meta.url);
const shared = new URL('../../../shared/goldens/blis/micro/', import.meta.url);

/** The shared folder, or undefined, which is said aloud, when it is not here. */
export function sharedGoldens(what: string): URL | undefined {
  if (existsSync(shared)) return shared;
  console.warn(`SKIPPED: ${what} in goldens/blis/micro are not here to compare with`);
  return undefined;
}
