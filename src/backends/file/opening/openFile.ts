/**
 * Opens a tier's files in an existing directory, step by step: lock the directory, see whose files are there,
 * keep them or make new ones, set disk space aside, try direct I/O, recover what the files hold. Any step may
 * refuse; then everything that the steps before it have made is removed. New files are made under another
 * name and take their own in one step, the index first: so where `tierkv.blocks` is, it is whole, and a store
 * that was killed while it was made does not exist.
 */

import * as fs from 'node:fs';
import { join } from 'node:path';
import type { Digest } from '../../../runtime/digest.ts';
import { configError } from '../../../runtime/errors.ts';
import type { Libc } from '../../posix/index.ts';
import {
  BLOCK_BYTES,
  type DirectoryOps,
  IoError,
  isFull,
  NodeDataFile,
  NodeDirectoryOps,
} from '../io/dataFile.ts';
import { DataRanges } from '../io/dataRanges.ts';
import { DirectoryLock } from '../io/directoryLock.ts';
import { probeDirectIo } from '../io/directProbe.ts';
import { bytesOnDisk, filesystemName, requireFreeSpace } from '../io/diskSpace.ts';
import { Extents } from '../io/extents.ts';
import { dirError } from '../io/fileErrors.ts';
import { DATA_START_BYTES, recordBytesMax, SCRATCH_START_BYTES } from '../record/fileLayout.ts';
import {
  encodeSuperblock,
  factsOf,
  familyOf,
  requireSameMeaning,
  type StoreFacts,
} from '../record/superblock.ts';
import { geometryOf } from '../restart/indexFile/indexBlocks.ts';
import type { OpenedFile, OpenRequest } from './openedFile.ts';
import { openIndex } from './openIndex.ts';
import { BLOCKS_NAME, INDEX_NAME, NEW_SUFFIX, storeThere } from './storeFiles.ts';

const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = fs.constants;

/** @throws TKV_IO, TKV_LOCKED or TKV_MISMATCH; TKV_CONFIG when direct I/O is a must and refused. */
export async function openDataFile(request: OpenRequest): Promise<OpenedFile> {
  const opening = new Opening(request);
  try {
    return await opening.run();
  } catch (error) {
    await opening.undo();
    throw dirError(request.dir, opening.doing, error);
  }
}

class Opening {
  doing = 'opening the directory';
  readonly #request: OpenRequest;
  readonly #native: Libc | undefined;
  readonly #ops: DirectoryOps;
  readonly #undo: (() => void | Promise<void>)[] = [];

  constructor(request: OpenRequest) {
    this.#request = request;
    this.#native = typeof request.libc === 'string' ? undefined : request.libc;
    this.#ops = request.wrapDirectory(new NodeDirectoryOps(request.dir));
  }

