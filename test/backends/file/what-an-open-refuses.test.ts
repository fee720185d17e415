import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { DataFile, WrapFile } from '../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions } from '../../../src/backends/file/opening.ts';
import { loadLibc } from '../../../src/backends/host/posix.ts';
import { TierKVError } from '../../../src/runtime/errors.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../src/runtime/tier/tier.ts';
import { emptyItem, patternItem } from '../../../src/testing/index.ts';
import { editFile, mountedDir, scratchDir } from './scratch.ts';

const shape = poolShape(8, 8192, [8192]);
const DATA = 'tierkv.blocks';

/** The error of an open that must fail, which must name directory and remedy in one line. */
async function refusal(dir: string, options: FileStoreOptions = {}, pool = shape): Promise<TierKVError> {
  const error = await FileStore.open(dir, pool, options).then(
    async (store) => {
      await store[Symbol.asyncDispose]();
      throw new Error('the open succeeded');
    },
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(TierKVError);
  const known = error as TierKVError;
  expect(known.field).toBe('dir');
  expect(known.path?.startsWith(dir)).toBe(true);
  expect(known.message).toMatch(/^dir [^\n]+\. [A-Z][^\n]+\.$/);
  return known;
}

describe('opening a file store', () => {
  it('makes the last folder of its path for this user alone, and takes it away where the open fails', async () => {
    const dir = join(scratchDir(), 'made');
    const store = await FileStore.open(dir, shape);
    expect(statSync(dir).mode & 0o777).toBe(0o700);
    await store[Symbol.asyncDispose]();
    const other = join(scratchDir(), 'not-made');
    const fails = { wrapFile: () => ({}) as DataFile };
    await expect(FileStore.open(other, shape, fails)).rejects.toThrow();
    expect(existsSync(other)).toBe(false);
  });

  it.each(['blocks', 'index'] as const)(
    'of a new directory says that writing failed where %s does not sync',
    async (which) => {
      const wrapFile: WrapFile = (file, name) =>
        name !== which
          ? file
          : {
              readv: (parts, at) => file.readv(parts, at),
              writev: (parts, at) => file.writev(parts, at),
              allocate: (at, bytes) => file.allocate(at, bytes),
              sync: () => Promise.reject(Object.assign(new Error('no sync'), { code: 'EIO' })),
              close: () => file.close(),
            };
      const error = await FileStore.open(scratchDir(), shape, { restart: 'warm', wrapFile }).catch(
        (e: unknown) => e,
      );
      expect(error).toMatchObject({
        code: 'TKV_IO',
        message: expect.stringMatching(/(writing|making) tierkv\.\w+.* failed with EIO/),
      });
    },
  );

  it('names a directory whose parent does not exist, and makes neither', async () => {
    const dir = join(scratchDir(), 'no-parent', 'absent');
    expect(await refusal(dir)).toMatchObject({ code: 'TKV_IO', message: expect.stringContaining('ENOENT') });
    expect(() => readdirSync(dir)).toThrow('ENOENT');
  });

  it('names a file that stands where a directory should', async () => {
    const path = join(scratchDir(), 'plain');
    writeFileSync(path, 'mine');
    expect((await refusal(path)).message).toContain('ENOTDIR');
    expect(readFileSync(path, 'utf8')).toBe('mine');
  });

  it('names a directory that it may not write', ({ skip }) => {
    const dir = scratchDir();
    const script = `
      const { FileStore } = await import('./src/backends/file/fileStore.ts');
      const { poolShape } = await import('./src/runtime/tables/slotPool.ts');
      const error = await FileStore.open(${JSON.stringify(dir)}, poolShape(8, 8192, [8192])).catch((e) => e);
      console.log(error.code, error.field, error.message);`;
    // Root may write everywhere, so another user tries.
    const isRoot = process.getuid?.() === 0;
    const other = isRoot ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : [];
    if (!isRoot) spawnSync('chmod', ['555', dir]);
    const [command, ...args] = [...other, process.execPath, '-e', script];
    const run = spawnSync(command, args, { encoding: 'utf8' });
    if (run.error !== undefined) return skip(`cannot become another user: ${run.error.message}`);
    expect(run.stdout).toMatch(
      /^TKV_IO dir dir .* failed with EACCES\. Name a directory that this user may write\.$/m,
    );
    expect(readdirSync(dir)).toEqual([]);
  });

  it('names a read-only file system', async ({ skip }) => {
    const { dir, why } = mountedDir('tmpfs', 'ro');
    skip(why !== '', why);
    expect((await refusal(dir)).message).toMatch(/EROFS.*read-only/);
  });

  for (const options of [{}, { native: false }]) {
    it(`names a disk that is too small, and leaves nothing (${JSON.stringify(options)})`, async () => {
      const dir = scratchDir();
      const tooLarge = poolShape(2 ** 30, 2 ** 20, [2 ** 20]);
      const error = await refusal(dir, options, tooLarge);
      expect(error).toMatchObject({
        code: 'TKV_IO',
        message: expect.stringMatching(/ENOSPC.*Lower the number of blocks/),
      });
      expect(readdirSync(dir)).toEqual([]);
    });
  }

  it('takes only what it needs when it grows in extents, however many pages there may be', async () => {
    const dir = scratchDir();
    const unbounded = poolShape(2 ** 30, 2 ** 20, [2 ** 20]);
    await using store = await FileStore.open(dir, unbounded, {
      allocation: 'extents',
      extentBytes: 4 * 2 ** 20,
    });
    const item = patternItem(unbounded, 9, 0, 1);
    await store.write([item]);
    const [read] = await store.read([emptyItem(item)]);
    expect(read.outcome).toBe(Outcome.LOADED);
    expect(store.describe().allocatedBytes).toBeLessThan(8 * 2 ** 20);
  });

  it('does not touch a file that it did not make', async () => {
    const dir = scratchDir();
    const [path, text] = [join(dir, DATA), 'another program wrote this'];
    writeFileSync(path, text);
    expect(await refusal(dir)).toMatchObject({
      code: 'TKV_MISMATCH',
      path,
      message: expect.stringContaining('not a tierkv file'),
    });
    expect(readFileSync(path, 'utf8')).toBe(text);
    expect(readdirSync(dir)).toEqual([DATA]);
  });

  it('does not follow a link, and does not take a directory for its file', async () => {
    const [linked, nested] = [scratchDir(), scratchDir()];
    const target = join(scratchDir(), 'target');
    writeFileSync(target, '');
    symlinkSync(target, join(linked, DATA));
    mkdirSync(join(nested, DATA));
    for (const dir of [linked, nested]) expect((await refusal(dir)).message).toContain('not a regular file');
    expect(readFileSync(target, 'utf8')).toBe('');
  });

  it('does not touch the file of another format version, or one with a damaged superblock', async () => {
    for (const [at, says] of [
      [8, 'format version 255'],
      [40, 'damaged superblock'],
    ] as const) {
      const dir = scratchDir();
      await (await FileStore.open(dir, shape))[Symbol.asyncDispose]();
      editFile(join(dir, DATA), at, 1, (bytes) => void bytes.fill(255));
      const before = readFileSync(join(dir, DATA));
      expect(await refusal(dir)).toMatchObject({
        code: 'TKV_MISMATCH',
        message: expect.stringContaining(says),
      });
      expect(readFileSync(join(dir, DATA)).equals(before)).toBe(true);
    }
  });

  it('leaves other files of the directory alone', async () => {
    const dir = scratchDir();
    writeFileSync(join(dir, 'notes.txt'), 'keep');
    await (await FileStore.open(dir, shape))[Symbol.asyncDispose]();
    expect(readdirSync(dir).sort()).toEqual(['notes.txt', DATA].sort());
  });

  it('begins empty on a directory that it used before', async () => {
    const dir = scratchDir();
    const item = patternItem(shape, 0, 0, 1);
    const first = await FileStore.open(dir, shape);
    await first.write([item]);
    await first[Symbol.asyncDispose]();
    await using second = await FileStore.open(dir, shape);
    expect((await second.read([emptyItem(item)]))[0].outcome).toBe(Outcome.MISSING);
  });

  it('says which mode it got: direct, or buffered and why', async ({ skip }) => {
    await using buffered = await FileStore.open(scratchDir(), shape, { mode: 'buffered' });
    expect(buffered.describe()).toMatchObject({
      mode: 'buffered',
      modeReason: "mode is 'buffered'",
      alignmentBytes: 4096,
    });
    await using wanted = await FileStore.open(scratchDir(), shape);
    expect([wanted.describe().mode === 'direct', wanted.describe().modeReason === undefined]).toSatisfy(
      ([direct, silent]) => direct === silent,
    );
    const { dir, why } = mountedDir('ramfs', 'mode=700');
    skip(why !== '', why);
    await using fallback = await FileStore.open(dir, shape);
    expect(fallback.describe()).toMatchObject({
      mode: 'buffered',
      modeReason: 'open with O_DIRECT failed with EINVAL',
    });
  });

  it('refuses to start buffered if `mode` demands direct I/O', async ({ skip }) => {
    const { dir, why } = mountedDir('ramfs', 'mode=700');
    skip(why !== '', why);
    await expect(FileStore.open(dir, shape, { mode: 'direct' })).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'mode',
      message: expect.stringMatching(/O_DIRECT failed with EINVAL\. Set it to 'auto'/),
    });
    expect(readdirSync(dir)).toEqual([]);
  });

  it('checks its options', async () => {
    const dir = scratchDir();
    const bad: [FileStoreOptions, string][] = [
      [{ mode: 'mmap' as 'auto' }, 'mode'],
      [{ allocation: 'none' as 'whole' }, 'allocation'],
      [{ queueDepth: 0 }, 'queueDepth'],
      [{ extentBytes: -1 }, 'extentBytes'],
      [{ ioBytes: Number.NaN }, 'ioBytes'],
      [{ deadlineMs: Number.POSITIVE_INFINITY }, 'deadlineMs'],
    ];
    for (const [options, field] of bad) {
      await expect(FileStore.open(dir, shape, options)).rejects.toMatchObject({ code: 'TKV_CONFIG', field });
    }
    const odd = FileStore.open(dir, poolShape(1, 1002, [1002]));
    await expect(odd).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'slotBytes[0]' });
    const none = FileStore.open(dir, poolShape(0, 4096, [4096]));
    await expect(none).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'pages' });
    expect(readdirSync(dir)).toEqual([]);
  });
});

