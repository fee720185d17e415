/** Directories for file tests: plain ones, and small mounted ones where this user may mount. */

import { spawnSync } from 'node:child_process';
import { closeSync, cpSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished, vi } from 'vitest';

/** An empty directory on the disk, gone after the test. */
export function scratchDir(): string {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-test-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Stops the clock of this test: a deadline passes when the test says so, however slow the disk is. */
export function stopClock(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
}

/**
 * What a crash would leave of the store in `dir`, in another directory: its files as they are now, without
 * the claim of the process that still writes them.
 */
export function crashed(dir: string): string {
  const copy = scratchDir();
  cpSync(dir, copy, { recursive: true, filter: (path) => !path.includes('tierkv.lock.') });
  return copy;
}

/** A new file system mounted on an empty directory, or why it cannot be mounted. */
export function mountedDir(type: 'tmpfs' | 'ramfs', options: string): { dir: string; why: string } {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-mount-'));
  const mount = spawnSync('mount', ['-t', type, '-o', options, type, dir], { encoding: 'utf8' });
  const mounted = mount.status === 0;
  onTestFinished(() => {
    if (mounted) spawnSync('umount', ['-l', dir]);
    rmSync(dir, { recursive: true, force: true });
  });
  const why = mounted ? '' : `${type} cannot be mounted here: ${mount.stderr || mount.error?.message}`;
  if (!mounted) console.warn(`test skipped: ${why}`);
  return { dir, why };
}

/** Changes bytes of a file in place, without the knowledge of a store that has it open. */
export function editFile(
  path: string,
  at: number,
  length: number,
  change: (bytes: Uint8Array) => void,
): void {
  const fd = openSync(path, 'r+');
  const bytes = new Uint8Array(length);
  readSync(fd, bytes, 0, length, at);
  change(bytes);
  writeSync(fd, bytes, 0, length, at);
  closeSync(fd);
}
