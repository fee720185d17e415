/**
 * Memory for tables that are read at random, such as the manager's index: in huge pages, where the system
 * gives them, since most of the time of such a read goes into finding the page. Small tables, and systems
 * without, get ordinary memory.
 */

import { loadLibc } from '../posix/index.ts';
import { HUGE_PAGE_BYTES, mappedBytes } from './mappedBytes.ts';

/** A function that gives zeroed memory of at least so many bytes. */
export async function tableMemory(): Promise<(bytes: number) => ArrayBuffer> {
  const libc = await loadLibc();
  if (typeof libc === 'string') return (bytes) => new ArrayBuffer(bytes);
  return (bytes) => {
    const mapped = bytes < HUGE_PAGE_BYTES ? undefined : mappedBytes(libc, bytes);
    return mapped ?? new ArrayBuffer(bytes);
  };
}