describe('one process owns a directory', () => {
  const holder = (dir: string, native: boolean): string => `
    const { FileStore } = await import('./src/backends/file/fileStore.ts');
    const { poolShape } = await import('./src/runtime/tables/slotPool.ts');
    await FileStore.open(${JSON.stringify(dir)}, poolShape(8, 8192, [8192]), { native: ${native} });
    console.log('open');
    setInterval(() => {}, 1000);`;

  for (const native of [true, false]) {
    const how = native ? 'native lock' : 'claim alone';

    it(`a second store of this process is refused, and opens after the first is closed (${how})`, async () => {
      const dir = scratchDir();
      const first = await FileStore.open(dir, shape, { native });
      expect(await refusal(dir, { native })).toMatchObject({
        code: 'TKV_LOCKED',
        message: expect.stringContaining('belongs to this process'),
      });
      const libc = await loadLibc();
      if (native && typeof libc !== 'string') {
        const claim = openSync(join(dir, readdirSync(dir).find((name) => name !== DATA)!), 'r+');
        expect(libc.tryFlock(claim)).toBe('EAGAIN'); // what another host goes by
        closeSync(claim);
      }
      await first[Symbol.asyncDispose]();
      await (await FileStore.open(dir, shape, { native }))[Symbol.asyncDispose]();
      expect(readdirSync(dir)).toEqual([DATA]);
    });

    it(`another process is refused while the owner lives, and takes over once the owner was killed (${how})`, async () => {
      const dir = scratchDir();
      const child = spawn(process.execPath, ['-e', holder(dir, native)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      await once(child.stdout, 'data');
      for (const mine of [true, false]) {
        expect(await refusal(dir, { native: mine })).toMatchObject({
          code: 'TKV_LOCKED',
          message: expect.stringContaining(`process ${child.pid}`),
        });
      }
      child.kill('SIGKILL');
      await once(child, 'close');
      expect(readdirSync(dir).length).toBe(2);
      await (await FileStore.open(dir, shape, { native }))[Symbol.asyncDispose]();
      expect(readdirSync(dir)).toEqual([DATA]);
    });
  }

  it('a process with the reused id of a dead owner does not count as the owner', async () => {
    const dir = scratchDir();
    const first = await FileStore.open(dir, shape);
    const [claim] = readdirSync(dir).filter((name) => name.startsWith('tierkv.lock.'));
    await first[Symbol.asyncDispose]();
    const [, start, ...rest] = claim.split('-');
    const reused = [`tierkv.lock.${process.ppid}`, Number(start) - 1, ...rest].join('-');
    const rebooted = [`tierkv.lock.${process.ppid}`, start, '0123456789ab', rest[1]].join('-');
    for (const name of [reused, rebooted]) writeFileSync(join(dir, name), '');
    await (await FileStore.open(dir, shape))[Symbol.asyncDispose]();
    expect(readdirSync(dir)).toEqual([DATA]);
  });

  it('a claim from another host counts, unless the kernel knows that it is not locked', async ({ skip }) => {
    const dir = scratchDir();
    const name = 'tierkv.lock.1-1-0123456789ab-fedcba987654';
    const claim = join(dir, name);
    const locked = { code: 'TKV_LOCKED', message: expect.stringContaining(claim) };
    writeFileSync(claim, '');
    expect(await refusal(dir, { native: false })).toMatchObject(locked);
    const libc = await loadLibc();
    if (typeof libc === 'string') return skip(libc);
    const holder = openSync(claim, 'r+');
    expect(libc.tryFlock(holder)).toBe('');
    expect(await refusal(dir)).toMatchObject(locked);
    expect(readdirSync(dir)).toEqual([name]);
    closeSync(holder);
    await (await FileStore.open(dir, shape))[Symbol.asyncDispose]();
    expect(readdirSync(dir)).toEqual([DATA]);
  });
});
