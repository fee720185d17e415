/**
 * Memory for tables that are read at random, such as the manager's index: in huge pages, where the system gives them, since
 * most of the time of such a read goes into finding the page. Small tables, and systems without, get ordinary memory.
 * It is given back when nobody holds the buffer any more.
 */

import { Advice, loadLibc } from '../posix/index.ts';

const HUGE_PAGE_BYTES = 2 * 1024 * 1024;

interface Mapping {
  readonly address: bigint;
  readonly bytes: number;
  readonly unmap: (address: bigint, bytes: number) => string;
}

const mappings = new FinalizationRegistry<Mapping>(({ address, bytes, unmap }) => void unmap(address, bytes));

/** A function that gives zeroed memory of at least so many bytes. */
export async function tableMemory(): Promise<(bytes: number) => ArrayBuffer> {
  const libc = await loadLibc();
  if (typeof libc === 'string') return (bytes) => new ArrayBuffer(bytes);
  return (bytes) => {
    if (bytes < HUGE_PAGE_BYTES) return new ArrayBuffer(bytes);
    const mappedBytes = bytes + HUGE_PAGE_BYTES;
    const { address, error } = libc.map(mappedBytes);
    if (error !== '') return new ArrayBuffer(bytes);
    const huge = BigInt(HUGE_PAGE_BYTES);
    const start = ((address + huge - 1n) / huge) * huge;
    libc.advise(start, bytes, Advice.HUGEPAGE); // a refusal leaves ordinary pages
    const buffer = libc.view(start, bytes);
    mappings.register(buffer, { address, bytes: mappedBytes, unmap: libc.unmap });
    return buffer;
  };
}
