/**
 * Opens a tier's data file in an existing directory, in steps of which each may refuse: lock, look who owns the file that
 * is there, space, superblock, direct I/O. Whatever refuses, nothing half-made stays behind. The file begins empty.
 */

import * as fs from 'node:fs';
import { join } from 'node:path';
import type { Digest } from '../../runtime/digest.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import type { Libc } from '../posix/index.ts';
import { type DataFile, IoError, isFull, NodeDataFile } from './dataFile.ts';
import { DirectoryLock } from './directoryLock.ts';
import { probeDirectIo } from './directProbe.ts';
import { Extents } from './extents.ts';
import { dirError } from './fileErrors.ts';
import { DATA_START_BYTES, type FileLayout, layoutFingerprint } from './fileLayout.ts';
import type { FileStoreSettings } from './fileStoreOptions.ts';
import { BLOCK_BYTES, type RecordFamily } from './record.ts';
import type { StagingPool } from './stagingPool.ts';
import { encodeSuperblock, foreignness } from './superblock.ts';

export const DATA_FILE_NAME = 'tierkv.blocks';

export interface OpenedFile {
  readonly file: DataFile;
  readonly extents: Extents;
  readonly family: RecordFamily;
  readonly path: string;
  readonly facts: OpenFacts;
  /** Closes the file and leaves the directory to others. Nothing may be in flight. */
  close(): Promise<void>;
}

/** What the system granted, for `describe`. */
export interface OpenFacts {
  readonly mode: 'direct' | 'buffered';
  /** Why it is buffered, where direct I/O was wanted. */
  readonly modeReason: string;
  /** How disk space is set aside. */
  readonly space: 'fallocate' | 'sparse';
  readonly spaceReason: string;
  readonly filesystem: string;
}

export interface OpenRequest {
  readonly dir: string;
  readonly layout: FileLayout;
  readonly settings: FileStoreSettings;
  readonly staging: StagingPool;
  /** The C library, or why there is none. */
  readonly libc: Libc | string;
  readonly wrapFile: (file: DataFile) => DataFile;
}

/** @throws TKV_IO, TKV_LOCKED or TKV_MISMATCH with field `dir`; TKV_CONFIG when direct I/O is a must and refused. */
export async function openDataFile(request: OpenRequest): Promise<OpenedFile> {
  const { dir, layout, settings, staging, libc } = request;
  const native = typeof libc === 'string' ? undefined : libc;
  const undo: (() => void)[] = [];
  let doing = 'opening the directory';
  try {
    if (!fs.statSync(dir).isDirectory()) throw new IoError('ENOTDIR', 'stat');
    doing = 'locking it';
    const lock = await DirectoryLock.acquire(dir, native);
    undo.push(() => lock.release());

    doing = `opening ${DATA_FILE_NAME}`;
    const path = join(dir, DATA_FILE_NAME);
    const isNew = !holdsOurFile(path);
    let fd = openOwned(path, O_CREAT);
    if (isNew) undo.push(() => fs.rmSync(path, { force: true }));
    undo.push(() => fs.closeSync(fd));

    doing = 'reserving disk space';
    fs.ftruncateSync(fd, 0);
    const firstBytes = DATA_START_BYTES + Math.max(...layout.records.map((record) => record.recordBytes));
    const reservedBytes = settings.allocation === 'whole' ? layout.fileBytes : firstBytes;
    requireFreeSpace(dir, reservedBytes);
    const refusal = native === undefined ? String(libc) : native.tryAllocate(fd, BLOCK_BYTES);
    if (isFull(refusal)) throw new IoError(refusal, 'fallocate');
    const allocator = refusal === '' ? native : undefined;
    await new NodeDataFile(fd, allocator).allocate(0, reservedBytes);

    doing = 'writing the superblock';
    const family = { layout: layoutFingerprint(layout.shape, settings.layout), store: drawStoreId() };
    const block = new Uint8Array(BLOCK_BYTES);
    encodeSuperblock(block, family, layout);
    fs.writeSync(fd, block, 0, BLOCK_BYTES, 0);

    doing = 'trying direct I/O';
    const probed = settings.mode === 'buffered' ? 'it was not wanted' : probeDirectIo(path, layout, staging);
    const modeReason = typeof probed === 'string' ? probed : '';
    if (typeof probed === 'string' && settings.mode === 'direct') {
      throw configError(
        'mode',
        `is 'direct', but ${probed}`,
        "Set it to 'auto', or use another file system.",
      );
    }
    if (typeof probed === 'number') {
      fs.closeSync(fd);
      fd = probed;
    }
    const file = request.wrapFile(new NodeDataFile(fd, allocator));
    const pages = settings.allocation === 'whole' ? layout.shape.pages : 0;
    const extents = new Extents(file, layout, settings.extentBytes, pages);
    const facts: OpenFacts = {
      mode: modeReason === '' ? 'direct' : 'buffered',
      modeReason,
      space: allocator === undefined ? 'sparse' : 'fallocate',
      spaceReason: refusal,
      filesystem: filesystemName(dir),
    };
    const close = (): Promise<void> => file.close().finally(() => lock.release());
    return { file, extents, family, path, facts, close };
  } catch (error) {
    for (const step of undo.reverse()) step();
    throw dirError(dir, doing, error);
  }
}

const { O_RDWR, O_CREAT, O_NOFOLLOW } = fs.constants;

/** Opens without following a link that somebody else may have put there; what it makes is private. */
function openOwned(path: string, flags: number): number {
  return fs.openSync(path, O_RDWR | O_NOFOLLOW | flags, 0o600);
}

/** Whether a data file is there that this tierkv made. @throws TKV_MISMATCH when it is somebody else's. */
function holdsOurFile(path: string): boolean {
  const stats = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return false;
  let why = 'is not a regular file';
  if (stats.isFile()) {
    const fd = fs.openSync(path, 'r');
    const head = new Uint8Array(BLOCK_BYTES);
    const length = fs.readSync(fd, head, 0, BLOCK_BYTES, 0);
    fs.closeSync(fd);
    why = foreignness(head.subarray(0, length));
  }
  if (why === '') return true;
  throw new TierKVError(
    'TKV_MISMATCH',
    `dir holds ${path}, which ${why}. Move it away, or use another directory.`,
    { field: 'dir', path },
  );
}

function requireFreeSpace(dir: string, bytes: number): void {
  const { blocks, bavail, bsize } = fs.statfsSync(dir);
  const freeBytes = bavail * bsize;
  if (blocks === 0 || bytes <= freeBytes) return; // a file system without size, such as ramfs, reports no blocks
  throw new TierKVError(
    'TKV_IO',
    `dir ${dir} has ${freeBytes} bytes free, the tier needs ${bytes} (ENOSPC). Lower the number of blocks, or name a directory on a larger disk.`,
    { field: 'dir', path: dir },
  );
}

function drawStoreId(): Digest {
  const [lo, hi] = crypto.getRandomValues(new Uint32Array(2));
  return { lo: lo!, hi: hi! };
}

const filesystems: Record<number, string> = {
  61267: 'ext4',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  16914836: 'tmpfs',
  2035054128: 'overlay',
  801189825: 'zfs',
  26985: 'nfs',
  1702057286: 'fuse',
};

function filesystemName(dir: string): string {
  const { type } = fs.statfsSync(dir);
  return filesystems[type] ?? `0x${type.toString(16)}`;
}
