import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { softwareArchive, unpackSoftwareDriver } from '../../../../src/backends/webgpu/softwareAdapter.ts';

const archive = softwareArchive()!;
const user = 31_001;
const other = 31_002;
const isRoot = process.geteuid?.() === 0;

/** A folder like /tmp: all users may write to it, and only owners may rename its entries. */
let tmp: string;
beforeEach(() => {
  tmp = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-foreign-'));
  fs.chmodSync(tmp, 0o1777);
  onTestFinished(() => fs.rmSync(tmp, { recursive: true, force: true }));
});

/** Runs `act` with the rights of another user; files that it makes belong to that user. */
function as<T>(uid: number, act: () => T): T {
  process.seteuid!(uid);
  try {
    return act();
  } finally {
    process.seteuid!(0);
  }
}

const refusal = (says: RegExp) =>
  expect.objectContaining({ code: 'TKV_DEVICE', message: expect.stringMatching(says) });

describe.skipIf(!isRoot)('with no cache folder of its own, a user', () => {
  beforeEach(() => {
    vi.stubEnv('XDG_CACHE_HOME', path.join(tmp, 'none', 'cache'));
    vi.spyOn(os, 'tmpdir').mockReturnValue(tmp); // TMPDIR does not count while rights are borrowed
    fs.mkdirSync(path.join(tmp, 'none'), { mode: 0o755 });
    onTestFinished(() => void [vi.unstubAllEnvs(), vi.restoreAllMocks()]);
  });
  const fallback = (): string => path.join(tmp, `tierkv-${user}`);

  it('gets the driver in a private folder for temporary files, and finds it there again', () => {
    const first = as(user, () => unpackSoftwareDriver(archive));
    expect(first.icdPath.startsWith(fallback())).toBe(true);
    for (const made of [fallback(), path.dirname(first.icdPath)]) {
      expect(fs.statSync(made)).toMatchObject({ uid: user });
      expect(fs.statSync(made).mode & 0o777).toBe(0o700);
    }
    const { ino } = fs.statSync(first.loaderPath);
    expect(as(user, () => unpackSoftwareDriver(archive))).toEqual(first);
    expect(fs.statSync(first.loaderPath).ino).toBe(ino);
  });

  it('never takes it from a folder that another user made first, even with files that look right', () => {
    fs.mkdirSync(fallback());
    fs.chownSync(fallback(), other, other);
    fs.chmodSync(fallback(), 0o777);
    const name = as(other, () =>
      path.basename(path.dirname(unpackSoftwareDriver(archive, path.join(tmp, 'o')).icdPath)),
    );
    fs.renameSync(path.join(tmp, 'o', name), path.join(fallback(), name));
    for (const file of ['', 'libvulkan.so.1', 'libvk_swiftshader.so', 'vk_swiftshader_icd.json']) {
      fs.chownSync(path.join(fallback(), name, file), user, user);
    }
    expect(() => as(user, () => unpackSoftwareDriver(archive))).toThrow(
      refusal(/belongs to user 31002, who could exchange the driver.*Set XDG_CACHE_HOME/),
    );
  });
});

describe.skipIf(!isRoot)('a cache folder', () => {
  it('below a folder of another user is refused, and nothing is left in it', () => {
    const above = path.join(tmp, 'above');
    const cache = path.join(above, 'cache');
    fs.mkdirSync(cache, { recursive: true });
    fs.chownSync(cache, user, user);
    fs.chownSync(above, other, other);
    expect(() => as(user, () => unpackSoftwareDriver(archive, cache))).toThrow(
      refusal(/above belongs to user 31002/),
    );
    expect(fs.readdirSync(cache)).toEqual([]);
  });

  it('behind a link into a folder of another user is refused', () => {
    const theirs = path.join(tmp, 'theirs');
    fs.mkdirSync(theirs, { mode: 0o777 });
    fs.chownSync(theirs, other, other);
    fs.chmodSync(theirs, 0o777);
    fs.symlinkSync(theirs, path.join(tmp, 'link'));
    expect(() => as(user, () => unpackSoftwareDriver(archive, path.join(tmp, 'link')))).toThrow(
      refusal(/theirs belongs to user 31002/),
    );
  });

  it.each([0o770, 0o707, 0o777])('of the user that is open to others (%o) is refused', (mode) => {
    const cache = path.join(tmp, 'open');
    fs.mkdirSync(cache);
    fs.chmodSync(cache, mode);
    expect(() => unpackSoftwareDriver(archive, cache)).toThrow(refusal(/open is open to others/));
  });

  it('of root serves a user who finds the driver in it', () => {
    const cache = path.join(tmp, 'shared');
    const first = unpackSoftwareDriver(archive, cache);
    for (const folder of [cache, path.dirname(first.icdPath)]) fs.chmodSync(folder, 0o755);
    expect(as(user, () => unpackSoftwareDriver(archive, cache))).toEqual(first);
  });

  it('whose driver another user may write to is filled anew', () => {
    const cache = path.join(tmp, 'own');
    const { loaderPath } = unpackSoftwareDriver(archive, cache);
    fs.writeFileSync(loaderPath, 'not the loader');
    fs.chmodSync(loaderPath, 0o666);
    unpackSoftwareDriver(archive, cache);
    expect(fs.statSync(loaderPath).mode & 0o777).toBe(0o600);
    expect(fs.statSync(loaderPath).size).toBeGreaterThan(1000);
  });
});
