/**
 * Opens the index file beside the blocks file of a store whose restarts are warm, or makes a new one under
 * another name, which takes its own once it says what the blocks file holds.
 */

import * as fs from 'node:fs';
import { join } from 'node:path';
import type { Libc } from '../../posix/index.ts';
import { type DirectoryOps, NodeDataFile } from '../io/dataFile.ts';
import { DataRanges, type RangedFile } from '../io/dataRanges.ts';
import type { RecordFamily } from '../record/record.ts';
import { type WarmStarted, warmStart } from '../restart/warmStart.ts';
import type { OpenRequest } from './openedFile.ts';
import { INDEX_NAME, NEW_SUFFIX } from './storeFiles.ts';

export interface BlocksFile extends RangedFile {
  readonly family: RecordFamily;
  /** Whether it is that of an earlier run, rather than one that is being made. */
  readonly kept: boolean;
  /** What allocates disk space; undefined where files are sparse. */
  readonly allocator: Libc | undefined;
}

const { O_RDWR, O_CREAT, O_NOFOLLOW, O_TRUNC } = fs.constants;

/** @param undo takes what must be done should a later step of opening fail; the last first */
export async function openIndex(
  request: OpenRequest,
  blocks: BlocksFile,
  ops: DirectoryOps,
  undo: (step: () => void | Promise<void>) => void,
): Promise<WarmStarted> {
  const { dir, layout, settings, staging, libc, wrapFile } = request;
  const native = typeof libc === 'string' ? undefined : libc;
  const open = (name: string, flags: number): RangedFile => {
    const path = join(dir, name);
    const fd = fs.openSync(path, O_RDWR | O_NOFOLLOW | flags, 0o600);
    if (flags !== 0) undo(() => fs.rmSync(path, { force: true }));
    const file = wrapFile(new NodeDataFile(fd, blocks.allocator), 'index');
    undo(() => file.close().catch(() => {}));
    return { file, ranges: new DataRanges(fd, fs.fstatSync(fd).size, native) };
  };
  const path = join(dir, INDEX_NAME);
  const started = await warmStart({
    blocks,
    layout,
    family: blocks.family,
    settings,
    staging,
    kept: !blocks.kept ? 'new' : fs.existsSync(path) ? open(INDEX_NAME, 0) : 'none',
    create: async () => open(INDEX_NAME + NEW_SUFFIX, O_CREAT | O_TRUNC).file,
  });
  if (started.created) {
    if (!blocks.kept) undo(() => fs.rmSync(path, { force: true }));
    await ops.rename(INDEX_NAME + NEW_SUFFIX, INDEX_NAME);
    await ops.sync();
  }
  return started;
}
