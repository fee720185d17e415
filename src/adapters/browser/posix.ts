/** `src/backends/host/posix.ts` and `copyThreads.ts` in a browser, which has no C library, no disk and no addresses. */

import { configError } from '../../runtime/errors.ts';

/** No call of it is made in a browser. */
export const Advice = { DONTNEED: 4, HUGEPAGE: 14, DONTDUMP: 16, POPULATE_WRITE: 23 } as const;

export async function loadLibc(): Promise<string> {
  return 'a browser has no native calls';
}

/** A browser does not say; an allocation that it refuses is an error of its own. */
export function availableMemoryBytes(): number {
  return Number.POSITIVE_INFINITY;
}

export function hugePageBytesIn(): number {
  return 0;
}

export const locksMemory = false;

export function openTextLog(file: string): never {
  throw configError(
    'log',
    `names the file ${file}, and a browser has no disk`,
    'Leave it out, or use events.',
  );
}

export function copyThreadsMost(): number {
  return 0;
}

export async function holdCopyThreads(): Promise<undefined> {
  return undefined;
}

export function letCopyThreadsGo(): void {}

export function settleCopiesOn(): boolean {
  return true;
}
