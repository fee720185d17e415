/**
 * Which files a computation reads. Readers of this folder note each file that they open, so a specification
 * that names further files is covered with them.
 */

import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Of the innermost `filesReadBy`; null where nobody asks. */
let noted: Set<string> | null = null;

/** Notes a file that is read, or of which only the existence decides something. */
export function noteRead(file: string | URL): void {
  if (noted === null) return;
  noted.add(typeof file === 'string' ? path.resolve(file) : fileURLToPath(file));
}

/** The files that a synchronous `act` reads, in the order in which it does; up to its error if it throws. */
export function filesReadBy(act: () => void): readonly string[] {
  const before = noted;
  const own = new Set<string>();
  noted = own;
  try {
    act();
  } catch {
    // who really runs it meets the error again
  } finally {
    noted = before;
  }
  for (const file of own) before?.add(file);
  return [...own];
}
