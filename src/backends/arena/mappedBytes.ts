/**
 * Memory from the system itself, in huge pages where it grants them; given back when nobody holds the buffer
 * any more.
 */

import { Advice, type Libc } from '../posix/index.ts';

export const HUGE_PAGE_BYTES: number = 2 * 1024 * 1024;

interface Mapping {
  readonly address: bigint;
  readonly bytes: number;
  readonly unmap: (address: bigint, bytes: number) => string;
}

const mappings = new FinalizationRegistry<Mapping>(({ address, bytes, unmap }) => void unmap(address, bytes));

/** Zeroed memory that starts at a huge page's boundary; undefined when the system has not got it. */
export function mappedBytes(libc: Libc, bytes: number): ArrayBuffer | undefined {
  const withRoom = bytes + HUGE_PAGE_BYTES;
  const { address, error } = libc.map(withRoom);
  if (error !== '') return undefined;
  const huge = BigInt(HUGE_PAGE_BYTES);
  const start = ((address + huge - 1n) / huge) * huge;
  libc.advise(start, bytes, Advice.HUGEPAGE); // a refusal leaves ordinary pages
  const buffer = libc.view(start, bytes);
  mappings.register(buffer, { address, bytes: withRoom, unmap: libc.unmap });
  return buffer;
}
