/**
 * Where the large traces and goldens lie beside the checkout, and how a suite says that they are not there.
 */

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const shared = new URL('../../../../../shared/', import.meta.url);

/** The path of a shared file, or undefined after a warning that names it. */
export function sharedFile(name: string): string | undefined {
  const path = fileURLToPath(new URL(name, shared));
  if (existsSync(path)) return path;
  console.warn(`SKIPPED: ../shared/${name} is not here; what it proves was not checked in this run`);
  return undefined;
}
