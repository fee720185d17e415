/**
 * Packages that `npm run extras` installs, since each serves a few tests and all of them are as large as everything else. Tests
 * that need one are left out where it is not there, and a run says so in its last lines.
 */

import { existsSync } from 'node:fs';
import { join } from 'node:path';

/** Test files that do not load without a package, by its name. A file of which one test needs it asks `hasExtra` there. */
export const filesOfExtras: Readonly<Record<string, readonly string[]>> = {
  '@anthropic-ai/sdk': ['test/examples/server/api/the-messages-client-is-served.test.ts'],
  '@huggingface/transformers': [
    'test/adapters/**/*.test.ts',
    'test/browser/transformers-keeps-prefixes-in-a-page.test.ts',
  ],
  '@tensorflow/tfjs-core': ['test/compute/tensors/tfjs.test.ts'],
  assemblyscript: ['test/sim/sandbox/wasm/examples.test.ts'],
  binaryen: ['test/sim/sandbox/wasm/{budget,contract,metering}.test.ts'],
};

export const isInstalled = (name: string): boolean =>
  existsSync(join(import.meta.dirname, '..', 'node_modules', name));

/** Whether `name` is there; where it is not, the run says that `what` was left out. */
export function hasExtra(name: string, what: string): boolean {
  if (isInstalled(name)) return true;
  console.warn(`SKIPPED: ${what}: needs ${name}: npm run extras`);
  return false;
}

const absent = Object.keys(filesOfExtras).filter((name) => !isInstalled(name));
/** Files that cannot run in this checkout. */
export const filesLeftOut: readonly string[] = absent.flatMap((name) => filesOfExtras[name]);
/** A line a package for the end of a run. */
export const leftOut: readonly string[] = absent.map(
  (name) => `SKIPPED: ${filesOfExtras[name].join(', ')}: needs ${name}: npm run extras`,
);