  async undo(): Promise<void> {
    for (const step of this.#undo.reverse()) await step();
  }

  async run(): Promise<OpenedFile> {
    const { dir, layout, settings } = this.#request;
    if (!fs.statSync(dir).isDirectory()) throw new IoError('ENOTDIR', 'stat');
    this.doing = 'locking it';
    const lock = await DirectoryLock.acquire(dir, this.#native);
    this.#undo.push(() => lock.release());

    this.doing = `opening ${BLOCKS_NAME}`;
    const found = this.#keptFacts();
    const kept = found !== undefined;
    const facts = found ?? factsOf(drawStoreId(), settings.identity, layout, settings.restart);
    if (!kept) await this.#removeOld();
    const path = join(dir, BLOCKS_NAME);
    const from = kept ? path : path + NEW_SUFFIX;
    const fd = fs.openSync(from, O_RDWR | O_NOFOLLOW | (kept ? 0 : O_CREAT | O_EXCL), 0o600);
    if (!kept) this.#undo.push(() => fs.rmSync(from, { force: true }));
    let current = fd;
    this.#undo.push(() => fs.closeSync(current));

    const family = familyOf(facts);
    const { allocator, spaceReason } = await this.#reserve(fd, kept, facts);
    this.doing = 'trying direct I/O';
    const probed = this.#probe(from, kept);
    if (typeof probed === 'number') {
      fs.closeSync(fd);
      current = probed;
    }
    const modeReason = typeof probed === 'string' ? probed : '';
    const file = this.#request.wrapFile(new NodeDataFile(current, allocator), 'blocks');

    this.doing = 'reading what it holds';
    const ranges = new DataRanges(current, fs.fstatSync(current).size, this.#native);
    const blocks = { file, ranges, family, kept, allocator };
    const started =
      settings.restart === 'warm'
        ? await openIndex(this.#request, blocks, this.#ops, (step) => this.#undo.push(step))
        : undefined;
    this.doing = `naming ${BLOCKS_NAME}`;
    if (!kept) {
      if (started !== undefined) await file.sync();
      this.#undo.push(() => fs.rmSync(path, { force: true }));
      await this.#ops.rename(BLOCKS_NAME + NEW_SUFFIX, BLOCKS_NAME);
      if (started !== undefined) await this.#ops.sync();
    } else if (ranges.fileBytes > layout.fileBytes) fs.ftruncateSync(current, layout.fileBytes);

    const { pages } = layout.shape;
    const rows = { startBytes: DATA_START_BYTES, strideBytes: layout.pageStrideBytes, pages };
    const reserved = settings.allocation === 'whole' ? pages : 0;
    return {
      file,
      extents: new Extents(file, rows, settings.extentBytes, reserved),
      family,
      path,
      facts: {
        mode: modeReason === '' ? 'direct' : 'buffered',
        modeReason,
        space: allocator === undefined ? 'sparse' : 'fallocate',
        spaceReason,
        filesystem: filesystemName(dir),
      },
      warm: started?.warm,
      recovered: started?.recovered,
      isNew: !kept,
      async close() {
        try {
          await started?.index.close();
          await file.close();
        } finally {
          lock.release();
        }
      },
    };
  }

  /** The facts of the store that is there, if it is to be gone on with. @throws TKV_MISMATCH */
  #keptFacts(): StoreFacts | undefined {
    const { dir, layout, settings } = this.#request;
    const there = storeThere(dir);
    if (there === undefined || settings.restart !== 'warm') return undefined;
    const wanted = factsOf(there.storeId, settings.identity, layout, settings.restart);
    requireSameMeaning(there, wanted, dir, join(dir, BLOCKS_NAME));
    return there.identity.epoch === settings.identity.epoch ? there : undefined;
  }

  async #removeOld(): Promise<void> {
    for (const name of [BLOCKS_NAME, INDEX_NAME, BLOCKS_NAME + NEW_SUFFIX, INDEX_NAME + NEW_SUFFIX]) {
      await this.#ops.remove(name);
    }
  }

  /** Sets disk space aside, and writes the superblock of a new file. */
  async #reserve(
    fd: number,
    kept: boolean,
    facts: StoreFacts,
  ): Promise<{ allocator: Libc | undefined; spaceReason: string }> {
    const { dir, layout, settings, libc, wrapFile } = this.#request;
    this.doing = 'reserving disk space';
    const firstBytes = DATA_START_BYTES + recordBytesMax(layout);
    const bytes = settings.allocation === 'whole' ? layout.fileBytes : firstBytes;
    const indexBytes = settings.restart === 'warm' ? geometryOf(layout).fileBytes : 0;
    const haveBytes = bytesOnDisk(join(dir, INDEX_NAME)) + fs.fstatSync(fd).blocks * 512;
    requireFreeSpace(dir, bytes + indexBytes, haveBytes);
    const refusal = this.#native === undefined ? String(libc) : this.#native.tryAllocate(fd, BLOCK_BYTES);
    if (isFull(refusal)) throw new IoError(refusal, 'fallocate');
    const allocator = refusal === '' ? this.#native : undefined;
    const file = wrapFile(new NodeDataFile(fd, allocator), 'blocks');
    await file.allocate(0, bytes);
    if (!kept) {
      this.doing = 'writing the superblock';
      await file.writev([encodeSuperblock(facts)], 0);
    }
    return { allocator, spaceReason: refusal };
  }

  /** A descriptor for direct I/O, or why there is none. @throws TKV_CONFIG when it is a must */
  #probe(path: string, kept: boolean): number | string {
    const { layout, settings, staging } = this.#request;
    if (settings.mode === 'buffered') return 'it was not wanted';
    const offsets = {
      scratchAt: SCRATCH_START_BYTES,
      recordAt: DATA_START_BYTES,
      recordBytes: recordBytesMax(layout),
      holdsRecords: kept,
    };
    const probed = probeDirectIo(path, offsets, staging);
    if (typeof probed === 'string' && settings.mode === 'direct') {
      const remedy = "Set it to 'auto', or use another file system.";
      throw configError('mode', `is 'direct', but ${probed}`, remedy);
    }
    return probed;
  }
}

function drawStoreId(): Digest {
  const [lo, hi] = crypto.getRandomValues(new Uint32Array(2));
  return { lo, hi };
}
