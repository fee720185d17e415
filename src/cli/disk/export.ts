/** `tierkv disk export`: the records' metadata as JSON lines, and their bytes as files on request. */

import fs from 'node:fs';
import path from 'node:path';
import { StoreView } from '../../backends/file/index.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { keyToHex } from '../../runtime/index.ts';
import { requireWritableTarget } from '../output/index.ts';

export interface ExportOptions {
  readonly out?: string;
  readonly payloads?: string;
}

/** @throws {TierKVError} TKV_LOCKED, TKV_MISMATCH or TKV_IO */
export async function exportStore(dir: string, { out: named, payloads }: ExportOptions): Promise<void> {
  const out = named === '-' ? undefined : named; // standard output, as without the option
  if (out !== undefined) requireWritableTarget(out);
  if (payloads !== undefined) requireDirectory(payloads);
  await using view = await StoreView.open(dir);
  const target = out === undefined ? undefined : fs.openSync(out, 'w');
  try {
    for (const entry of view.records()) {
      const { slot, sizeClass, generation, sequence, lastUse, tokens, key, parent, digest } = entry;
      const line: Record<string, string | number | null> = {
        slot,
        sizeClass,
        generation,
        sequence,
        lastUse,
        tokens,
        bytes: view.facts.slotBytes[sizeClass],
        key: keyToHex(key, 0),
        parent: parent === undefined ? null : keyToHex(parent, 0),
        digest: hexOf(digest.hi) + hexOf(digest.lo),
      };
      if (payloads !== undefined) {
        const payload = await view.payload(entry);
        line.file = typeof payload === 'string' ? null : `${line.key}.bin`;
        line.problem = typeof payload === 'string' ? payload : null;
        if (typeof payload !== 'string') writeAnew(path.join(payloads, `${line.key}.bin`), payload);
      }
      await write(target, `${JSON.stringify(line)}\n`);
    }
  } finally {
    if (target !== undefined) fs.closeSync(target);
  }
}

/**
 * Writes a file that only its owner may read, as the store itself is. Whatever has the name is removed first,
 * never written to: it may be a link to elsewhere.
 */
function writeAnew(file: string, bytes: Uint8Array): void {
  try {
    fs.rmSync(file, { force: true });
    fs.writeFileSync(file, bytes, { flag: 'wx', mode: 0o600 });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const problem = `--payloads: writing ${file} failed with ${code}`;
    throw new TierKVError('TKV_IO', `${problem}. Name an empty directory that this user may write.`, {
      field: '--payloads',
      path: file,
      cause,
    });
  }
}

function requireDirectory(name: string): void {
  if (fs.statSync(name, { throwIfNoEntry: false })?.isDirectory()) return;
  throw new TierKVError('TKV_IO', `--payloads ${name} is no directory. Create it first.`, {
    field: '--payloads',
    path: name,
  });
}

async function write(target: number | undefined, line: string): Promise<void> {
  if (target !== undefined) fs.writeSync(target, line);
  else if (!process.stdout.write(line)) {
    await new Promise<void>((resolve) => process.stdout.once('drain', resolve));
  }
}

function hexOf(word: number): string {
  return word.toString(16).padStart(8, '0');
}
