/**
 * Time that a virtual machine's cores were ready to run and did not, since their host ran something else: what it did meanwhile
 * says nothing about itself. Linux counts it in /proc/stat ("steal"), in hundredths of a second; elsewhere it is 0.
 */

import fs from 'node:fs';

const STEAL_FIELD = 8;

const TICK_MS = 10;

/** Since the machine started, of all its cores together. */
export function stolenMs(): number {
  try {
    const [cores] = fs.readFileSync('/proc/stat', 'latin1').split('\n', 1);
    return TICK_MS * Number(cores.trim().split(/\s+/)[STEAL_FIELD] ?? 0);
  } catch {
    return 0;
  }
}
